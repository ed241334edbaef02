"""Whether what the check on a GPU measured is right: our kernels run the layers, and no line of
ours lies further from float32 than vLLM's own kernels do, within what other sums give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ..rows import GPU_ROWS, Row
from .engines import ours
from .jobs import Line

LIMIT = 1.2  # mean distance of ours over that of vLLM's own kernels
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


def _ours_run(name: str, kernels: dict[str, int]) -> bool:
    """Tell whether a class of ours runs the layers of a row; of a mixture, its experts."""
    row = next((x for x in GPU_ROWS if x.name == name and x.mixture), None)
    if row is not None:
        return row.kernel in kernels
    return name == DENSE.name or ours(kernels)


def _judge(line: Line, of: dict[tuple[str, ...], Line]) -> Verdict:
    name, dtype, mode = line["row"], line["dtype"], line["mode"]
    told = (name, dtype, mode)
    if "error" in line:
        return Verdict(*told, None, "", line["error"])
    if "decode" not in line:
        return Verdict(*told, None, "", "not compared with float32")
    own, beside = of.get((name, dtype, mode, "off"), {"error": "not measured"}), ""
    if "decode" not in own:
        beside = f"vLLM's own: {own.get('error', 'not compared with float32')}"
        other = SAME_CODES.get(name, "")
        own = of.get((other, dtype, mode, "off"), {})
        if "decode" not in own:
            return Verdict(*told, None, beside, "nothing of vLLM's own to compare with")
        beside = f"{other} (the same codes); {beside}"
    ratio = max(line[part]["mean"] / own[part]["mean"] for part in PARTS)
    if not _ours_run(name, line["kernels"]):
        return Verdict(*told, ratio, beside, f"run by {', '.join(line['kernels'])}")
    wrong = f"{ratio:.2f} of the distance of vLLM's own" if ratio > LIMIT else ""
    return Verdict(*told, ratio, beside, wrong)
