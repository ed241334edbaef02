"""The diagnosis: all that the doctor looks at, in one record."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..selection.planning import cuda_device, plan, why_not
from .devices import Device, devices, driver, why_no_gpu
from .environment import EnvReport, env
from .packages import OPTIONAL, REQUIRED, TESTED_TORCH, Found, look, starts_with
from .products import PRODUCTS, Product, multiply

# The problems that are tried, as users call them: arguments of plan().
PROBLEMS: dict[str, dict[str, Any]] = {
    "int4 or int8 weights, 16-bit activations": {"dtype": torch.float16, "bits": 4},
    "the same, float32 activations": {"dtype": torch.float32, "bits": 4},
    "int8 weights and activations": {"dtype": torch.int8},
    "float8 weights and activations": {"dtype": torch.float8_e4m3fn},
}
SIDE = 4096  # N and K of the problems
ROWS = (1, 64, 4096)


@dataclass(frozen=True)
class Diagnosis:
    """The ops that run here, and those that do not.

    Attributes:
        environment: versions and hardware. driver: of NVIDIA, in words, or None.
        no_gpu: why torch sees no GPU, or None. devices: where ops may run, and why not.
        kernels: device -> problem -> the families of kernels that ``plan`` selects, few rows first.
        refused: device -> problem -> why no kernel there takes it.
        torch_tested: whether the tests are run with this release of torch.
        packages: those that the package needs, then the optional ones.
        products: one call of every op on each device.
        faults: what ought to run and does not, or is wrong; empty where all is right.
        seconds: that the products took.
    """

    environment: EnvReport
    driver: str | None
    no_gpu: str | None
    devices: tuple[Device, ...]
    kernels: dict[str, dict[str, str]]
    refused: dict[str, dict[str, str]]
    torch_tested: bool
    packages: tuple[Found, ...]
    products: tuple[Product, ...]
    faults: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.faults

    def as_dict(self) -> dict[str, Any]:
        """Return the record for JSON."""
        return {
            "ok": self.ok,
            **asdict(self),
            "torch_tested_with": TESTED_TORCH,
            "products": [{**asdict(x), "error_over_bound": _number(x), "ok": x.ok}
                         for x in self.products],
        }  # fmt: skip


def _number(product: Product) -> float | str | None:
    """JSON has no infinity."""
    ratio = product.error_over_bound
    return "inf" if ratio == float("inf") else ratio


def kernels_on(device: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return (problem -> families, problem -> why it is refused)."""
    families, refused = {}, {}
    for name, problem in PROBLEMS.items():
        options = {**problem, "device": device}
        reason = why_not(1, SIDE, SIDE, **options)
        if reason is not None:
            refused[name] = "; ".join(reason.reasons)
            continue
        found = [plan(m, SIDE, SIDE, **options).family for m in ROWS]
        families[name] = ", ".join(dict.fromkeys(found))
    return families, refused


def faults_of(
    error: str | None, packages: Iterable[Found], products: Iterable[Product]
) -> list[str]:
    found = [error] if error else []
    required = {package.name for package in REQUIRED}
    found += [
        f"{x.package.name}: {x.problem}"
        for x in packages
        if x.problem and x.package.name in required
    ]
    for product in products:
        if not product.ok:
            said = product.failure or f"{product.error_over_bound:.3g} of its error bound"
            found.append(f"{product.op} on {product.device}: {said}")
    return found


def diagnose(only: str = "") -> Diagnosis:
    """Look at everything, and multiply with every op on every device that can.

    Args:
        only: a device, "cpu", "cuda" or "cuda:1": no other is tried, and it is a fault where no op
            runs there. "": all of them.

    Raises:
        ValueError: there is no such device.
    """
    no_gpu = why_no_gpu()
    if only.startswith("cuda") and no_gpu:
        raise ValueError(f"there is no {only}: {no_gpu}")
    name = str(cuda_device("doctor", only)) if only.startswith("cuda") else only
    report = env()
    places = tuple(x for x in devices() if not name or x.name == name)
    able = [x.name for x in places if x.refusal is None]
    begun = time.perf_counter()
    products = tuple(multiply(op, device) for device in able for op in PRODUCTS)
    seconds = time.perf_counter() - begun
    both = {device: kernels_on(device) for device in able}
    packages = tuple(look(package) for package in (*REQUIRED, *OPTIONAL))
    faults = faults_of(report.error, packages, products)
    if name and not report.error:
        faults += [f"{x.name}: {x.refusal}" for x in places if x.refusal]
    return Diagnosis(
        environment=report,
        driver=driver(),
        no_gpu=no_gpu,
        devices=places,
        kernels={device: families for device, (families, _) in both.items()},
        refused={device: refused for device, (_, refused) in both.items()},
        torch_tested=any(starts_with(report.torch, x) for x in TESTED_TORCH),
        packages=packages,
        products=products,
        faults=tuple(faults),
        seconds=seconds,
    )
