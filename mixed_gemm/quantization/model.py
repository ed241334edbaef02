"""``quantize_``: swap the ``nn.Linear`` and ``nn.Conv2d`` modules of a model for those of
``mixed_gemm``, in place."""

from __future__ import annotations

import fnmatch
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from .._progress import Progress, track
from ..nn.conv import Conv2d, default_block_size, why_not_conv2d
from ..nn.linear import Linear
from ..ops.conv_problem import check_block_size
from ..ops.problem import DTYPES, check_bits, check_group_size
from .w8a8 import prepare, w8a8_problem

Layer = nn.Linear | nn.Conv2d
Bits = int | Callable[[str, Any], int]  # of the name and the nn.Linear or nn.Conv2d
GroupSize = int | Callable[[str, nn.Linear], int]
BlockSize = int | Callable[[str, nn.Conv2d], int] | None
Skip = str | Iterable[str] | Callable[[str, nn.Module], bool] | None

# The output head is the layer that rounding hurts most; AutoAWQ, GPTQModel and llm-compressor leave
# it alone by default too.
DEFAULT_SKIP = ("lm_head",)
SCHEMES = ("weight_only", "w8a8")


@dataclass(frozen=True)
class QuantizeReport:
    """What :func:`quantize_` did.

    Attributes:
        quantized: names of the modules that were replaced.
        skipped: name -> reason, for every other ``nn.Linear`` and ``nn.Conv2d`` (subclasses
            included).
        bytes_before: of the replaced dense weights.
        bytes_after: of what stands for them: packed weights, scales, zeros and offsets.
        smoothed: name -> where the factors of SmoothQuant went.
    """

    quantized: tuple[str, ...]
    skipped: dict[str, str]
    bytes_before: int
    bytes_after: int
    smoothed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        ratio = f", {self.bytes_before / self.bytes_after:.2f}x" if self.bytes_after else ""
        lines = [
            f"{len(self.quantized)} layers quantized: {self.bytes_before / 1e6:.2f} MB -> "
            f"{self.bytes_after / 1e6:.2f} MB of weights{ratio}"
        ]
        if self.smoothed:
            folded = sum(where.startswith("folded") for where in self.smoothed.values())
            lines.append(
                f"{len(self.smoothed)} layers smoothed: {folded} folded into the layer before, "
                f"{len(self.smoothed) - folded} with a pre_scale"
            )
        if self.skipped:
            lines.append(f"{len(self.skipped)} layers skipped:")
            lines += [f"  {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)


@dataclass
class _Job:
    layer: Layer
    bits: int
    group_size: int
    places: list[tuple[nn.Module, str]]  # parent and name of child


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern fits any run of whole components: "lm_head" fits "model.lm_head", and
    "layers.0" fits everything below "model.layers.0"."""
    parts = name.split(".")
    runs = (".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
    return any(fnmatch.fnmatchcase(run, pattern) for run in runs)


def _skip_reason(skip: Skip, model: nn.Module) -> Callable[[str, nn.Module], str]:
    if skip is None:
        return lambda name, module: ""
    if callable(skip):
        return lambda name, module: "skip(name, module) is true" if skip(name, module) else ""
    patterns = (skip,) if isinstance(skip, str) else tuple(skip)
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    for pattern in patterns:
        if pattern not in DEFAULT_SKIP and not any(matches(name, pattern) for name in names):
            warnings.warn(f"quantize_: skip={pattern!r} matches no module", stacklevel=3)
    return lambda name, module: next(
        (f"matches skip={p!r}" for p in patterns if matches(name, p)), ""
    )


def _weight_owners(model: nn.Module) -> dict[int, set[int]]:
    """id of a parameter -> ids of the modules that hold it: two or more mean tied weights."""
    owners: dict[int, set[int]] = defaultdict(set)
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners[id(parameter)].add(id(module))
    return owners


def _why_left_alone(layer: Layer, owners: dict[int, set[int]], w8a8: bool) -> str:
    if isinstance(layer, Linear | Conv2d):
        return "quantized already"
    exact = nn.Conv2d if isinstance(layer, nn.Conv2d) else nn.Linear
    if type(layer) is not exact:
        return f"is a {type(layer).__name__}, not exactly nn.{exact.__name__}"
    if isinstance(layer, nn.Conv2d) and w8a8:
        return 'is a convolution, and scheme="w8a8" has linears only'
    if isinstance(layer, nn.Conv2d) and (reason := why_not_conv2d(layer)):
        return reason
    if "weight" not in layer._parameters:
        return "its weight is computed, not a parameter (weight norm, parametrization)"
    if layer.weight.numel() == 0:
        return "its weight is empty"
    if len(owners[id(layer.weight)]) > 1:
        return "its weight is tied to another module"
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks:
        return "has hooks, which a swap would drop"
    return ""


def _problem(name: str, job: _Job) -> str:
    """Why a selected layer cannot be quantized; empty when it can."""
    if job.layer.weight.dtype not in DTYPES:
        return f"{name}: dtype {job.layer.weight.dtype} is not float16, bfloat16 or float32"
    try:
        check_bits(name, job.bits)
        if isinstance(job.layer, nn.Conv2d):
            check_block_size(name, job.group_size, job.layer.in_channels)
        else:
            check_group_size(name, job.group_size, job.layer.in_features)
    except ValueError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class _Sizes:
    """How many elements of K share a scale, layer by layer."""

    group_size: GroupSize
    block_size: BlockSize

    def of(self, name: str, layer: Layer) -> int:
        if isinstance(layer, nn.Linear):
            return self.group_size(name, layer) if callable(self.group_size) else self.group_size
        if self.block_size is None:
            return default_block_size(layer.in_channels)
        return self.block_size(name, layer) if callable(self.block_size) else self.block_size


def _plan_jobs(
    model: nn.Module, bits: Bits, sizes: _Sizes, skip: Skip, w8a8: bool
) -> tuple[dict[str, _Job], dict[str, str]]:
    reason_to_skip, owners = _skip_reason(skip, model), _weight_owners(model)
    jobs: dict[str, _Job] = {}
    by_module: dict[int, _Job] = {}
    skipped: dict[str, str] = {}
    for name, child in model.named_modules(remove_duplicate=False):
        if not isinstance(child, Layer):
            continue
        parent_name, _, child_name = name.rpartition(".")
        place = (model.get_submodule(parent_name), child_name)
        if id(child) in by_module:  # one module at two places stays one module
            by_module[id(child)].places.append(place)
            continue
        reason = _why_left_alone(child, owners, w8a8) or reason_to_skip(name, child)
        if reason:
            skipped[name] = reason
            continue
        jobs[name] = by_module[id(child)] = _Job(
            child,
            bits(name, child) if callable(bits) else bits,
            sizes.of(name, child),
            [place],
        )
    return jobs, skipped


def quantize_(
    model: nn.Module,
    bits: Bits = 4,
    group_size: GroupSize = 128,
    symmetric: bool = True,
    skip: Skip = DEFAULT_SKIP,
    progress: Progress = True,
    *,
    block_size: BlockSize = None,
    zero_mode: str = "sub",
    scheme: str = "weight_only",
    activations: str = "dynamic",
    calibration: Iterable[Any] | None = None,
    smooth: float | None = None,
) -> QuantizeReport:
    """Replace every ``nn.Linear`` below ``model`` by a :class:`mixed_gemm.Linear` and every
    ``nn.Conv2d`` by a :class:`mixed_gemm.Conv2d`, in place, with round-to-nearest weights.

    ``scheme="w8a8"`` makes :class:`mixed_gemm.LinearW8A8` of the linears: int8 weights with a scale
    for each output channel, and int8 activations. ``bits``, ``group_size``, ``symmetric`` and
    ``zero_mode`` then mean nothing, and convolutions are left alone.

    Only modules whose type is exactly ``nn.Linear`` or ``nn.Conv2d`` are replaced. Left alone and
    reported: layers that ``skip`` names, weights tied to another module (an embedding, say),
    subclasses, convolutions with groups, layers with hooks or a parametrized weight. A model on the
    meta device is converted too, to be filled by ``load_state_dict(..., assign=True)``. Memory: one
    layer at a time.

    Args:
        model: any module; weights float16, bfloat16 or float32, on any device.
        bits: 4 or 8, or f(name, layer) -> int.
        group_size: -1 or a multiple of 16, or f(name, linear) -> int, for models whose layers need
            different ones.
        block_size: of convolutions: input channels that share a scale, -1 or a multiple of 16, or
            f(name, conv) -> int. None: 128, or -1 where there are no more channels.
        symmetric: no zero points, and no offsets in convolutions.
        skip: names to leave alone: glob patterns, matched on whole components anywhere in the
            dotted name ("lm_head", "layers.0", "*_proj"), or f(name, module) -> bool. The default
            leaves ``lm_head`` in its dtype, as AutoAWQ, GPTQModel and llm-compressor do; ``None``
            or ``()`` quantizes it.
        progress: a bar on stderr: True on a terminal only, "force" always, False never.
        zero_mode: "sub" or "add", see ``Linear.from_float``; used when not symmetric.
        scheme: "weight_only" or "w8a8".
        activations: of w8a8: "dynamic", "dynamic_azp", "static" or "static_azp"; see
            ``LinearW8A8``.
        calibration: of w8a8: batches for static activations and for ``smooth``. A mapping runs as
            model(**batch), a tuple or list as model(*batch), anything else as model(batch), in eval
            mode.
        smooth: of w8a8: alpha of SmoothQuant (0.5 is usual), see ``smoothing_factors``. Factors are
            folded into the norm or linear before, whose weights change, or kept as a pre_scale.

    Returns:
        A report: names, reasons, bytes. ``print`` it.

    Raises:
        ValueError: a selected layer cannot be quantized as asked (``group_size`` above its
            in_features, a dtype, NaN or Inf in its weight), or calibration is missing, empty or
            does not reach a layer that needs it. All but NaN in a weight is checked before
            anything is changed.
        TypeError: ``model`` is itself an ``nn.Linear`` or ``nn.Conv2d``, which cannot be replaced
            inside itself.
    """
    if isinstance(model, Layer):
        kind = "Conv2d" if isinstance(model, nn.Conv2d) else "Linear"
        raise TypeError(
            f"quantize_: the model is itself an nn.{kind}, which cannot be replaced in place. "
            f"Hint: mixed_gemm.{kind}.from_float(model, ...)"
        )
    if scheme not in SCHEMES:
        raise ValueError(f"quantize_: scheme must be one of {SCHEMES}, got {scheme!r}")
    w8a8 = scheme == "w8a8"
    if not w8a8 and (calibration is not None or smooth is not None):
        raise ValueError('quantize_: calibration and smooth are for scheme="w8a8"')
    sizes = _Sizes(-1 if w8a8 else group_size, block_size)
    jobs, skipped = _plan_jobs(model, 8 if w8a8 else bits, sizes, skip, w8a8)
    problems = [problem for name, job in jobs.items() if (problem := _problem(name, job))]
    linears = {name: x.layer for name, x in jobs.items() if isinstance(x.layer, nn.Linear)}
    if w8a8:
        problems += [
            text for name, linear in linears.items() if (text := w8a8_problem(name, linear))
        ]
    if problems:
        raise ValueError(
            "quantize_: nothing was changed, because of\n  "
            + "\n  ".join(problems)
            + "\nHint: name these layers in skip, or choose per layer: group_size=lambda name, "
            "linear: 128 if linear.in_features >= 128 else -1"
        )

    def weight_only(name: str, layer: Layer) -> Linear | Conv2d:
        job = jobs[name]
        if isinstance(layer, nn.Conv2d):
            return Conv2d.from_float(layer, job.bits, job.group_size, symmetric)
        return Linear.from_float(layer, job.bits, job.group_size, symmetric, zero_mode)

    make: Callable[[str, Any], Linear | Conv2d] = weight_only
    smoothed: dict[str, str] = {}
    if w8a8:
        shared = {parameter for parameter, who in _weight_owners(model).items() if len(who) > 1}
        make, smoothed = prepare(model, linears, activations, calibration, smooth, shared)
    before = after = 0
    for name, job in track(list(jobs.items()), "quantize", progress):
        try:
            new = make(name, job.layer)
        except ValueError as error:
            raise ValueError(f"quantize_: {name}: {error}") from error
        for parent, child_name in job.places:
            setattr(parent, child_name, new)
            _leave_fast_path(parent)
        before += job.layer.weight.nbytes
        after += sum(buffer.nbytes for buffer in new.buffers())
    return QuantizeReport(tuple(jobs), skipped, before, after, smoothed)


def _leave_fast_path(parent: nn.Module) -> None:
    """nn.TransformerEncoderLayer has an inference path that reads linear1.weight itself; this flag
    of it is what nn.TransformerEncoder looks at as well."""
    if isinstance(parent, nn.TransformerEncoderLayer):
        parent.activation_relu_or_gelu = 0
