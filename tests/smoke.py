"""Every public op once on the CPU, against mixed_gemm.reference, and the kernels that only compute
shapes against what came out; every kind of layer compiled, without tensor subclasses among the
inputs of its graph. So it is seen whether a library that was built with one torch works under
another.

    PYTHONPATH=. MIXED_GEMM_LIBRARY=build/libmixed_gemm.so python tests/smoke.py

Needs torch and what mixed_gemm depends on, no pytest: tools/matrix.py runs it under each torch and
Python that the library promises. The problems are those of tests/problems.
"""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Callable
from typing import Any

import torch
from compiled_layers import LAYERS, check_layer
from problems import registry
from problems.floats import FloatCase
from problems.gemm import Case
from problems.grouped import GroupedCase, GroupedFloatCase
from problems.recorder import Recorded, Recorder
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

import mixed_gemm
from mixed_gemm import _library, reference

NAMESPACE = "mixed_gemm::"
CASES = tuple(case for row in registry.CALLS.values() for case in row.cases)


def public_ops() -> set[str]:
    """Names with an underscore are for tests and benchmarks."""
    return {
        name.removeprefix(NAMESPACE)
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith(NAMESPACE) and not name.startswith(f"{NAMESPACE}_")
    }


def shapes(value: Any) -> Any:
    """A tensor's shape, strides and dtype in its place."""

    def of(x: Any) -> Any:
        return (tuple(x.shape), x.stride(), x.dtype) if isinstance(x, Tensor) else x

    return tree_map(of, value)


def check_fake(call: Recorded) -> None:
    """The kernel that torch.compile and torch.export trace with."""
    with FakeTensorMode() as mode:

        def fake(x: Any) -> Any:
            return mode.from_tensor(x) if isinstance(x, Tensor) else x

        traced = call.op(*tree_map(fake, call.arguments), **tree_map(fake, dict(call.options)))
    assert shapes(traced) == shapes(call.out), f"traced: {shapes(traced)}, is: {shapes(call.out)}"


def check_case(case: Any, **options: Any) -> list[Recorded]:
    """The calls that were made; AssertionError with the reason where one is wrong."""
    problem = registry.make(case)
    with Recorder() as recorder:
        out = problem.run(**options)
    ratio = float(problem.verdict(out))
    assert ratio <= 1, f"{ratio:g} of the error bound"
    for call in recorder.calls:
        check_fake(call)
    return recorder.calls


def check_config() -> None:
    """The kernels that plan() names, asked for by those names."""
    case, of_floats = Case(), FloatCase()
    plan = mixed_gemm.plan(
        case.m, case.n, case.k, dtype=case.dtype, bits=case.bits, group_size=-1, device="cpu"
    )
    for each in (case, GroupedCase(), GroupedFloatCase()):  # a CPU has one name for all
        check_case(each, config=plan.selected)
    plan = mixed_gemm.plan(
        of_floats.m,
        of_floats.n,
        of_floats.k,
        dtype=of_floats.dtype,
        weight=of_floats.weight,
        group_size=of_floats.group_size,
        device="cpu",
    )
    check_case(of_floats, config=plan.selected)


def check_gradient() -> None:
    """Check the gradient of the activations: it is in C++ where a library for this torch lies
    beside ours, else in Python."""
    torch.manual_seed(0)
    q = torch.randint(-8, 8, (72, 96), dtype=torch.int8)
    scales = torch.rand(3, 72)
    a, grad = torch.randn(5, 96, requires_grad=True), torch.randn(5, 72)
    packed = mixed_gemm.pack_weights(q, 4)
    mixed_gemm.fpA_intB_gemm(a, packed, scales, bits=4, group_size=32).backward(grad)
    assert a.grad is not None, "no gradient"
    w = reference.dequantize(q, scales, group_size=32)
    # A sum of 72 products of rounded weights: at most 74 roundings of 2^-24 of the magnitudes.
    bound = 74 * 2.0**-24 * (grad.double().abs() @ w.abs())
    ratio = float(((a.grad.double() - grad.double() @ w).abs() / bound).max())
    assert ratio <= 1, f"{ratio:g} of the error bound"


Check = tuple[str, Callable[[], object]]


def failures(checks: list[Check]) -> int:
    """How many fail; each is told, since a smoke test tells all that is broken."""
    failed = 0
    for name, check in checks:
        try:
            check()
        except Exception as error:
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}")
    return failed


def main() -> int:
    where = "C++" if _library.has_autograd else "Python"
    print(f"torch {torch.__version__}, Python {platform.python_version()}, gradients in {where}")
    _library.require()
    checks: list[Check] = [
        *((repr(case), functools.partial(check_case, case)) for case in CASES),
        ("a configuration by name", check_config),
        ("the gradient of fpA_intB_gemm", check_gradient),
    ]
    with Recorder() as recorder:
        failed = failures(checks)
    # Not under a mode of dispatch, which torch.compile would leave alone.
    compiled: list[Check] = [(f"{x}, compiled", functools.partial(check_layer, x)) for x in LAYERS]
    failed += failures(compiled)
    passed = len(checks) + len(compiled) - failed
    ops = public_ops()
    if missing := ops - {call.name for call in recorder.calls}:
        failed += 1
        print(f"FAILED: never called: {', '.join(sorted(missing))}")
    print(f"{len(ops - missing)} of {len(ops)} ops\n{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
