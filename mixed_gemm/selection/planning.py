"""The plan of a problem: which kernel runs and why (``plan``), and why a problem is refused
(``why_not``). Both ask the library: csrc/problem and the families of csrc hold the only statement
of the constraints.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast, overload

import torch

from .. import _library
from ..nn.linear import Linear
from ..ops.problem import OPERAND_DTYPES, check_zero_mode
from ..weights import question as questions
from ..weights.question import Question
from ..weights.tensor import QuantizedTensor

Answer = TypeVar("Answer", covariant=True)
_OPERANDS = tuple(str(dtype).removeprefix("torch.") for dtype in OPERAND_DTYPES)


@dataclass(frozen=True)
class Candidate:
    """One legal configuration.

    Attributes:
        config: its name. predicted_us: the time that the cost model gives it, in microseconds; None
            where there is no model (the CPU, and float8 that torch multiplies).
    """

    config: str
    predicted_us: float | None

    def __str__(self) -> str:
        time = "" if self.predicted_us is None else f"{self.predicted_us:.2f} us"
        return f"{time:>13}  {self.config}"


@dataclass(frozen=True)
class Plan:
    """The kernel that runs for a problem.

    Attributes:
        problem: the question, in words.
        selected: name of the configuration, as ``fpA_intB_gemm_config`` takes it.
        family: of kernels: skinny, multistage, wgmma, dequantize_dense, scaled, block, torch, cpu;
            with experts grouped_skinny, grouped_multistage, grouped_wgmma, grouped_plain, cpu.
        reason: why this one.
        candidates: every legal configuration, the least predicted time first.
    """

    problem: str
    selected: str
    family: str
    reason: str
    candidates: tuple[Candidate, ...]

    def __str__(self) -> str:
        lines = [self.problem, f"  runs {self.selected} ({self.family}): {self.reason}"]
        lines += [str(candidate) for candidate in self.candidates[:8]]
        if len(self.candidates) > 8:
            lines.append(f"  ... and {len(self.candidates) - 8} more")
        return "\n".join(lines)


@dataclass(frozen=True)
class WhyNot:
    """The reasons why a problem is refused.

    Attributes:
        problem: the question, in words.
        reasons: every rule that is broken, with numbers.
        nearest: argument -> value that would be accepted.
    """

    problem: str
    reasons: tuple[str, ...]
    nearest: dict[str, Any]

    def __str__(self) -> str:
        lines = [f"{self.problem} is refused:", *(f"  {reason}" for reason in self.reasons)]
        if self.nearest:
            near = ", ".join(f"{name}={value!r}" for name, value in self.nearest.items())
            lines.append(f"  nearest accepted form: {near}")
        return "\n".join(lines)


def device_string(device: torch.device | str | None = None) -> str:
    """Describe a device as the planner must know it: "cpu" or "cuda:sm=90,sms=132,smem=232448", on
    which ",gbs=4425" may follow, the memory bandwidth in GB/s.

    Args:
        device: None is the current CUDA device when there is one, else the CPU. A string with
            ``sm=`` passes through: plans for a GPU that is not here.

    Raises:
        ValueError: there is no such device.
    """
    if isinstance(device, str) and "sm=" in device:
        return device
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    found = _torch_device("plan", device)
    if found.type == "cpu":
        return found.type
    text: str = _ask_library("_device", cuda_device("plan", found).index)
    return text


def _torch_device(op: str, device: torch.device | str) -> torch.device:
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{op}: device must be cpu, cuda, cuda:N or a text such as "
            f"cuda:sm=90,sms=132,smem=232448, got {str(device)!r}"
        )
    return found


def cuda_device(op: str, device: torch.device | str) -> torch.device:
    """Return a CUDA device that is there, with its index.

    Raises:
        ValueError: it is none of those that torch sees; the text says how many there are.
    """
    found = _torch_device(op, device)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found.type != "cuda" or count == 0 or (found.index or 0) >= count:
        raise ValueError(
            f"{op}: device must be one of the {count} CUDA devices that torch sees, got {found}"
        )
    return torch.device("cuda", torch.cuda.current_device() if found.index is None else found.index)


def whole_number(op: str, name: str, value: Any) -> int:
    """Return an argument that the library takes as a 64-bit integer.

    Raises:
        TypeError: it is no whole number. ValueError: it has more than 64 bits.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{op}: {name} must be a whole number, got {value!r}") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{op}: {name} must fit in 64 bits, got {number.bit_length()} of them")
    return number


def _ask_library(op: str, *arguments: Any) -> Any:
    """Ask one of the ops behind this module."""
    try:
        return getattr(torch.ops.mixed_gemm, op)(*arguments)
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def _name(dtype: torch.dtype | str | None) -> str:
    return str(torch.float16 if dtype is None else dtype).removeprefix("torch.")


def _question(
    problem: Linear | int,
    m_or_n: int,
    k: int | None,
    dtype: torch.dtype | str | None,
    bits: int,
    group_size: int,
    zero_mode: str | None,
    device: torch.device | str | None,
    out_dtype: torch.dtype | str | None,
    weight: str | None,
    experts: int | None = None,
) -> Question:
    if isinstance(problem, Linear):
        held = problem.weight
        device = held.device if device is None else device
        m, n, k = whole_number("plan", "m", m_or_n), problem.out_features, problem.in_features
        if isinstance(held, QuantizedTensor):  # and no DTensor of one
            out = _name(held.dtype if out_dtype is None else out_dtype)
            if (own := held.question(m, out, device_string(device))) is not None:
                return own
        bits, group_size, zero_mode = problem.bits, problem.group_size, problem.zero_mode
        dtype = held.dtype if dtype is None else dtype
    else:
        m, n = problem, m_or_n
    if k is None:
        raise TypeError("plan needs (m, n, k) or (module, m)")
    m, n, k = (whole_number("plan", *x) for x in (("m", m), ("n", n), ("k", k)))
    bits = whole_number("plan", "bits", bits)
    group_size = whole_number("plan", "group_size", group_size)
    name = _name(dtype)
    if name in _OPERANDS:
        return questions.scaled(m, n, k, name, _name(out_dtype), device_string(device))
    zero_mode = "none" if zero_mode is None else zero_mode
    check_zero_mode("plan", zero_mode, ("none", "sub", "add"))
    where = device_string(device)
    if experts is not None:
        experts = whole_number("plan", "experts", experts)
        stored = f"int{bits}" if weight is None else str(weight)
        return questions.grouped(m, experts, n, k, name, stored, group_size, zero_mode, where)
    if weight is not None:
        return questions.codes(m, n, k, name, str(weight), group_size, where)
    return Question(
        f"fpA_intB_gemm M={m} N={n} K={k} {name} int{bits} group_size={group_size} "
        f"zero_mode={zero_mode} on {where}",
        "_plan",
        (m, n, k, name, bits, group_size, zero_mode, where),
    )


def _ask(
    problem: Linear | int,
    m_or_n: int,
    k: int | None,
    dtype: torch.dtype | str | None,
    bits: int,
    group_size: int,
    zero_mode: str | None,
    device: torch.device | str | None,
    out_dtype: torch.dtype | str | None,
    weight: str | None = None,
    experts: int | None = None,
) -> tuple[str, dict[str, Any]]:
    """Return (the question in words, the answer of the library)."""
    _library.require()
    try:
        asked = _question(
            problem, m_or_n, k, dtype, bits, group_size, zero_mode, device, out_dtype, weight,
            experts,
        )  # fmt: skip
        return asked.text, asked.asked()
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def _why_not(question: str, answer: dict[str, Any]) -> WhyNot | None:
    if answer["ok"]:
        return None
    return WhyNot(question, tuple(answer["reasons"]), dict(answer.get("nearest") or {}))


class _Asked(Protocol[Answer]):
    """The two forms of a question."""

    @overload
    def __call__(
        self,
        m: int,
        n: int,
        k: int,
        *,
        dtype: torch.dtype | str | None = ...,
        bits: int = ...,
        group_size: int = ...,
        zero_mode: str | None = ...,
        device: torch.device | str | None = ...,
        out_dtype: torch.dtype | str | None = ...,
        weight: str | None = ...,
        experts: int | None = ...,
    ) -> Answer: ...

    @overload
    def __call__(
        self,
        m: Linear,
        n: int,
        *,
        dtype: torch.dtype | str | None = ...,
        device: torch.device | str | None = ...,
        out_dtype: torch.dtype | str | None = ...,
    ) -> Answer: ...


def _in_two_forms(function: Callable[..., Answer]) -> _Asked[Answer]:
    return cast("_Asked[Answer]", function)


@_in_two_forms
def plan(
    m: int | Linear,
    n: int,
    k: int | None = None,
    *,
    dtype: torch.dtype | str | None = None,
    bits: int = 4,
    group_size: int = 128,
    zero_mode: str | None = None,
    device: torch.device | str | None = None,
    out_dtype: torch.dtype | str | None = None,
    weight: str | None = None,
    experts: int | None = None,
) -> Plan:
    """Tell which kernel runs ``[m, k] @ [n, k].T``. Two forms: ``plan(m, n, k, dtype=...)`` and
    ``plan(module, m)``, which reads the rest off a ``mixed_gemm.Linear``. For activations of int8
    or float8_e4m3fn, and for a ``Linear`` whose weight is of the kind "w8a8" or "fp8", the plan is
    that of ``scaled_mm``; of "fp8" where that is not called, it says why. Of the kind "w8a8_block"
    it is that of ``block_quant_gemm``.

    Args:
        m: rows of the activations. n: output channels. k: input channels.
        dtype: of the activations; float16 when None. int8 or float8_e4m3fn: of both operands of
            ``scaled_mm``.
        out_dtype: of the result of ``scaled_mm``; float16 when None. Ignored for other dtypes.
        bits: 4 or 8. group_size: -1 or a multiple of 16.
        zero_mode: None or "none" (symmetric), "sub" or "add".
        weight: None (integers of ``bits``), or the name of a float weight of ``fpA_fpB_gemm``, such
            as "e2m1": ``bits`` and ``zero_mode`` are not looked at then.
        experts: None, or of how many experts each has such a weight: the plan is that of
            ``grouped_fpA_intB_gemm``, or of ``grouped_fpA_fpB_gemm`` with a ``weight``, for ``m``
            rows of all of them. How many rows each has is not known then, and taken to be chance.
        device: None is the current CUDA device when there is one, else the CPU; or a description
            such as "cuda:sm=80,sms=108,smem=166912" of a GPU that is not here.

    Raises:
        ValueError: the problem is refused; the text is :func:`why_not`'s. Or there is no such
            device, or its description is none.
        TypeError: an extent is no whole number.
        ImportError: the library did not load.
    """
    question, answer = _ask(
        m, n, k, dtype, bits, group_size, zero_mode, device, out_dtype, weight, experts
    )
    refusal = _why_not(question, answer)
    if refusal is not None:
        raise ValueError(str(refusal))
    return Plan(
        question,
        answer["selected"],
        answer["family"],
        answer["reason"],
        tuple(Candidate(c["config"], c["predicted_us"]) for c in answer["candidates"]),
    )


@_in_two_forms
def why_not(*problem: Any, **options: Any) -> WhyNot | None:
    """Tell why a problem is refused, with the nearest accepted form; None when it runs. Arguments
    as in :func:`plan`.

    Raises:
        ValueError: ``device`` is none. TypeError: an extent is no whole number.
        ImportError: the library did not load.
    """
    asked = inspect.signature(plan).bind(*problem, **options)
    asked.apply_defaults()
    return _why_not(*_ask(*asked.args, **asked.kwargs))


why_not.__signature__ = inspect.signature(plan)  # type: ignore[attr-defined]
