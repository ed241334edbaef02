"""Times of a decode step with our kernels over those with the faster of vLLM's own: what
mixed_gemm/integrations/vllm/measured.py and docs/serving.md tell. Imports no torch.

    python -m benchmarks.serving.gpu.ratios FILE     as measured.py has them
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def step_ms(line: Line, measure: str = "step_ms") -> dict[int, float]:
    """Return milliseconds, or another ``measure`` of a step, by its count of sequences."""
    return {int(batch): of[measure] for batch, of in line["batches"].items() if measure in of}


def ratios(
    lines: Iterable[Line], key: str = "scheme", measure: str = "step_ms"
) -> dict[str, dict[int, float]]:
    """Return scheme, or another ``key`` of lines -> batch -> ratio of a ``measure``, where both
    sides were measured."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        if line.get(key) and "error" not in line:
            found.setdefault(line[key], []).append(line)
    result = {}
    for name, some in found.items():
        ours = [step_ms(x, measure) for x in some if x["kernels"] == "ours"]
        peers = [step_ms(x, measure) for x in some if x["kernels"] != "ours"]
        if ours and peers:
            result[name] = {
                batch: ms / min(x[batch] for x in peers)
                for batch, ms in ours[0].items()
                if all(batch in x for x in peers)
            }
    return result


def rounded(found: dict[str, Any]) -> dict[str, dict[int, float]]:
    """By scheme, of the steps of all shapes in bfloat16 on one GPU, to two places.

    Args:
        found: a results file.
    """
    steps = [of for name, of in found.items() if name.startswith("step") and " on " not in name]
    lines = [x for of in steps for x in of["rows"] if x["dtype"] == "bfloat16"]
    return {
        scheme: {batch: round(x, 2) for batch, x in of.items()}
        for scheme, of in ratios(lines).items()
    }


if __name__ == "__main__":
    for scheme, of in rounded(json.loads(Path(sys.argv[1]).read_text())).items():
        print(f"{scheme}: {of}")
