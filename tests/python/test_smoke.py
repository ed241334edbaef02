"""tests/smoke.py passes here, and would tell a kernel that is wrong, traced wrongly or left out."""

from __future__ import annotations

from typing import Any

import pytest
import smoke
import torch
from problems.registry import CALLS
from problems.scaled import ScaledCase

import mixed_gemm
from mixed_gemm import _library

# Besides the cases: a configuration by name, a gradient, and every kind of layer compiled.
PASSED = len(smoke.CASES) + 2 + len(smoke.LAYERS)


def test_every_public_op_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke.main() == 0, capsys.readouterr().out
    first, ops, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"torch {torch.__version__}, Python 3.")
    assert first.endswith("gradients in C++" if _library.has_autograd else "gradients in Python")
    assert ops == f"{len(CALLS)} of {len(CALLS)} ops"
    assert last == f"{PASSED} passed, 0 failed"


def test_public_ops_are_those_of_the_package() -> None:
    ops = smoke.public_ops()
    assert ops == set(CALLS)
    # For tests and benchmarks, through torch.ops.
    products = ("fpA_intB_gemm", "fpA_fpB_gemm")
    forced = {f"{grouped}{op}_config" for op in products for grouped in ("", "grouped_")}
    assert ops - forced <= set(mixed_gemm.ops.__all__)


def test_a_wrong_kernel_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = mixed_gemm.scaled_mm
    monkeypatch.setattr(mixed_gemm, "scaled_mm", lambda *a, **k: right(*a, **k) * 1.01)
    assert smoke.main() == 1
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == f"{PASSED - 1} passed, 1 failed"
    assert told[1].startswith("FAILED ScaledCase(") and "of the error bound" in told[1]


def test_a_wrong_gradient_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mixed_gemm.fpA_intB_gemm
    monkeypatch.setattr(mixed_gemm, "fpA_intB_gemm", lambda *a, **k: right(*a, **k) * 1.001)
    with pytest.raises(AssertionError, match="of the error bound"):
        smoke.check_gradient()


def test_an_op_that_is_not_called_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = [case for case in smoke.CASES if getattr(case, "how", "") != "tensor"]
    monkeypatch.setattr(smoke, "CASES", tuple(left))
    assert smoke.main() == 1
    assert "FAILED: never called: quantize_per_tensor\n" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["dtype", "shape", "strides"])
def test_a_kernel_that_traces_wrongly_fails(change: str) -> None:
    (call,) = smoke.check_case(ScaledCase())
    outs: dict[str, Any] = {
        "dtype": call.out.float(),
        "shape": call.out[1:],
        "strides": call.out.t().contiguous().t(),
    }
    with pytest.raises(AssertionError, match="traced: "):
        smoke.check_fake(smoke.Recorded(call.op, call.arguments, call.options, outs[change]))
