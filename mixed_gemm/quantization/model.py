"""``quantize_``: swap the ``nn.Linear`` and ``nn.Conv2d`` modules of a model for those of
``mixed_gemm``, in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from typing_extensions import Unpack

from .._freed import packed
from .._progress import Progress, track
from ..formats.sources import RECIPE
from ..nn.experts import stack_experts
from ..nn.fused import fuse_activations
from ..ops.errors import ArgumentTypeError, ArgumentValueError, wrong_value
from .asked import AnyScheme, AskedScheme
from .evaluate import Perplexity, perplexity
from .example import example_of
from .experts import take_apart
from .fuse import fuse_
from .heads import check_heads, refuse_fewer_bits
from .method_for import method_for
from .methods.base import BlockMethod, CompleteMethod, Method, reads_calibration
from .methods.names import FEWER_BITS, named
from .mixed_bits import mixed_bits
from .names import DEFAULT_SKIP
from .options import OldKeywords, Options, showing_old_keywords, told_apart
from .replacing import replace_layer
from .report import LayerReport, Report, warn_that_all_is_dense
from .select import Layer, Skip, Target, select
from .state import evaluating

# quantize_ calls these with every model that it changed: integrations teach a model's library to
# save it.
AFTER_QUANTIZE: list[Callable[[nn.Module], None]] = []


@showing_old_keywords
def quantize_(
    model: nn.Module,
    scheme: AnyScheme = "w4a16",
    *,
    method: str | Method | BlockMethod | None = None,
    calibration: Iterable[Any] | None = None,
    skip: Skip = DEFAULT_SKIP,
    options: Options = Options(),  # noqa: B008 (frozen)
    **keywords: Unpack[OldKeywords],
) -> Report:
    """Replace every ``nn.Linear`` below ``model`` by a :class:`mixed_gemm.Linear` and every
    ``nn.Conv2d`` by a :class:`mixed_gemm.Conv2d`, in place.

    Layers are selected, the method is prepared (with its data, where it reads some), the layers are
    replaced one at a time, and a report tells what became of each.

    Modules of ``nn.Linear``, of a subclass that computes the same (tried on data: ``FalconLinear``,
    say), of ``nn.Conv2d`` and of transformers' ``Conv1D`` (a linear, of GPT-2) are replaced. Left
    alone and reported: layers that ``skip`` names, weights tied to another module (an embedding,
    say), other subclasses, convolutions with groups, layers with hooks or a parametrized weight,
    convolutions where the scheme rounds activations (but for "w8a8" with static ones, which makes
    them :class:`mixed_gemm.Int8Conv2d`), and whatever else holds a matrix: embeddings (unless asked
    for), experts in one tensor. A model on the meta device is converted too, to be filled by
    ``load_state_dict(..., assign=True)``. Memory: one layer at a time.

    Args:
        model: any module; weights float16, bfloat16 or float32, on any device.
        scheme: "w4a16" (4 bits in groups of 128), "w4a16_asym" (with zero points), "w8a16" (8 bits
            per channel), "mxfp4", "nvfp4", "nf4", "fp4" (4-bit floats and code books), "w8a8" (int8
            activations too), "w8a8_block" (the same by blocks of 128), "fp8" (float8 weights and
            activations), a :class:`mixed_gemm.Scheme`, of which
            ``Scheme.named("w4a16", group_size=64)`` is one of these with another setting, or
            f(name, module) that returns a name or a scheme, or None to leave the module alone.
        method: how weights are rounded: None, each to the nearest; "rtn", with the zero
            point of each group that costs least, or of codes that are no integers the scale; "hqq",
            half-quadratic (both without data and in seconds, or minutes where scales are
            searched); "awq", "gptq", "awq+gptq", "autoround", which need calibration;
            "gptq+distill", which needs room for gradients, too; "smoothquant" and
            "smoothquant+gptq", for schemes that round activations to int8; or an object of
            ``mixed_gemm.quantization.methods``, which have settings: ``GPTQ(bits=3)`` finds codes
            of 3 bits, which are stored in 4. "gptq" is for float8 and for int8 activations as well;
            "rtn", "awq", "gptq" and "awq+gptq" are for "mxfp4", "nvfp4", "nf4" and "fp4", too; the
            others are for integers whose activations are left alone. Convolutions are rounded to
            the nearest.
        calibration: batches for methods that need them, and for schemes that round activations:
            for static ones and for ``Options.smooth``. A mapping runs as model(**batch), a tuple or
            list as model(*batch), anything else as model(batch), in eval mode. For text:
            ``text_batches``.
        skip: names to leave alone: glob patterns, matched on whole components anywhere in the
            dotted name ("lm_head", "layers.0", "*_proj"), or f(name, module) -> bool. The default
            leaves output heads (of language models, classifiers, tokens, answers) and routers of
            experts in their dtype, by the names of ``quantization.names.DEFAULT_SKIP``; ``None``
            or ``()`` quantizes them.
        options: the rest, see :class:`mixed_gemm.quantization.Options`.
        bits, group_size, symmetric, zero_mode, activations: the same as in ``Scheme.named``, for
            every layer; ``bits`` may be 3 or 2 with a method that has a setting ``bits``.
        block_size, average_bits, smooth, fuse_activations, embeddings, heads, fuse: as in
            ``Options``.
        evaluate, progress: as there, too; ``evaluate`` is int64 ``[T]``.

    Returns:
        A report: names, reasons, bytes, errors. ``print`` it. Where no layer is quantized, a
        warning says so.

    Raises:
        ValueError: a selected layer cannot be quantized as asked (``group_size`` above its
            in_features, a dtype, NaN or Inf in its weight), a setting does not fit the scheme, or
            calibration is missing, empty or does not reach a layer that needs it. All but NaN in a
            weight is checked before anything is changed.
        TypeError: ``model`` is itself an ``nn.Linear`` or ``nn.Conv2d``, which cannot be replaced
            inside itself.
    """
    if isinstance(model, Layer):
        kind = "Conv2d" if isinstance(model, nn.Conv2d) else "Linear"
        raise ArgumentTypeError(
            f"quantize_: the model is itself an nn.{kind}, which cannot be replaced in place. "
            f"Hint: mixed_gemm.{kind}.from_float(model, ...)"
        )
    words, options = told_apart(options, keywords)
    chosen = None if method is None else named(method, words.get("bits"))
    if fewer := chosen is not None and words.get("bits") in FEWER_BITS:
        words["bits"] = 4
    asked = AskedScheme(scheme, words, options.block_size)
    heads = options.heads_scheme
    refuse_fewer_bits("quantize_", heads, chosen)
    experts = take_apart(model)
    try:
        targets, skipped = select(model, asked, skip, options.rows_scheme, heads)
        experts.put_back(targets, skipped)
        check_heads("quantize_", model, options.rows_scheme, heads, targets, skipped)
        if not targets:
            warn_that_all_is_dense("quantize_", model, skipped)
        _refuse(targets)
        if options.average_bits is not None and fewer:
            wrong_value("quantize_", "bits", "be 4 with average_bits", "fewer")
        example = _example(model, calibration) if options.fuse and targets else None
        average = None
        if options.average_bits is not None:
            calibration = None if calibration is None else list(calibration)
            average = mixed_bits(model, targets, options.average_bits, calibration)
            if chosen is None or not reads_calibration(chosen):
                calibration = None  # it has been read, and the method reads none
        rounding, before = _prepare(model, targets, asked, chosen, calibration, options)
    except BaseException:
        experts.put_back()
        raise
    layers = _replace(model, targets, skipped, rounding, options)
    experts.settle()
    stack_experts(model)
    products = None if example is None else fuse_(model, example_inputs=example)
    report = _report(model, targets, rounding, layers, before, options)
    return replace(report, products=products, average=average)


def _example(model: nn.Module, calibration: Iterable[Any] | None) -> Any:
    """Return what the model is run on to see which layers read the same."""
    if isinstance(calibration, list | tuple) and calibration:
        return calibration[0]
    return example_of(
        "quantize_", "fuse", model,
        hint="without it, and then mixed_gemm.fuse_(model, example_inputs=...)",
    )  # fmt: skip


def _refuse(targets: Mapping[str, Target]) -> None:
    """Raise ValueError for layers that cannot be quantized as asked."""
    problems = [text for name, target in targets.items() if (text := target.problem(name))]
    if problems:
        raise ArgumentValueError(
            "quantize_: nothing was changed, because of\n  "
            + "\n  ".join(problems)
            + "\nHint: name these layers in skip, or choose per layer: scheme=lambda name, module: "
            "mixed_gemm.Scheme.weight_only(4, 128 if module.in_features >= 128 else -1)"
        )


def _prepare(
    model: nn.Module,
    targets: Mapping[str, Target],
    asked: AskedScheme,
    chosen: BlockMethod | CompleteMethod | None,
    calibration: Iterable[Any] | None,
    options: Options,
) -> tuple[CompleteMethod, Perplexity | None]:
    """Return the method, prepared, and the perplexity of the dense model."""
    rounded = {name: x for name, x in targets.items() if x.is_rounded_by_a_method}
    rounds_activations = asked.rounds_activations(x.scheme for x in rounded.values())
    rounding = method_for(chosen, rounded, rounds_activations, options.smooth, options.progress)
    before = _perplexity(model, options.evaluate, options.progress)
    rounding.prepare(model, rounded, calibration)
    return rounding, before


def _replace(
    model: nn.Module,
    targets: Mapping[str, Target],
    skipped: Mapping[str, str],
    rounding: CompleteMethod,
    options: Options,
) -> dict[str, LayerReport]:
    """Put quantized modules in the places of the layers, one at a time."""
    layers = {name: LayerReport(name, reason=reason) for name, reason in skipped.items()}
    for name, target in track(list(targets.items()), "quantize", options.progress):
        layers[name] = replace_layer(name, target, rounding, targets.get(target.tied))
        packed(layers[name].bytes_before)
    if options.fuse_activations:
        fused = fuse_activations(model)
        for name, target in targets.items():
            parent, child = target.places[0]
            if (activation := fused.get(id(getattr(parent, child)))) is not None:
                layers[name] = replace(layers[name], activation=activation)
    return layers


def _report(
    model: nn.Module,
    targets: Mapping[str, Target],
    rounding: CompleteMethod,
    layers: dict[str, LayerReport],
    before: Perplexity | None,
    options: Options,
) -> Report:
    """Note on the model how it was quantized, tell the integrations, and sum up."""
    schemes = sorted({str(target.scheme) for target in targets.values()})
    setattr(model, RECIPE, {"method": repr(rounding), "schemes": schemes})
    for told in AFTER_QUANTIZE:
        told(model)
    after = _perplexity(model, options.evaluate, options.progress)
    return Report(layers, before, after, rounding.calibrated)


def _perplexity(
    model: nn.Module, tokens: torch.Tensor | None, progress: Progress
) -> Perplexity | None:
    if tokens is None:
        return None
    with evaluating(model):
        return perplexity(model, tokens, progress=progress)
