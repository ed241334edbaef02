"""The rows: a tiny model each, and how it is quantized. Every scheme that a user may ask for by
name is one, so that a new name gets its row by itself; the others are what else a weight may have.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers

import mixed_gemm
from mixed_gemm.formats import QuantizedWeight
from mixed_gemm.quantization.names import DEFAULT_SKIP
from mixed_gemm.weights.scheme import SCHEMES, Scheme
from trips.models import IMAGES, Model, architectures, llama, vit

K = 128  # width of the tiny Llama: the least that the group of "w4a16" divides


@dataclass(frozen=True)
class Subject:
    """One row.

    name: as the table has it. model: what is quantized.
    options: of ``quantize_``.
    change: what is done to each weight afterwards; None leaves them.
    cli: the options of ``mixed-gemm quantize`` that ask for the same; None where it has none, and
        ``mixed-gemm convert`` is tried instead.
    bound: how far a model that was read may be from the one that was saved: 0, but for what the
        files hold dense.
    is_architecture: a row of the second table, with fewer columns.
    """

    name: str
    model: Model
    options: dict[str, Any]
    change: Callable[[QuantizedWeight], QuantizedWeight] | None = None
    cli: tuple[str, ...] | None = None
    bound: float = 0.0
    is_architecture: bool = False

    def dense(self) -> Any:
        """The model before, the same at every call, in float32 and eval mode."""
        return self.model.build()

    def quantized(self) -> Any:
        """The model after."""
        return self.with_report()[0]

    def with_report(self) -> tuple[Any, mixed_gemm.Report]:
        """The model after, and what quantize_ says."""
        model, options = self.dense(), dict(self.options)
        if options.get("activations", "").startswith("static") or "smooth" in options:
            torch.manual_seed(1)
            options["calibration"] = [dict(self.model.inputs())]
        report = mixed_gemm.quantize_(model, **options, progress=False)
        for name, layer in list(model.named_modules()):
            if self.change and isinstance(layer, mixed_gemm.Linear):
                weight = self.change(layer.to_quantized_weight(name))
                model.set_submodule(name, weight.to_linear().eval())
        return model, report


def _act_order(weight: QuantizedWeight) -> QuantizedWeight:
    """GPTQ's order of the columns."""
    torch.manual_seed(2)
    return replace(weight, permutation=torch.randperm(weight.shape[1]))


def _pre_scaled(weight: QuantizedWeight) -> QuantizedWeight:
    """AWQ's scales of the activations."""
    torch.manual_seed(3)
    return replace(weight, pre_scale=0.5 + torch.rand(weight.shape[1]))


def _real_zeros(weight: QuantizedWeight) -> QuantizedWeight:
    """HQQ's zero points, which are no integers."""
    assert weight.zeros is not None
    return replace(weight, zeros=weight.zeros + 0.25)


def _by_layer(name: str, layer: Any) -> Scheme:
    """Several schemes in one model, whose layers the files must tell apart by name."""
    return Scheme.weight_only(4, 32) if ".mlp." in name else Scheme.weight_only(8, -1)


def subjects() -> tuple[Subject, ...]:
    """All rows; those whose name holds $ROUND_TRIPS_ONLY where that is set."""
    only = os.environ.get("ROUND_TRIPS_ONLY", "")
    return tuple(x for x in (*_schemes(), *_architectures()) if only in x.name)


def _architectures() -> Iterator[Subject]:
    for model in architectures():
        # The command line reads files without a model, and so no convolutions.
        dense = {"skip": (*DEFAULT_SKIP, "projection")} if model.auto == IMAGES else {}
        # Nor experts that a file holds in one tensor.
        cli = None if model.name == "gpt-oss" else ("--group-size", "32")
        yield Subject(
            model.name, model, {"group_size": 32, **dense}, cli=cli, is_architecture=True,
        )  # fmt: skip


def _schemes() -> Iterator[Subject]:
    for name in SCHEMES:
        yield Subject(f'"{name}"', llama(K), {"scheme": name}, cli=("--scheme", name))
    small = llama(K)
    for bits, size, zeros in ((4, 32, False), (4, 32, True), (4, -1, True), (8, 32, False),
                              (8, -1, True)):  # fmt: skip
        text = f"int{bits}, {'per channel' if size == -1 else f'groups of {size}'}"
        options = {"bits": bits, "group_size": size, "symmetric": not zeros}
        asked = ("--bits", str(bits), "--group-size", str(size), *(["--asymmetric"] * zeros))
        yield Subject(f"{text}{', zeros' * zeros}", small, options, cli=asked)
    grouped = {"bits": 4, "group_size": 32, "symmetric": False}
    ragged = ("--bits", "4", "--group-size", "48", "--ragged")
    head = {"scheme": "w8a16", "skip": ()}
    yield Subject("int8, lm_head too", small, head, cli=("--scheme", "w8a16", "--skip", "nothing"))
    rows = {"scheme": "w8a16", "embeddings": True}
    yield Subject("int8, embeddings too", small, rows)
    tied = llama(K, tie_word_embeddings=True)
    for name in ("w8a16", "mxfp4"):
        text = f'"{name}", tied embedding and head too'
        yield Subject(text, tied, {"scheme": name, "embeddings": name})
    yield Subject("int4, ragged last group", small, {"bits": 4, "group_size": 48}, cli=ragged)
    yield Subject("int4, added zeros", small, {**grouped, "zero_mode": "add"})
    yield Subject("int4, real zeros", small, grouped, _real_zeros)
    yield Subject("int4, act-order", small, grouped, _act_order)
    yield Subject("int4, pre_scale (AWQ)", small, grouped, _pre_scaled)
    for mode in ("dynamic_azp", "static", "static_azp"):
        yield Subject(f"w8a8, {mode}", small, {"scheme": "w8a8", "activations": mode})
    block = ("--scheme", "w8a8_block", "--group-size")
    offsets = {"scheme": "w8a8_block", "group_size": 32, "symmetric": False}
    asked = (*block, "32", "--asymmetric")
    yield Subject("w8a8_block, offsets", small, offsets, cli=asked)
    ragged_block = {"scheme": "w8a8_block", "group_size": 48}
    asked = (*block, "48", "--ragged")
    yield Subject("w8a8_block, ragged last block", small, ragged_block, cli=asked)
    yield Subject("fp8, static", small, {"scheme": "fp8", "activations": "static"})
    yield Subject("w8a8, smoothed (pre_scale)", small, {"scheme": "w8a8", "smooth": 0.5})
    yield Subject("int8 with Conv2d (ViT)", vit(), {"scheme": "w8a16"}, bound=1e-5)
    static = {"scheme": "w8a8", "activations": "static"}
    yield Subject("w8a8, static, with Conv2d (ViT)", vit(), static, bound=0.05)
    yield Subject("int4 and int8, by layer (ViT)", vit(), {"scheme": _by_layer}, bound=1e-5)


def auto(name: str) -> Any:
    """The class of transformers that loads it."""
    return getattr(transformers, name)
