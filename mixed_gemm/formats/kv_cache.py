"""Keys and values as files want them rounded: nothing here computes by it, and it is kept, so that
those who do find it in what is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

# Scales of keys, values and outputs, which the kv_cache_scheme or output_activations announce.
ANNOUNCED = (
    "output_scale",
    "output_zero_point",
    "k_scale",
    "v_scale",
    "q_scale",
    "kv_scale",
    "prob_output_scale",
)
# The attributes of a model that was read from files: tensors of these roles by name, and notes of
# what saving it has no place for.
KEPT = "mixed_gemm_kept"
LOST = "mixed_gemm_lost"
# ModelOpt calls it "FP8".
_FLOAT8 = {
    "num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False,
}  # fmt: skip
_KEYS = ("kv_cache_scheme", "kv_cache_quant_algo")


def is_announced(name: str) -> bool:
    """Whether a tensor is such a scale by its name."""
    return name.rpartition(".")[2] in ANNOUNCED


def kept_of(model: nn.Module) -> dict[str, Tensor]:
    """Name -> scale of the files that the model came from."""
    return dict(getattr(model, KEPT, None) or {})


def lost_of(model: nn.Module) -> tuple[str, ...]:
    """Notes of what the files of the model ask for, and saving it has no place for."""
    return tuple(getattr(model, LOST, None) or ())


def is_float8(value: Any) -> bool:
    """Whether a value of ModelOpt asks for float8, which compressed-tensors has words for."""
    return isinstance(value, Mapping) or str(value).upper() == "FP8"


def kv_cache_scheme(found: Any, has_scales: bool) -> dict[str, Any] | None:
    """How a source says that keys and values are stored, in the words of compressed-tensors; None
    where it says nothing, or what that has no words for.

    Args:
        found: its quantization_config, a dictionary or an object of transformers.
        has_scales: whether the scales of keys and values go along, without which a static scheme is
            left out.
    """
    fields = found if isinstance(found, Mapping) else getattr(found, "source", None) or {}
    said = next(filter(None, map(fields.get, _KEYS)), None)
    if said is None or not is_float8(said):
        return None
    scheme = dict(said) if isinstance(said, Mapping) else _FLOAT8
    return dict(scheme) if has_scales or scheme.get("dynamic") is True else None
