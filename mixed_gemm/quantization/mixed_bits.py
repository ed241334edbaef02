"""More bits for the layers that need them most, within an average: "4.5 bits" is 4 bits for most
layers and 8 for those whose outputs rounding to 4 bits changes most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from ..ops.errors import ArgumentValueError, wrong_value
from ..weights.scheme import SCHEMES, Scheme
from .average import AverageBits
from .effect import Weights, effects
from .names import is_head
from .select import Target
from .sensitivity import Candidate, error, observe, rounding

BITS = (4, 8)


def widened(scheme: Scheme) -> Scheme:
    """Return the scheme of 8 bits that a layer of 4 gets: integers with the same groups and zero
    points; of codes that are no integers, which have no type of 8 bits with such scales, int8 with
    a scale for each output channel.

    Args:
        scheme: of packed codes.
    """
    return scheme.coded_as("int8") if scheme.is_weight_only else SCHEMES["w8a16"]


def chosen(gain: Mapping[str, float], size: Mapping[str, int], room: float) -> set[str]:
    """Return the tensors to widen: those that gain most for each of their weights, as far as there
    is room. Behind many small ones there is rarely room for one that is as large as all of them,
    an output head say, so that each is tried in the first place, too.

    Args:
        gain: name of a tensor -> what widening it gains. size: its weights.
        room: weights that may be widened.
    """
    order = sorted(gain, key=lambda x: gain[x] / size[x], reverse=True)

    def taken(*first: str) -> set[str]:
        found, left = set(), room
        for name in (*first, *order):
            if name not in found and size[name] <= left:
                left -= size[name]
                found.add(name)
        return found

    usual = taken()
    least = min((gain[x] for x in usual), default=0.0)
    late = [x for x in order if x not in usual and gain[x] > least]  # others replace none of these
    return max([usual, *map(taken, late)], key=lambda names: sum(gain[x] for x in names))


def _candidates(targets: Mapping[str, Target]) -> dict[str, Candidate]:
    """Return name -> tensor of those to choose for: of linears, and of packed embeddings with the
    output heads that are tied to them."""
    found: dict[str, Candidate] = {}
    for name, target in targets.items():
        if target.tied or not (target.packs_rows or isinstance(target.layer, nn.Linear)):
            continue
        narrow = target.scheme.is_packed and target.scheme.bits == BITS[0]
        if not narrow and not target.has_own_scheme:
            raise ArgumentValueError(
                f"quantize_: average_bits needs layers of {BITS[0]} bits, got {name} as "
                f"{target.scheme}"
            )
        if narrow:
            ties = {head: x for head, x in targets.items() if x.tied == name}
            found[name] = Candidate(target, {name: target, **ties})
    return found


def _gains(
    model: nn.Module, candidates: Mapping[str, Candidate], batches: Sequence[Any] | None
) -> dict[str, float]:
    """Return name of a tensor -> how much less 8 bits change the outputs of its layers; with output
    heads or embeddings among them, and batches, those of the model: there the gains of other layers
    are shares of what rounding all of them changes.
    """
    seen = observe(model, list(candidates.values()), batches)
    made = {
        (name, wide): rounding(x, seen, widened(x.target.scheme) if wide else x.target.scheme)
        for name, x in candidates.items()
        for wide in (False, True)
    }
    errors = {key: error(candidates[key[0]], seen, value()) for key, value in made.items()}
    gain = {name: errors[name, False] - errors[name, True] for name in candidates}
    ends = {x for x, y in candidates.items() if y.target.packs_rows or is_head(x)}
    rest = candidates.keys() - ends
    if batches is None or not ends or not rest:
        return gain
    changes: dict[Any, Weights] = {
        (name, wide): [(use, made[name, wide]) for use in candidates[name].uses.values()]
        for name in ends
        for wide in (False, True)
    }
    changes[None] = [(candidates[name].target, made[name, False]) for name in rest]
    found = effects(model, changes, batches)
    share = found[None] / max(sum(errors[name, False] for name in rest), 1e-30)
    of_ends = {name: found[name, False] - found[name, True] for name in ends}
    return {name: of_ends[name] if name in ends else share * x for name, x in gain.items()}


def mixed_bits(
    model: nn.Module,
    targets: Mapping[str, Target],
    average: float,
    batches: Sequence[Any] | None,
) -> AverageBits:
    """Give 8 bits to the tensors of 4 that gain most for what it costs, as far as the average over
    all of their weights allows; changes the schemes of the layers.

    Args:
        model: that holds the layers.
        targets: name -> layer. Chosen for are linears, which must be weight-only in 4 bits, and
            output heads and embeddings that were given such a scheme of their own.
        average: bits of a weight, 4..8, without scales and zero points.
        batches: of calibration; None: inputs count alike.

    Raises:
        ValueError: ``average`` is out of range, or a layer has another scheme.
    """
    if not BITS[0] <= average <= BITS[1]:
        wrong_value("quantize_", "average_bits", f"be in {BITS[0]}..{BITS[1]}", f"{average}")
    candidates = _candidates(targets)
    gain, size = _gains(model, candidates, batches), {x: y.size for x, y in candidates.items()}
    whole = sum(size.values())
    wide = chosen(gain, size, (average - BITS[0]) / (BITS[1] - BITS[0]) * whole)
    for name in wide:
        candidates[name].store(widened(candidates[name].target.scheme))
    bits = {name: BITS[name in wide] for name in candidates}
    apart = {
        name: f"{x.scheme}"
        for name, x in targets.items()
        if (x.has_own_scheme or x.tied) and not any(name in y.uses for y in candidates.values())
    }
    return AverageBits(
        asked=average,
        found=sum(bits[name] * size[name] for name in bits) / max(whole, 1),
        weights=whole,
        bits=bits,
        tied={name: x.tied for name, x in targets.items() if x.tied in candidates},
        apart=apart,
        batches=0 if batches is None else len(batches),
    )
