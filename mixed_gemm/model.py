"""``quantize_``: swap the ``nn.Linear`` modules of a model for ``mixed_gemm.Linear``, in place."""

from __future__ import annotations

import fnmatch
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ._progress import Progress, track
from .linear import Linear
from .scheme import DTYPES, check_bits, check_group_size
from .w8a8 import prepare, w8a8_problem

PerLayer = int | Callable[[str, nn.Linear], int]
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
        skipped: name -> reason, for every other ``nn.Linear`` (subclasses included).
        bytes_before: of the replaced dense weights.
        bytes_after: of what stands for them: packed weights, scales and zeros.
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
    linear: nn.Linear
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


def _why_left_alone(linear: nn.Linear, owners: dict[int, set[int]]) -> str:
    if isinstance(linear, Linear):
        return "quantized already"
    if type(linear) is not nn.Linear:
        return f"is a {type(linear).__name__}, not exactly nn.Linear"
    if "weight" not in linear._parameters:
        return "its weight is computed, not a parameter (weight norm, parametrization)"
    if linear.weight.numel() == 0:
        return "its weight is empty"
    if len(owners[id(linear.weight)]) > 1:
        return "its weight is tied to another module"
    if linear._forward_hooks or linear._forward_pre_hooks or linear._backward_hooks:
        return "has hooks, which a swap would drop"
    return ""


def _problem(name: str, job: _Job) -> str:
    """Why a selected layer cannot be quantized; empty when it can."""
    if job.linear.weight.dtype not in DTYPES:
        return f"{name}: dtype {job.linear.weight.dtype} is not float16, bfloat16 or float32"
    try:
        check_bits(name, job.bits)
        check_group_size(name, job.group_size, job.linear.in_features)
    except ValueError as error:
        return str(error)
    return ""


def _plan_jobs(
    model: nn.Module, bits: PerLayer, group_size: PerLayer, skip: Skip
) -> tuple[dict[str, _Job], dict[str, str]]:
    reason_to_skip, owners = _skip_reason(skip, model), _weight_owners(model)
    jobs: dict[str, _Job] = {}
    by_module: dict[int, _Job] = {}
    skipped: dict[str, str] = {}
    for name, child in model.named_modules(remove_duplicate=False):
        if not isinstance(child, nn.Linear):
            continue
        parent_name, _, child_name = name.rpartition(".")
        place = (model.get_submodule(parent_name), child_name)
        if id(child) in by_module:  # one module at two places stays one module
            by_module[id(child)].places.append(place)
            continue
        reason = _why_left_alone(child, owners) or reason_to_skip(name, child)
        if reason:
            skipped[name] = reason
            continue
        jobs[name] = by_module[id(child)] = _Job(
            child,
            bits(name, child) if callable(bits) else bits,
            group_size(name, child) if callable(group_size) else group_size,
            [place],
        )
    return jobs, skipped


def quantize_(
    model: nn.Module,
    bits: PerLayer = 4,
    group_size: PerLayer = 128,
    symmetric: bool = True,
    skip: Skip = DEFAULT_SKIP,
    progress: Progress = True,
    *,
    zero_mode: str = "sub",
    scheme: str = "weight_only",
    activations: str = "dynamic",
    calibration: Iterable[Any] | None = None,
    smooth: float | None = None,
) -> QuantizeReport:
    """Replace every ``nn.Linear`` below ``model`` by a :class:`mixed_gemm.Linear`, in place, with
    round-to-nearest weights.

    ``scheme="w8a8"`` makes :class:`mixed_gemm.LinearW8A8`: int8 weights with a scale for each
    output channel, and int8 activations. ``bits``, ``group_size``, ``symmetric`` and ``zero_mode``
    then mean nothing.

    Only modules whose type is exactly ``nn.Linear`` are replaced. Left alone and reported: layers
    that ``skip`` names, weights tied to another module (an embedding, say), subclasses, layers with
    hooks or a parametrized weight. A model on the meta device is converted too, to be filled by
    ``load_state_dict(..., assign=True)``. Memory: one layer at a time.

    Args:
        model: any module; weights float16, bfloat16 or float32, on any device.
        bits: 4 or 8, or f(name, linear) -> int.
        group_size: -1 or a multiple of 16, or f(name, linear) -> int, for models whose layers need
            different ones.
        symmetric: no zero points.
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
        TypeError: ``model`` is itself an ``nn.Linear``: it cannot be replaced inside itself.
    """
    if isinstance(model, nn.Linear):
        raise TypeError(
            "quantize_: the model is itself an nn.Linear, which cannot be replaced in place. "
            "Hint: mixed_gemm.Linear.from_float(model, ...)"
        )
    if scheme not in SCHEMES:
        raise ValueError(f"quantize_: scheme must be one of {SCHEMES}, got {scheme!r}")
    w8a8 = scheme == "w8a8"
    if not w8a8 and (calibration is not None or smooth is not None):
        raise ValueError('quantize_: calibration and smooth are for scheme="w8a8"')
    jobs, skipped = _plan_jobs(model, 8 if w8a8 else bits, -1 if w8a8 else group_size, skip)
    problems = [problem for name, job in jobs.items() if (problem := _problem(name, job))]
    if w8a8:
        problems += [text for name, job in jobs.items() if (text := w8a8_problem(name, job.linear))]
    if problems:
        raise ValueError(
            "quantize_: nothing was changed, because of\n  "
            + "\n  ".join(problems)
            + "\nHint: name these layers in skip, or choose per layer: group_size=lambda name, "
            "linear: 128 if linear.in_features >= 128 else -1"
        )

    def weight_only(name: str, linear: nn.Linear) -> Linear:
        job = jobs[name]
        return Linear.from_float(linear, job.bits, job.group_size, symmetric, zero_mode)

    make: Callable[[str, nn.Linear], Linear] = weight_only
    smoothed: dict[str, str] = {}
    if w8a8:
        linears = {name: job.linear for name, job in jobs.items()}
        shared = {parameter for parameter, who in _weight_owners(model).items() if len(who) > 1}
        make, smoothed = prepare(model, linears, activations, calibration, smooth, shared)
    before = after = 0
    for name, job in track(list(jobs.items()), "quantize", progress):
        try:
            new = make(name, job.linear)
        except ValueError as error:
            raise ValueError(f"quantize_: {name}: {error}") from error
        for parent, child_name in job.places:
            setattr(parent, child_name, new)
            _leave_fast_path(parent)
        before += job.linear.weight.nbytes
        after += sum(buffer.nbytes for buffer in new.buffers())
    return QuantizeReport(tuple(jobs), skipped, before, after, smoothed)


def _leave_fast_path(parent: nn.Module) -> None:
    """nn.TransformerEncoderLayer has an inference path that reads linear1.weight itself; this flag
    of it is what nn.TransformerEncoder looks at as well."""
    if isinstance(parent, nn.TransformerEncoderLayer):
        parent.activation_relu_or_gelu = 0
