"""What a checkpoint of one ``Linear`` may hold: a tag that says how to read the packed bytes, and
the shapes, dtypes and values of its tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..ops.problem import DTYPES, LAYOUT_VERSION, num_groups, packed_shape
from .scheme import QuantScheme

FLOATS = ("scales", "zeros", "pre_scale")  # float buffers, in the dtype of the activations
MAX_TAG_BYTES = 4096  # ours have 150


def decode_tag(state: Any) -> Any:
    """What the JSON bytes in a uint8 tensor say.

    Raises:
        ValueError: it is no such tensor.
    """
    if not isinstance(state, Tensor) or state.dtype != torch.uint8 or state.dim() != 1:
        raise ValueError("it is no uint8 tensor of one dimension")
    if state.numel() > MAX_TAG_BYTES:
        raise ValueError(f"it has {state.numel()} bytes, at most {MAX_TAG_BYTES} are read")
    try:
        return json.loads(bytes(state.tolist()).decode())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


@dataclass(frozen=True)
class QuantizedLayer:
    """The part of a layer that a checkpoint must match."""

    in_features: int
    out_features: int
    scheme: QuantScheme
    permuted: bool = False

    # Tensors of fixed dtypes; all others share a float dtype.
    integers: ClassVar[dict[str, tuple[torch.dtype, ...]]] = {
        "b_packed": (torch.uint8,),
        "permutation": (torch.int64,),
    }
    module: ClassVar[str] = "mixed_gemm.Linear"

    def tag(self) -> dict[str, Any]:
        return {
            "layout_version": LAYOUT_VERSION,
            "in_features": self.in_features,
            "out_features": self.out_features,
            **self.scheme.as_dict(),
            **({"permuted": True} if self.permuted else {}),
        }

    def encode_tag(self) -> Tensor:
        text = json.dumps(self.tag(), sort_keys=True)
        return torch.tensor(list(text.encode()), dtype=torch.uint8, device="cpu")

    def tag_problem(self, state: Any) -> str:
        """Why ``state`` is not this layer's tag; empty when it is."""
        if isinstance(state, Tensor) and state.is_meta:
            return ""  # a meta state dict has no values to read
        try:
            found = decode_tag(state)
        except ValueError as error:
            return f"_extra_state is not the layout tag of a {self.module}: {error}"
        if found == self.tag():
            return ""
        return (
            f"the packed weight is of another kind: checkpoint {json.dumps(found)}, module "
            f"{json.dumps(self.tag())}. Hint: build the module with the scheme of the checkpoint, "
            "or quantize again with this version"
        )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        groups = (num_groups(self.in_features, self.scheme.group_size), self.out_features)
        return {
            "b_packed": packed_shape(self.out_features, self.in_features, self.scheme.bits),
            "scales": groups,
            "zeros": groups,
            "pre_scale": (self.in_features,),
            "permutation": (self.in_features,),
            "bias": (self.out_features,),
        }

    def tensor_problems(self, tensors: Mapping[str, Tensor | None]) -> list[str]:
        """Every shape and dtype in ``tensors`` (by buffer name) that does not fit this layer."""
        problems = []
        dtypes = {}
        for name, shape in self.shapes().items():
            tensor = tensors.get(name)
            if tensor is None:
                continue
            if tuple(tensor.shape) != shape:
                problems.append(f"{name} must be {shape}, got {tuple(tensor.shape)}")
            allowed = self.integers.get(name, DTYPES)
            if tensor.dtype not in allowed:
                problems.append(
                    f"{name} must be {' or '.join(map(str, allowed))}, got {tensor.dtype}"
                )
            if name not in self.integers:
                dtypes[name] = tensor.dtype
        if len(set(dtypes.values())) > 1:
            named = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
            names = [name for name in self.shapes() if name not in self.integers]
            together = f"{', '.join(names[:-1])} and {names[-1]}"
            problems.append(f"{together} must share one dtype, got {named}")
        return problems


def refuse_non_finite(
    tensors: Mapping[str, Tensor | None], where: str, names: tuple[str, ...] = FLOATS
) -> None:
    """Raise ``ValueError`` at the first NaN or Inf among the tensors ``names``: by default the
    scales, zeros and pre_scale."""
    for name in names:
        tensor = tensors.get(name)
        if tensor is None or tensor.is_meta or bool(tensor.isfinite().all()):
            continue
        index = tuple((~tensor.isfinite()).nonzero()[0].tolist())
        raise ValueError(f"{where}: {name} must be finite, got {tensor[index]} at index {index}")


def refuse_out_of_range(q: Tensor, bits: int, where: str) -> None:
    """Raise ``ValueError`` when an integer does not fit in ``bits``."""
    if q.is_meta or q.numel() == 0:
        return
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    smallest, largest = (int(x) for x in torch.aminmax(q))
    if smallest < low or largest > high:
        raise ValueError(
            f"{where}: q must be in {low}..{high} for bits={bits}, got {smallest}..{largest}. "
            f"Hint: unsigned codes become signed by subtracting {-low}"
        )


def refuse_bad_permutation(permutation: Tensor | None, where: str) -> None:
    """Raise ``ValueError`` unless an int64 ``[K]`` holds each of 0..K-1 once."""
    if permutation is None or permutation.is_meta:
        return
    wanted = torch.arange(permutation.numel(), device=permutation.device)
    if not torch.equal(permutation.sort().values, wanted):
        raise ValueError(
            f"{where}: permutation must hold each of 0..{permutation.numel() - 1} once, got values "
            f"in {int(permutation.min())}..{int(permutation.max())} with repetitions"
        )
