"""The same values in odd places: views, strides and offsets inside buffers of poison, so that a
kernel that reads what is not its own gives NaN (floats) or wrong sums (integers).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .covering import Rules

MARGIN = 64  # elements of poison before and behind; keeps the alignment of a fresh tensor

# Places for any tensor of one dimension or more. "expanded" changes the values: the first of
# dimension 0 stands for all.
PLACES = (
    "alone",
    "guarded",  # contiguous, poison on both sides
    "odd_offset",  # contiguous, one element off
    "in_wide_rows",  # a window of longer rows, aligned
    "in_odd_rows",  # a window of rows of an odd length
    "every_second_row",
    "every_second_column",
    "transposed",
    "expanded",
)
# Places for a matrix whose last stride must be 1 (the weight of a scaled GEMM).
PLACES_OF_ROWS = tuple(p for p in PLACES if p not in ("every_second_column", "transposed"))


def poison_of(dtype: torch.dtype) -> float | int:
    """A value that shows in a result: NaN, or a number far from those that tests use."""
    if dtype.is_floating_point:
        return math.nan
    if dtype in (torch.int32, torch.int64):
        return 0x5A5A5A5A
    return {torch.int8: -77, torch.uint8: 0xAB}[dtype]


def poisoned(shape: tuple[int, ...], like: Tensor) -> Tensor:
    if like.dtype == torch.float8_e4m3fn:
        buffer = torch.full(shape, 0x7F, dtype=torch.int8, device=like.device)
        return buffer.view(torch.float8_e4m3fn)
    return torch.full(shape, poison_of(like.dtype), dtype=like.dtype, device=like.device)


POISONS_OUTPUTS = True


def poison_output(shape: tuple[int, ...], like: Tensor) -> None:
    """Poisons, and frees, what the allocator hands out next for a tensor of this shape: an element
    that an op does not write shows."""
    if POISONS_OUTPUTS:
        poisoned(shape, like)


def _window(x: Tensor, before: int, behind: int) -> Tensor:
    """In rows with ``before`` and ``behind`` elements of poison."""
    width = x.shape[-1]
    buffer = poisoned((*x.shape[:-1], before + width + behind), x)
    view = buffer[..., before : before + width]
    view.copy_(x)
    return view


def place(x: Tensor, where: str) -> Tensor:
    """``x`` (contiguous) as one of PLACES has it."""
    if where == "alone" or x.dim() == 0:
        return x
    if where in ("guarded", "odd_offset"):
        offset = MARGIN + (where == "odd_offset")
        flat = _window(x.reshape(1, -1), offset, MARGIN)[0]
        return flat.view(x.shape)
    if where == "in_wide_rows":
        return _window(x, 16, 24)
    if where == "in_odd_rows":
        return _window(x, 1, 2 + x.shape[-1] % 2)
    if where == "every_second_column" or (where == "every_second_row" and x.dim() == 1):
        buffer = poisoned((*x.shape, 2), x)
        buffer[..., 0] = x
        return buffer[..., 0]
    if where == "every_second_row":
        buffer = poisoned((2 * x.shape[0], *x.shape[1:]), x)
        buffer[::2] = x
        return buffer[::2]
    if where == "transposed":
        if x.dim() == 1:
            return x
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if where == "expanded":
        return x[:1].expand(x.shape) if x.shape[0] > 0 else x
    raise ValueError(f"where must be one of {PLACES}, got {where!r}")


def place_unchanged(x: Tensor, where: str) -> Tensor:
    """``x`` placed, but for the place that would change its values."""
    return x if where == "expanded" else place(x, where)


def odd_places(x: Tensor) -> dict[str, Tensor]:
    """``x`` in every place that keeps its values."""
    return {where: place(x, where) for where in PLACES if where not in ("alone", "expanded")}


# --- leading dimensions of the activations ------------------------------------------------------

LEADS = ("2d", "1d", "3d", "4d", "3d_swapped")


# Factors of a problem, and their rule, for activations of ``m`` rows.
OF_ACTIVATIONS = {"lead": LEADS, "a_place": PLACES}
LEAD_RULES: Rules = {("m", "lead"): lambda m, shape: shape != "1d" or m == 1}


def lead(x: Tensor, shape: str) -> Tensor:
    """``[M, K]`` -> ``[..., K]`` with the same rows. 3d_swapped: two leading dimensions that no
    single stride walks through. 1d is for one row."""
    m, k = x.shape
    if shape == "2d":
        return x
    if shape == "1d":
        if m != 1:
            raise ValueError(f"1d takes one row, got {m}")
        return x[0]
    outer = next((d for d in (2, 3, 5, 7) if m % d == 0), 1)
    if shape == "4d":
        return x.reshape(1, outer, m // outer, k)
    rows = x.reshape(outer, m // outer, k)
    return rows if shape == "3d" else rows.transpose(0, 1).contiguous().transpose(0, 1)


def views(rows: Tensor) -> dict[str, Tensor]:
    """``[M, K]`` in odd places, and with more leading dimensions."""
    leads = {shape: lead(rows, shape) for shape in ("3d", "4d", "3d_swapped")}
    return {**odd_places(rows), **leads}


def poison_free_memory(device: str, sizes: tuple[int, ...] = (1 << 12, 1 << 16, 1 << 20, 1 << 23)):
    """Fills what the allocator hands out next with 0xFF, which is NaN in every float type and a
    wrong lock, so that unwritten outputs and unzeroed workspace show."""
    blocks = [torch.full((size,), 0xFF, dtype=torch.uint8, device=device) for size in sizes]
    del blocks
