"""Gradients, tangents and vmap of the ops on CUDA: the lattice of support/derivative_cases.py.

How the transforms nest is the matter of ops/test_derivatives.py: here it is the kernels'
turn to meet tangents and batches.
"""

from __future__ import annotations

import pytest
import torch
from problems.lattice import integers
from support.derivative_cases import HALF, TRAINED
from torch import func

pytestmark = pytest.mark.gpu
SAMPLES = {**TRAINED, **HALF}


@pytest.fixture(autouse=True)
def exact_convolutions():
    """The gradient of a convolution is torch's: cuDNN may take Winograd's algorithm for it."""
    with torch.backends.cudnn.flags(enabled=False):
        yield


def same(mine, want, smooth):
    """Exact where the activation is: on CUDA, gelu and silu in float32 are a few units off."""
    mine = mine.double().cpu()
    if smooth:
        assert (mine - want).norm() <= 2.0**-18 * want.norm()
    else:
        assert torch.equal(mine, want)


@pytest.mark.parametrize("method", ("jvp", "vjp", "vmap"))
@pytest.mark.parametrize("name", SAMPLES)
def test_derivatives_on_cuda_equal_those_in_float64(name, method):
    sample = SAMPLES[name]()
    on_gpu = sample.to("cuda")
    x = sample.primals()
    if method == "vmap":
        batches = [torch.stack((t, 2 * t)) for t in x]
        mine = func.vmap(on_gpu.run)(*(t.cuda() for t in batches))
        same(mine, func.vmap(sample.exact)(*(t.double() for t in batches)), sample.is_smooth)
        return
    if method == "jvp":
        dx = [integers(*t.shape, low=-1, high=1, dtype=t.dtype) for t in x]
        mine = func.jvp(on_gpu.run, on_gpu.primals(), tuple(t.cuda() for t in dx))[1]
        exact = [tuple(t.double() for t in y) for y in (x, dx)]
        same(mine, func.jvp(sample.exact, *exact)[1], sample.is_smooth)
        return
    out, back = func.vjp(on_gpu.run, *on_gpu.primals())
    v = integers(*out.shape, low=-1, high=1, dtype=out.dtype)
    want = func.vjp(sample.exact, *(t.double() for t in x))[1](v.double())
    for a, b in zip(back(v.cuda()), want, strict=True):
        same(a, b, sample.is_smooth)
