"""Every op refuses tensors on different devices, with the names of both arguments, before it reads
anything: meta beside the CPU here, and the two sides of a GPU in tests/gpu/test_gpu_refusals.py.
"""

from __future__ import annotations

import re

import pytest
import torch
from support.op_calls import CALLS, TENSORS, public, raw
from torch._subclasses.fake_tensor import FakeTensorMode

# All tensors but the first, beside which they lie.
OTHERS = [
    (op, name)
    for op, name in TENSORS
    if name != next(k for k, v in CALLS[op]().items() if isinstance(v, torch.Tensor))
]


def first_of(op: str) -> str:
    return next(k for k, v in CALLS[op]().items() if isinstance(v, torch.Tensor))


@pytest.mark.parametrize(("op", "name"), OTHERS)
def test_one_argument_on_meta(op: str, name: str) -> None:
    bad = CALLS[op]()
    bad[name] = bad[name].to("meta")
    text = (
        f"mixed_gemm::{op}: all tensors must be on one device, got {first_of(op)} on cpu and "
        f"{name} on meta. Hint: move them with .to(device)"
    )
    for call, error in ((raw, RuntimeError), (public, ValueError)):
        with pytest.raises(error, match=f"^{re.escape(text)}$"):
            call(op, bad)


@pytest.mark.parametrize("op", sorted({op for op, _ in OTHERS}))
def test_the_first_argument_alone_on_meta(op: str) -> None:
    bad, first = CALLS[op](), first_of(op)
    bad[first] = bad[first].to("meta")
    with pytest.raises(
        ValueError, match=rf"mixed_gemm::{op}: .*got {first} on meta and \w+ on cpu"
    ):
        public(op, bad)


@pytest.mark.parametrize("op", sorted({op for op, _ in OTHERS}))
def test_another_device_of_fake_tensors(op: str) -> None:
    with FakeTensorMode():
        bad = {
            name: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cpu")
            if isinstance(x, torch.Tensor)
            else x
            for name, x in CALLS[op]().items()
        }
        first = first_of(op)
        bad[first] = bad[first].to("meta")
        with pytest.raises(RuntimeError, match="device"):  # torch's own words, or ours
            raw(op, bad)
