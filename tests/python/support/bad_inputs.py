"""The bad inputs of bad_input_names.py, and the odd ones that must work, for every op that each
applies to: which exception, with which text. test_bad_inputs.py runs it; so does

    python tests/python/support/bad_inputs.py --out bad_inputs.json  # how many were answered

What the docstrings allow (float32 activations, 1-D input, a ragged last group) is expected to work.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

if __name__ == "__main__":
    for folder in ("", "tools", "tests/python"):
        sys.path.insert(0, str(Path(__file__).resolve().parents[3] / folder))

from support.bad_input_names import title
from support.op_calls import CALLS, Arguments, public

import mixed_gemm

Change = Any  # a value, or a function of the valid one
F16, F32 = torch.float16, torch.float32
ABSENT = object()  # the argument is left out
# The first tensor of an op, its activations or its weight; and the others that this file names.
A = {
    "fpA_intB_gemm": "a", "scaled_mm": "a", "scaled_mm_azp": "a", "scaled_mm_dynamic": "a",
    "quantize_per_token": "a", "quantize_per_tensor": "a", "quantize_fp8": "a",
    "awq_gemm": "input", "qconv2d": "input",
    "qconv2d_int8": "input", "block_quant_gemm": "a", "pack_weights": "q", "pack_conv_weights": "q",
    "unpack_weights": "b_packed", "dequantize_weights": "b_packed", "awq_dequantize": "qweight",
    "awq_repack": "qweight", "gptq_repack": "qweight", "fpA_fpB_gemm": "a",
    "pack_codes": "codes", "unpack_codes": "b_packed", "dequantize_codes": "b_packed",
    "grouped_fpA_intB_gemm": "a", "grouped_fpA_fpB_gemm": "a",
}  # fmt: skip
OPS = tuple(A)
FLOAT_IN = ("fpA_intB_gemm", "fpA_fpB_gemm", "awq_gemm", "qconv2d", "block_quant_gemm",
            "scaled_mm_dynamic", "quantize_per_token", "quantize_per_tensor",
            "quantize_fp8", "grouped_fpA_intB_gemm", "grouped_fpA_fpB_gemm")  # fmt: skip
INT_IN = ("scaled_mm", "scaled_mm_azp", "qconv2d_int8")
PRODUCTS = ("fpA_intB_gemm", "fpA_fpB_gemm", "awq_gemm", "scaled_mm", "scaled_mm_azp",
            "scaled_mm_dynamic", "block_quant_gemm")  # fmt: skip
WEIGHTS = {
    "fpA_intB_gemm": "b_packed", "dequantize_weights": "b_packed", "unpack_weights": "b_packed",
    "awq_gemm": "qweight", "awq_dequantize": "qweight", "qconv2d": "weight_packed",
    "qconv2d_int8": "weight", "scaled_mm": "b", "scaled_mm_dynamic": "b", "block_quant_gemm": "b",
    "pack_weights": "q", "pack_conv_weights": "q", "awq_repack": "qweight",
    "gptq_repack": "qweight", "fpA_fpB_gemm": "b_packed", "pack_codes": "codes",
    "unpack_codes": "b_packed", "dequantize_codes": "b_packed",
    "grouped_fpA_intB_gemm": "b_packed", "grouped_fpA_fpB_gemm": "b_packed",
}  # fmt: skip
GROUPED = {
    "fpA_fpB_gemm": "scales", "dequantize_codes": "scales",
    "fpA_intB_gemm": "scales", "dequantize_weights": "scales", "awq_gemm": "scales",
    "awq_dequantize": "scales", "qconv2d": "scales", "block_quant_gemm": "scale_b",
}  # fmt: skip
BIASED = ("fpA_intB_gemm", "fpA_fpB_gemm", "scaled_mm", "scaled_mm_azp", "scaled_mm_dynamic",
          "qconv2d", "qconv2d_int8", "block_quant_gemm")  # fmt: skip
GROUP_SIZE = {
    "fpA_fpB_gemm": "group_size", "dequantize_codes": "group_size",
    "fpA_intB_gemm": "group_size", "dequantize_weights": "group_size",
    "block_quant_gemm": "block_size", "qconv2d": "block_size",
    "grouped_fpA_intB_gemm": "group_size", "grouped_fpA_fpB_gemm": "group_size",
}  # fmt: skip
INTS = {
    "grouped_fpA_intB_gemm": ("bits", "group_size"), "grouped_fpA_fpB_gemm": ("group_size",),
    "fpA_fpB_gemm": ("group_size",), "dequantize_codes": ("group_size", "n", "k"),
    "unpack_codes": ("n", "k"),
    "fpA_intB_gemm": ("bits", "group_size"), "dequantize_weights": ("bits", "group_size", "n", "k"),
    "unpack_weights": ("bits", "n", "k"), "pack_weights": ("bits",), "awq_gemm": ("split_k_iters",),
    "gptq_repack": ("bits",), "qconv2d": ("bits", "block_size"), "pack_conv_weights": ("bits",),
    "qconv2d_int8": ("input_zero_point", "clamp_min"), "block_quant_gemm": ("block_size",),
}  # fmt: skip


@dataclass(frozen=True)
class Bad:
    """A call that is refused: the type that Python sees, and what the text says after the name of
    the op (a regular expression). ``raw_text``: from anywhere in the text, since the dispatcher or
    Python answers."""

    number: int
    op: str
    changes: dict[str, Change]
    error: type[Exception]
    text: str
    raw_text: bool = False

    def __str__(self) -> str:
        return f"{self.number}-{self.op}-{'-'.join(self.changes)}"

    def pattern(self) -> str:
        return self.text if self.raw_text else rf"^mixed_gemm::{self.op}: .*{self.text}"


@dataclass(frozen=True)
class Odd:
    """A call that works: ``same``, its result is that of the unchanged call, bit for bit;
    otherwise ``check`` says whether the result is right."""

    number: int
    op: str
    changes: dict[str, Change]
    check: Callable[[Any, Arguments], bool] | None = None

    def __str__(self) -> str:
        return f"{self.number}-{self.op}-{'-'.join(self.changes)}"


def arguments(op: str, changes: dict[str, Change]) -> Arguments:
    torch.manual_seed(0)
    valid = CALLS[op]()
    for name, change in changes.items():
        if change is ABSENT:
            del valid[name]
        else:
            valid[name] = change(valid[name]) if callable(change) else change
    return valid


def first(result: Any) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


# --- 1 to 18: types, layouts, devices -----------------------------------------------------------


def types() -> Iterator[Bad | Odd]:
    for op, name in A.items():
        given = f"for argument '{name}'"
        for value in ([[1.0]], "tensor"):
            yield Bad(1, op, {name: value}, TypeError, given, True)
        yield Bad(2, op, {name: ABSENT}, TypeError, f"missing .* '?{name}'?", True)
        yield Bad(3, op, {"surplus": 1}, TypeError, "unexpected keyword argument 'surplus'", True)
        yield Bad(6, op, {name: None}, TypeError, f"{name} must be a tensor, got None")
        yield Bad(9, op, {name: lambda x: x.to_sparse()}, NotImplementedError, "[Ss]parse", True)
        yield Bad(26, op, {"out": torch.empty(1)}, TypeError, "keyword argument 'out'", True)
    for op, names in INTS.items():
        for name in names:
            for value in (4.5, "4"):
                yield Bad(4, op, {name: value}, TypeError, f"{name}", True)
            yield Bad(5, op, {name: 2**63}, ValueError, f"{name} must .*{2**63}")
            yield Bad(7, op, {name: True}, ValueError, f"{name} must be an int, got True")
            yield Bad(8, op, {name: torch.tensor(4)}, TypeError, f"{name} must be an int, got a t")
    for op in FLOAT_IN:
        to_complex = {A[op]: lambda x: x.to(torch.complex64)}
        yield Bad(11, op, to_complex, TypeError, f"{A[op]} must .*got complex64|scales must .*")
        yield Odd(12, op, {A[op]: lambda x: torch._neg_view(-x)})
        imaginary = {A[op]: lambda x: torch.view_as_complex(torch.stack((x, x), -1)).conj().real}
        yield Odd(12, op, imaginary if op != "qconv2d" else {})


def devices() -> Iterator[Bad | Odd]:
    def meta(result: Any, given: Arguments) -> bool:
        real = {k: torch.zeros_like(v, device="cpu") if isinstance(v, Tensor) else v
                for k, v in given.items()}  # fmt: skip
        if "perm" in real:
            real["perm"] = torch.arange(len(real["perm"])).int()
        expected = first(public(of_meta, real))
        found = first(result)
        same = (found.shape, found.dtype, found.stride()) == (
            expected.shape, expected.dtype, expected.stride())  # fmt: skip
        return found.is_meta and same

    for op in OPS:
        of_meta = op
        tensors = [k for k, v in CALLS[op]().items() if isinstance(v, Tensor)]
        whole = {k: lambda x: x.to("meta") for k in tensors}

        def check(result: Any, given: Arguments, op: str = op) -> bool:
            nonlocal of_meta
            of_meta = op
            return meta(result, given)

        yield Odd(13, op, whole, check)
        for name in tensors[1:]:
            text = f"all tensors must be on one device, got .* on cpu and {name} on meta"
            yield Bad(14, op, {name: lambda x: x.to("meta")}, ValueError, text)
        if op in GROUP_SIZE:
            name = GROUP_SIZE[op]
            yield Bad(15, op, {**whole, name: 7}, ValueError, f"{name} must be .*16.* got .*7")


# --- 19 to 35: dtypes and shapes ----------------------------------------------------------------


def dtypes() -> Iterator[Bad | Odd]:
    for op in FLOAT_IN:
        text = f"{A[op]} must be float16, bfloat16 or float32, got float64|must be float64"
        yield Bad(19, op, {A[op]: lambda x: x.double()}, TypeError, text)
        text = f"{A[op]} must be float16, bfloat16 or float32, got int8|scales must be"
        yield Bad(20, op, {A[op]: lambda x: x.to(torch.int8)}, TypeError, text)
    for op in ("scaled_mm", "scaled_mm_azp"):
        text = "a must be int8 or float8_e4m3fn, got float16.*Hint: mixed_gemm.quantize_per_token"
        yield Bad(20, op, {"a": lambda x: x.half()}, TypeError, text)
    yield Bad(20, "qconv2d_int8", {"input": lambda x: x.half()}, TypeError, "input must be int8")
    for op in ("fpA_intB_gemm", "awq_gemm", "qconv2d"):
        change = {"scales": lambda x: x.bfloat16()}
        yield Bad(21, op, change, TypeError, "scales must be float16.*got bfloat16")
    change = {"scale_b": lambda x: x.half()}
    yield Bad(21, "block_quant_gemm", change, TypeError, "scale_b must be float32.*got float16")
    for op, name in WEIGHTS.items():
        wrong = {name: lambda x: x.to(torch.int64)}
        yield Bad(23, op, wrong, TypeError, f"{name} must be (uint8|int8|int32).*got int64")
    for op in BIASED:
        other = {"bias": lambda x: x.to(F32 if x.dtype == F16 else F16)}
        yield Bad(24, op, other, TypeError, r"bias must be float\d\d.*, got float\d\d")
    for name in ("azp", "azp_adj"):
        change = {name: lambda x: x.float()}
        yield Bad(25, "scaled_mm_azp", change, TypeError, f"{name} must be int32.*got float32")
    change = {"azp": lambda x: x.float()}
    yield Bad(25, "quantize_per_tensor", change, TypeError, "azp must be int32.*got float32")


def shapes() -> Iterator[Bad | Odd]:
    for op in PRODUCTS:
        name = A[op]
        yield Bad(27, op, {name: lambda x: x.new_zeros(())}, ValueError, f"{name} must be .*, K\\)")
        one = {name: lambda x: x[0]}
        if op == "scaled_mm":
            one["scale_a"] = lambda x: x[:1]
        if op == "scaled_mm_azp":
            one |= {"scale_a": lambda x: x[:1], "azp": lambda x: x[:1]}
        yield Odd(27, op, one, lambda y, given: y.shape == (72,))
        text = "64.*96|96.*64|K=64 .*K=128"  # of a packed weight only the padded K is known
        yield Bad(28, op, {name: lambda x: x[:, :64]}, ValueError, text)
    yield Bad(28, "qconv2d", {"input": lambda x: x[:, :16]}, ValueError, "scales must .*16")
    yield Bad(28, "qconv2d_int8", {"input": lambda x: x[:, :4]}, ValueError, "weight must .*Ci=4")
    change = {"qweight": lambda x: x[:7], "bits": 3, "perm": None}
    yield Bad(29, "gptq_repack", change, ValueError, r"qweight must .*bits=3")
    yield Bad(29, "awq_gemm", {"scales": lambda x: x[:, :71]}, ValueError, r"72\), got \(3, 71\)")
    for op, name in GROUPED.items():
        both = {name: lambda x: x[:2]}
        yield Bad(31, op, both, ValueError, rf"{name} must be .*\(3, \d+\), got \(2, \d+\)")
        turned = {name: lambda x: x.t()}
        text = rf"{name} must be .*, got \(\d+, 3\)|must"
        yield Bad(32, op, turned, ValueError, text)
    for op in ("awq_gemm", "awq_dequantize"):
        unpacked = {"qzeros": torch.zeros(3, 72, dtype=torch.int32)}
        yield Bad(33, op, unpacked, ValueError, r"qzeros must be .*9\), got \(3, 72\)")
    for op in BIASED:
        for change in (lambda x: x[:3], lambda x: x[None]):
            yield Bad(
                34, op, {"bias": change}, ValueError, r"bias must be \(\w+,\) = \(\d+,\), got"
            )
    for op in ("scaled_mm", "scaled_mm_azp"):
        yield Odd(35, op, {"scale_a": lambda x: x[:, 0]})
        turned = {"scale_a": lambda x: x.t()}
        yield Bad(35, op, turned, ValueError, r"scale_a must .*M=3, got \(1, 3\)")


# --- 30, 36 to 47: extents ----------------------------------------------------------------------


def extents() -> Iterator[Bad | Odd]:
    def empty(result: Any, given: Arguments) -> bool:
        return first(result).numel() == 0

    rounding = ("quantize_per_token", "quantize_per_tensor", "quantize_fp8")
    for op in (*PRODUCTS, *rounding, "qconv2d", "qconv2d_int8"):
        none = {A[op]: lambda x: x[:0]}
        for name in ("scale_a", "azp"):
            if name in CALLS[op]() and op != "quantize_per_tensor":
                none[name] = lambda x: x[:0]
        yield Odd(36, op, none, empty)
    for op, name in GROUP_SIZE.items():
        yield Bad(40, op, {name: 1024}, ValueError, f"{name} must not be larger than .*1024.*Hint")
        for value in (0, -2, 7, 2**31):
            yield Bad(41, op, {name: value}, ValueError, f"{name} must .*{value}")
    for value in (0, -1, 3, 10**6):
        text = f"split_k_iters must be a power of two in 1..32, got {value}"
        yield Bad(42, "awq_gemm", {"split_k_iters": value}, ValueError, text)
    large = {"input": lambda x: x[:1, :, :1, :1].expand(1, 40, 2**13, 2**13)}
    text = r"input must have fewer than 2\^31.*"
    yield Bad(45, "qconv2d", large, ValueError, text + "2684354560")
    large = {"input": lambda x: x[:1, :, :1, :1].expand(1, 6, 2**15, 2**14)}
    yield Bad(
        45, "qconv2d_int8", large, ValueError, r"input must have fewer than 2\^31.*3221225472"
    )
    ones = torch.zeros(1, 1, dtype=torch.int8)
    deep = {"a": ones.expand(2, 131072), "b": ones.expand(72, 131072).contiguous().t()}
    yield Bad(46, "scaled_mm", deep, ValueError, "131071 for int8.*131072")
    in_floats = {**deep, "a": deep["a"].half()}
    yield Bad(46, "scaled_mm_dynamic", in_floats, ValueError, "131071 for int8.*131072")
    wide = {"input": torch.zeros(1, 8000, 3, 3, dtype=torch.int8),
            "weight": torch.zeros(8, 8000, 3, 3, dtype=torch.int8)}  # fmt: skip
    yield Bad(46, "qconv2d_int8", wide, ValueError, "at most 65793.*72000")
    for op in ("qconv2d", "qconv2d_int8"):
        for name, value in (("stride", [0, 1]), ("dilation", [1, 0]), ("padding", [-1, 0])):
            text = rf"{name} must be in [01]\.\.2147483647, got"
            yield Bad(47, op, {name: value}, ValueError, text)
        yield Odd(47, op, {"input": lambda x: x.contiguous(memory_format=torch.channels_last)},
                  lambda y, g: y.is_contiguous(memory_format=torch.channels_last))  # fmt: skip
    groups = {"weight": lambda x: x[:, :3]}
    yield Bad(47, "qconv2d_int8", groups, ValueError, r"weight must .*Ci=6.*Hint: groups are not")


# --- 48 to 58: views and values -----------------------------------------------------------------


def strided(x: Tensor) -> Tensor:
    """The same values, every second element of every row."""
    return torch.stack((x, x), -1)[..., 0]


def off_by_one(x: Tensor) -> Tensor:
    flat = torch.zeros(x.numel() + 1, dtype=x.dtype)
    flat[1:] = x.flatten()
    return flat[1:].view(x.shape)


def in_wide_rows(x: Tensor) -> Tensor:
    wide = torch.zeros(*x.shape[:-1], x.shape[-1] + 8, dtype=x.dtype)
    wide[..., 8:] = x
    return wide[..., 8:]


def odd_stride_of_one(x: Tensor) -> Tensor:
    """A dimension of size 1 may have any stride."""
    return x[:1].as_strided((1, *x.shape[1:]), (1000003, *x.stride()[1:]))


def values() -> Iterator[Bad | Odd]:
    for op in (*PRODUCTS, "quantize_per_token", "quantize_per_tensor", "quantize_fp8"):
        name = A[op]
        yield Odd(48, op, {name: lambda x: x.t().contiguous().t()})
        yield Odd(48, op, {name: strided})
        yield Odd(49, op, {name: in_wide_rows})
        yield Odd(50, op, {name: off_by_one})
    for op in ("qconv2d", "qconv2d_int8"):
        for number, change in ((48, strided), (49, in_wide_rows), (50, off_by_one)):
            yield Odd(number, op, {"input": change})
    for op in ("fpA_intB_gemm", "awq_gemm", "scaled_mm_dynamic", "block_quant_gemm"):
        rows = {A[op]: lambda x: x[:1].expand(3, -1)}
        yield Odd(51, op, rows, lambda y, given: bool((y == y[:1]).all()))
        yield Odd(52, op, {A[op]: odd_stride_of_one}, lambda y, given: y.shape == (1, 72))
    for op, name in GROUPED.items():
        for value in (float("nan"), float("inf")):

            def spoil(x: Tensor, value: float = value) -> Tensor:
                x = x.clone()
                x[0, 5] = value
                return x

            yield Odd(54, op, {name: spoil}, lambda y, given: not bool(y.isfinite().all()))
        zero = {name: torch.zeros_like}
        yield Odd(55, op, zero, lambda y, given: bool(y.isfinite().all()))
        yield Odd(55, op, {name: torch.neg}, lambda y, given: bool(y.isfinite().all()))
        grad = {name: lambda x: x.requires_grad_()}
        if op not in ("awq_dequantize", "dequantize_weights"):  # which give their gradient
            yield Bad(58, op, grad, RuntimeError, f"{name} requires grad.*Hint")
    for value in (96, -1):

        def out_of_range(x: Tensor, value: int = value) -> Tensor:
            x = x.clone()
            x[7] = value
            return x

        yield Bad(56, "gptq_repack", {"perm": out_of_range}, ValueError, "perm must hold each of 0")
    twice = {"perm": lambda x: torch.zeros_like(x)}
    for ends, text in (
        ((2, 1, 6), r"1 at index \(1,\); the rows of expert 0 end at 2"),
        ((2, 2, 7), r"7 at index \(2,\); the rows of expert 1 end at 2"),
        ((-1, 2, 6), r"-1 at index \(0,\)"),
    ):
        wrong = {"offs": torch.tensor(ends, dtype=torch.int32)}
        for op in ("grouped_fpA_intB_gemm", "grouped_fpA_fpB_gemm"):
            words = r"offs must not fall, and be in 0\.\.M, M=6, got "
            yield Bad(61, op, wrong, ValueError, words + text + "$")
    yield Bad(56, "gptq_repack", twice, ValueError, r"perm must hold each of 0\.\.95 once")


PARTS = (types, devices, dtypes, shapes, extents, values)
# Inputs that are tried elsewhere, and where.
ELSEWHERE = {
    10: "no torch makes mkldnn, nested and quantized tensors of all these dtypes",
    16: "tests/gpu/test_gpu_refusals.py",
    17: "needs two GPUs",
    18: "needs two GPUs",
    22: "selection/test_plan.py: no GPU before sm_80 at all",
    30: "ops/test_problems.py: any N and K",
    37: "ops/test_problems.py: N = 0",
    38: "ops/test_problems.py: K = 0",
    39: "ops/test_problems.py: ragged groups",
    43: "tests/gpu/sizes.py",
    44: "tests/gpu/sizes.py",
    53: "no op has out=",
    57: "ops/test_ops.py",
    59: "selection/test_plan.py",
    60: "weights/test_quantized_weight.py",
}


def every() -> list[Bad | Odd]:
    return [row for part in PARTS for row in part()]


def wrong_answer(row: Bad | Odd) -> str:
    """Empty when the call is answered as it must be, and the same op works right after it."""
    good = arguments(row.op, {})
    expected = first(public(row.op, good))
    try:
        result = public(row.op, arguments(row.op, row.changes))
    except Exception as error:
        if isinstance(row, Odd):
            return f"raised {type(error).__name__}: {error}"
        if not isinstance(error, row.error):
            return f"{type(error).__name__} instead of {row.error.__name__}: {error}"
        if not re.search(row.pattern(), str(error), re.DOTALL):
            return f"says {error}; expected {row.pattern()}"
    else:
        if isinstance(row, Bad):
            return "was accepted"
        same = row.check(result, arguments(row.op, row.changes)) if row.check else torch.equal(
            first(result), expected)  # fmt: skip
        if not same:
            return "another result"
    again = first(public(row.op, arguments(row.op, {})))
    return "" if torch.equal(again, expected) else "the next valid call differs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="JSON")
    args = parser.parse_args()
    counts: dict[int, dict[str, int]] = {}
    failures = []
    for row in every():
        entry = counts.setdefault(row.number, {"tried": 0, "answered": 0})
        wrong = wrong_answer(row)
        entry["tried"] += 1
        entry["answered"] += not wrong
        if wrong:
            failures.append(f"{row}: {wrong}")
    report = {
        "torch": torch.__version__,
        "tried": sum(x["tried"] for x in counts.values()),
        "answered": sum(x["answered"] for x in counts.values()),
        "by_number": dict(sorted(counts.items())),
        "elsewhere": ELSEWHERE,
        "failures": failures,
    }
    print("\n".join([*failures, f"{report['answered']} of {report['tried']} answered"]))
    from reliability_parts import write_part

    write_part(
        "bad_inputs",
        (
            {
                "name": title(number),
                "count": x["tried"],
                "failed": x["tried"] - x["answered"],
            }
            for number, x in report["by_number"].items()
        ),
    )
    if args.out:
        Path(args.out).write_text(json.dumps(report, indent=1) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    assert mixed_gemm.__version__
    sys.exit(main())
