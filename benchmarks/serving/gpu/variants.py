"""The variants that are timed in vLLM's engine on a GPU: models of a shape whose files a row of
``rows`` names, with vLLM's kernels and with ours."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..rows import GPU_ROWS, Row
from .jobs import file_name

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256,
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu",
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 151936,
    "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "hidden_act": "silu",
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
}  # fmt: skip
LINEARS = [
    *(f"self_attn.{x}_proj" for x in "qkvo"),
    *(f"mlp.{x}_proj" for x in ("gate", "up", "down")),
]
BITS = {"W4": 4, "GP": 4, "AW": 4, "W8": 8, "FP": 8, "MX": 4, "NV": 4}


@dataclass(frozen=True)
class Shape:
    """The sizes of a model.

    Attributes:
        name: of the model that has them. config: for transformers. ignored: linears that stay
            dense, as files name them.
    """

    name: str
    config: dict[str, Any]
    ignored: tuple[str, ...] = ("lm_head",)

    @property
    def layers(self) -> int:
        return int(self.config["num_hidden_layers"])

    @property
    def experts(self) -> int:
        return int(self.config.get("num_experts", 1))

    def linear_weights(self, layers: int) -> int:
        """Count the weights of layers that are quantized."""
        of = self.config
        hidden, head = of["hidden_size"], of["head_dim"]
        attention = 2 * hidden * head * (of["num_attention_heads"] + of["num_key_value_heads"])
        inner = of.get("moe_intermediate_size", of["intermediate_size"])
        return int(layers * (attention + self.experts * 3 * hidden * inner))

    @property
    def other_weights(self) -> int:
        """Embedding and output layer, in 16 bits."""
        return int(2 * self.config["vocab_size"] * self.config["hidden_size"])

    def cache_bytes(self, tokens: int, ranks: int, layers: int) -> int:
        """Return the bytes of keys and values of so many tokens on one of ``ranks``."""
        width = self.config["num_key_value_heads"] * self.config["head_dim"]
        return int(tokens * layers * 2 * width * 2 // ranks)


SHAPES = {
    "llama": Shape("Llama-3.1-8B", LLAMA),
    "qwen3_moe": Shape("Qwen3-30B-A3B", QWEN3_MOE, ("lm_head", "re:.*mlp.gate$")),
}


@dataclass(frozen=True)
class Variant:
    """A model in an engine.

    Attributes:
        weights: name of a row of GPU_ROWS; "bf16" for the dense model.
        kernels: "vllm" (those that it chooses), "Marlin" (where it would choose Machete), "ours".
        scheme: of mixed_gemm/integrations/vllm/measured.py, where the two are compared there.
        of: the key of its shape in SHAPES.
    """

    weights: str
    kernels: str
    scheme: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    of: str = "llama"

    @property
    def name(self) -> str:
        return f"{self.weights}, {self.kernels}"

    @property
    def place(self) -> str:
        return "first" if self.kernels == "ours" else "off"

    @property
    def shape(self) -> Shape:
        return SHAPES[self.of]

    @property
    def row(self) -> Row | None:
        return next((row for row in GPU_ROWS if row.name == self.weights), None)

    def gib(self, ranks: int, cache: int, layers: int) -> float:
        """Return the memory of a GPU that one engine takes: weights, ``cache`` bytes, and the
        rest."""
        kind = self.weights.removeprefix("Qwen3-MoE ")[:2]
        linear = self.shape.linear_weights(layers) * (BITS[kind] if self.row else 16) / 8
        return ((linear + self.shape.other_weights * 2) / ranks + cache) / 2**30 + 2.5


def _both(weights: str, scheme: str = "", of: str = "llama") -> tuple[Variant, Variant]:
    return Variant(weights, "vllm", scheme, of=of), Variant(weights, "ours", scheme, of=of)


_NO_MACHETE = {"VLLM_DISABLED_KERNELS": "MacheteLinearKernel"}
VARIANTS = (
    Variant("bf16", "vllm"),
    *_both("W4A16 g128", "4 bits"),
    Variant("W4A16 g128", "Marlin", "4 bits", _NO_MACHETE),
    *_both("W4A16 g128, zero points", "4 bits, zero points"),
    *_both("W8A8 dynamic", "8 bits both, dynamic"),
    *_both("FP8 dynamic", "float8, dynamic"),
    *_both("W8A16 channel", "8 bits"),
    *_both("MXFP4", "mxfp4"),
    *_both("NVFP4", "nvfp4"),
    *_both("AWQ g128"),
    *_both("GPTQ 4 bits, g128"),
    Variant("bf16", "vllm", of="qwen3_moe"),
    *_both("Qwen3-MoE W4A16 g128", "experts, 4 bits", "qwen3_moe"),
    *_both("Qwen3-MoE MXFP4", "experts, mxfp4", "qwen3_moe"),
    *_both("Qwen3-MoE W8A16 g128", "experts, 8 bits", "qwen3_moe"),
    *_both("Qwen3-MoE NVFP4", "experts, nvfp4", "qwen3_moe"),
)


def chosen(names: list[str], of: str = "llama") -> list[Variant]:
    """Choose the variants of a shape with one of some parts in their names; all where there is
    none."""
    every = [x for x in VARIANTS if x.of == of]
    return [x for x in every if not names or any(part in x.name for part in names)]


def groups(
    variants: list[Variant], ranks: int, cache: int, layers: int, gib: float, most: int
) -> list[list[Variant]]:
    """Variants in their order, cut where one more would not fit into the memory of a GPU, or there
    are ``most`` already; variants of the same weights stay together where they fit."""
    families: dict[str, list[Variant]] = {}
    for variant in variants:
        families.setdefault(variant.weights, []).append(variant)
    made: list[list[Variant]] = [[]]

    def fits(some: list[Variant]) -> bool:
        return len(some) <= most and sum(x.gib(ranks, cache, layers) for x in some) <= gib

    for family in families.values():
        for part in [family] if fits(family) else [[x] for x in family]:
            if not fits([*made[-1], *part]):
                made.append([])
            made[-1] = [*made[-1], *part]
    return [x for x in made if x]


def write_shape(variant: Variant, folder: Path, layers: int, dtype: str) -> Path:
    """A folder with a configuration and no weights, for vLLM's loader of random ones. What it says
    of the quantization is what the writer of this kind of file says, of a small model."""
    from ..mixtures import mixture_folder
    from ..models import SMALL, random_folder, write

    shape, row = variant.shape, variant.row
    config = {**shape.config, "num_hidden_layers": layers, "torch_dtype": dtype}
    name = file_name(f"{variant.of} {variant.weights}")
    if row is not None:
        small = folder / f"small-{name}"
        if (small / "config.json").is_file():
            pass
        elif row.mixture:
            mixture_folder(small, row.mixture, dtype, row.file, **row.options)
        else:
            write(row, random_folder(folder / "small", SMALL), small)
        written = json.loads((small / "config.json").read_text())
        config["quantization_config"] = of = dict(written["quantization_config"])
        if of["quant_method"] == "gptq":  # else vLLM looks for them in weights, which are not there
            of["modules_in_block_to_quantize"] = LINEARS
        if "ignore" in of:
            of["ignore"] = list(shape.ignored)  # the small model has fewer layers
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.json").write_text(json.dumps(config))
    return target
