"""Where the shards of a dimension begin and end, for any number of ranks."""

from __future__ import annotations

import itertools

from ..ops.errors import ArgumentValueError
from ..ops.problem import ceil_div

# Edges are multiples of the first of these of which each rank gets one: 64 rows are what packed
# weights lie in beside others, 16 columns the smallest group of a scale.
UNITS = (64, 32, 16)


def bounds(extent: int, ranks: int, units: tuple[int, ...] = UNITS) -> list[tuple[int, int]]:
    """(first, behind the last) of each rank's shard; no shard is more than a unit longer than
    another, the longer ones in front.

    Args:
        extent: of the dimension. ranks: how many share it. units: the last is the smallest.

    Raises:
        ValueError: there are fewer of the smallest unit than ranks.
    """
    unit = next((x for x in units if ceil_div(extent, x) >= ranks), 0)
    if unit == 0:
        raise ArgumentValueError(
            f"mixed_gemm.parallel: {ranks} ranks cannot share {extent} in multiples of "
            f"{units[-1]}. Hint: at most {ceil_div(extent, units[-1])} ranks"
        )
    each, more = divmod(ceil_div(extent, unit), ranks)
    edges = [unit * (each * rank + min(rank, more)) for rank in range(ranks + 1)]
    edges[-1] = extent
    return list(itertools.pairwise(edges))
