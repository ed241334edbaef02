"""``mixed-gemm doctor``: what runs and is right, what is wrong, and why the rest does not run."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import mixed_gemm
from mixed_gemm.doctor import devices, products
from mixed_gemm.doctor.devices import Device
from mixed_gemm.doctor.diagnosis import Diagnosis, diagnose
from mixed_gemm.doctor.products import PRODUCTS, Product, multiply
from mixed_gemm.doctor.text import WIDTH, compute_capabilities, text
from mixed_gemm.ops.registry import OPS

MOST_SECONDS = 5.0  # on two busy cores; 0.1 s on two idle ones
ONE_SCREEN = 45  # lines


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    return diagnose("cpu")


# --- products -----------------------------------------------------------------------------------


def test_every_public_op_is_called() -> None:
    checked = {name for key in PRODUCTS for name in key.partition(" of ")[0].split(", ")}
    assert checked == {op.name for op in OPS if op.is_public}


def test_every_op_is_right_on_the_cpu(found: Diagnosis) -> None:
    assert found.ok and [x.op for x in found.products] == list(PRODUCTS)
    for product in found.products:
        assert product.ok and product.error_over_bound is not None
        assert 0 <= product.error_over_bound <= 1, product
    rounded = [x for x in found.products if x.error_over_bound]
    assert len(rounded) == 18  # the others have the bits of the reference
    assert found.seconds < MOST_SECONDS


class Wrong:
    """The ops, of which one gives another result."""

    def __init__(self, name: str, change: Any) -> None:
        self.name, self.change = name, change

    def __getattr__(self, name: str) -> Any:
        op = getattr(mixed_gemm.ops, name)
        if name != self.name:
            return op
        return lambda *given, **options: self.change(op(*given, **options))


def one_element(out: Any) -> Any:
    """A result of which one number is one step of its type away, or 1 % where it is rounded."""
    first = out[0] if isinstance(out, tuple) else out
    flat = first.reshape(-1)
    largest = int(flat.float().abs().argmax())
    if not first.is_floating_point():
        flat[largest] ^= 1
    elif first.dtype == torch.float8_e4m3fn:
        flat.view(torch.uint8)[largest] ^= 1
    else:
        flat[largest] *= 1.01
    return out


CALLED = [
    (check, name)
    for check in PRODUCTS
    for name in check.partition(" of ")[0].split(", ")
    if not name.endswith("gemm_config")  # of torch.ops, which has the same kernels
]


@pytest.mark.parametrize(("check", "name"), CALLED)
def test_a_wrong_number_is_a_fault(check: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Wrong(name, one_element)
    for module in (products, products.of_products, products.of_weights):
        monkeypatch.setattr(module, "ops", wrong)
    product = multiply(check, "cpu")
    assert not product.ok and product.failure is None


def test_an_op_that_raises_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(here: Any) -> float:
        raise RuntimeError("an illegal memory access")

    monkeypatch.setitem(PRODUCTS, "awq_gemm", broken)
    found = diagnose("cpu")
    assert found.faults == ("awq_gemm on cpu: RuntimeError: an illegal memory access",)
    assert found.faults[0] in text(found)


# --- devices ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "cuda", "visible", "said"),
    [
        (None, None, None, "no NVIDIA driver"),
        ((13, 0), None, None, "has no CUDA, and the driver serves CUDA 13.0: pip install torch"),
        ((12, 4), "13.0", None, "needs a driver for CUDA 13.0, and this one serves 12.4: update"),
        ((13, 0), "13.0", "", "CUDA_VISIBLE_DEVICES is ''"),
        ((13, 0), "13.0", None, "does nvidia-smi -L list one?"),
    ],
)
def test_why_there_is_no_gpu(
    driver: Any, cuda: str | None, visible: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(devices, "driver_cuda", lambda: driver)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert said in str(devices.why_no_gpu())
    with pytest.raises(ValueError, match="there is no cuda: "):
        diagnose("cuda")


def test_a_gpu_without_machine_code_is_told_by_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("no machine code for compute capability 7.5")

    monkeypatch.setattr(devices, "why_not", refuse)
    monkeypatch.setattr(devices._library, "has_cuda", True)
    assert devices.refusal_of("cuda:0") == "no machine code for compute capability 7.5"
    monkeypatch.setattr(devices._library, "has_cuda", False)
    assert "built without CUDA kernels: pip install" in str(devices.refusal_of("cuda:0"))
    assert devices.refusal_of("cpu") is None


def test_a_device_that_is_asked_for_must_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from mixed_gemm.doctor import diagnosis

    refused = (Device("cpu"), Device("cuda:0", "no machine code"))
    monkeypatch.setattr(diagnosis, "devices", lambda: refused)
    monkeypatch.setattr(diagnosis, "why_no_gpu", lambda: None)
    monkeypatch.setattr(diagnosis, "cuda_device", lambda op, name: torch.device("cuda:0"))
    assert diagnose().ok
    asked = diagnose("cuda")
    assert asked.faults == ("cuda:0: no machine code",) and asked.products == ()


def test_a_gpu_without_float8_skips_it_with_the_reason() -> None:
    a100 = "cuda:sm=80,sms=108,smem=166912"
    product = multiply("scaled_mm of float8", a100)
    assert product.ok and product.error_over_bound is None
    assert "8.9" in str(product.skipped)


# --- text and exit status -----------------------------------------------------------------------


def test_the_text_is_one_screen(found: Diagnosis) -> None:
    lines = text(found).splitlines()
    assert len(lines) <= ONE_SCREEN and max(map(len, lines)) <= WIDTH
    assert lines[0] == f"mixed_gemm {mixed_gemm.__version__}: all that can run here is right"
    for word in ("library", "machine code", "torch", "CPU", "driver", "A report holds"):
        assert any(line.strip().startswith(word) for line in lines), word
    assert f"ops on cpu    {len(PRODUCTS)} of {len(PRODUCTS)} checks right" in text(found)


def test_kernels_of_equal_gpus_are_listed_once(found: Diagnosis) -> None:
    names = ("cpu", "cuda:0", "cuda:1")
    families = {"int8 weights and activations": "scaled, wgmma"}
    two = dataclasses.replace(
        found,
        devices=tuple(map(Device, names)),
        kernels=dict.fromkeys(names, families),
        refused={"cuda:0": {"float8": "needs 8.9"}},
        products=tuple(Product("scaled_mm", name, 0.1, 0.5) for name in names),
    )
    said = text(two)
    assert said.count("scaled, wgmma") == 1 and said.count("1 of 1 checks right") == 3
    assert "  cuda:0        float8: needs 8.9" in said


def test_compute_capabilities_are_written_as_nvidia_does() -> None:
    assert compute_capabilities("80,86,90+PTX") == "8.0, 8.6, 9.0+PTX"
    assert compute_capabilities("89,100,120") == "8.9, 10.0, 12.0"
    assert compute_capabilities("") == "none"


def run(repository: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    path = os.pathsep.join((str(repository), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [sys.executable, "-m", "mixed_gemm.doctor", *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_runs_without_the_extra_of_the_command(repository: Path) -> None:
    done = run(repository, "--json", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] is True and report["faults"] == []
    assert report["environment"]["torch"] == torch.__version__
    assert [x["op"] for x in report["products"]] == list(PRODUCTS)


def test_a_library_that_does_not_load_is_a_fault(repository: Path, tmp_path: Path) -> None:
    done = run(repository, MIXED_GEMM_LIBRARY=str(tmp_path / "missing.so"))
    assert done.returncode == 1
    assert "was not found in" in done.stdout and "the library did not load" in done.stdout


def test_no_infinity_reaches_json(found: Diagnosis) -> None:
    wrong = dataclasses.replace(found, products=(Product("awq_repack", "cpu", 0.0, float("inf")),))
    (product,) = wrong.as_dict()["products"]
    assert (product["error_over_bound"], product["ok"]) == ("inf", False)
    json.dumps(wrong.as_dict(), allow_nan=False)
