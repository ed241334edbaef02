"""The refusal that a call must get, from the rules of its contract as the library lists them: the
walk of csrc/contract/check.cpp written a second time, by which the tests judge it.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Rule = dict[str, Any]
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
# Symbols that a rule binds which is a function.
BOUND_BY_FUNCTIONS: dict[tuple[str, str], Callable[[Walk], int]] = {
    ("gptq_repack", "K"): lambda walk: walk.symbol("words") * 32 // walk.symbol("bits"),
}


@functools.cache
def contracts() -> dict[str, dict[str, Any]]:
    """What ``_contracts`` says of each op, by its name."""
    return {row["name"]: row for row in json.loads(torch.ops.mixed_gemm._contracts())}


@dataclass(frozen=True)
class Fault:
    """One broken rule. ``is_type``: of a dtype, so that Python raises a TypeError."""

    argument: str
    expected: str
    got: str
    because: str = ""
    hint: str = ""
    is_type: bool = False

    def text(self, op: str) -> str:
        because = f"; {self.because}" if self.because else ""
        hint = f". Hint: {self.hint}" if self.hint else ""
        words = f"{self.argument} must {self.expected}, got {self.got}{because}{hint}"
        return f"mixed_gemm::{contracts()[op]['called']}: {words}"


@dataclass(frozen=True)
class Outcome:
    """fault: the first broken rule, or None. behind_a_function: a rule that is a function comes
    before it, and may refuse the call in words of its own."""

    fault: Fault | None
    behind_a_function: bool = False


def shape_text(sizes: Sequence[int]) -> str:
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_TURNED = "it looks transposed, pass .t().contiguous()"
_BINARY: dict[str, tuple[Callable[[int, int], int], str]] = {
    "groups": (lambda k, size: 0 if k == 0 else 1 if size == -1 else -(-k // size), "ceil({}/{})"),
    "blocks": (lambda k, size: 1 if size == -1 else -(-k // size), "ceil({}/{})"),
    "round_up": (lambda a, b: -(-a // b) * b, "round_up({}, {})"),
    "times": (lambda a, b: a * b, "{} * {}"),
    "over": (lambda a, b: a // b, "{} / {}"),
}


def formula(tokens: list[Any], symbol: Callable[[str], int]) -> tuple[int, str]:
    """A size from its tokens in postfix order: its value, and how a text writes it."""
    stack: list[tuple[int, str]] = []
    for token in tokens:
        if token in _BINARY:
            (second, words), (first, before) = stack.pop(), stack.pop()
            value, form = _BINARY[token]
            stack.append((value(first, second), form.format(before, words)))
        else:
            number = symbol(token) if isinstance(token, str) else token
            stack.append((number, str(token)))
    return stack[0]


class Walk:
    """One call of an op, all of its arguments by name."""

    def __init__(self, op: str, given: dict[str, Any]) -> None:
        self.op, self.row = op, contracts()[op]
        schema = getattr(torch.ops.mixed_gemm, op).default._schema.arguments
        defaults = {x.name: x.default_value for x in schema if x.has_default_value()}
        self.given = {**defaults, **given}
        self.kinds = dict(self.row["arguments"])
        self.whole: dict[str, int] = {}

    def symbol(self, name: str) -> int:
        if name in self.whole:
            return self.whole[name]
        if (self.op, name) in BOUND_BY_FUNCTIONS:
            return BOUND_BY_FUNCTIONS[self.op, name](self)
        argument, dim, times = self.row["symbols"][name]
        x = self.given[argument]
        if name in self.row["chosen"]:
            return int(self.row["chosen"][name][x])
        if times == 0:
            return -1 if x is None else int(x)
        return int(x.shape[dim]) * times

    def sizes(self, rule: Rule) -> tuple[list[int], str]:
        found = [formula(tokens, self.symbol) for tokens in rule.get("sizes", ())]
        words = ", ".join(text for _, text in found)
        return [value for value, _ in found], f"({words}{',)' if len(found) == 1 else ')'}"

    def outcome(self) -> Outcome:
        if fault := self.place() or self.storage():
            return Outcome(fault)
        behind = False
        for rule in self.row["rules"]:
            if not self.holds(rule):
                continue
            if rule["kind"] == "require":
                behind = True
                continue
            try:
                fault = self.broken(rule)
            except ZeroDivisionError:  # a function before it must have refused the divisor
                fault = Fault(rule["argument"], "have sizes", "a division by 0")
            if fault:
                return Outcome(fault, behind)
        return Outcome(None, behind)

    def tensors(self) -> list[tuple[str, Tensor | None]]:
        names = [name for name, kind in self.kinds.items() if kind in ("Tensor", "Tensor?")]
        return [(name, self.given[name]) for name in names]

    def place(self) -> Fault | None:
        first: tuple[str, Tensor] | None = None
        for name, x in self.tensors():
            if x is None:
                if self.kinds[name] == "Tensor":
                    return Fault(name, "be a tensor", "None", is_type=True)
            elif first is None:
                first = name, x
            elif x.device != first[1].device:
                got = f"{first[0]} on {first[1].device} and {name} on {x.device}"
                hint = "move them with .to(device)"
                return Fault("all tensors", "be on one device", got, hint=hint)
        return None

    def storage(self) -> Fault | None:
        for name, x in self.tensors():
            if x is None or x.is_meta or x.numel() == 0:
                continue
            steps = zip(x.shape, x.stride(), strict=True)
            last = x.storage_offset() + sum((size - 1) * stride for size, stride in steps)
            needed, held = (last + 1) * x.element_size(), x.untyped_storage().nbytes()
            if needed > held:
                return Fault(
                    name,
                    f"have a storage of {needed} bytes or more",
                    f"{held} bytes",
                    f"its shape is {shape_text(x.shape)}",
                    "the storage was freed or resized, as FSDP does between steps: gather the "
                    "parameters first",
                )
        return None

    def holds(self, rule: Rule) -> bool:
        """Whether the rule is one of this call: some hold beside another argument alone."""
        where, without = rule.get("where_given"), rule.get("without")
        if (where and self.given[where] is None) or (without and self.given[without] is not None):
            return False
        argument = rule.get("argument")
        return argument is None or self.given[argument] is not None

    def broken(self, rule: Rule) -> Fault | None:
        check: Callable[[Rule, Any], Fault | None] = getattr(self, f"_{rule['kind']}")
        return check(rule, self.given.get(rule.get("argument", "")))

    # --- a method a kind of rule ------------------------------------------------------------------

    def _dtype_fault(self, rule: Rule, x: Any, expected: str) -> Fault:
        got = name_of(x if isinstance(x, torch.dtype) else x.dtype)
        return Fault(rule["argument"], f"be {expected}", got, "", rule.get("hint", ""), True)

    def _floats(self, rule: Rule, x: Any) -> Fault | None:
        dtype = x if isinstance(x, torch.dtype) else x.dtype
        if dtype in FLOATS:
            return None
        return self._dtype_fault(rule, x, "float16, bfloat16 or float32")

    def _dtype(self, rule: Rule, x: Tensor) -> Fault | None:
        if name_of(x.dtype) == rule["dtype"]:
            return None
        return self._dtype_fault(rule, x, rule["dtype"] + rule.get("text", ""))

    def _same_dtype(self, rule: Rule, x: Tensor) -> Fault | None:
        like = self.given[rule["like"]]
        is_dtype = isinstance(like, torch.dtype)
        dtype = like if is_dtype else like.dtype
        source = rule["like"] if is_dtype else f"the dtype of {rule['like']}"
        if x.dtype == dtype:
            return None
        return self._dtype_fault(rule, x, f"{name_of(dtype)} ({source})")

    def _rows(self, rule: Rule, x: Tensor) -> Fault | None:
        return None if x.dim() else Fault(rule["argument"], "be (..., K)", "a 0-d tensor")

    def _rank(self, rule: Rule, x: Tensor) -> Fault | None:
        if x.dim() == rule["dims"]:
            return None
        words = rule.get("text", "")
        for other in self.row["rules"]:
            if not words and other["kind"] == "shape" and other["argument"] == rule["argument"]:
                words = "(" + ", ".join(formula(s, lambda _: 1)[1] for s in other["sizes"]) + ")"
        return Fault(rule["argument"], f"be {rule['dims']}-d {words}", shape_text(x.shape))

    def _words(self, rule: Rule, x: Tensor) -> Fault | None:
        if x.dtype != torch.int32:
            return self._dtype_fault(rule, x, "int32 (packed codes, as the checkpoint holds them)")
        return self._rank({**rule, "dims": 2}, x)

    def _bind(self, rule: Rule, x: Tensor) -> None:
        return None

    def _whole(self, rule: Rule, _: None) -> None:
        if self.symbol(rule["symbol"]) == -1:
            self.whole[rule["symbol"]] = max(self.sizes(rule)[0][0], 1)

    def _shape(self, rule: Rule, x: Tensor) -> Fault | None:
        expected, words = self.sizes(rule)
        if list(x.shape) == expected or (rule.get("one") and x.dim() <= 1 and x.numel() == 1):
            return None
        because = ", ".join(f"{s}={self.symbol(s)}" for s in rule.get("because", ()))
        turned = rule.get("transposable") and list(x.shape) == expected[::-1] and x.dim() == 2
        hint = _TURNED if turned else rule.get("hint", "")
        text = f"be {words} = {shape_text(expected)}"
        return Fault(rule["argument"], text, shape_text(x.shape), because, hint)

    def _column_major(self, rule: Rule, b: Tensor) -> Fault | None:
        name, like = rule["argument"], rule["like"]
        if b.dim() != 2:
            return Fault(name, "be 2-d (K, N)", shape_text(b.shape))
        k = self.given[like].shape[-1]
        if b.shape[0] != k:
            hint = "it looks transposed, pass weight.t() of an [N, K] weight"
            hint = hint if b.shape[1] == k else ""
            return Fault(name, f"be (K, N) with K={k} of {like}", shape_text(b.shape), "", hint)
        if k <= 1 or b.stride(0) == 1:
            return None
        text = "be column-major, stride(0) == 1 as weight.t() of a contiguous [N, K] weight has it"
        got = f"strides {shape_text(b.stride())}"
        return Fault(name, text, got, hint="b.t().contiguous().t(), once")

    def _along(self, rule: Rule, x: Tensor) -> Fault | None:
        shape, one = tuple(x.shape), rule.get("one")
        if one and x.numel() == 1:
            return None
        if "like" in rule:
            lead = tuple(self.given[rule["like"]].shape[:-1])
            m = math.prod(lead)
            fits = shape in ((m,), (m, 1), lead, (*lead, 1))
            words = f"(M,) or (M, 1), M={m}"
        else:
            n = self.symbol("N")
            fits, words = shape in ((n,), (1, n)), f"(N,) or (1, N), N={n}"
        if fits:
            return None
        text = f"have one element or be {words}" if one else f"be {words}"
        return Fault(rule["argument"], text, shape_text(shape), "", rule.get("hint", ""))

    def _one(self, rule: Rule, x: Tensor) -> Fault | None:
        if x.numel() == 1:
            return None
        return Fault(rule["argument"], "have one element (per tensor)", shape_text(x.shape))

    def _choice(self, rule: Rule, x: str) -> Fault | None:
        if x in rule["names"]:
            return None
        return Fault(rule["argument"], f"be one of {', '.join(rule['names'])}", f"'{x}'")

    def _range(self, rule: Rule, x: int) -> Fault | None:
        least, most = rule.get("least", 0), rule.get("most", 0)
        if least <= x <= most:
            return None
        return Fault(rule["argument"], f"be in {least}..{most}", str(x))

    def _positive(self, rule: Rule, x: float) -> Fault | None:
        if x > 0 and math.isfinite(x):
            return None
        got = "nan" if math.isnan(x) else f"{x:g}"
        return Fault(rule["argument"], "be positive and finite", got)

    def _pair(self, rule: Rule, x: Any) -> Fault | None:
        if isinstance(x, int) or len(x) == 2:
            return None
        return Fault(rule["argument"], "be an int or two (height, width)", shape_text(x))


def outcome(op: str, given: dict[str, Any]) -> Outcome:
    """What the rules say of a call of ``op``."""
    return Walk(op, given).outcome()
