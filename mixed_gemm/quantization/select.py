"""The selection of layers to quantize: one rule for ``quantize_``, the command line and
transformers."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..nn.base import QuantizedModule
from ..nn.conv_base import why_not_conv2d
from ..nn.embedding import why_not_embedding
from ..ops.problem import DTYPES
from ..weights.kinds import storing
from ..weights.rows import ROWS
from ..weights.scheme import Scheme, Side
from .conv1d import as_linear, is_conv1d
from .names import DEFAULT_SKIP, is_head, matches, skipped_by, without_heads
from .others import add_other_matrices
from .plain import why_not_plain
from .plain_rows import why_not_rows

Layer = nn.Linear | nn.Conv2d
Skip = str | Iterable[str] | Callable[[str, nn.Module], bool] | None

ALREADY = "quantized already"  # why a layer is left alone


@dataclass
class Target:
    """A layer to quantize, and where it hangs: (parent, name of child), more than once if
    shared.

    layer: nn.Linear, nn.Conv2d or nn.Embedding. module: what hangs there: the layer, or the Conv1D
    of transformers that it stands for. packs_rows: of an embedding, whether its rows are packed as
    the scheme says, which an output head can multiply by; else they are int8. tied: of an output
    head, the name of the embedding whose weight it multiplies by. has_own_scheme: whether
    ``Options.heads`` or ``embeddings`` said its scheme, and not the one for all layers.
    """

    layer: Any
    scheme: Scheme
    module: Any
    places: list[tuple[nn.Module, str]] = field(default_factory=list)
    packs_rows: bool = False
    tied: str = ""
    has_own_scheme: bool = False

    @property
    def is_rounded_by_a_method(self) -> bool:
        """Whether a method chooses its codes: rows of an embedding are rounded by themselves."""
        return not self.tied and not isinstance(self.layer, nn.Embedding)

    def problem(self, name: str) -> str:
        """Tell why it cannot be quantized as asked; empty when it can."""
        weight = self.layer.weight
        if weight.dtype not in DTYPES:
            return f"{name}: dtype {weight.dtype} is not float16, bfloat16 or float32"
        kind = storing(self.scheme, weight.dim())
        assert kind is not None  # else it would have been left alone
        reason = kind.why_not(self.scheme, tuple(weight.shape))
        return f"{name}: {reason}" if reason else ""


def reason_to_skip(
    skip: Skip, model: nn.Module, heads: bool = False
) -> Callable[[str, nn.Module], str]:
    """Return f(name, module) -> why ``skip`` leaves it alone; empty when it does not. Patterns that
    fit no module are warned of.

    Args:
        skip: see ``quantize_``. model: dense.
        heads: whether output heads are asked for. Then the names of heads leave no linear alone
            where ``skip`` has all of them, as the default and what is added to it has.
    """
    if callable(skip):
        return lambda name, module: "skip(name, module) is true" if skip(name, module) else ""
    patterns = (skip,) if isinstance(skip, str) else tuple(skip or ())
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    for pattern in patterns:
        if pattern not in DEFAULT_SKIP and not any(matches(name, pattern) for name in names):
            warnings.warn(f"quantize_: skip={pattern!r} matches no module", stacklevel=4)

    of_heads = without_heads(patterns) if heads else patterns

    def reason(name: str, module: nn.Module) -> str:
        found = skipped_by(name, of_heads if isinstance(module, nn.Linear) else patterns)
        return f"matches skip={found!r}" if found else ""

    return reason


def weight_owners(model: nn.Module) -> dict[int, set[int]]:
    """Return id of a parameter -> ids of the modules that hold it: two or more mean tied
    weights."""
    owners: dict[int, set[int]] = defaultdict(set)
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners[id(parameter)].add(id(module))
    return owners


def shared_parameters(model: nn.Module) -> set[int]:
    """Return ids of the parameters that hang at more than one place, those of a module that hangs
    twice among them."""
    count = Counter(
        id(parameter)
        for _, module in model.named_modules(remove_duplicate=False)
        for parameter in module._parameters.values()
        if parameter is not None
    )
    return {parameter for parameter, places in count.items() if places > 1}


def why_left_alone(layer: Any, owners: dict[int, set[int]], most: int = 1) -> str:
    """Tell why a layer is never quantized, whatever the scheme; empty when it may be.

    Args:
        layer: a module. owners: from :func:`weight_owners`. most: modules that may hold its weight.
    """
    if isinstance(layer, QuantizedModule):
        return ALREADY
    if reason := _why_not_its_class(layer):
        return reason
    if isinstance(layer, nn.Conv2d) and (reason := why_not_conv2d(layer)):
        return reason
    if isinstance(layer, nn.Embedding) and (reason := why_not_embedding(layer)):
        return reason
    if "weight" not in layer._parameters:
        return "its weight is computed, not a parameter (weight norm, parametrization)"
    if layer.weight.numel() == 0:
        return "its weight is empty"
    if len(owners[id(layer.weight)]) > most:
        return "its weight is tied to another module"
    if layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks:
        return "has hooks, which a swap would drop"
    return ""


def heads_of(model: nn.Module, embedding: Any, owners: dict[int, set[int]]) -> dict[str, nn.Module]:
    """Return name -> linear of those that multiply by the weight of an embedding, where nothing
    else holds it; none where one of them cannot be replaced.

    Args:
        model: of the embedding. embedding: an ``nn.Embedding``. owners: from ``weight_owners``.
    """
    weight = embedding._parameters.get("weight")
    if weight is None:
        return {}
    found = {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if module is not embedding and module._parameters.get("weight") is weight
    }
    count = len(owners[id(weight)])
    fit = [
        isinstance(x, nn.Linear) and x.bias is None and not why_left_alone(x, owners, count)
        for x in found.values()
    ]
    return found if all(fit) and len(found) == count - 1 else {}


def _why_not_its_class(layer: Any) -> str:
    """Tell why a layer does not compute what its class in torch does; empty when it does."""
    if isinstance(layer, nn.Linear):
        return "" if type(layer) is nn.Linear else why_not_plain(layer)
    if isinstance(layer, nn.Embedding):
        return why_not_rows(layer)
    if type(layer) is nn.Conv2d or is_conv1d(layer):
        return ""
    return f"is a {type(layer).__name__}, not exactly nn.Conv2d"


def select(
    model: nn.Module,
    scheme_of: Callable[[str, Any], Scheme | None],
    skip: Skip,
    embeddings: bool | Scheme = False,
    heads: bool | Scheme = False,
) -> tuple[dict[str, Target], dict[str, str]]:
    """Find every ``nn.Linear`` and ``nn.Conv2d`` below ``model``, and every Conv1D of transformers:
    to quantize, or left alone and why. What else holds a matrix is among those left alone.

    Args:
        scheme_of: f(name, layer) -> how to store it; None leaves it alone.
        skip: see ``quantize_``. embeddings, heads: see ``Options``.
    """
    packs_rows = isinstance(embeddings, Scheme)
    rows_scheme = embeddings if isinstance(embeddings, Scheme) else ROWS
    kinds = Layer | nn.Embedding if embeddings else Layer
    reason_of, owners = reason_to_skip(skip, model, heads is not False), weight_owners(model)
    targets: dict[str, Target] = {}
    by_module: dict[int, Target] = {}
    skipped: dict[str, str] = {}
    tied: dict[str, tuple[str, nn.Module]] = {}
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, child in modules.items():
        if not (isinstance(child, kinds) or is_conv1d(child)):
            continue
        parent_name, _, child_name = name.rpartition(".")
        place = (modules[parent_name], child_name)
        if id(child) in by_module:  # one module at two places stays one module
            by_module[id(child)].places.append(place)
            continue
        rows = isinstance(child, nn.Embedding)
        ties = heads_of(model, child, owners) if rows and packs_rows else {}
        reason = why_left_alone(child, owners, 1 + len(ties)) or reason_of(name, child)
        layer = child if reason or not is_conv1d(child) else as_linear(child)
        own = rows_scheme if rows else None
        if isinstance(heads, Scheme) and isinstance(layer, nn.Linear) and is_head(name):
            own = heads
        scheme = None if reason else scheme_of(name, layer) if own is None else own
        if not reason and scheme is None:
            reason = "scheme(name, module) is None"
        if scheme is not None and storing(scheme, layer.weight.dim()) is None:
            reason, scheme = _no_form(child, scheme), None
        if scheme is None:
            skipped[name] = reason
            continue
        target = Target(layer, scheme, child, [place], rows and packs_rows)
        target.has_own_scheme = own is not None
        targets[name] = by_module[id(child)] = target
        tied |= {head: (name, module) for head, module in ties.items()}
    for head, (name, module) in tied.items():
        skipped.pop(head, None)
        parent_name, _, child_name = head.rpartition(".")
        place = (modules[parent_name], child_name)
        targets[head] = Target(module, targets[name].scheme, module, [place], tied=name)
    add_other_matrices(model, targets, skipped)
    return targets, skipped


def _no_form(layer: nn.Module, scheme: Scheme) -> str:
    what = "a convolution" if isinstance(layer, nn.Conv2d) else "a linear"
    reason = f"is {what}, which has no form of the scheme {scheme}"
    if isinstance(layer, nn.Conv2d) and scheme.weights == Side():
        reason += ". Hint: activations='static' with calibration has one"
    return reason
