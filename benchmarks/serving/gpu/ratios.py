"""Times of a decode step with our kernels over those with the faster of vLLM's own: what
mixed_gemm/integrations/vllm/measured.py and docs/serving.md tell. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Line = dict[str, Any]


def step_ms(line: Line) -> dict[int, float]:
    """Sequences of a step -> milliseconds."""
    return {int(batch): of["step_ms"] for batch, of in line["batches"].items()}


def ratios(lines: Iterable[Line], key: str = "scheme") -> dict[str, dict[int, float]]:
    """Scheme, or another ``key`` of lines -> batch -> ratio, where both sides were measured."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        if line.get(key) and "error" not in line:
            found.setdefault(line[key], []).append(line)
    result = {}
    for name, some in found.items():
        ours = [step_ms(x) for x in some if x["kernels"] == "ours"]
        peers = [step_ms(x) for x in some if x["kernels"] != "ours"]
        if ours and peers:
            result[name] = {
                batch: ms / min(x[batch] for x in peers)
                for batch, ms in ours[0].items()
                if all(batch in x for x in peers)
            }
    return result
