"""``mixed-gemm bench``: what a product takes here, next to torch's dense GEMM."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from .options import (
    Bits,
    Device,
    DType,
    Dtype,
    Force,
    GroupSize,
    Json,
    K,
    N,
    ZeroMode,
    Zeros,
    device_text,
    named_path,
    parse_device,
    parse_rows,
)
from .output import (
    note,
    print_json,
    print_table,
    refuse_to_overwrite,
    replace_file,
    reports_errors,
    say,
)

DEFAULT_ROWS = "1,16,128,1024"  # mixed_gemm.selection.bench's own


@reports_errors
def command(
    n: N = 4096,
    k: K = 4096,
    m: Annotated[
        str, typer.Option("--m", help="Rows of the activations, with commas.")
    ] = DEFAULT_ROWS,
    dtype: Dtype = DType.float16,
    bits: Bits = 4,
    group_size: GroupSize = 128,
    zero_mode: Zeros = ZeroMode.none,
    device: Device = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Also write the JSON object to this file.",
            parser=named_path,
            metavar="PATH",
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Time the product with an N x K weight, quantized and dense.

    Copies of the weights are rotated, so that no cache serves them.
    """
    rows = parse_rows(m)
    device_text(device)
    if out is not None:
        refuse_to_overwrite(out, force)
    import mixed_gemm

    result = mixed_gemm.selection.bench(
        n, k, m=rows, dtype=dtype.torch, bits=bits, group_size=group_size,
        zero_mode=zero_mode.value, device=parse_device(device),
    )  # fmt: skip
    data = {"meta": result.meta, "rows": list(result.rows)}
    if out is not None:
        replace_file(out, dumps(data, indent=1) + "\n")
        note(f"wrote {out}")
    if json:
        print_json(data)
        return
    pairs = list(zip(result.rows[::2], result.rows[1::2], strict=True))
    print_table(
        f"N={n} K={k} {dtype.value} int{bits} group {group_size} on {result.meta['device']}",
        ("M", "us", "min", "max", "dense us", "speedup", "of the roofline", "kernel"),
        [
            (
                ours["M"],
                f"{ours['us']:.2f}",
                f"{ours['us_min']:.2f}",
                f"{ours['us_max']:.2f}",
                f"{dense['us']:.2f}",
                f"{dense['us'] / ours['us']:.2f}x",
                f"{ours['roofline_us'] / ours['us']:.0%}",
                ours["kernel"],
            )
            for ours, dense in pairs
        ],
        left=0,
    )
    ceilings = result.meta["ceilings"]
    say(f"roofline: {ceilings['read_gb_per_s']} GB/s, {ceilings['dense_tflops']} TFLOP/s, measured")
