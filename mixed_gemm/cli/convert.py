"""``mixed-gemm convert``: a quantized checkpoint of another format to compressed-tensors; code
books to bitsandbytes."""

from __future__ import annotations

from .inspect import print_summary, summary
from .options import Force, Json, ShardSize, Source, Target, shard_bytes
from .output import note, print_json, reports_errors


@reports_errors
def command(
    source: Source,
    target: Target,
    shard_size: ShardSize = 5.0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Rewrite a quantized checkpoint (AWQ, GPTQ, GGUF, ModelOpt, ...) as compressed-tensors.

    One of bitsandbytes stays one of bitsandbytes, with scales that are not nested.
    Integers, scales and zero points keep their bits; one layer at a time is in memory.
    """
    most = shard_bytes(shard_size)
    from mixed_gemm import open_checkpoint, save_checkpoint

    checkpoint = open_checkpoint(source)
    save_checkpoint(
        checkpoint,
        target,
        max_shard_bytes=most,
        overwrite=force,
        progress=True,
    )
    written = summary(open_checkpoint(target))  # reads back and checks what was written
    if json:
        print_json({"source": summary(checkpoint), "target": written})
        return
    note(f"{checkpoint.format} -> {written['format']}")
    print_summary(written)
