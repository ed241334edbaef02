"""The rules of a compressed-tensors configuration for the weights of a module.

Parsed here and not by their package, which refuses configurations of its own older versions
(actorder "group") and brings transformers along.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..ops.problem import WEIGHTS
from ..weights.kinds import storing
from ..weights.scheme import Scheme, Side
from .config import method_of
from .ct_float4 import FLOAT4_FORMATS, SCALE_NAMES
from .errors import CheckpointError
from .layer import Config, int_option
from .name_patterns import matches_pattern, pattern_problem

BITS = (2, 3, 4, 8)
OWN_FORMAT = "mixed-gemm-packed"  # see ct_encode
FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    *FLOAT4_FORMATS,
    OWN_FORMAT,
)
# The weights of a file without rules.
_UNSTATED = Scheme(Side(strategy=""))
# The release of compressed-tensors since which values may straddle two words.
_DENSE_SINCE = (0, 18)
# The dtypes that scales of activations have in files whose activations can be rounded here.
_SCALE_DTYPES = ("float16", "bfloat16", "float32")
# Float8 weights with scales by block meet float8 activations where a kernel multiplies both.
_BLOCK_NOTE = (
    "the file asks for float8 activations beside weights with scales by block; products round them "
    "on CPUs and, where blocks are 128 x 128, on GPUs of compute capability 9.0, and on other GPUs "
    "make those weights dense, with activations in the dtype of the model. Saving keeps what it "
    "asks for"
)


@dataclass(frozen=True)
class _Rule:
    """Patterns that name modules, and what holds for them."""

    targets: tuple[str, ...]
    asked: Scheme

    def rank(self, name: str) -> int:
        """How directly a target names the module: 3 by name, 2 by pattern, 1 by class, 0 not."""
        best = 0
        for target in self.targets:
            if target == name:
                return 3
            if target.startswith("re:"):
                best = max(best, 2 if matches_pattern(target[3:], name) else 0)
            elif "." not in target and target[:1].isupper():
                best = max(best, 1)  # a class name, "Linear": files have no classes to ask
        return best


class WeightRules:
    """The rules of one checkpoint.

    Attributes:
        title: "compressed-tensors pack-quantized".
        notes: what the rules ask for and is not done here. lost: those of them that saving has no
            place for.
        is_aligned: whether no packed value straddles two words, where the shape leaves both open.
        zeros_added: layers whose zeros are added (w = q * scale + zero), as this library says it of
            its own files. conv1d: layers that are a Conv1D of the model, likewise. embeddings:
            those that are embeddings.
        has_powers: whether a byte that is a scale of float8 weights is a power of two.
    """

    def __init__(self, config: Config, where: Path) -> None:
        self._where = where
        stated = self._stated = str(config.get("format") or "")
        self.title = f"compressed-tensors {stated}".strip()
        self._default = _UNSTATED
        if method_of(config) == "fp8":  # DeepSeek: blocks, no groups of modules
            self.title = "fp8"
            self._default = _float8_scheme(config, where)
        groups = config.get("config_groups") or {}
        if not isinstance(groups, Mapping):
            raise CheckpointError(where, "", "config_groups must be an object")
        self._has_groups = bool(groups)
        with_weights = {x: group for x, group in groups.items() if not _is_without_weights(group)}
        self._rules = [self._rule(name, group) for name, group in with_weights.items()]
        self.is_aligned = _is_before(str(config.get("version") or ""), _DENSE_SINCE)
        self.zeros_added, self.conv1d = _named(config, "zeros_added"), _named(config, "conv1d")
        self.embeddings = _named(config, "embeddings")
        self.has_powers = config.get("scale_fmt") == "ue8m0"
        self.lost = _each_once(_lost(group) for group in groups.values())
        by_block = [_block_note(group) for group in groups.values()]
        if not groups:
            by_block.append("" if self._default.weights.block is None else _BLOCK_NOTE)
        self.notes = (*self.lost, *_each_once(by_block))
        formats = {stated, *(str(g.get("format") or "") for g in groups.values())}
        unknown = formats - {*FORMATS, "mixed-precision", "dense", ""}
        if unknown:
            raise ValueError(
                f"the compressed-tensors format {', '.join(sorted(unknown))} is not read; "
                f"{', '.join(FORMATS)} are"
            )

    def _rule(self, name: str, group: object) -> _Rule:
        weights = group.get("weights") if isinstance(group, Mapping) else None
        targets = group.get("targets") if isinstance(group, Mapping) else None
        if not isinstance(targets, list) or not isinstance(weights, Mapping):
            reason = "" if not isinstance(group, list) else ". Presets by name are not read"
            raise CheckpointError(
                self._where,
                "",
                f"config_groups.{name} must have a list targets and an object weights{reason}",
            )
        bits = int_option(weights, self._where, "num_bits")
        form = group.get("format") if isinstance(group, Mapping) else None
        form = str(form or self._stated)
        scale_dtype = self._scale_dtype(name, form, weights)
        has_floats = form == OWN_FORMAT or scale_dtype is not None
        widths = {8, *(x.bits for x in WEIGHTS.values() if has_floats and not x.is_integer)}
        if weights.get("type") == "float" and bits not in (None, *widths):
            told = " or ".join(map(str, sorted(widths)))
            raise CheckpointError(
                self._where, "", f"config_groups.{name}: floats must have {told} bits, got {bits}"
            )
        book = WEIGHTS.get(str(weights.get("type")))
        if book is not None and (form != OWN_FORMAT or bits != book.bits):
            raise CheckpointError(
                self._where,
                "",
                f"config_groups.{name}: {weights.get('type')} must be of {book.bits} bits in the "
                f"format {OWN_FORMAT}, got {bits} in {form}",
            )
        size = int_option(weights, self._where, "group_size")
        shared = weights.get("strategy") in (None, "group", "tensor_group")
        size = size if shared and size != -1 else None
        if size is not None and size < 1:
            raise CheckpointError(self._where, "", f"group_size must be positive, got {size}")
        block = _block(weights.get("block_structure"), self._where)
        for target in targets:
            if not isinstance(target, str):
                raise CheckpointError(self._where, "", f"the target {target!r} is no string")
            if target.startswith("re:") and (problem := pattern_problem(target[3:])):
                raise CheckpointError(self._where, "", f"the target {target!r} {problem}")
        found = Side(
            type=str(weights.get("type") or "int"),
            num_bits=8 if bits is None else bits,
            strategy=str(weights.get("strategy") or ""),
            group_size=size,
            symmetric=weights.get("symmetric", True) is True,
            block=block,
            scale_dtype=scale_dtype,
        )
        return _Rule(tuple(targets), Scheme(found, _activations(group)))

    def _scale_dtype(self, name: str, form: str, weights: Mapping[str, object]) -> str | None:
        """The type of scales of a byte, "e8m0" or "e4m3", of 4-bit floats; None of others."""
        stated, strategy = weights.get("scale_dtype"), weights.get("strategy")
        known = {named: scale for scale, named in SCALE_NAMES.items()}
        of_bytes = known.get(f"torch.{str(stated).removeprefix('torch.')}")
        is_float4 = (weights.get("type"), weights.get("num_bits")) == ("float", 4)
        found = FLOAT4_FORMATS[form][0] if form in FLOAT4_FORMATS else None
        if form == OWN_FORMAT and is_float4:
            found = of_bytes
        where = f"config_groups.{name}"
        if found is None or not is_float4:
            if form in FLOAT4_FORMATS:
                got = f"{weights.get('type')} of {weights.get('num_bits')} bits"
                reason = f"{where}: weights of {form} must be floats of 4 bits, got {got}"
                raise CheckpointError(self._where, "", reason)
            if of_bytes is not None:
                words = "float16 or bfloat16 or float32"
                reason = f'{where}.weights: scale_dtype must be {words}, got "{stated}"'
                raise CheckpointError(self._where, "", reason)
            if strategy == "tensor_group":
                reason = f"{where}: the strategy tensor_group must be of 4-bit floats"
                raise CheckpointError(self._where, "", reason)
            return None
        if of_bytes not in (None, found):
            reason = f"{where}: scales of {form} must be {SCALE_NAMES[found]}, got {stated}"
            raise CheckpointError(self._where, "", reason)
        if weights.get("symmetric", True) is not True:
            reason = f"{where}: 4-bit floats have no zero points, got symmetric: false"
            raise CheckpointError(self._where, "", reason)
        return found

    def of(self, name: str) -> Scheme:
        """Return the scheme that the file asks for one module; the most direct target decides.

        Its words are those of the file: the strategy is "" and the group size None where the file
        does not say them, bits may be 2 or 3, and the tensors say whether there are zero points and
        blocks. Activations are there where a kind of weight rounds them so.
        """
        if not self._has_groups:
            return self._default
        ranked = sorted(self._rules, key=lambda rule: rule.rank(name), reverse=True)
        if not ranked or ranked[0].rank(name) == 0:
            raise CheckpointError(
                self._where, name, "has quantized tensors, but no target of config_groups names it"
            )
        return ranked[0].asked


def _is_before(version: str, release: tuple[int, int]) -> bool:
    found = re.match(r"(\d{1,6})\.(\d{1,6})", version)
    return found is not None and (int(found[1]), int(found[2])) < release


def _named(config: Config, key: str) -> frozenset[str]:
    """Names of layers that this library says something of in its own files."""
    ours = config.get("mixed_gemm")
    names = ours.get(key) if isinstance(ours, Mapping) else None
    return frozenset(map(str, names if isinstance(names, list) else ()))


def _activations(group: object) -> Side | None:
    """How a group wants activations rounded, where a kind of weight can do that to its weights."""
    if not isinstance(group, Mapping):
        return None
    weights, asked = group.get("weights"), group.get("input_activations")
    if not isinstance(asked, Mapping) or not isinstance(weights, Mapping):
        return None
    scale = asked.get("scale_dtype")
    if scale is not None and str(scale).removeprefix("torch.") not in _SCALE_DTYPES:
        return None
    side, kind = _side(asked), str(weights.get("type") or "int")
    symmetric = weights.get("symmetric", True) is True and weights.get("num_bits") == 8
    if kind == "int" and (side.strategy, weights.get("num_bits")) == ("group", 8):
        size = -1 if side.group_size is None else side.group_size
        return side if _is_by_block(_side(weights), side, size) else None
    whole = weights.get("strategy") in (None, "channel", "tensor")
    # The strategy of a float8 weight does not say whether its activations can be had.
    scheme = Scheme(Side(kind, num_bits=8), side)
    fits = symmetric and (whole or kind == "float") and storing(scheme, 2)
    return side if fits else None


def _is_by_block(weights: Side, side: Side, size: int) -> bool:
    """Whether a kind of weight rounds its activations by the blocks that share a scale."""
    own = None if size == -1 else size
    by_block = Side(
        strategy="channel" if own is None else "group", group_size=own, symmetric=weights.symmetric
    )
    scheme = Scheme(by_block, side, "none" if weights.symmetric else "add")
    return weights == by_block and storing(scheme, 2) is not None


def _side(asked: Mapping[str, object]) -> Side:
    bits, size = asked.get("num_bits"), asked.get("group_size")
    dynamic = asked.get("dynamic", False) is True
    return Side(
        type=str(asked.get("type") or "int"),
        num_bits=bits if isinstance(bits, int) else 8,
        strategy=str(asked.get("strategy") or ("token" if dynamic else "tensor")),
        group_size=size if isinstance(size, int) and size > 0 else None,
        symmetric=asked.get("symmetric", True) is True,
        dynamic=dynamic,
    )


def _is_without_weights(group: object) -> bool:
    """Whether a group rounds activations alone: queries, keys and values of attention."""
    if not isinstance(group, Mapping) or not isinstance(group.get("targets"), list):
        return False
    return group.get("weights") is None and isinstance(group.get("input_activations"), Mapping)


def _each_once(notes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, notes)))


def _lost(group: Mapping[str, object]) -> str:
    """Tell which rounding of activations a group asks for that no kind of weight does."""
    activations = group.get("input_activations")
    if not isinstance(activations, Mapping) or _activations(group) is not None:
        return ""
    if _is_without_weights(group):
        names = ", ".join(map(str, group.get("targets")))  # type: ignore[call-overload]
        return (
            f"the file asks for rounded activations in {names}, which have no quantized weights; "
            "they stay in the dtype of the model here"
        )
    kind = f"{activations.get('type') or 'int'}{activations.get('num_bits')}"
    return (
        f"the file asks for {kind} activations too; only its weights are used here, with "
        "activations in the dtype of the model"
    )


def _block_note(group: Mapping[str, object]) -> str:
    side = _activations(group)
    weights = group.get("weights")
    strategy = weights.get("strategy") if isinstance(weights, Mapping) else None
    is_float = side is not None and side.type == "float"
    return _BLOCK_NOTE if is_float and strategy in ("block", "group") else ""


def _float8_scheme(config: Config, where: Path) -> Scheme:
    """The scheme of files whose quant_method is "fp8": DeepSeek's have blocks, those of AutoFP8 and
    of transformers a scale for the whole weight."""
    block = _block(config.get("weight_block_size"), where)
    asked = config.get("activation_scheme", "dynamic")
    if asked not in ("dynamic", "static"):
        raise CheckpointError(
            where, "", f"activation_scheme must be 'dynamic' or 'static', got {asked!r}"
        )
    return Scheme.fp8(asked, strategy="tensor" if block is None else "block", block=block)


def _block(value: object, where: Path) -> tuple[int, int] | None:
    """[128, 128], or "128x128" in old files."""
    if value is None:
        return None
    parts = value.split("x") if isinstance(value, str) else value
    if isinstance(parts, list) and len(parts) == 2:
        text = [str(x) for x in parts]
        if all(x.isascii() and x.isdigit() and len(x) < 10 for x in text):
            rows, columns = int(text[0]), int(text[1])
            if rows > 0 and columns > 0:
                return rows, columns
    raise CheckpointError(where, "", f"the block size must be two numbers, got {value!r}")
