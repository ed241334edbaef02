"""The variants that are timed in vLLM's engine on a GPU: models of Llama-3.1-8B's shape whose files
a row of ``rows`` names, with vLLM's kernels and with ours."""

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
LINEARS = [
    *(f"self_attn.{x}_proj" for x in "qkvo"),
    *(f"mlp.{x}_proj" for x in ("gate", "up", "down")),
]
LINEAR_WEIGHTS = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
OTHER_WEIGHTS = 2 * 128256 * 4096  # embedding and output layer, in 16 bits
BITS = {"W4": 4, "GP": 4, "AW": 4, "W8": 8, "FP": 8, "MX": 4, "NV": 4}


@dataclass(frozen=True)
class Variant:
    """A model in an engine.

    Attributes:
        weights: name of a row of GPU_ROWS; "bf16" for the dense model.
        kernels: "vllm" (those that it chooses), "Marlin" (where it would choose Machete), "ours".
        scheme: of mixed_gemm/integrations/vllm/measured.py, where the two are compared there.
    """

    weights: str
    kernels: str
    scheme: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.weights}, {self.kernels}"

    @property
    def place(self) -> str:
        return "first" if self.kernels == "ours" else "off"

    @property
    def row(self) -> Row | None:
        return next((row for row in GPU_ROWS if row.name == self.weights), None)

    def gib(self, ranks: int, cache: int) -> float:
        """Return the memory of a GPU that one engine takes: weights, ``cache`` bytes, and the
        rest."""
        bits = BITS[self.weights[:2]] if self.row else 16
        return ((LINEAR_WEIGHTS * bits / 8 + OTHER_WEIGHTS * 2) / ranks + cache) / 2**30 + 2.5


def _both(weights: str, scheme: str = "") -> tuple[Variant, Variant]:
    return Variant(weights, "vllm", scheme), Variant(weights, "ours", scheme)


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
)


def chosen(names: list[str]) -> list[Variant]:
    """Choose the variants with one of some parts in their names; all where there is none."""
    return [x for x in VARIANTS if not names or any(part in x.name for part in names)]


def groups(variants: list[Variant], ranks: int, cache: int, gib: float, most: int) -> list[
    list[Variant]
]:  # fmt: skip
    """Variants in their order, cut where one more would not fit into the memory of a GPU, or there
    are ``most`` already; variants of the same weights stay together where they fit."""
    families: dict[str, list[Variant]] = {}
    for variant in variants:
        families.setdefault(variant.weights, []).append(variant)
    made: list[list[Variant]] = [[]]

    def fits(some: list[Variant]) -> bool:
        return len(some) <= most and sum(x.gib(ranks, cache) for x in some) <= gib

    for family in families.values():
        for part in [family] if fits(family) else [[x] for x in family]:
            if not fits([*made[-1], *part]):
                made.append([])
            made[-1] = [*made[-1], *part]
    return [x for x in made if x]


def write_shape(variant: Variant, folder: Path, layers: int, dtype: str) -> Path:
    """A folder with a configuration and no weights, for vLLM's loader of random ones. What it says
    of the quantization is what the writer of this kind of file says, of a small model."""
    from ..models import SMALL, random_folder, write

    config = {**LLAMA, "num_hidden_layers": layers, "torch_dtype": dtype}
    name = file_name(variant.weights)
    if variant.row is not None:
        dense = random_folder(folder / "small", SMALL)
        small = folder / f"small-{name}"
        if not (small / "config.json").is_file():
            write(variant.row, dense, small)
        written = json.loads((small / "config.json").read_text())
        config["quantization_config"] = of = dict(written["quantization_config"])
        if of["quant_method"] == "gptq":  # else vLLM looks for them in weights, which are not there
            of["modules_in_block_to_quantize"] = LINEARS
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.json").write_text(json.dumps(config))
    return target
