"""``quantize_``: swap the ``nn.Linear`` and ``nn.Conv2d`` modules of a model for those of
``mixed_gemm``, in place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn

from .._progress import Progress, track
from ..formats.save import RECIPE
from ..nn.conv import Conv2d, default_block_size
from ..nn.conv_int8 import Int8Conv2d
from ..nn.embedding import Embedding
from ..nn.fused import fuse_activations as fused_by_id
from ..nn.linear import Linear
from ..ops.errors import ArgumentTypeError, ArgumentValueError, wrong_value
from ..weights.conv_int8 import Int8ConvWeight
from ..weights.rows import RowsWeight
from ..weights.scheme import Scheme, refined
from ..weights.tensor import QuantizedTensor
from .evaluate import Perplexity, perplexity
from .method_for import method_for
from .methods.base import BlockMethod, CompleteMethod, Method, reads_calibration
from .methods.names import FEWER_BITS, named
from .mixed_bits import mixed_bits
from .report import LayerReport, Report, warn_that_all_is_dense
from .select import DEFAULT_SKIP, Layer, Skip, Target, select
from .state import evaluating

# Called with every model that quantize_ changed: integrations teach a model's library to save it.
AFTER_QUANTIZE: list[Callable[[nn.Module], None]] = []

AnyScheme = str | Scheme | Callable[[str, Any], str | Scheme | None]


def quantize_(
    model: nn.Module,
    scheme: AnyScheme = "w4a16",
    *,
    bits: int | None = None,
    group_size: int | None = None,
    symmetric: bool | None = None,
    zero_mode: str | None = None,
    activations: str | None = None,
    block_size: int | None = None,
    skip: Skip = DEFAULT_SKIP,
    method: str | Method | BlockMethod | None = None,
    calibration: Iterable[Any] | None = None,
    average_bits: float | None = None,
    smooth: float | Literal["search"] | None = None,
    fuse_activations: bool = False,
    embeddings: bool = False,
    evaluate: torch.Tensor | None = None,
    progress: Progress = True,
) -> Report:
    """Replace every ``nn.Linear`` below ``model`` by a :class:`mixed_gemm.Linear` and every
    ``nn.Conv2d`` by a :class:`mixed_gemm.Conv2d`, in place.

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
            per channel), "w8a8" (int8 activations too), "w8a8_block" (the same by blocks of 128),
            "fp8" (float8 weights and activations), a :class:`mixed_gemm.Scheme`, or
            f(name, module) that returns one of these, or None to leave the module alone.
        bits, group_size, symmetric, zero_mode, activations: what of the scheme is another way; see
            ``Scheme.weight_only``, ``Scheme.w8a8``, ``Scheme.w8a8_block`` and ``Scheme.fp8``.
        block_size: of convolutions: input channels that share a scale, -1 or a multiple of 16.
            None: 128, or -1 where there are no more channels.
        skip: names to leave alone: glob patterns, matched on whole components anywhere in the
            dotted name ("lm_head", "layers.0", "*_proj"), or f(name, module) -> bool. The default
            leaves output heads (of language models, classifiers, tokens, answers) and routers of
            experts in their dtype, by the names of ``quantization.select.DEFAULT_SKIP``; ``None``
            or ``()`` quantizes them.
        method: how weights are rounded: None, each to the nearest; "rtn", with the zero
            point of each group that costs least; "hqq", half-quadratic (both in seconds and
            without data); "awq", "gptq", "awq+gptq", "autoround", which need calibration;
            "gptq+distill", which needs room for gradients, too; "smoothquant" and
            "smoothquant+gptq", for schemes that round activations to int8; or an object of
            ``mixed_gemm.quantization.methods``, which have settings. "gptq" is for float8 and for
            int8 activations as well; the others are for integers whose activations are left
            alone. Convolutions are rounded to the nearest. With a method, bits may be 3 or 2,
            which are stored in 4.
        calibration: batches for methods that need them, and for schemes that round activations:
            for static ones and for ``smooth``. A mapping runs as model(**batch), a tuple or list as
            model(*batch), anything else as model(batch), in eval mode. Of text: ``text_batches``.
        average_bits: 4..8: layers of 4 bits get 8 where that changes outputs most, measured with
            the calibration data (without: by the weights), as far as the average of a weight
            allows. Not for schemes that round activations.
        smooth: for those of int8: alpha of SmoothQuant (0.5 is usual), or "search", what
            method="smoothquant" does: for each layer the one by which its output changes least.
            Factors are folded into the norm or linear before, whose weights change, or kept as a
            pre_scale.
        fuse_activations: whether an ``nn.Sequential`` runs a layer and the ReLU, ReLU6, GELU or
            SiLU right behind it in one kernel: see ``mixed_gemm.nn.FusedSequential``. Not for
            linears of "w8a8" and "fp8"; an ``Int8Conv2d`` runs ReLU only.
        embeddings: whether every ``nn.Embedding`` becomes a :class:`mixed_gemm.Embedding`, rows of
            int8 with a scale each, whatever the scheme; ``skip`` counts, and one that is tied (to
            an output head, say) stays.
        evaluate: int64 ``[T]``, tokens of a text: the report has the perplexity before and after,
            of a model that gives logits. Not what it is calibrated on.
        progress: a bar on stderr: True on a terminal only, "force" always, False never.

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

    def scheme_of(name: str, layer: Any) -> Scheme | None:
        asked = scheme(name, layer) if callable(scheme) else scheme
        if asked is None:
            return None
        found = refined(
            "quantize_", asked, bits=bits, group_size=group_size, symmetric=symmetric,
            zero_mode=zero_mode, activations=activations,
        )  # fmt: skip
        if isinstance(layer, nn.Conv2d) and found.is_weight_only:
            if block_size is not None:
                return found.for_convolution(block_size)
            own = callable(scheme)  # it has seen the layer
            return found.for_convolution(
                found.group_size if own else default_block_size(layer.in_channels)
            )
        return found

    chosen = None if method is None else named(method, bits)
    if fewer := chosen is not None and bits in FEWER_BITS:
        bits = 4
    if not callable(scheme):
        scheme_of("", None)  # refuses what does not fit each other, even if no layer is selected
    targets, skipped = select(model, scheme_of, skip, embeddings)
    if not targets:
        warn_that_all_is_dense("quantize_", model, skipped)
    _refuse(targets)
    # Rows of an embedding are rounded by themselves, whatever the method.
    others = {name: x for name, x in targets.items() if not isinstance(x.layer, nn.Embedding)}
    if average_bits is not None:
        if fewer:
            wrong_value("quantize_", "bits", "be 4 with average_bits", "fewer")
        calibration = None if calibration is None else list(calibration)
        mixed_bits(model, others, average_bits, calibration)
        if chosen is None or not reads_calibration(chosen):
            calibration = None  # it has been read, and the method reads none
    way = method_for(chosen, others, _rounds_activations(others, scheme), smooth, progress)
    before = _perplexity(model, evaluate, progress)
    way.prepare(model, others, calibration)
    layers = {name: LayerReport(name, reason=reason) for name, reason in skipped.items()}
    for name, target in track(list(targets.items()), "quantize", progress):
        layers[name] = _replace(name, target, way)
    if fuse_activations:
        fused = fused_by_id(model)
        for name, target in targets.items():
            parent, child = target.places[0]
            if (activation := fused.get(id(getattr(parent, child)))) is not None:
                layers[name] = replace(layers[name], activation=activation)
    setattr(model, RECIPE, {"method": repr(way), "schemes": _schemes_in(targets)})
    for told in AFTER_QUANTIZE:
        told(model)
    return Report(layers, before, _perplexity(model, evaluate, progress), way.calibrated)


def _perplexity(
    model: nn.Module, tokens: torch.Tensor | None, progress: Progress
) -> Perplexity | None:
    if tokens is None:
        return None
    with evaluating(model):
        return perplexity(model, tokens, progress=progress)


def _rounds_activations(targets: dict[str, Target], scheme: AnyScheme) -> bool:
    if not callable(scheme) and not targets:
        return refined("quantize_", scheme).input_activations is not None
    return any(x.scheme.input_activations is not None for x in targets.values())


def _schemes_in(targets: dict[str, Target]) -> list[str]:
    return sorted({str(target.scheme) for target in targets.values()})


def _refuse(targets: dict[str, Target]) -> None:
    problems = [text for name, target in targets.items() if (text := target.problem(name))]
    if problems:
        raise ArgumentValueError(
            "quantize_: nothing was changed, because of\n  "
            + "\n  ".join(problems)
            + "\nHint: name these layers in skip, or choose per layer: scheme=lambda name, module: "
            "mixed_gemm.Scheme.weight_only(4, 128 if module.in_features >= 128 else -1)"
        )


def _replace(name: str, target: Target, method: CompleteMethod) -> LayerReport:
    begun, layer = time.perf_counter(), target.layer
    try:
        rows = isinstance(layer, nn.Embedding)
        weight = RowsWeight.from_float(layer.weight) if rows else method.weight(name, target)
    except ValueError as error:
        raise ArgumentValueError(f"quantize_: {name}: {error}") from error
    new = _module_for(weight, layer).around(weight, layer)
    if isinstance(new, Linear):
        new.is_conv1d = target.module is not layer
    for parent, child_name in target.places:
        setattr(parent, child_name, new)
        _leave_fast_path(parent)
    return LayerReport(
        name,
        weight.scheme,
        bytes_before=layer.weight.nbytes,
        bytes_after=weight.stored_bytes,
        weight_error=_error(layer.weight, weight, method.note(name)),
        output_error=method.output_error(name),
        seconds=time.perf_counter() - begun,
        note=method.note(name),
    )


def _module_for(weight: QuantizedTensor, layer: nn.Module) -> Any:
    """The class of module that holds a weight."""
    if isinstance(weight, Int8ConvWeight | RowsWeight):
        return Int8Conv2d if isinstance(weight, Int8ConvWeight) else Embedding
    return Conv2d if isinstance(layer, nn.Conv2d) else Linear


@torch.no_grad()
def _error(dense: torch.Tensor, weight: QuantizedTensor, note: str) -> float | None:
    """None where the weight was changed by more than rounding (factors were folded)."""
    if dense.is_meta or note.startswith("folded"):
        return None
    exact = dense.float()
    return float((weight.dequantize(torch.float32) - exact).norm() / exact.norm().clamp(min=1e-30))


def _leave_fast_path(parent: nn.Module) -> None:
    """nn.TransformerEncoderLayer has an inference path that reads linear1.weight itself; this flag
    of it is what nn.TransformerEncoder looks at as well."""
    if isinstance(parent, nn.TransformerEncoderLayer):
        parent.activation_relu_or_gelu = 0
