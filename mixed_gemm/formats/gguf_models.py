"""Models in GGUF files: which architectures are read, what their tensors are called in
transformers, of which shapes they must be, and the config.json that the metadata comes to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .gguf_file import Value

# A name in the file -> that in transformers, and its shape in the words of _sizes; a bias has the
# first of it. "{}" is the number of a layer.
Names = Mapping[str, tuple[str, tuple[str, ...]]]
_SHARED: Names = {
    "token_embd": ("model.embed_tokens", ("vocabulary", "hidden")),
    "output_norm": ("model.norm", ("hidden",)),
    "output": ("lm_head", ("vocabulary", "hidden")),
    "blk.{}.attn_norm": ("model.layers.{}.input_layernorm", ("hidden",)),
    "blk.{}.attn_q": ("model.layers.{}.self_attn.q_proj", ("queries", "hidden")),
    "blk.{}.attn_k": ("model.layers.{}.self_attn.k_proj", ("keys", "hidden")),
    "blk.{}.attn_v": ("model.layers.{}.self_attn.v_proj", ("keys", "hidden")),
    "blk.{}.attn_output": ("model.layers.{}.self_attn.o_proj", ("hidden", "queries")),
    "blk.{}.ffn_norm": ("model.layers.{}.post_attention_layernorm", ("hidden",)),
    "blk.{}.ffn_gate": ("model.layers.{}.mlp.gate_proj", ("intermediate", "hidden")),
    "blk.{}.ffn_up": ("model.layers.{}.mlp.up_proj", ("intermediate", "hidden")),
    "blk.{}.ffn_down": ("model.layers.{}.mlp.down_proj", ("hidden", "intermediate")),
}
_WITH_HEAD_NORMS: Names = {
    **_SHARED,
    "blk.{}.attn_q_norm": ("model.layers.{}.self_attn.q_norm", ("head",)),
    "blk.{}.attn_k_norm": ("model.layers.{}.self_attn.k_norm", ("head",)),
}
ROPE_FACTORS = "rope_freqs.weight"  # Llama 3.1 has it: what its rope scaling comes to


@dataclass(frozen=True)
class Architecture:
    """One that is read.

    model_type, model_class: of transformers. names: of its tensors.
    paired_rows: rows of q and k alternate between the two halves of a head, which transformers has
        one after the other.
    says_bias: whether the config has a word for biases of the attention.
    """

    model_type: str
    model_class: str
    names: Names
    paired_rows: bool = False
    says_bias: bool = False


# general.architecture -> what it is. Mistral files are "llama" too.
ARCHITECTURES = {
    "llama": Architecture("llama", "LlamaForCausalLM", _SHARED, paired_rows=True, says_bias=True),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM", _SHARED),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM", _WITH_HEAD_NORMS, says_bias=True),
}
_LAYER = re.compile(r"blk\.(\d{1,5})\.(.+)", re.ASCII)
_TOKENS = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}


class GgufModel:
    """The model of a file, as its metadata tells of it.

    Args:
        metadata: as :class:`GgufContainer` has it.
        shapes: of the tensors, by their names in the file.

    Attributes:
        architecture: the row of ARCHITECTURES.
        sizes: "hidden", "queries", ... -> elements.

    Raises:
        ValueError: the architecture is not read, or something that it needs is missing or another
            than transformers computes.
    """

    def __init__(
        self, metadata: Mapping[str, Value | None], shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self._metadata = metadata
        self._shapes = shapes
        name = metadata.get("general.architecture")
        if not isinstance(name, str) or name not in ARCHITECTURES:
            raise ValueError(
                f"the architecture {name!r} is not read; {', '.join(ARCHITECTURES)} are"
            )
        self._name = name
        self.architecture = ARCHITECTURES[name]
        self._heads = self._count("attention.head_count")
        self._key_heads = self._count("attention.head_count_kv", self._heads)
        hidden = self._count("embedding_length")
        head = self._count("attention.key_length", hidden // self._heads)
        self.sizes = {
            "hidden": hidden,
            "intermediate": self._count("feed_forward_length"),
            "head": head,
            "queries": self._heads * head,
            "keys": self._key_heads * head,
            "vocabulary": next(iter(shapes.get("token_embd.weight", ())), 0),
        }
        self._layers = self._count_layers()
        self._refuse_what_differs()

    # --- metadata ------------------------------------------------------------------------------

    def _get(self, key: str, kind: type, default: Value | None = None) -> Any:
        found = self._metadata.get(f"{self._name}.{key}", default)
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind:
            raise ValueError(f"{self._name}.{key} must be one {kind.__name__}, got {found!r}")
        return found

    def _count(self, key: str, default: int | None = None) -> int:
        found: int = self._get(key, int, default)
        if not 0 < found < 2**31:
            raise ValueError(f"{self._name}.{key} must be in 1..2^31, got {found}")
        return found

    def _positive(self, key: str, default: float | None = None) -> float:
        found: float = self._get(key, float, default)
        if not 0 < found < math.inf:
            raise ValueError(f"{self._name}.{key} must be positive and finite, got {found}")
        return found

    def _count_layers(self) -> int:
        """As many as there are tensors of: a model of a billion layers is never made."""
        layers = self._count("block_count")
        found = {int(match[1]) for match in map(_LAYER.fullmatch, self._shapes) if match}
        if found != set(range(min(layers, len(self._shapes) + 1))):
            raise ValueError(
                f"{self._name}.block_count is {layers}, and it has tensors of {len(found)} layers"
            )
        return layers

    def _refuse_what_differs(self) -> None:
        head = self.sizes["head"]
        others = {
            "attention.value_length": head,
            "rope.dimension_count": head,
            "expert_count": 0,
        }
        for key, wanted in others.items():
            if (found := self._get(key, int, wanted)) != wanted:
                raise ValueError(f"{self._name}.{key} is {found}; only {wanted} is read")
        if head % 2 or self._heads % self._key_heads:
            raise ValueError(
                f"{self._heads} heads of {head} with {self._key_heads} of keys are not read"
            )

    # --- tensors -------------------------------------------------------------------------------

    def name_of(self, name: str) -> str:
        """The name in transformers of a tensor of the file, its shape checked.

        Raises:
            ValueError: the architecture has no such tensor, or of another shape.
        """
        module, _, role = name.rpartition(".")
        number, pattern = "", module
        if match := _LAYER.fullmatch(module):
            number, pattern = match[1], f"blk.{{}}.{match[2]}"
        if pattern not in self.architecture.names or role not in ("weight", "bias"):
            raise ValueError(f"is no tensor of the architecture {self._name} that is read")
        target, extents = self.architecture.names[pattern]
        wanted = tuple(self.sizes[x] for x in extents)
        wanted = wanted if role == "weight" else wanted[:1]
        if self._shapes[name] != wanted:
            raise ValueError(f"must be of the shape {wanted}, got {self._shapes[name]}")
        return f"{target.format(number)}.{role}"

    def row_order(self, name: str) -> Tensor | None:
        """int64 ``[N]``: row i of transformers' tensor is this row of the file's; None where they
        are the same.

        Rotary embeddings turn pairs of elements: 2 i and 2 i + 1 of a head in such files, i and
        i + head / 2 in transformers.
        """
        match = _LAYER.fullmatch(name)
        kind = match[2].partition(".")[0] if match else ""
        heads = {"attn_q": self._heads, "attn_k": self._key_heads}.get(kind)
        if heads is None or not self.architecture.paired_rows:
            return None
        head = self.sizes["head"]
        rows = torch.arange(heads * head, device="cpu").view(heads, head // 2, 2)
        return rows.transpose(1, 2).flatten()

    # --- the config ----------------------------------------------------------------------------

    def config(self, rope_factors: Tensor | None) -> dict[str, Any]:
        """As config.json of transformers has it.

        Args:
            rope_factors: float ``[head / 2]``, by which the file divides the frequencies, or None.

        Raises:
            ValueError: the rope scaling is none that is read.
        """
        config: dict[str, Any] = {
            "architectures": [self.architecture.model_class],
            "model_type": self.architecture.model_type,
            # d of Q4_0 and Q8_0 is a float16 number; see docs/checkpoints.md.
            "dtype": "float16",
            "vocab_size": self.sizes["vocabulary"],
            "hidden_size": self.sizes["hidden"],
            "intermediate_size": self.sizes["intermediate"],
            "num_hidden_layers": self._layers,
            "num_attention_heads": self._heads,
            "num_key_value_heads": self._key_heads,
            "head_dim": self.sizes["head"],
            "max_position_embeddings": self._count("context_length"),
            "rms_norm_eps": self._positive("attention.layer_norm_rms_epsilon"),
            "rope_parameters": self._rope(rope_factors),
            "tie_word_embeddings": "output.weight" not in self._shapes,
        }
        if self.architecture.says_bias:
            config["attention_bias"] = "blk.0.attn_q.bias" in self._shapes
        for key, name in _TOKENS.items():
            found = self._metadata.get(f"tokenizer.ggml.{name}_token_id")
            config[key] = found if type(found) is int else None
        return config

    def _rope(self, factors: Tensor | None) -> dict[str, Any]:
        base = self._positive("rope.freq_base", 10000.0)
        kind = self._get("rope.scaling.type", str, "none")
        if kind == "linear" and factors is None:
            factor = self._positive("rope.scaling.factor")
            return {"rope_type": "linear", "rope_theta": base, "factor": factor}
        if kind != "none":
            raise ValueError(f"rope scaling of the type {kind!r} is not read; none and linear are")
        if factors is None:
            return {"rope_type": "default", "rope_theta": base}
        return {"rope_type": "llama3", "rope_theta": base, **llama3_scaling(base, factors)}


def llama3_scaling(base: float, factors: Tensor) -> dict[str, float | int]:
    """The parameters of transformers' "llama3" that give these factors.

    Files have the factors alone. Llama 3.1 to 3.3 have 1, 4 and 8192 for the others, and
    ``factor`` is that of the longest wave.

    Raises:
        ValueError: those parameters give other factors.
    """
    low, high, context = 1.0, 4.0, 8192
    factor = float(factors.max())
    count = factors.numel()
    waves = 2 * math.pi * base ** (torch.arange(count, dtype=torch.float64, device="cpu") / count)
    smooth = ((context / waves - low) / (high - low)).clamp(0, 1)
    wanted = 1 / ((1 - smooth) / factor + smooth)
    if not bool((wanted / factors.double() - 1).abs().max() < 1e-4):
        raise ValueError("its rope_freqs are not those of Llama 3.1 to 3.3, which are read")
    return {
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": context,
    }
