"""The values that the tensors of a quantized weight may hold, and the tag that says in a checkpoint
how to read them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..ops.problem import WEIGHTS, integer_range, integer_weight
from .scheme import Scheme

FLOATS = ("scales", "zeros", "pre_scale")  # float buffers, in the dtype of the activations
# Numbers that a scale of a byte may be, in words.
SCALE_WORDS = {
    "e8m0": "powers of two from 2^-127 to 2^127 (e8m0)",
    "e4m3": "numbers of float8_e4m3fn from 0 on (e4m3)",
}
MAX_TAG_BYTES = 4096  # ours have 150


def decode_tag(state: Any) -> Any:
    """Read the JSON bytes in a uint8 tensor.

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


def encode_tag(tag: Mapping[str, Any]) -> Tensor:
    """A tag as JSON bytes in a uint8 tensor: safetensors and ``torch.load(weights_only=True)`` take
    tensors."""
    text = json.dumps(tag, sort_keys=True)
    return torch.tensor(list(text.encode()), dtype=torch.uint8, device="cpu")


def retagged(tensors: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The same entries of a state_dict with another tag, where there is one that can be read:
    another one is refused later, with its reason.

    Args:
        tensors: name -> entry, the tag being "_extra_state". changes: of the tag; None removes.
    """
    try:
        tag = decode_tag(tensors["_extra_state"])
    except (KeyError, ValueError):
        return dict(tensors)
    if not isinstance(tag, dict):
        return dict(tensors)
    changed = {**tag, **changes}
    kept = {name: x for name, x in changed.items() if changes.get(name, name) is not None}
    return {**tensors, "_extra_state": encode_tag(kept)}


def tag_problem(wanted: Mapping[str, Any], state: Any, module: str) -> str:
    """Why ``state`` is not the tag ``wanted`` of a module of this name; empty when it is."""
    if isinstance(state, Tensor) and state.is_meta:
        return ""  # a meta state dict has no values to read
    try:
        found = decode_tag(state)
    except ValueError as error:
        return f"_extra_state is not the layout tag of a {module}: {error}"
    if found == wanted:
        return ""
    return (
        f"the packed weight is of another kind: checkpoint {json.dumps(found)}, module "
        f"{json.dumps(wanted)}. Hint: build the module with the scheme of the checkpoint, "
        "or quantize again with this version"
    )


def refuse_non_finite(
    tensors: Mapping[str, Tensor | None], where: str, names: tuple[str, ...] = FLOATS
) -> None:
    """Raise ``ValueError`` at the first NaN or Inf among the tensors ``names``: by default the
    scales, zeros and pre_scale."""
    for name in names:
        tensor = tensors.get(name)
        if tensor is None or tensor.is_meta:
            continue
        bad = _non_finite(tensor)
        if not bool(bad.any()):
            continue
        index = tuple(bad.nonzero()[0].tolist())
        raise ValueError(f"{where}: {name} must be finite, got {tensor[index]} at index {index}")


def refuse_non_positive(tensor: Tensor | None, name: str, where: str) -> None:
    """Raise ``ValueError`` where a float is not above 0."""
    if tensor is None or tensor.is_meta or bool((tensor > 0).all()):
        return
    index = tuple((~(tensor > 0)).nonzero()[0].tolist())
    raise ValueError(f"{where}: {name} must be positive, got {tensor[index]} at index {index}")


def refuse_other_scales(scales: Tensor, scale_dtype: str | None, where: str) -> None:
    """Raise ``ValueError`` at the first scale that is no number of its type.

    Args:
        scales: of any float dtype. scale_dtype: as of ``Side``; None has any.
    """
    if scale_dtype is None or scales.is_meta:
        return
    x = scales.float()
    if scale_dtype == "e8m0":
        powers = x.view(torch.int32) & 0x7FFFFF == 0
        fits = (x > 0) & (powers | (x == 2.0**-127))
    else:
        fits = (x >= 0) & (x.to(torch.float8_e4m3fn).float() == x)
    if bool(fits.all()):
        return
    index = tuple((~fits).nonzero()[0].tolist())
    raise ValueError(
        f"{where}: scales must be {SCALE_WORDS[scale_dtype]}, got {scales[index]} at index {index}"
    )


def float8_nan(x: Tensor) -> Tensor:
    """Where a float8_e4m3fn tensor is NaN: all bits but the sign are ones. It has no infinity, and
    torch has no ``isfinite`` for it."""
    return (x.view(torch.uint8) & 0x7F) == 0x7F


def _non_finite(tensor: Tensor) -> Tensor:
    return float8_nan(tensor) if tensor.dtype == torch.float8_e4m3fn else ~tensor.isfinite()


def weight_tag(scheme: Scheme) -> dict[str, Any]:
    """The weight type as a tag has it: its bits, and its name where it is no integer of these. That
    is what tags without a name mean, as those of older versions."""
    name, bits = scheme.weight_type, scheme.bits
    return {"bits": bits, **({} if name == integer_weight(bits) else {"weight": name})}


def tagged_weight(tag: Mapping[str, Any]) -> str:
    """The weight type of a weight with this tag: the inverse of :func:`weight_tag`.

    Raises:
        KeyError: it says nothing of a weight type.
    """
    return str(tag["weight"]) if "weight" in tag else integer_weight(tag["bits"])


def refuse_out_of_range(q: Tensor, weight: str, where: str) -> None:
    """Raise ``ValueError`` when an integer, or a code, is none of a weight type, a name in
    ``ops.problem.WEIGHTS``."""
    if q.is_meta or q.numel() == 0:
        return
    low, high = integer_range(weight)
    every = torch.iinfo(q.dtype)
    if low <= every.min and high >= every.max:
        return
    smallest, largest = (int(x) for x in torch.aminmax(q))
    if smallest < low or largest > high:
        found, known = f"{smallest}..{largest}", WEIGHTS[weight]
        if not known.is_integer:
            raise ValueError(f"{where}: q must be in {low}..{high} for {weight}, got {found}")
        raise ValueError(
            f"{where}: q must be in {low}..{high} for bits={known.bits}, got {found}. Hint: "
            f"unsigned codes become signed by subtracting {-low}"
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
