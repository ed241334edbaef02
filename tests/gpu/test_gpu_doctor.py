"""``mixed-gemm doctor`` on a GPU: every op runs there or says why not, and is right."""

from __future__ import annotations

import pytest
import torch

from mixed_gemm.doctor.devices import driver
from mixed_gemm.doctor.diagnosis import diagnose
from mixed_gemm.doctor.products import PRODUCTS
from mixed_gemm.doctor.text import text

pytestmark = pytest.mark.gpu


def test_every_op_is_right_on_the_gpu() -> None:
    found = diagnose("cuda")
    assert found.ok, found.faults
    assert [x.op for x in found.products] == list(PRODUCTS)
    float8 = torch.cuda.get_device_capability() >= (8, 9)
    assert {x.op for x in found.products if x.skipped} == (
        set() if float8 else {"scaled_mm of float8"}
    )
    (device,) = found.devices
    assert set(found.kernels[device.name]) | set(found.refused[device.name])
    assert found.no_gpu is None and "checks right" in text(found)


def test_the_driver_is_named() -> None:
    assert "for CUDA" in str(driver())
