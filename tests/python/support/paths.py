"""One call of an op on every path that may refuse it: the CPU kernel, the fake kernel on meta and
on fake tensors, and the Python function. With MIXED_GEMM_REAL_TENSORS_ALONE the fake kernels, which
read no memory of a tensor, are left out: a sanitizer would see nothing there, and takes minutes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from .op_calls import Arguments, placed, public, raw


def outcome(call: Callable[[str, Arguments], Any], op: str, arguments: Arguments) -> Any:
    """Shapes and dtypes that come out, or the exception."""
    try:
        result = call(op, arguments)
    except Exception as error:
        return error
    results = result if isinstance(result, tuple) else (result,)
    return [None if x is None else (tuple(x.shape), x.dtype, x.stride()) for x in results]


def on_fakes(call: Callable[[str, Arguments], Any], op: str, arguments: Arguments) -> Any:
    with FakeTensorMode() as mode:
        fake = {
            k: mode.from_tensor(v) if isinstance(v, Tensor) else v for k, v in arguments.items()
        }
        return outcome(call, op, fake)


REAL_TENSORS_ALONE = "MIXED_GEMM_REAL_TENSORS_ALONE" in os.environ


def outcomes(op: str, bad: Arguments) -> dict[str, Any]:
    if REAL_TENSORS_ALONE:
        return {"cpu": outcome(raw, op, bad), "python": outcome(public, op, bad)}
    meta = placed(bad, "meta")
    return {
        "cpu": outcome(raw, op, bad),
        "meta": outcome(raw, op, meta),
        "fake": on_fakes(raw, op, bad),
        "python": outcome(public, op, bad),
        "python on meta": outcome(public, op, meta),
        "python on fakes": on_fakes(public, op, bad),
    }


def agreed(op: str, bad: Arguments) -> Exception | None:
    """Return what the Python function raises, after a look at all the other paths, or None where
    the call is accepted everywhere."""
    found = outcomes(op, bad)
    refused = found["python"]
    if not isinstance(refused, Exception):
        for path, result in found.items():
            assert result == found["cpu"], path
        return None
    for path, error in found.items():
        assert isinstance(error, RuntimeError), f"{path}: {error!r}"
        assert str(error) == str(refused), path
        if path.startswith("python"):
            assert type(error) is type(refused), path
    assert type(found["cpu"]) is RuntimeError
    return refused
