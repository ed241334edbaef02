"""Which layers are quantized: one rule for ``quantize_``, the command line and transformers."""

from __future__ import annotations

import fnmatch
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..nn.base import QuantizedModule
from ..nn.conv import why_not_conv2d
from ..ops.problem import DTYPES
from ..weights.kinds import storing
from ..weights.scheme import Scheme

Layer = nn.Linear | nn.Conv2d
Skip = str | Iterable[str] | Callable[[str, nn.Module], bool] | None

# The output head is the layer that rounding hurts most (AutoAWQ, GPTQModel and llm-compressor leave
# it alone by default too); routers of experts are small, and a little error sends tokens elsewhere.
DEFAULT_SKIP = ("lm_head", "*router*", "gate")
# Of files without a model: matrices that are no linear layers.
NOT_LINEAR = ("*embed*", "wte", "wpe", "shared", "relative_attention_bias")


@dataclass
class Target:
    """A layer to quantize, and where it hangs: (parent, name of child), more than once if
    shared."""

    layer: Any
    scheme: Scheme
    places: list[tuple[nn.Module, str]] = field(default_factory=list)

    def problem(self, name: str) -> str:
        """Why it cannot be quantized as asked; empty when it can."""
        weight = self.layer.weight
        if weight.dtype not in DTYPES:
            return f"{name}: dtype {weight.dtype} is not float16, bfloat16 or float32"
        kind = storing(self.scheme, weight.dim())
        assert kind is not None  # else it would have been left alone
        reason = kind.why_not(self.scheme, tuple(weight.shape))
        return f"{name}: {reason}" if reason else ""


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern fits any run of whole components: "lm_head" fits "model.lm_head", and
    "layers.0" fits everything below "model.layers.0"."""
    parts = name.split(".")
    runs = (".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
    return any(fnmatch.fnmatchcase(run, pattern) for run in runs)


def skipped_by(name: str, patterns: Sequence[str]) -> str:
    """The first pattern that fits a name; empty when none does."""
    return next((pattern for pattern in patterns if matches(name, pattern)), "")


def reason_to_skip(skip: Skip, model: nn.Module) -> Callable[[str, nn.Module], str]:
    """f(name, module) -> why ``skip`` leaves it alone; empty when it does not. Patterns that fit no
    module are warned of."""
    if callable(skip):
        return lambda name, module: "skip(name, module) is true" if skip(name, module) else ""
    patterns = (skip,) if isinstance(skip, str) else tuple(skip or ())
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    for pattern in patterns:
        if pattern not in DEFAULT_SKIP and not any(matches(name, pattern) for name in names):
            warnings.warn(f"quantize_: skip={pattern!r} matches no module", stacklevel=4)

    def reason(name: str, module: nn.Module) -> str:
        found = skipped_by(name, patterns)
        return f"matches skip={found!r}" if found else ""

    return reason


def weight_owners(model: nn.Module) -> dict[int, set[int]]:
    """id of a parameter -> ids of the modules that hold it: two or more mean tied weights."""
    owners: dict[int, set[int]] = defaultdict(set)
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners[id(parameter)].add(id(module))
    return owners


def why_left_alone(layer: Layer, owners: dict[int, set[int]]) -> str:
    """Why a layer is never quantized, whatever the scheme; empty when it may be."""
    if isinstance(layer, QuantizedModule):
        return "quantized already"
    exact = nn.Conv2d if isinstance(layer, nn.Conv2d) else nn.Linear
    if type(layer) is not exact:
        return f"is a {type(layer).__name__}, not exactly nn.{exact.__name__}"
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


def select(
    model: nn.Module, scheme_of: Callable[[str, Any], Scheme | None], skip: Skip
) -> tuple[dict[str, Target], dict[str, str]]:
    """Every ``nn.Linear`` and ``nn.Conv2d`` below ``model``: to quantize, or left alone and why.

    Args:
        scheme_of: f(name, layer) -> how to store it; None leaves it alone.
        skip: see ``quantize_``.
    """
    reason_of, owners = reason_to_skip(skip, model), weight_owners(model)
    targets: dict[str, Target] = {}
    by_module: dict[int, Target] = {}
    skipped: dict[str, str] = {}
    for name, child in model.named_modules(remove_duplicate=False):
        if not isinstance(child, Layer):
            continue
        parent_name, _, child_name = name.rpartition(".")
        place = (model.get_submodule(parent_name), child_name)
        if id(child) in by_module:  # one module at two places stays one module
            by_module[id(child)].places.append(place)
            continue
        reason = why_left_alone(child, owners) or reason_of(name, child)
        scheme = None if reason else scheme_of(name, child)
        if not reason and scheme is None:
            reason = "scheme(name, module) is None"
        if scheme is not None and storing(scheme, child.weight.dim()) is None:
            what = "a convolution" if isinstance(child, nn.Conv2d) else "a linear"
            reason, scheme = f"is {what}, which has no form of the scheme {scheme}", None
        if scheme is None:
            skipped[name] = reason
            continue
        targets[name] = by_module[id(child)] = Target(child, scheme, [place])
    return targets, skipped
