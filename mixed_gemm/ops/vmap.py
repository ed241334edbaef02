"""vmap: a batch over activations is one more leading dimension; weights are shared.

One row for each op with a batching rule. torch runs the others once for each element, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

# (op, arguments by name with the batch in front, names that have it) -> result, batch in front
Merge = Callable[[Any, dict[str, Any], set[str]], Any]


@dataclass(frozen=True)
class Batching:
    """merged: arguments whose batch becomes part of one call, the activations first.
    looped: arguments whose batch takes a call for each element.
    merge: that one call.
    """

    op: str
    merged: tuple[str, ...]
    looped: tuple[str, ...]
    merge: Merge


def _leading(op: Any, given: dict[str, Any], batched: set[str]) -> Any:
    return op(**given)


def _images(op: Any, given: dict[str, Any], batched: set[str]) -> Any:
    images = given.pop("input")
    out = op(images.flatten(0, 1), **given)
    return out.reshape(*images.shape[:2], *out.shape[1:])


def _rows_with_scales(op: Any, given: dict[str, Any], batched: set[str]) -> Any:
    """scaled_mm: what is per row of ``a`` gets the leading dimensions of ``a``."""
    (size,) = {given[name].shape[0] for name in batched}
    if "a" not in batched:
        given["a"] = given["a"].expand(size, *given["a"].shape)
    rows = given["a"].shape[:-1]
    for name in ("scale_a", "azp"):
        x = given.get(name)
        if x is None or (name not in batched and x.numel() == 1 and name == "scale_a"):
            continue
        x = x if name in batched else x.expand(size, *x.shape)
        shape = rows if x.numel() == math.prod(rows) else (size, *[1] * (len(rows) - 1))
        given[name] = x.reshape(shape).expand(rows).unsqueeze(-1).contiguous()
    return op(**given)


def _awq_scales(op: Any, given: dict[str, Any], batched: set[str]) -> Any:
    """awq_dequantize: integers of the weight (exact in every dtype) times each of the scales."""
    scales = given.pop("scales")
    integers = op(scales=scales.new_ones(scales.shape[1:]), **given)
    groups, n = scales.shape[1:]
    weights = integers.reshape(groups, -1, n) * scales.unsqueeze(2)
    return weights.reshape(scales.shape[0], *integers.shape)


def _loop(op: Any, given: dict[str, Any], batched: tuple[str, ...], size: int) -> Any:
    """A call for each element. A bias has its part in the one rounding of a call, so that it could
    not be added afterwards."""

    def element(take: Callable[[Any], Any]) -> Any:
        return op(**{**given, **{name: take(given[name]) for name in batched}})

    if size == 0:
        return element(lambda x: x.new_zeros(x.shape[1:])).unsqueeze(0)[:0]
    return torch.stack([element(lambda x, i=i: x[i]) for i in range(size)])  # type: ignore[misc]


ROWS = (
    Batching("fpA_intB_gemm", ("a",), ("bias",), _leading),
    Batching("fpA_intB_gemm_config", ("a",), ("bias",), _leading),
    Batching("awq_gemm", ("input",), (), _leading),
    Batching("awq_dequantize", ("scales",), (), _awq_scales),
    Batching("block_quant_gemm", ("a",), ("bias",), _leading),
    Batching("scaled_mm", ("a", "scale_a"), ("bias",), _rows_with_scales),
    Batching("scaled_mm_azp", ("a", "scale_a", "azp"), ("bias",), _rows_with_scales),
    Batching("quantize_per_token", ("a",), (), _leading),
    Batching("quantize_per_tensor", ("a",), ("scale", "azp"), _leading),
    Batching("qconv2d", ("input",), ("bias",), _images),
    Batching("qconv2d_int8", ("input",), ("bias",), _images),
)


def _rule(row: Batching) -> Callable[..., tuple[Any, Any]]:
    op = getattr(torch.ops.mixed_gemm, row.op).default
    names = [x.name for x in op._schema.arguments if not x.kwarg_only]

    def rule(
        info: Any, in_dims: tuple[int | None, ...], *args: Any, **options: Any
    ) -> tuple[Any, Any]:
        given = dict(zip(names, args, strict=False))
        dims = {name: d for name, d in zip(names, in_dims, strict=False) if d is not None}
        over = (*row.merged, *row.looped)
        if wrong := [name for name in dims if name not in over]:
            raise NotImplementedError(
                f"mixed_gemm::{row.op}: vmap runs over {' and '.join(over)} only, got a batch of "
                f"{wrong[0]} (in_dims {in_dims}). Hint: loop over the layers"
            )
        given |= {name: given[name].movedim(d, 0) for name, d in dims.items()}
        if all(name in row.merged for name in dims):
            out = row.merge(op, {**given, **options}, set(dims))
        else:
            out = _loop(op, {**given, **options}, tuple(dims), info.batch_size)
        if isinstance(out, tuple):
            return out, tuple(None if x is None else 0 for x in out)
        return out, 0

    return rule


def register() -> None:
    for row in ROWS:
        torch.library.register_vmap(f"mixed_gemm::{row.op}", _rule(row))
