"""``mixed-gemm quantize``: a dense checkpoint to 4 or 8 bits, without loading the model."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from typing import Annotated

import typer

from .inspect import print_summary, summary
from .options import Force, Json, ShardSize, Source, Target, shard_bytes
from .output import note, print_json, reports_errors, say


@reports_errors
def command(
    source: Source,
    target: Target,
    scheme: Annotated[
        str,
        typer.Option(
            "--scheme",
            help="How to store them: w4a16, w8a8, ... (a wrong name gets the list).",
        ),
    ] = "w4a16",
    bits: Annotated[
        int | None,
        typer.Option("--bits", help="Width of the weights: 4 or 8.", show_default="of the scheme"),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(
            "--group-size",
            help="Elements of K that share a scale; -1: one per channel.",
            show_default="of the scheme",
        ),
    ] = None,
    asymmetric: Annotated[
        bool, typer.Option("--asymmetric", help="With integer zero points: w = (q - z) * s.")
    ] = False,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            "--skip",
            help="Leave layers alone: a glob on whole parts of the name. May be repeated.",
            show_default="lm_head, *router*, gate",
        ),
    ] = None,
    ragged: Annotated[
        bool,
        typer.Option(
            "--ragged",
            help="Keep the group size where K is no multiple of it: mixed_gemm alone reads that.",
        ),
    ] = False,
    shard_size: ShardSize = 5.0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Round the linear layers of a dense model to nearest; write compressed-tensors.

    Linear layers are the 2-D weights that are no embedding, no router, no expert and not named by
    --skip; what stays dense is listed. Where K is no multiple of the group size, the largest
    multiple of 16 that divides K is taken. No calibration, no model code; one layer at a time is
    in memory.
    """
    from mixed_gemm import open_checkpoint, save_checkpoint
    from mixed_gemm.quantization import DenseCheckpoint
    from mixed_gemm.quantization.report import told_together
    from mixed_gemm.quantization.select import DEFAULT_SKIP

    dense = DenseCheckpoint(
        source,
        scheme,
        bits=bits,
        group_size=group_size,
        symmetric=False if asymmetric else None,
        skip=skip or DEFAULT_SKIP,
        ragged=ragged,
    )
    if source.is_dir() and find_spec("transformers") is not None:
        from mixed_gemm.integrations.transformers.readable import refuse_unreadable

        refuse_unreadable(source, {name: dense.shape(name) for name in dense.layers})
    save_checkpoint(
        dense, target, max_shard_bytes=shard_bytes(shard_size), overwrite=force, progress=True
    )
    written = summary(open_checkpoint(target))  # reads back and checks what was written
    report = {
        "dense_bytes": dense.nbytes,
        "left_dense": dense.left,
        "other_groups": dense.refit,
        "target": written,
    }
    if json:
        print_json(report)
        return
    ratio = dense.nbytes / written["quantized_bytes"]
    note(f"{dense.nbytes / 1e6:.2f} MB of weights -> {ratio:.2f} times smaller")
    print_summary(written)
    for size, count in Counter(dense.refit.values()).items():
        fits = f"groups of {size}" if size != -1 else "one group for each channel"
        say(f"{count} layers have {fits}, since {dense.scheme.group_size} does not divide their K")
    if dense.left:
        say(f"{len(dense.left)} matrices are left dense:")
        for line in told_together(dense.left):
            say(line)
