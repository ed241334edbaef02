"""The quantized models that vLLM is asked to serve: a row for each way to store a linear layer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

ALL = ("float16", "bfloat16", "float32")
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Row:
    """One quantized model.

    Attributes:
        name: in tables.
        file: "compressed-tensors" (what save_pretrained writes), "gptq" or "awq".
        options: of ``mixed_gemm.quantize_``, or of the writer of the file.
        kernel: the class that must run its layers, and that vLLM's log names; of a mixture, the
            one that must run its experts.
        dtypes: that vLLM admits for the file.
        wide: groups of 128, which SmolLM2 (K = 576) does not divide into: the small model.
        mixture: "" or the kind of mixture of experts (``mixtures.KINDS``) that the model is.
    """

    name: str
    file: str
    options: dict[str, Any] = field(default_factory=dict)
    kernel: str = "MixedGemmLinearKernel"
    dtypes: tuple[str, ...] = ALL
    wide: bool = False
    mixture: str = ""

    @property
    def models(self) -> tuple[str, ...]:
        """In which it is measured. Rounding activations to 8 bits makes much of a last bit in a
        trained model, which has a few very large ones, so that those rows run in both."""
        if self.wide:
            return ("small",)
        return ("smollm2", "small") if "scheme" in self.options else ("smollm2",)

    @property
    def needs_text(self) -> bool:
        """Whether its activations are calibrated."""
        return str(self.options.get("activations", "")).startswith("static")


def _weight_only() -> list[Row]:
    rows = []
    for bits in (4, 8):
        for size in (32, 64, 128, -1):
            for symmetric in (True, False):
                group = "channel" if size == -1 else f"g{size}"
                name = f"W{bits}A16 {group}{'' if symmetric else ', zero points'}"
                options = {"bits": bits, "group_size": size, "symmetric": symmetric}
                rows.append(Row(name, "compressed-tensors", options, wide=size == 128))
    return rows


def _gptq(name: str, bits: int, size: int, symmetric: bool, act_order: bool) -> Row:
    options = {"bits": bits, "group_size": size, "symmetric": symmetric, "act_order": act_order}
    return Row(f"GPTQ {name}", "gptq", options, "mixed_gemm_gptq")


_INT8, _FP8 = "MixedGemmInt8LinearKernel", "MixedGemmFp8LinearKernel"
ROWS = (
    *_weight_only(),
    _gptq("8 bits, g32", 8, 32, True, False),
    _gptq("4 bits, g32, sym=False", 4, 32, False, False),
    _gptq("4 bits, g64, act-order", 4, 64, True, True),
    _gptq("8 bits, g64, sym=False, act-order", 8, 64, False, True),
    Row("AWQ g64", "awq", {"group_size": 64}, dtypes=HALVES),
    *(
        Row(f"W8A8 {x}", "compressed-tensors", {"scheme": "w8a8", "activations": x}, _INT8)
        for x in ("dynamic", "dynamic_azp", "static", "static_azp")
    ),
    *(
        Row(f"FP8 {x}", "compressed-tensors", {"scheme": "fp8", "activations": x}, _FP8)
        for x in ("dynamic", "static")
    ),
)


def _mixtures() -> list[Row]:
    """Mixtures whose experts vLLM's own kernels run, too."""
    w4, w8 = {"bits": 4, "group_size": 128}, {"bits": 8, "group_size": 128}
    gptq = {**w4, "symmetric": True, "act_order": False}
    gpt_oss = {"scheme": "mxfp4", "skip": ["lm_head", "*self_attn*", "*router*"]}
    kinds: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
        ("Mixtral W4A16 g128", "mixtral", "compressed-tensors", w4),
        ("Qwen3-MoE W4A16 g128", "qwen3_moe", "compressed-tensors", w4),
        ("Qwen3-MoE W8A16 g128", "qwen3_moe", "compressed-tensors", w8),
        ("Qwen3-MoE MXFP4", "qwen3_moe", "compressed-tensors", {"scheme": "mxfp4"}),
        ("Qwen3-MoE NVFP4", "qwen3_moe", "compressed-tensors", {"scheme": "nvfp4"}),
        ("Qwen3-MoE GPTQ 4 bits, g128", "qwen3_moe", "gptq", gptq),
        ("Mixtral AWQ g128", "mixtral", "awq", {"group_size": 128}),
        ("gpt-oss MXFP4", "gpt_oss", "compressed-tensors", gpt_oss),
    )
    return [
        Row(name, file, options, "MixedGemmExpertsMethod", mixture=kind,
            dtypes=("bfloat16",) if kind == "gpt_oss" else HALVES)
        for name, kind, file, options in kinds
    ]  # fmt: skip


_OWN_GPTQ = "MixedGemmLinearKernel"  # vLLM reads the file and asks kernels for its layers
# The files that the check on a GPU serves: groups of 128 as published models have them.
GPU_ROWS = (
    *(
        next(row for row in ROWS if row.name == name)
        for name in (
            *("W4A16 g128", "W4A16 g128, zero points", "W4A16 g32", "W4A16 channel"),
            *("W8A16 g128", "W8A16 channel"),
        )
    ),
    replace(_gptq("4 bits, g128", 4, 128, True, False), kernel=_OWN_GPTQ, dtypes=HALVES),
    replace(_gptq("8 bits, g128", 8, 128, True, False), kernel=_OWN_GPTQ, dtypes=HALVES),
    _gptq("4 bits, g128, sym=False", 4, 128, False, False),
    replace(_gptq("4 bits, g128, act-order", 4, 128, True, True), kernel=_OWN_GPTQ, dtypes=HALVES),
    Row("AWQ g128", "awq", {"group_size": 128}, dtypes=HALVES),
    *(row for row in ROWS if row.name.startswith(("W8A8", "FP8"))),
    *(
        Row(name, "compressed-tensors", {"scheme": name.lower()}, kernel, dtypes=HALVES)
        for name, kernel in (
            ("MXFP4", "MixedGemmMxFp4LinearKernel"),
            ("NVFP4", "MixedGemmNvFp4LinearKernel"),
        )
    ),
    *_mixtures(),
)
