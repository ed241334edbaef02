"""The selection of layers to quantize: one rule for ``quantize_``, the command line and
transformers."""

from __future__ import annotations

import fnmatch
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..nn.base import QuantizedModule
from ..nn.conv_base import why_not_conv2d
from ..nn.embedding import why_not_embedding
from ..ops.problem import DTYPES
from ..weights.kinds import storing
from ..weights.rows import ROWS
from ..weights.scheme import Scheme, Side
from ..weights.tensor import QuantizedTensor
from .conv1d import as_linear, is_conv1d
from .plain import why_not_plain

Layer = nn.Linear | nn.Conv2d
Skip = str | Iterable[str] | Callable[[str, nn.Module], bool] | None

# Output heads are the layers that rounding hurts most (AutoAWQ, GPTQModel and llm-compressor leave
# that of a language model alone by default too), and those of classifiers, tokens and answers are
# what an adapter for a task trains whole (peft's modules_to_save). They are known by the names that
# models of transformers, timm and torchvision give them, with whatever is below.
HEADS = (
    "lm_head",
    "*_head",  # classification_head, audio_head, ...
    "head",
    "*_heads",
    "heads",
    "embed_out",
    "predictions.decoder",
    "logits_dense",
    "score",
    "*classifier*",
    "qa_outputs",
    "*_qass",
    "sequence_summary",
)
# Routers of experts are small, and a little error sends tokens elsewhere.
ROUTERS = ("*router*", "gate", "shared_expert_gate")
# The one statement of what stays dense unless ``skip`` says otherwise: for quantize_, for
# MixedGemmConfig, for the command and for calibrated folders, of which some know names alone.
DEFAULT_SKIP = (*HEADS, *ROUTERS)
# Matrices that are no linear layers, for files without a model: by the last component of their
# name, or the last two.
NOT_LINEAR = (
    *("*embed*", "*Embed*", "*_emb", "*embed*.[0-9]*", "wte", "wpe", "w", "shared"),
    *("relative_attention_bias", "bias_values"),
)
# Experts that a file holds one by one; models of transformers join them into tensors of three
# dimensions as they load.
EXPERTS = ("experts.[0-9]*",)
ALREADY = "quantized already"  # why a layer is left alone


@dataclass
class Target:
    """A layer to quantize, and where it hangs: (parent, name of child), more than once if
    shared.

    layer: nn.Linear, nn.Conv2d or nn.Embedding. module: what hangs there: the layer, or the Conv1D
    of transformers that it stands for. packs_rows: of an embedding, whether its rows are packed as
    the scheme says, which an output head can multiply by; else they are int8. tied: of an output
    head, the name of the embedding whose weight it multiplies by.
    """

    layer: Any
    scheme: Scheme
    module: Any
    places: list[tuple[nn.Module, str]] = field(default_factory=list)
    packs_rows: bool = False
    tied: str = ""

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


def matches(name: str, pattern: str) -> bool:
    """Tell whether a pattern fits any run of whole components: "lm_head" fits "model.lm_head", and
    "layers.0" fits everything below "model.layers.0"."""
    parts = name.split(".")
    runs = (".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
    return any(fnmatch.fnmatchcase(run, pattern) for run in runs)


def skipped_by(name: str, patterns: Sequence[str]) -> str:
    """Return the first pattern that fits a name; empty when none does."""
    return next((pattern for pattern in patterns if matches(name, pattern)), "")


def named_as_no_linear(name: str) -> str:
    """Return the pattern of ``NOT_LINEAR`` that fits the end of a name; empty when none does."""
    if matches(name, "embed_out"):  # the output head of GPT-NeoX
        return ""
    parts = name.split(".")
    ends = {x: ".".join(parts[-1 - x.count(".") :]) for x in NOT_LINEAR}
    return next((x for x, end in ends.items() if fnmatch.fnmatchcase(end, x)), "")


def reason_to_skip(skip: Skip, model: nn.Module) -> Callable[[str, nn.Module], str]:
    """Return f(name, module) -> why ``skip`` leaves it alone; empty when it does not. Patterns that
    fit no module are warned of."""
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
    exact = nn.Conv2d if isinstance(layer, nn.Conv2d) else nn.Embedding
    if type(layer) is exact or is_conv1d(layer):
        return ""
    return f"is a {type(layer).__name__}, not exactly nn.{exact.__name__}"


def select(
    model: nn.Module,
    scheme_of: Callable[[str, Any], Scheme | None],
    skip: Skip,
    embeddings: bool | Scheme = False,
) -> tuple[dict[str, Target], dict[str, str]]:
    """Find every ``nn.Linear`` and ``nn.Conv2d`` below ``model``, and every Conv1D of transformers:
    to quantize, or left alone and why. What else holds a matrix is among those left alone.

    Args:
        scheme_of: f(name, layer) -> how to store it; None leaves it alone.
        skip: see ``quantize_``. embeddings: see ``Options``.
    """
    packs_rows = isinstance(embeddings, Scheme)
    rows_scheme = embeddings if isinstance(embeddings, Scheme) else ROWS
    kinds = Layer | nn.Embedding if embeddings else Layer
    reason_of, owners = reason_to_skip(skip, model), weight_owners(model)
    targets: dict[str, Target] = {}
    by_module: dict[int, Target] = {}
    skipped: dict[str, str] = {}
    tied: dict[str, tuple[str, nn.Module]] = {}
    for name, child in model.named_modules(remove_duplicate=False):
        if not (isinstance(child, kinds) or is_conv1d(child)):
            continue
        parent_name, _, child_name = name.rpartition(".")
        place = (model.get_submodule(parent_name), child_name)
        if id(child) in by_module:  # one module at two places stays one module
            by_module[id(child)].places.append(place)
            continue
        rows = isinstance(child, nn.Embedding)
        heads = heads_of(model, child, owners) if rows and packs_rows else {}
        reason = why_left_alone(child, owners, 1 + len(heads)) or reason_of(name, child)
        layer = child if reason or not is_conv1d(child) else as_linear(child)
        scheme = None if reason else rows_scheme if rows else scheme_of(name, layer)
        if not reason and scheme is None:
            reason = "scheme(name, module) is None"
        if scheme is not None and storing(scheme, layer.weight.dim()) is None:
            reason, scheme = _no_form(child, scheme), None
        if scheme is None:
            skipped[name] = reason
            continue
        target = Target(layer, scheme, child, [place], packs_rows=rows and packs_rows)
        targets[name] = by_module[id(child)] = target
        tied |= {head: (name, module) for head, module in heads.items()}
    for head, (name, module) in tied.items():
        skipped.pop(head, None)
        parent_name, _, child_name = head.rpartition(".")
        place = (model.get_submodule(parent_name), child_name)
        targets[head] = Target(module, targets[name].scheme, module, [place], tied=name)
    _add_other_matrices(model, targets, skipped)
    return targets, skipped


def _no_form(layer: nn.Module, scheme: Scheme) -> str:
    what = "a convolution" if isinstance(layer, nn.Conv2d) else "a linear"
    reason = f"is {what}, which has no form of the scheme {scheme}"
    if isinstance(layer, nn.Conv2d) and scheme.weights == Side():
        reason += ". Hint: activations='static' with calibration has one"
    return reason


def _add_other_matrices(
    model: nn.Module, targets: dict[str, Target], skipped: dict[str, str]
) -> None:
    """Add to ``skipped`` parameters of two dimensions or more that no module holds which could be
    quantized, so that nothing stays dense without a word."""
    named = {*targets, *skipped}
    seen = {id(x) for name in named for x in model.get_submodule(name)._parameters.values()}
    for name, module in model.named_modules():
        if name in targets:
            continue
        for part, parameter in module._parameters.items():
            if parameter is None or not _is_float(parameter) or part.endswith("bias"):
                continue
            # A head that is tied to an embedding is named already, which the embedding is too.
            known = id(parameter) in seen and not isinstance(module, nn.Embedding)
            if known or sum(size > 1 for size in parameter.shape) < 2:
                continue
            seen.add(id(parameter))
            whole = name if part == "weight" else f"{name}.{part}".lstrip(".")
            skipped.setdefault(whole, why_no_layer(module, tuple(parameter.shape), whole))


def _is_float(parameter: Any) -> bool:
    return not isinstance(parameter, QuantizedTensor) and bool(torch.is_floating_point(parameter))


def why_no_layer(module: nn.Module | None, shape: tuple[int, ...], name: str) -> str:
    """Tell why a parameter of a module that is no linear and no convolution stays as it is.

    Args:
        module: that holds it; None of a file.
        shape: of the parameter. name: of it, with a dot between components.
    """
    if isinstance(module, nn.Embedding):
        hint = ". Hint: embeddings=True makes them int8" if type(module) is nn.Embedding else ""
        return f"is an embedding: rows are looked up, not multiplied{hint}"
    if len(shape) == 3 and "experts" in name.split("."):
        return f"holds {shape[0]} experts in one tensor, for which there are no kernels"
    what = "a file" if module is None else f"a {type(module).__name__}"
    return f"is a tensor of {len(shape)} dimensions of {what}, not the weight of a linear"
