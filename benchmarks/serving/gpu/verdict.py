"""Whether what the check on a GPU measured is right: our kernels run the layers, and no line of
ours lies further from float32 than vLLM's own kernels do, within what other sums give. Mixtures are
compared by medians: where two experts are equally near, the last bit chooses, and a few tokens of
another expert would outweigh all others in a mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ..rows import GPU_ROWS, Row
from .engines import ours
from .jobs import Line

LIMIT = 1.2  # distance of ours over that of vLLM's own kernels
PARTS = ("decode", "prompt")
DENSE = Row("dense", "dense", kernel="")
# A file that vLLM's own do not read, and one with the same codes and scales that they do.
SAME_CODES = {"GPTQ 4 bits, g128, sym=False": "AWQ g128"}


@dataclass(frozen=True)
class Verdict:
    """The verdict on a line with our kernels first.

    Attributes:
        ratio: the worst of PARTS, to vLLM's own; None where there is no distance.
        beside: "" or what vLLM's own kernels could not do, and the file whose line stands in.
        wrong: why the line is wrong; empty where it is not.
    """

    row: str
    dtype: str
    mode: str
    ratio: float | None
    beside: str
    wrong: str

    def told(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": None if self.ratio is None else round(self.ratio, 3)}


def verdicts(lines: Iterable[Line]) -> list[Verdict]:
    """Return a verdict for each line of ours."""
    of: dict[tuple[str, ...], Line] = {
        (x["row"], x["dtype"], x["mode"], x["place"]): x for x in lines
    }
    return [_judge(x, of) for x in of.values() if x["place"] == "first"]


def _mixture(name: str) -> Row | None:
    return next((x for x in GPU_ROWS if x.name == name and x.mixture), None)


def measure(name: str) -> str:
    """Return the measure of distances by which a row is judged."""
    return "median" if _mixture(name) else "mean"


def _ours_run(name: str, kernels: dict[str, int]) -> bool:
    """Tell whether a class of ours runs the layers of a row; of a mixture, its experts."""
    if row := _mixture(name):
        return row.kernel in kernels
    return name == DENSE.name or ours(kernels)


def _judge(line: Line, lines: dict[tuple[str, ...], Line]) -> Verdict:
    name, dtype, mode = line["row"], line["dtype"], line["mode"]
    told = (name, dtype, mode)
    if "error" in line:
        return Verdict(*told, None, "", line["error"])
    if "decode" not in line:
        return Verdict(*told, None, "", "not compared with float32")
    own, beside = lines.get((name, dtype, mode, "off"), {"error": "not measured"}), ""
    if "decode" not in own:
        beside = f"vLLM's own: {own.get('error', 'not compared with float32')}"
        other = SAME_CODES.get(name, "")
        own = lines.get((other, dtype, mode, "off"), {})
        if "decode" not in own:
            return Verdict(*told, None, beside, "nothing of vLLM's own to compare with")
        beside = f"{other} (the same codes); {beside}"
    of = measure(name)
    if not all(of in x[part] for x in (line, own) for part in PARTS):
        of = "mean"  # results of a version that noted no other
    ratio = max(line[part][of] / own[part][of] for part in PARTS)
    if not _ours_run(name, line["kernels"]):
        return Verdict(*told, ratio, beside, f"run by {', '.join(line['kernels'])}")
    wrong = f"{ratio:.2f} of the distance of vLLM's own" if ratio > LIMIT else ""
    return Verdict(*told, ratio, beside, wrong)
