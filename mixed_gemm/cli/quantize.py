"""``mixed-gemm quantize``: a dense checkpoint to 4 or 8 bits, without loading the model."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .inspect import print_summary, summary
from .options import (
    Device,
    Force,
    Json,
    ShardSize,
    Source,
    Target,
    device_text,
    parse_device,
    shard_bytes,
)
from .output import note, print_json, reports_errors, say

WINDOW = 512  # tokens that calibrate together, or what the model was made for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mixed_gemm.formats.dense_experts import Stack
    from mixed_gemm.formats.index import TensorIndex
    from mixed_gemm.quantization import CalibratedCheckpoint


def _calibrated(
    source: Path,
    scheme: str,
    method: str | None,
    texts: tuple[list[Path], int, int],
    device: str,
    work: Path,
    options: dict[str, Any],
) -> CalibratedCheckpoint:
    """Return the layers, once every block is calibrated. ``texts``: files, tokens, seed."""
    from mixed_gemm.integrations.transformers.registration import require_transformers
    from mixed_gemm.quantization import CalibratedCheckpoint, text_batches
    from mixed_gemm.quantization.foreign import naming
    from mixed_gemm.quantization.positions import longest_input

    if method is None:
        raise ValueError("--calibration needs a --method that reads it: awq, gptq, ...")
    require_transformers()
    import transformers

    files, tokens, seed = texts
    where = parse_device(device)
    with naming(source, "its configuration or its tokenizer cannot be used"):
        made_for = longest_input(transformers.AutoConfig.from_pretrained(source))
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        length = min(WINDOW, made_for or WINDOW)
        batches = text_batches(tokenizer, files, tokens=tokens, length=length, seed=seed)
    return CalibratedCheckpoint(
        source, scheme, method=method, calibration=batches, work=work,
        device=where, progress=True, **options,
    )  # fmt: skip


def _experts_in(index: TensorIndex) -> Sequence[Stack]:
    """Where files have all experts of a layer in one tensor: the model of transformers says it, so
    that it is imported for these alone."""
    from mixed_gemm.integrations.transformers.registration import require_transformers

    require_transformers()
    from mixed_gemm.integrations.transformers.stacked_files import experts_in

    return experts_in(index)


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
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="How weights are rounded: rtn or hqq without data; awq, gptq, awq+gptq or "
            "autoround with --calibration; hqq and autoround are for integers.",
            show_default="each to the nearest",
        ),
    ] = None,
    calibration: Annotated[
        list[Path] | None,
        typer.Option(
            "--calibration",
            help="UTF-8 text that calibrates. May be repeated: mix kinds of text.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", help="How many calibrate.", min=1)] = 32768,
    seed: Annotated[int, typer.Option("--seed", help="Of the places in the texts.")] = 0,
    device: Device = "",
    bits: Annotated[
        int | None,
        typer.Option(
            "--bits",
            help="Width of the weights: 4 or 8; with a method 3 or 2 too, which are stored in 4.",
            show_default="of the scheme",
        ),
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
            help="Leave layers alone: a glob on whole parts of the name. May be repeated, and "
            "takes the place of the default, which is output heads and routers; '' is none.",
            show_default="lm_head, *_head, head, *_heads, heads, embed_out, predictions.decoder, "
            "logits_dense, score, *classifier*, qa_outputs, *_qass, sequence_summary, *router*, "
            "gate, shared_expert_gate",
        ),
    ] = None,
    ragged: Annotated[
        bool,
        typer.Option(
            "--ragged",
            help="Keep the group size where K is no multiple of it: mixed_gemm alone reads that.",
        ),
    ] = False,
    embeddings: Annotated[
        str | None,
        typer.Option(
            "--embeddings",
            help="Pack the table of words by a scheme such as w8a16, too; an output head that is "
            "tied to it multiplies by the same tensor. mixed_gemm alone reads that.",
            show_default="dense",
        ),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            "--heads",
            help="Quantize output heads by a scheme such as w8a16, too; one that is tied to the "
            "table of words has no tensor of its own, see --embeddings.",
            show_default="dense",
        ),
    ] = None,
    shard_size: ShardSize = 5.0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Quantize the linear layers of a dense model; write compressed-tensors, nf4 as bitsandbytes.

    Linear layers are the 2-D weights that are no embedding and not named by --skip, and experts,
    also where all of a layer are in one tensor (gpt-oss, Llama 4), if transformers is installed;
    what stays dense is listed. Where K is no multiple of the group size, the largest multiple of 16
    that divides K is taken. Without --calibration no model code runs, and one layer at a time is in
    memory; with it one block of the model is, and blocks that are done wait in TARGET.partial: run
    the same command again after an interruption.
    """
    device_text(device)
    most = shard_bytes(shard_size)
    from mixed_gemm import open_checkpoint, save_checkpoint
    from mixed_gemm.formats.save import refuse_target
    from mixed_gemm.quantization import CalibratedCheckpoint, DenseCheckpoint
    from mixed_gemm.quantization.methods.names import FEWER_BITS
    from mixed_gemm.quantization.names import DEFAULT_SKIP
    from mixed_gemm.quantization.report import told_together

    options: dict[str, Any] = {
        "bits": bits,
        "group_size": group_size,
        "symmetric": False if asymmetric else None,
        "skip": skip or DEFAULT_SKIP,
        "ragged": ragged,
        "embeddings": embeddings,
        "heads": False if heads is None else heads,
        "experts": _experts_in if find_spec("transformers") is not None else None,
    }
    parse_device(device)  # a wrong device is refused also where no method runs on it
    plain = ("rtn" if bits in FEWER_BITS else None) if calibration else method
    dense = DenseCheckpoint(source, scheme, method=plain, **options)
    refuse_target(dense, target, overwrite=force)  # refuses before work that may take hours
    if source.is_dir() and find_spec("transformers") is not None:
        from mixed_gemm.integrations.transformers.readable import refuse_unreadable

        shapes = {name: dense.shape(name) for name in dense.layers}
        refuse_unreadable(source, shapes, dense.tables)
    if calibration:
        work = target.with_name(f"{target.name}.partial")
        texts = (calibration, tokens, seed)
        dense = _calibrated(source, scheme, method, texts, device, work, options)
    save_checkpoint(dense, target, max_shard_bytes=most, overwrite=force, progress=True)
    if isinstance(dense, CalibratedCheckpoint):
        dense.discard()
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
