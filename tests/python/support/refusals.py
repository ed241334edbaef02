"""Every refusal of the ops as text: what tests/data/refusals.txt holds, so that a change of how the
checks are written is seen to change no sentence and no order of the rules.

    python tests/python/support/refusals.py > tests/data/refusals.txt

First the schema of every op. Each line behind them is a call with one fault, or with two: the op,
what is wrong with which arguments, the type of the exception and its text; "accepted" where the op
takes it. The faults stand in support/faults.py, and the six paths of support/paths.py agree in each
of them.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "tests"), str(ROOT)]

import torch  # noqa: E402
from support.faults import CHANGES, bad_scalars  # noqa: E402
from support.op_calls import CALLS, TENSORS, Arguments  # noqa: E402
from support.paths import agreed  # noqa: E402

FILE = ROOT / "tests" / "data" / "refusals.txt"
# Two faults at once: that of the first and that of the second argument.
PAIRS = (("int64", "a row less"), ("0-d", "flat"), ("a column less", "int64"))


def line(op: str, what: str, error: Exception | None) -> str:
    text = "accepted" if error is None else f"{type(error).__mro__[1].__name__}: {error}"
    return f"{op}, {what}: {' | '.join(text.splitlines())}"


def calls() -> Iterator[tuple[str, str, Arguments]]:
    """(op, what is wrong, the arguments)."""
    for op, name in TENSORS:
        for change, (mutate, _) in CHANGES.items():
            arguments = CALLS[op]()
            arguments[name] = mutate(arguments[name])
            yield op, f"{name} {change}", arguments
    for op, name, value in bad_scalars():
        yield op, f"{name}={value}", {**CALLS[op](), name: value}
    for op in CALLS:
        names = [name for of, name in TENSORS if of == op]
        for first, second in itertools.combinations(names, 2):
            for one, other in PAIRS:
                arguments = CALLS[op]()
                arguments[first] = CHANGES[one][0](arguments[first])
                arguments[second] = CHANGES[other][0](arguments[second])
                yield op, f"{first} {one} and {second} {other}", arguments


def lines() -> Iterator[str]:
    """Yield the lines of the file, in its order."""
    for op in sorted(CALLS):
        yield str(getattr(torch.ops.mixed_gemm, op).default._schema)
    logging.disable()  # torch tells of every exception of a fake kernel
    try:
        for op, what, arguments in calls():
            torch.manual_seed(0)
            yield line(op, what, agreed(op, arguments))
    finally:
        logging.disable(logging.NOTSET)


if __name__ == "__main__":
    print(*lines(), sep="\n")
