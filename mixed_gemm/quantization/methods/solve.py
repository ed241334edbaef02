"""Codes of a weight that keep the output of its layer: GPTQ (Frantar et al. 2022,
https://arxiv.org/abs/2210.17323), then descent on single codes and scales.

All of it makes tr((V - W) H (V - W)^T) small, where W ``[N, K]`` is the weight, V what the codes
stand for, and H ``[K, K]`` the second moments of the inputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..replay import replayed
from .grid import Grid, grouped
from .numbers import nearest_

# Columns that are done before the others hear of their errors: one product of matrices.
COLUMNS = 128


def damped(gram: Tensor, damp: float) -> Tensor:
    """Return H with ``damp`` of its mean diagonal added to the diagonal; inputs that are always 0
    cost what the mean of all does, so that their weights stay near what they are."""
    diagonal = gram.diagonal()
    mean = diagonal.mean().clamp(min=1e-30)
    result: Tensor = gram + torch.diag(damp * mean + (diagonal == 0) * mean)
    return result


def towards_dense(weight: Tensor, gram: Tensor, cross: Tensor, share: float) -> Tensor:
    """Return the real weight that does best on inputs which carry the error of the layers before.

    W - share * W (sum of (x - x') x^T) H^-1 brings W x close to what W made of x'.
    """
    shift: Tensor = torch.linalg.solve(gram, (weight @ cross).t()).t()
    result: Tensor = weight - share * shift
    return result


def compensated(weight: Tensor, grid: Grid, gram: Tensor) -> Tensor:
    """Find the codes of GPTQ: a column at a time, those with the largest inputs first, and what
    rounding changed is made up for by the columns that are still to come.

    Args:
        weight: float32 ``[N, K]``. grid: its scales, which stay. gram: damped ``[K, K]``.

    Returns:
        float32 ``[N, K]``.
    """
    k = weight.shape[1]
    order = torch.argsort(gram.diagonal(), descending=True)
    back = torch.argsort(order)
    scale, zero = (x[:, order] for x in grid.expanded(k))
    codes_are = grid.range.codes_are
    # The upper triangle U of H^-1 = U^T U: row j tells the later columns of an error in column j.
    lower = torch.linalg.cholesky(gram[order][:, order])
    upper = torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True)
    left = weight[:, order].clone()
    codes = torch.empty_like(left)
    for begin in range(0, k, COLUMNS):
        end = min(begin + COLUMNS, k)
        mine, within = left[:, begin:end], upper[begin:end, begin:end]
        given = (mine, within, scale[:, begin:end], zero[:, begin:end])
        codes[:, begin:end], errors = replayed(_round_columns, given, *codes_are)
        left[:, end:] -= errors @ upper[begin:end, end:]
    return codes[:, back]


def _round_columns(
    weight: Tensor, within: Tensor, scale: Tensor, zero: Tensor, *codes_are: Any
) -> tuple[Tensor, Tensor]:
    """Find the codes and errors of some columns, each making up for those before it.

    Args:
        weight, scale, zero: ``[N, columns]``. within: upper triangle ``[columns, columns]``.
        codes_are: low, high, numbers, as of :func:`nearest_`.
    """
    left, codes, errors = weight.clone(), torch.empty_like(weight), torch.empty_like(weight)
    inverse = 1 / scale
    for j in range(weight.shape[1]):
        q, error = codes[:, j], errors[:, j]
        nearest_(torch.addcmul(zero[:, j], left[:, j], inverse[:, j], out=q), *codes_are)
        torch.sub(q, zero[:, j], out=error)
        torch.addcmul(left[:, j], error, scale[:, j], value=-1, out=error).div_(within[j, j])
        left[:, j:].addr_(error, within[j, j:], alpha=-1)
    return codes, errors


def descended(codes: Tensor, weight: Tensor, grid: Grid, gram: Tensor) -> Tensor:
    """Pass over the columns once; each takes the codes that are best beside all others as they are.
    The result is never worse.

    Args and result as of :func:`compensated`; codes: where it starts.
    """
    k = weight.shape[1]
    scale, _ = grid.expanded(k)
    codes_are = grid.range.codes_are
    slope = (grid.values(codes) - weight) @ gram
    codes = codes.clone()
    for begin in range(0, k, COLUMNS):
        end = min(begin + COLUMNS, k)
        part = slice(begin, end)
        given = (slope[:, part], gram[part, part], codes[:, part], scale[:, part])
        codes[:, part], changes = replayed(_best_columns, given, *codes_are)
        slope += changes @ gram[part]
    return codes


def _best_columns(
    slope: Tensor, within: Tensor, codes: Tensor, scale: Tensor, *codes_are: Any
) -> tuple[Tensor, Tensor]:
    """Find new codes of some columns, one after the other, and by how much their values changed.

    Args:
        slope: half the gradient ``[N, columns]``, as codes and scale. within: of H.
        codes_are: low, high, numbers, as of :func:`nearest_`.
    """
    slope, new, changes = slope.clone(), torch.empty_like(codes), torch.empty_like(codes)
    step = 1 / (within.diagonal() * scale)
    for j in range(codes.shape[1]):
        q, change = new[:, j], changes[:, j]
        torch.addcmul(codes[:, j], slope[:, j], step[:, j], value=-1, out=q)
        torch.sub(nearest_(q, *codes_are), codes[:, j], out=change).mul_(scale[:, j])
        slope.addr_(change, within[j])
    return new, changes


def refitted(codes: Tensor, weight: Tensor, grid: Grid, gram: Tensor) -> Grid:
    """Find the scales that are best for the codes as they are: least squares, the groups of a row
    (of the rows that share scales) together. A row for which rounding the scales loses what that
    won keeps its own."""
    of, k = grid.range, weight.shape[1]
    if grid.of_bytes is not None:
        return _refitted_in_turn(codes, weight, grid, gram)
    _, zero = grid.expanded(k)
    steps = codes - zero
    groups = grid.scale.shape[1]
    right = of.pooled(grouped(steps * (weight @ gram), of.group).sum(-1))
    matrix = torch.empty(len(codes), groups, groups, device=codes.device)
    for g in range(groups):
        part = slice(g * of.group, min((g + 1) * of.group, k))
        matrix[:, g] = grouped((steps[:, part] @ gram[part]) * steps, of.group).sum(-1)
    matrix = of.pooled(matrix)
    diagonal = matrix.diagonal(dim1=1, dim2=2)
    diagonal += 1e-6 * diagonal.mean(-1, keepdim=True) + 1e-30  # a view: codes may all be zero
    scale = torch.linalg.solve(matrix, right)
    usable = scale.isfinite() & (scale > 0 if of.numbers else scale != 0)
    scale = grid.stored(torch.where(usable, scale, grid.scale))
    new = Grid(of, scale, grid.zero)
    better = of.pooled(row_costs(new.values(codes), weight, gram)) < of.pooled(
        row_costs(grid.values(codes), weight, gram)
    )
    return Grid(of, torch.where(better[:, None], scale, grid.scale), grid.zero)


def _refitted_in_turn(codes: Tensor, weight: Tensor, grid: Grid, gram: Tensor) -> Grid:
    """:func:`refitted` where scales are a byte: rounding all of them at once would lose more than
    they win, so that each group in turn takes the best one beside all others as they are."""
    size, k = grid.range.group, weight.shape[1]
    slope = (grid.values(codes) - weight) @ gram
    scale = grid.scale.clone()
    for g in range(scale.shape[1]):
        part = slice(g * size, min((g + 1) * size, k))
        mine = codes[:, part]
        moved = mine @ gram[part]
        along, curve = (slope[:, part] * mine).sum(-1), (moved[:, part] * mine).sum(-1)
        wanted = scale[:, g] - along / curve.clamp(min=1e-30)
        tried = grid.stored(wanted.clamp(min=0))
        change = tried - scale[:, g]
        better = change * (2 * along + change * curve) < 0
        scale[:, g] = torch.where(better, tried, scale[:, g])
        slope.addcmul_(moved, torch.where(better, change, 0.0)[:, None])
    return replace(grid, scale=scale)


def row_costs(values: Tensor, weight: Tensor, gram: Tensor) -> Tensor:
    """Return the cost of each row's rounding, ``[N]``."""
    error = values - weight
    return ((error @ gram) * error).sum(-1)
