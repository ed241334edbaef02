"""``save_checkpoint``: write compressed-tensors, which transformers, vLLM and SGLang read,
bitsandbytes, or the MXFP4 of gpt-oss."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .._progress import Progress, track
from .checkpoint import Checkpoint
from .companions import copy_companion, find_companions
from .config import without_quantization
from .durable import write_new_file
from .errors import CheckpointWarning
from .kv_cache import lost_of
from .readme import README, write_readme
from .shards import ShardWriter
from .sources import FromCheckpoint, FromModel, Source, Stream
from .target import CONFIG, TargetFolder
from .written import written_as

MAX_SHARD_BYTES = 5 * 10**9  # as transformers
HEAD = "lm_head"  # as models of transformers call it
TIED = "tie_word_embeddings"  # in config.json


def _untied(config: Mapping[str, Any], layers: Iterable[str]) -> dict[str, Any]:
    """A configuration that does not tie a head which has codes of its own: readers would put the
    embedding in its place. Where an encoder and a decoder share their embedding, the same flag says
    so; there it stays, and the head's own tensors speak for it."""
    found, text = dict(config), config.get("text_config")
    if HEAD in layers and not config.get("is_encoder_decoder"):
        if config and config.get(TIED, True):  # which many models do without a word
            found[TIED] = False
        if isinstance(text, Mapping) and text.get(TIED):
            found["text_config"] = {**text, TIED: False}
    return found


def _tied_head(config: Mapping[str, Any], layers: Iterable[str]) -> set[str]:
    """The head of a language model that is tied to its embedding, so that no file has it: readers
    would take it for a quantized linear."""
    text = config.get("text_config")
    inner = text if isinstance(text, Mapping) else config
    tied = config.get(TIED, inner.get(TIED, True))
    is_language = "vocab_size" in inner
    return {HEAD} if is_language and tied and HEAD not in layers else set()


def tell_what_is_lost(source: Any, path: str | Path) -> None:
    """Warn of what the files of a source ask for, and compressed-tensors has no place for.

    Args:
        source: of :func:`save_checkpoint`. path: of the folder to be written.
    """
    if isinstance(source, nn.Module):
        where, notes = str(path), lost_of(source)
    else:
        where, notes = str(source.path), getattr(getattr(source, "codec", None), "lost", ())
    for note in notes:
        text = f"{where}: {note}. What is written does not ask for it"
        warnings.warn(text, CheckpointWarning, stacklevel=3)


def _target(source: Any, companions: Sequence[Path], path: Path, overwrite: bool) -> TargetFolder:
    names = [file.name for file in companions]
    names += [] if README in names or (path / README).exists() else [README]
    read = () if isinstance(source, nn.Module) else (source.path, *source.files, *companions)
    return TargetFolder(path, names, overwrite, read)


def refuse_target(source: Any, path: str | Path, *, overwrite: bool = False) -> None:
    """Raise what :func:`save_checkpoint` would for a folder that cannot be written: for those who
    work for long before they save.

    Args:
        source: a checkpoint. path, overwrite: of the call to come.

    Raises:
        FileExistsError, NotADirectoryError: as save_checkpoint. Nothing is written.
    """
    _target(source, find_companions(source.path), Path(path), overwrite).refuse()


def save_checkpoint(
    source: nn.Module | Checkpoint | Stream,
    path: str | Path,
    *,
    config: Mapping[str, Any] | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
    overwrite: bool = False,
    progress: Progress = False,
) -> None:
    """Write a quantized model as compressed-tensors, code books as bitsandbytes, or gpt-oss as its
    own MXFP4.

    Of compressed-tensors it is pack-quantized; int-quantized where activations are rounded;
    float-quantized for float8. bitsandbytes is written where all layers are "nf4", or all "fp4", in
    blocks that it makes; the files of gpt-oss where its experts are all "mxfp4" and nothing else is
    quantized.

    Integers, scales and zero points are written as they are: reading them back gives the same
    bits. What other readers have no place for (act-order, a pre_scale, a ragged last group, zero
    points that are no integers, embeddings) is written so that they refuse it, and README.md says
    so. One layer and one shard are in memory at a time. The format has no convolutions: quantized
    ones are written as the dense ones that they compute.

    The folder gets all files or none of them: where the process is killed or the machine stops, it
    is as it was, whole, or refused by ``open_checkpoint`` as incomplete. After an exception it is
    as it was.

    Args:
        source: a model with ``mixed_gemm.Linear`` layers on any device; or an open checkpoint of
            any format, or a dense one to be rounded on the way: tokenizer files are copied along.
        path: a folder; made when missing. What else is in it stays.
        config: of the model, for config.json; that of the source when None. Its
            quantization_config is replaced.
        max_shard_bytes: of tensors in one file.
        overwrite: replace files of the names that are written (config.json, tokenizer.json, ...)
            and remove .safetensors files and indexes that are there. Never the source.
        progress: a bar on stderr: True on a terminal only, "force" always, False never.

    Raises:
        ValueError: nothing is quantized, or a tensor has a dtype that safetensors has not.
        FileExistsError: a file is in the way and ``overwrite`` is False, the folder is the source
            (by whatever name), or another process is saving into it.
        OSError: a file cannot be written: a full disk, say.
        CheckpointError: the source cannot be read.
    """
    given: Source
    if isinstance(source, nn.Module):
        given = FromModel(source)
    else:
        given = FromCheckpoint(source) if isinstance(source, Checkpoint) else source
    if not given.layers:
        raise ValueError(
            "save_checkpoint: no layer is a mixed_gemm.Linear. Hint: mixed_gemm.quantize_ first"
        )
    if isinstance(given, FromModel) and given.is_spread and not _writes(given):
        return
    tell_what_is_lost(source, path)
    companions = () if isinstance(source, nn.Module) else find_companions(source.path)
    with _target(source, companions, Path(path), overwrite) as target:
        writer = ShardWriter(target.stage, max_shard_bytes)
        whole = _untied(given.config if config is None else config, given.layers)
        dense = {*given.ignore, *_tied_head(whole, given.layers)}
        outlines = {x: given.outline(x) for x in given.layers}
        groups = written_as(outlines, dense, given.carried, own=False, config=whole)
        # Layers that other readers would leave out: those are to refuse the folder.
        own: dict[str, str] = getattr(given, "own", {})  # streams of before have none
        own = {} if groups.joins_experts else own
        for name in track(given.layers, "save", progress):
            weight = given.layer(name)
            for whole_name, tensor in groups.encode(weight):
                writer.add(whole_name, tensor)
            groups.add(weight, name)
        for name, tensor in given.plain():
            writer.add(name, tensor)
        writer.finish()
        for file in companions:
            copy_companion(file, target.stage / file.name)
        whole = without_quantization(whole)
        whole["quantization_config"] = groups.configuration(
            dense,
            bool(own),
            given.carried,
            recipe=getattr(given, "recipe", None),
        )
        write_readme(target.stage, {**own, **groups.own})
        text = json.dumps(whole, indent=2, default=_json) + "\n"
        write_new_file(target.stage / CONFIG, [text.encode()])
        target.publish()


def _writes(given: FromModel) -> bool:
    """Whether this rank writes: the first one does. The others give it their shards, and return
    when it has asked for all of them."""
    import torch.distributed as dist

    if dist.get_rank() == 0:
        return True
    for name in given.layers:
        given.layer(name)
    for _ in given.plain():
        pass
    return False


def _json(value: object) -> str:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    raise TypeError(f"save_checkpoint: config holds a {type(value).__name__}, which is not JSON")
