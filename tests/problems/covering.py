"""All-pairs covering arrays: few rows in which every value of every factor meets every value of
every other factor. A list that turns two tables by the same index does not: there a value meets one
of the others only.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

# (one factor, another) -> whether two of their values may meet.
Rules = Mapping[tuple[str, str], Callable[[Any, Any], bool]]
Row = dict[str, Any]


def may_meet(rules: Rules, row: Mapping[str, Any]) -> bool:
    """Whether no rule is broken by two values of ``row``."""
    return all(rule(row[a], row[b]) for (a, b), rule in rules.items() if a in row and b in row)


class _Pairs:
    """Which pairs of values no row holds yet, as bits: ``open[f][v][g]`` has the bit w while value
    v of factor f has not met value w of factor g; ``allowed`` is where it started."""

    def __init__(self, names: Sequence[str], table: list[Sequence[Any]], rules: Rules) -> None:
        def mask(f: int, v: Any, g: int) -> int:
            rule = rules.get((names[f], names[g]))
            swapped = rules.get((names[g], names[f]))
            bits = 0
            for w, other in enumerate(table[g]):
                ok = (rule is None or rule(v, other)) and (swapped is None or swapped(other, v))
                bits |= ok << w
            return bits

        count = len(table)
        self.allowed = [
            [[0 if f == g else mask(f, v, g) for g in range(count)] for v in table[f]]
            for f in range(count)
        ]
        self.open = [[list(masks) for masks in of_factor] for of_factor in self.allowed]

    def close_all(self, row: Mapping[int, int]) -> None:
        """Take the pairs of a row as covered."""
        for (f, v), (g, w) in itertools.combinations(row.items(), 2):
            self.open[f][v][g] &= ~(1 << w)
            self.open[g][w][f] &= ~(1 << v)

    def forget(self, f: int) -> None:
        """Want no pair with factor ``f``."""
        count = len(self.open)
        self.open[f] = [[0] * count for _ in self.open[f]]
        for of_factor in self.open:
            for masks in of_factor:
                masks[f] = 0

    def first_open(self) -> tuple[int, int, int, int] | None:
        """An open pair of the value that has the most."""
        best, most = None, 0
        for f, of_factor in enumerate(self.open):
            for v, masks in enumerate(of_factor):
                left = sum(mask.bit_count() for mask in masks)
                if left > most:
                    best, most = (f, v), left
        if best is None:
            return None
        f, v = best
        g = max(range(len(self.open)), key=lambda i: self.open[f][v][i].bit_count())
        return f, v, g, (self.open[f][v][g] & -self.open[f][v][g]).bit_length() - 1


def _fill(pairs: _Pairs, sizes: list[int], seeded: dict[int, int], rng: random.Random) -> dict:
    """The values seeded, and for each other factor the one with the most open pairs to them."""
    row = dict(seeded)
    rest = [f for f in range(len(sizes)) if f not in row]
    rng.shuffle(rest)
    for f in sorted(rest, key=lambda i: -sizes[i]):
        fits = (1 << sizes[f]) - 1
        gain = [0] * sizes[f]
        for g, w in row.items():
            fits &= pairs.allowed[g][w][f]
            wanted = pairs.open[g][w][f]
            while wanted:
                low = wanted & -wanted
                gain[low.bit_length() - 1] += 1
                wanted ^= low
        values = [v for v in range(sizes[f]) if fits >> v & 1]
        if not values:
            return {}
        most = max(gain[v] for v in values)
        row[f] = rng.choice([v for v in values if gain[v] == most])
    return row


def _fill_somehow(
    pairs: _Pairs, sizes: list[int], seeded: dict[int, int], rng: random.Random
) -> dict[int, int]:
    """A choice may leave a factor without a value that the rules allow; another one may not. Empty
    when many did."""
    tries = (_fill(pairs, sizes, seeded, rng) for _ in range(50))
    return next((row for row in tries if row), {})


def all_pairs(
    factors: Mapping[str, Sequence[Any]], rules: Rules | None = None, seed: int = 0
) -> Iterator[Row]:
    """Rows name -> value that hold every pair of values which ``rules`` let meet. Greedy, the same
    for the same arguments.

    Args:
        rules: pairwise only; every allowed pair must be part of a whole row.

    Raises:
        ValueError: a pair is in no row that the rules allow.
    """
    rules = rules or {}
    names, table = list(factors), [list(values) for values in factors.values()]
    sizes = [len(values) for values in table]
    rng = random.Random(seed)
    pairs = _Pairs(names, table, rules)
    while (wanted := pairs.first_open()) is not None:
        f, v, g, w = wanted
        row = _fill_somehow(pairs, sizes, {f: v, g: w}, rng)
        if not row:
            pair = {names[f]: table[f][v], names[g]: table[g][w]}
            raise ValueError(f"no row that the rules allow holds {pair}")
        pairs.close_all(row)
        yield {names[i]: table[i][row[i]] for i in range(len(names))}


def each_once(
    name: str,
    factors: Mapping[str, Sequence[Any]],
    rules: Rules | None = None,
    seed: int = 0,
) -> Iterator[Row]:
    """A row for each value of the factor ``name``, in order, where all pairs were too many: the
    other values are chosen so that the most pairs of them meet for the first time. Then, at random.

    Raises:
        ValueError: no row that the rules allow holds the value.
    """
    rules = rules or {}
    names, table = list(factors), [list(values) for values in factors.values()]
    sizes = [len(values) for values in table]
    rng = random.Random(seed)
    pairs = _Pairs(names, table, rules)
    once = names.index(name)
    pairs.forget(once)  # each value is in one row: what it meets there is all that it can
    for v in range(sizes[once]):
        row: dict[int, int] = {}
        wanted = pairs.first_open()
        if wanted is not None:
            f, x, g, w = wanted
            if pairs.allowed[once][v][f] >> x & 1 and pairs.allowed[once][v][g] >> w & 1:
                row = _fill_somehow(pairs, sizes, {once: v, f: x, g: w}, rng)
        row = row or _fill_somehow(pairs, sizes, {once: v}, rng)
        if not row:
            raise ValueError(f"no row that the rules allow holds {name}={table[once][v]!r}")
        pairs.close_all(row)
        yield {names[i]: table[i][row[i]] for i in range(len(names))}


def random_row(
    factors: Mapping[str, Sequence[Any]], rules: Rules, rng: random.Random, tries: int = 1000
) -> Row:
    """Values drawn one by one, again where a rule is broken.

    Raises:
        ValueError: no draw satisfied the rules.
    """
    for _ in range(tries):
        row = {name: rng.choice(values) for name, values in factors.items()}
        if may_meet(rules, row):
            return row
    raise ValueError("the rules left no row in many draws")
