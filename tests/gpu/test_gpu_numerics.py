"""What docs/numerics.md promises of the kernels on CUDA and no other file here checks: where scales
that are not finite go, and that float16 subnormals count."""

from __future__ import annotations

import pytest
import torch
from configs import KERNELS, configs_of
from problems.gemm import Case, make

import mixed_gemm

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("value", (float("nan"), float("inf")))
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_scale_that_is_not_finite_stays_in_its_column(kernel, value):
    case = Case(40, 200, 776, torch.float16, 4, 64)
    problem = make(case, "cuda")
    configs = list(configs_of(kernel, case))
    clean = [problem.run(config=config) for config in configs]
    problem.scales[3, 7] = value
    keep = torch.arange(case.n, device="cuda") != 7
    for config, before in zip(configs, clean, strict=True):
        out = problem.run(config=config)
        assert torch.equal(out[:, keep], before[:, keep]), config
        assert not out[:, 7].isfinite().any(), config


@pytest.mark.parametrize("rows", (1, 8, 64, 256))
@pytest.mark.parametrize("bits", (4, 8))
def test_float16_subnormals_count(bits, rows):
    """Activations, scales and results below 2^-14 are no zeros."""
    k, least = 512, 2.0**-24
    packed = mixed_gemm.pack_weights(torch.eye(k, dtype=torch.int8), bits).cuda()
    options = {"bits": bits, "group_size": -1}
    tiny = (torch.arange(k, device="cuda").view(1, k) * least).half()
    ones = torch.ones(rows, k, device="cuda").half()
    want = tiny.expand(rows, k)
    assert torch.equal(mixed_gemm.fpA_intB_gemm(want, packed, ones[:1], **options), want)
    assert torch.equal(mixed_gemm.fpA_intB_gemm(ones, packed, tiny, **options), want)
