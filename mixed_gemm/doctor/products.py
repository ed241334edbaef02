"""One call of every public op against ``mixed_gemm.reference``, in about a second for a device.

The numbers are drawn on the CPU, where the reference computes as well, and are the same for every
device. ``PRODUCTS`` has a check for each op; its result is the error over the bound of a correct
kernel, so that above 1 the op is wrong, and infinite where bits must be equal and are not.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import ops, reference
from ..reference.examples import Example
from ..selection.planning import why_not
from . import of_grouped, of_products, of_weights
from .draw import Here, K, M, N, equal


@dataclass(frozen=True)
class Product:
    """The result of one op on one device.

    Attributes:
        op: name. device: as torch names it. seconds: of the call and its reference.
        error_over_bound: above 1 is wrong; None where the op did not run.
        skipped: why it cannot run there, or None. failure: the error that it raised, or None.
    """

    op: str
    device: str
    seconds: float
    error_over_bound: float | None = None
    skipped: str | None = None
    failure: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it is no fault; an op that cannot run on this device is none."""
        if self.skipped is not None:
            return True
        return self.error_over_bound is not None and self.error_over_bound <= 1


def examples() -> dict[str, Example]:
    """The examples in all files of ``mixed_gemm.reference``, by the name of the op."""
    found: dict[str, Example] = {}
    for module in pkgutil.iter_modules(reference.__path__, f"{reference.__name__}."):
        found.update(getattr(importlib.import_module(module.name), "EXAMPLES", {}))
    return found


def of_example(op: str, example: Example, here: Here) -> float:
    """Check an op whose bits are those of the reference."""
    arguments, expected = example(here)
    given = {name: here(x) if isinstance(x, Tensor) else x for name, x in arguments.items()}
    out = getattr(ops, op)(**given)
    pairs = [(out, expected)] if isinstance(out, Tensor) else zip(out, expected, strict=True)
    return max(equal(x, y) for x, y in pairs if x is not None and y is not None)


PRODUCTS: dict[str, Callable[[Here], float]] = {
    "fpA_intB_gemm": lambda here: of_products.gemm(here, ops.fpA_intB_gemm),
    "fpA_intB_gemm_config": of_products.gemm_by_name,
    "fpA_fpB_gemm": lambda here: of_products.float_gemm(here, ops.fpA_fpB_gemm),
    "fpA_fpB_gemm_config": of_products.float_gemm_by_name,
    "grouped_fpA_intB_gemm": lambda here: of_grouped.gemm(here, ops.grouped_fpA_intB_gemm),
    "grouped_fpA_intB_gemm_config": lambda here: of_grouped.gemm(
        here, of_grouped.by_name("grouped_fpA_intB_gemm")
    ),
    "grouped_fpA_fpB_gemm": lambda here: of_grouped.float_gemm(here, ops.grouped_fpA_fpB_gemm),
    "grouped_fpA_fpB_gemm_config": lambda here: of_grouped.float_gemm(
        here, of_grouped.by_name("grouped_fpA_fpB_gemm")
    ),
    "scaled_mm": lambda here: of_products.scaled(here, "plain"),
    "scaled_mm of float8": lambda here: of_products.scaled(here, "float8"),
    "scaled_mm_azp": lambda here: of_products.scaled(here, "azp"),
    "scaled_mm_dynamic": of_products.scaled_mm_dynamic,
    "block_quant_gemm": of_products.block_quant_gemm,
    "awq_gemm": of_products.awq_gemm,
    "qconv2d": of_products.qconv2d,
    "qconv2d_int8": of_products.qconv2d_int8,
    "gated_activation": of_products.gated_activation,
    **{op: functools.partial(of_example, op, example) for op, example in examples().items()},
    "pack_weights, unpack_weights": of_weights.pack_weights,
    "pack_codes, unpack_codes": of_weights.pack_codes,
    "dequantize_codes": of_weights.dequantize_codes,
    "pack_conv_weights": of_weights.pack_conv_weights,
    "dequantize_weights": of_weights.dequantize_weights,
    "awq_dequantize": of_weights.awq_dequantize,
    "awq_repack": of_weights.awq_repack,
    "gptq_repack": of_weights.gptq_repack,
}


def why_skipped(op: str, device: str) -> str | None:
    """Tell why a GPU on which the library runs has no kernel for this op."""
    if op != "scaled_mm of float8":
        return None
    refused = why_not(M, N, K, dtype=torch.float8_e4m3fn, device=device)
    return None if refused is None else "; ".join(refused.reasons)


def multiply(op: str, device: str) -> Product:
    """Check one op on one device. No exception of an op leaves this function."""
    begun = time.perf_counter()
    try:
        reason = why_skipped(op, device)
        if reason is not None:
            return Product(op, device, 0.0, skipped=reason)
        ratio = PRODUCTS[op](Here(device))
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        return Product(op, device, time.perf_counter() - begun, failure=failure)
    return Product(op, device, time.perf_counter() - begun, error_over_bound=ratio)
