"""``mixed-gemm tune``: measure the candidates on this GPU and remember the fastest."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from .options import (
    Bits,
    Device,
    DType,
    Dtype,
    GroupSize,
    Json,
    K,
    N,
    ZeroMode,
    Zeros,
    device_text,
    parse_rows,
)
from .output import print_json, print_table, reports_errors

ALL_ROWS = "1,2,4,8,16,32,64,128,256,512,1024,2048,4096"  # mixed_gemm.tune's own


@reports_errors
def command(
    n: N,
    k: K,
    m: Annotated[str, typer.Option("--m", help="Rows of the activations, with commas.")] = ALL_ROWS,
    dtype: Dtype = DType.float16,
    bits: Bits = 4,
    group_size: GroupSize = 128,
    zero_mode: Zeros = ZeroMode.none,
    device: Device = "cuda",
    save: Annotated[bool, typer.Option(help="Keep the result in the cache directory.")] = True,
    json: Json = False,
) -> None:
    """Measure the kernels for one weight and use the fastest from now on.

    Takes about a second for each number of rows.
    """
    rows, where = parse_rows(m), device_text(device)
    import mixed_gemm

    results = mixed_gemm.tune(
        n, k, m=rows, dtype=dtype.torch, bits=bits, group_size=group_size,
        zero_mode=zero_mode.value, device=where, save=save,
    )  # fmt: skip
    if json:
        print_json({"saved": save, "results": [asdict(result) for result in results]})
        return
    print_table(
        "",
        ("problem", "fastest", "us", "before", "us before", "gain"),
        [
            (r.problem, r.config, f"{r.us:.2f}", r.before, f"{r.before_us:.2f}",
             f"{r.before_us / r.us:.2f}x")
            for r in results
        ],
        left=2,
    )  # fmt: skip
