"""float8 products on a CPU beside torch's bfloat16 linear of the same shape, both with weights that
no L2 holds, 256 MB of each, call by call in turn, so that the drift of the machine is in both:

python -m benchmarks.float8_cpu --out benchmarks/results/float8_cpu.json
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch

import mixed_gemm
from mixed_gemm.selection.timing import Call, time_interleaved, timers_of

from .about import about_run
from .operands import Operands

SHAPES = ((4096, 4096), (11008, 4096), (4096, 11008))  # N, K
ROWS = (1, 2, 4, 16, 64, 256)
BLOCK = (128, 128)
LINEAR = "F.linear bfloat16"
CPU = torch.device("cpu")


def float8_weights(operands: Operands) -> list[torch.Tensor]:
    """Make weights [K, N], as many bytes together as those of ``dense_weights``."""
    first = operands.dense_weights("bfloat16")[0].to(torch.float8_e4m3fn)
    return [w.view(first.dtype).t() for w in operands.copies(first.view(torch.int8))]


def calls_of(operands: Operands, m: int) -> dict[str, list[Call]]:
    """Return name -> one call for each copy of the weight. Activations are rounded before, but for
    the last two, which are those of a layer."""
    x, n, blocks = operands.activations(m, "bfloat16"), operands.n, -(-operands.k // BLOCK[1])
    dense = operands.dense_weights("bfloat16")
    weights = operands.once("float8", lambda: float8_weights(operands))
    of_columns = operands.once("columns", lambda: operands.uniform(n, dtype="float32"))
    grid = (-(-n // BLOCK[0]), blocks)
    of_blocks = operands.once("blocks", lambda: operands.uniform(*grid, dtype="float32"))
    options: dict[str, Any] = {"out_dtype": torch.bfloat16}

    def by_row(w: torch.Tensor) -> torch.Tensor:
        q, scale = mixed_gemm.quantize_fp8(x)
        return mixed_gemm.scaled_mm(q, w, scale, of_columns, **options)

    def by_block(w: torch.Tensor) -> torch.Tensor:
        q, scale = mixed_gemm.quantize_fp8(x, block_size=BLOCK[1])
        return mixed_gemm.scaled_mm(q, w, scale, of_blocks, block_size=BLOCK, **options)

    rows, in_blocks = mixed_gemm.quantize_fp8(x), mixed_gemm.quantize_fp8(x, block_size=BLOCK[1])
    op = mixed_gemm.scaled_mm
    return {
        LINEAR: [partial(torch.nn.functional.linear, x, w) for w in dense],
        "scaled_mm": [partial(op, rows[0], w, rows[1], of_columns, **options) for w in weights],
        "scaled_mm, blocks": [
            partial(op, in_blocks[0], w, in_blocks[1], of_blocks, block_size=BLOCK, **options)
            for w in weights
        ],
        "quantize_fp8 and scaled_mm": [partial(by_row, w) for w in weights],
        "quantize_fp8 and scaled_mm, blocks": [partial(by_block, w) for w in weights],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.float8_cpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--commit")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows = []
    for n, k in SHAPES:
        operands = Operands(n, k, CPU)
        for m in ROWS:
            times = time_interleaved(timers_of(calls_of(operands, m), CPU), given.rounds)
            dense = times[LINEAR].us
            for name, timing in times.items():
                row = {"what": name, "M": m, "N": n, "K": k, "us": round(timing.us, 1)}
                row |= {"us_min": round(timing.us_min, 1), "of_linear": round(timing.us / dense, 3)}
                rows.append(row)
            told = ", ".join(f"{name} {t.us:.0f} ({t.us / dense:.2f})" for name, t in times.items())
            print(f"M={m} N={n} K={k}: {told}", flush=True)
    lines = ",\n".join(json.dumps(row) for row in rows)
    meta = json.dumps({**about_run(CPU, {}, given.commit), "mixed_gemm": mixed_gemm.__version__})
    given.out.write_text(f'{{"meta": {meta},\n"rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
