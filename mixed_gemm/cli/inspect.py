"""``mixed-gemm inspect``: the contents of a quantized checkpoint, from its headers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json, Source
from .output import print_json, print_table, reports_errors, say

if TYPE_CHECKING:
    from mixed_gemm.formats import Checkpoint, LayerInfo


def scheme_of(layer: LayerInfo) -> str:
    """A layer in few words: the type of its numbers, and what shares a scale."""
    numbers = f"int{layer.bits}" if layer.kind == "int" else layer.kind
    group = "per channel" if layer.group_size == -1 else f"group {layer.group_size}"
    if layer.block is not None:
        group = "blocks of {} x {}".format(*layer.block)
    elif layer.strategy == "tensor":
        group = "per tensor"
    text = f"{numbers} {group}{', zeros' if layer.has_zeros else ''}"
    side = layer.input_activations
    if side is None:
        return text
    how = "dynamic" if side.dynamic else "static"
    return f"{text}; {how} {side.type}{side.num_bits} activations"


def plain_bytes(checkpoint: Checkpoint) -> int:
    """Return the bytes of the tensors that are not quantized."""
    import torch

    total = 0
    for name in checkpoint.tensors:
        dtype = checkpoint.tensor_dtype(name)
        size = dtype.itemsize if isinstance(dtype, torch.dtype) else 0
        total += size * math.prod(checkpoint.tensor_shape(name))
    return total


def summary(checkpoint: Checkpoint) -> dict[str, Any]:
    from mixed_gemm.formats.ct_config import OWN_FORMAT

    layers = list(checkpoint.layers.values())
    return {
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "model_type": checkpoint.config.get("model_type"),
        "files": [file.name for file in checkpoint.files],
        "quantized_layers": len(layers),
        "quantized_weights": sum(layer.in_features * layer.out_features for layer in layers),
        "quantized_bytes": sum(layer.nbytes for layer in layers),
        "schemes": dict(Counter(map(scheme_of, layers))),
        "other_tensors": len(checkpoint.tensors),
        "other_bytes": plain_bytes(checkpoint),
        "notes": list(checkpoint.notes),
        "only_mixed_gemm_reads_it": OWN_FORMAT in str(checkpoint.quantization_config),
    }


def print_summary(found: dict[str, Any]) -> None:
    weights, nbytes = found["quantized_weights"], found["quantized_bytes"]
    say(f"{found['path']}: {found['format']}, model type {found['model_type'] or 'unknown'}")
    say(
        f"{found['quantized_layers']} quantized layers, {weights / 1e6:.2f} M weights in "
        f"{nbytes / 1e6:.2f} MB ({8 * nbytes / weights:.2f} bits each, with scales and zeros)"
    )
    for scheme, count in found["schemes"].items():
        say(f"  {count} x {scheme}")
    say(f"{found['other_tensors']} other tensors, {found['other_bytes'] / 1e6:.2f} MB")
    say(f"{len(found['files'])} files: {', '.join(found['files'])}")
    for note in found["notes"]:
        say(f"note: {note}")
    if found["only_mixed_gemm_reads_it"]:
        say("other readers refuse it, since they have no place for all of it: see README.md there")


def print_layers(layers: Iterable[LayerInfo]) -> None:
    rows = [
        (x.name, scheme_of(x), x.out_features, x.in_features, f"{x.nbytes / 1e6:.2f}")
        for x in layers
    ]
    print_table("", ("layer", "scheme", "N", "K", "MB"), rows, left=2)


@reports_errors
def command(
    source: Source,
    layers: Annotated[bool, typer.Option("--layers", help="List every quantized layer.")] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Read every tensor: finite scales, whole files, a truthful config."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Show format, schemes and sizes of a quantized checkpoint.

    Reads the headers alone, and checks every shape and dtype in them.
    """
    from mixed_gemm import open_checkpoint
    from mixed_gemm._progress import track

    checkpoint = open_checkpoint(source, strict=check)
    found = summary(checkpoint)
    if check:
        for name in track(list(checkpoint.layers), "reading", True):
            checkpoint.layer(name)
        for name in checkpoint.tensors:
            checkpoint.tensor(name)
        found["checked"] = True
    if json:
        if layers:
            found["layers"] = [asdict(x) for x in checkpoint.layers.values()]
        print_json(found)
        return
    print_summary(found)
    if layers:
        print_layers(checkpoint.layers.values())
    if check:
        say("every tensor was read and is in order")
