"""Unquantized files: which layers of a model are quantized while transformers reads them, and
output heads that are tied to an embedding among these.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.quantizers.quantizers_utils import should_convert_module

from ...formats.experts import is_expert
from ...formats.index import TensorIndex
from ...quantization.experts import take_apart
from ...quantization.heads import check_heads
from ...quantization.names import DEFAULT_SKIP, skipped_by, without_heads
from ...quantization.report import warn_that_all_is_dense
from ...quantization.select import select
from ...weights.scheme import Scheme
from .config import WHERE, MixedGemmConfig
from .experts import are_apart_in, names_of
from .names import weights_in
from .stacked_files import Shapes, are_stacked_in, stacks_of
from .tied_head import PendingHead
from .tying import TIED, untie


@dataclass
class Chosen:
    """The layers to quantize.

    Attributes:
        schemes: name of a layer -> its scheme. rows: those of them that are embeddings with rows of
            int8, by which nothing multiplies. ties: name of an output head -> that of the packed
            embedding that it is tied to; it has no tensor of its own. stacks: name of a module
            whose experts are linears now, and which the files have in one tensor -> the shapes of
            its tensors.
    """

    schemes: dict[str, Scheme] = field(default_factory=dict)
    rows: set[str] = field(default_factory=set)
    ties: dict[str, str] = field(default_factory=dict)
    stacks: dict[str, Shapes] = field(default_factory=dict)


def choose(model: Any, config: MixedGemmConfig, files: Sequence[Path] = ()) -> Chosen:
    """Return what ``quantize_`` would quantize of the model once it is loaded; but no experts that
    are read from elsewhere than files, or that transformers converts as tensors of three
    dimensions.

    Args:
        model: of transformers, on the meta device. config: what is asked for.
        files: that are going to be read.

    Raises:
        ValueError: a layer does not fit its scheme, or heads cannot be quantized as asked.
    """
    keep, embeddings, heads = config.modules_to_not_convert, config.rows_scheme, config.heads_scheme
    of_linears = DEFAULT_SKIP if heads is False else without_heads(DEFAULT_SKIP)

    def skip(name: str, module: nn.Module) -> bool:
        by_default = of_linears if isinstance(module, nn.Linear) else DEFAULT_SKIP
        return bool(skipped_by(name, by_default)) or not should_convert_module(name, keep)

    def scheme_of(name: str, module: nn.Module) -> Scheme | None:
        return config.scheme_for(module.in_features) if isinstance(module, nn.Linear) else None

    names = names_of(model) if are_apart_in(files) else None
    stacks = {} if names is not None else _stacks(model, files)
    experts = take_apart(model, names) if names is not None or stacks else None
    with _tied(model):
        targets, skipped = select(model, scheme_of, skip, embeddings, heads)
        if experts is not None and stacks:
            experts.put_back(targets, skipped)
        # All of them or none: conversions of keys are for all of a model.
        elif experts is not None and not experts.hold_any_of(targets):
            experts.put_back((), skipped)
        check_heads(WHERE, model, embeddings, heads, targets, skipped)
    for target in targets.values():
        target.scheme = config.fitted(target.scheme, target.layer.weight.shape[1])
    if problems := [text for name, x in targets.items() if (text := x.problem(name))]:
        raise ValueError(
            "mixed_gemm: nothing was loaded, because of\n  " + "\n  ".join(problems) + "\n"
            "Hint: MixedGemmConfig(modules_to_not_convert=[...]), or a smaller group_size"
        )
    if not targets:
        warn_that_all_is_dense(WHERE, model, skipped)
    if experts is None and (joined := [x for x in skipped if is_expert(x)]):
        source = "files" if files else "a state_dict"
        warnings.warn(
            f"{WHERE}: {joined[0]} and all other experts stay dense, since they come from {source} "
            "in a form of which no single expert is read. Hint: load the model as it is, then "
            "mixed_gemm.quantize_",
            stacklevel=2,
        )
    if embeddings is not False:
        _tell_what_stays(
            model, {x: y for x, y in skipped.items() if should_convert_module(x, keep)}
        )
    tables = {name for name, x in targets.items() if isinstance(x.layer, nn.Embedding)}
    return Chosen(
        {name: x.scheme for name, x in targets.items() if not x.tied},
        {name for name in tables if not targets[name].packs_rows},
        {name: x.tied for name, x in targets.items() if x.tied},
        stacks,
    )


def _stacks(model: Any, files: Sequence[Path]) -> dict[str, Shapes]:
    """The stacked tensors of a model's experts, where its files have all of them."""
    mapping = get_model_conversion_mapping(model)
    return stacks_of(model) if are_stacked_in(model, files, mapping) else {}


@contextmanager
def _tied(model: Any) -> Iterator[None]:
    """Have parameters that transformers is going to tie be the same ones meanwhile: it does so when
    all is loaded."""
    known: dict[str, str] = getattr(model, "all_tied_weights_keys", None) or {}
    before: list[tuple[nn.Module, str, Any]] = []
    try:
        for target, source in known.items():
            path, _, part = target.rpartition(".")
            owner = model.get_submodule(path)
            before.append((owner, part, owner._parameters[part]))
            owner._parameters[part] = model.get_parameter(source)
        yield
    finally:
        for owner, part, parameter in reversed(before):
            owner._parameters[part] = parameter


def _tell_what_stays(model: nn.Module, skipped: Mapping[str, str]) -> None:
    """Warn of embeddings that stay dense though embeddings are asked for: no report tells.

    Args:
        skipped: name -> why, but for those that the user named.
    """
    tables = [name for name, x in model.named_modules() if isinstance(x, nn.Embedding)]
    dense = [f"{name}: {skipped[name]}" for name in tables if name in skipped]
    if dense:
        warnings.warn(f"{WHERE}: embeddings stay dense: {'; '.join(dense)}", stacklevel=2)


def wait_for_embeddings(
    model: Any, chosen: Chosen, files: Sequence[Path], mapping: Sequence[Any]
) -> dict[str, str]:
    """Put placeholders in the places of heads whose tensor that of an embedding is going to be.

    Args:
        model: on the meta device. chosen: of it. files: that are read.
        mapping: how transformers converts the keys of the files.

    Returns:
        Name of a head -> name of its embedding.

    Raises:
        ValueError: the files do not have one tensor for both.
    """
    if not chosen.ties:
        return {}
    if not files:
        raise ValueError(
            f"{WHERE}: embeddings that are tied to an output head are packed from files, not from "
            "a state_dict. Hint: load the model, then mixed_gemm.quantize_"
        )
    index = TensorIndex(files[0].parent, files)
    stored = weights_in(model, index.names(), mapping)
    for head, table in chosen.ties.items():
        _refuse_two(index, stored, head, table)
    heads = untie(model, set(chosen.ties.values()), lambda parameter: False)
    ignored = set(model._keys_to_ignore_on_load_unexpected or ())
    for head in heads:
        model.set_submodule(head, PendingHead(model.get_submodule(head)))
        if head in stored:
            ignored |= {re.escape(f"{head}.weight")}
    model._keys_to_ignore_on_load_unexpected = ignored
    return heads


def _refuse_two(index: TensorIndex, stored: Mapping[str, str], head: str, table: str) -> None:
    """Raise ValueError unless the files have the tensor of an embedding, and for its head none, or
    the same."""
    if table not in stored:
        raise ValueError(
            f"{WHERE}: {head} is tied to {table}, of which {index.path} has no tensor. Hint: load "
            "the model, then mixed_gemm.quantize_"
        )
    if head not in stored:
        return
    one, other = (index.load(f"{stored[name]}.weight") for name in (table, head))
    if one.shape != other.shape or not torch.equal(one, other):
        raise ValueError(
            f"{WHERE}: {head} is tied to {table} by the configuration, and {index.path} has "
            f"another tensor for it. Hint: {TIED}=False"
        )
