"""``Outline``: what is known of a layer that is to be written before its tensors are read, by which
the format of the whole folder is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..nn.embedding import Embedding
from ..nn.linear import Linear
from ..weights.scheme import Scheme


@dataclass(frozen=True)
class Outline:
    """A layer without its tensors.

    Attributes:
        scheme: how it is stored. shape: (N, K).
        dtype: of its activations.
        module: what it is of, "linear", "conv1d" or "embedding".
        has_more: whether it has a pre_scale, or a permutation of its columns.
        has_bias: whether it has a bias.
    """

    scheme: Scheme
    shape: tuple[int, ...]
    dtype: torch.dtype
    module: str = "linear"
    has_more: bool = False
    has_bias: bool = False

    @property
    def says_all(self) -> bool:
        """Whether the configuration of a folder has nothing to say of the layer that depends on its
        values, as on those of zero points."""
        side, whole = self.scheme.input_activations, self.scheme.weights.strategy == "tensor_group"
        static_zero_point = side is not None and not side.dynamic and not side.symmetric
        return not (self.has_more or self.scheme.has_zeros or whole or static_zero_point)


def outline_of(module: Linear | Embedding) -> Outline:
    """The outline of a layer of a model, which may lie on several ranks."""
    weight = module.weight
    here = getattr(weight, "_local_tensor", weight)
    parts = (getattr(here, name, None) for name in ("pre_scale", "permutation"))
    kind = "embedding" if isinstance(module, Embedding) else "linear"
    if getattr(module, "is_conv1d", False):
        kind = "conv1d"
    has_more = any(part is not None for part in parts)
    has_bias = getattr(module, "bias", None) is not None
    return Outline(module.scheme, tuple(weight.shape), weight.dtype, kind, has_more, has_bias)
