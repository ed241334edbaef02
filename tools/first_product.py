"""The first products of a fresh installation, on the CPU and on every kind of GPU that torch sees:
right or not, as JSON.

    python tools/first_product.py

Small whole numbers and scales that are powers of two: every sum is exact in every dtype, so each
result must be the one of float64, bit for bit. Needs what the package needs and no file of this
tree, so that it runs where only the wheel is.
"""

from __future__ import annotations

import json
import platform
import sys

import torch

import mixed_gemm

M, N, K = 5, 96, 64
SCALE = 0.25


def operands(bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(bits)
    a = torch.randint(-1, 2, (M, K), generator=generator)
    return a, torch.randint(-8, 8, (N, K), generator=generator, dtype=torch.int8)


def weight_only(device: str, dtype: torch.dtype, bits: int) -> bool:
    a, q = operands(bits)
    packed = mixed_gemm.pack_weights(q.to(device), bits)
    scales = torch.full((1, N), SCALE, dtype=dtype, device=device)
    y = mixed_gemm.fpA_intB_gemm(a.to(device, dtype), packed, scales, bits=bits)
    return torch.equal(y.cpu().double(), a.double() @ (q.double() * SCALE).t())


def int8(device: str) -> bool:
    a, q = operands(8)
    one = torch.ones(1, device=device)
    y = mixed_gemm.scaled_mm(
        a.to(device, torch.int8), q.to(device).t(), one, one, out_dtype=torch.float16
    )
    return torch.equal(y.cpu().double(), a.double() @ q.double().t())


def gradient() -> bool:
    """Tell whether the gradient of the activations is right, which the small library for this torch
    records where there is one."""
    a, q = operands(4)
    x = a.float().requires_grad_()
    scales = torch.full((1, N), SCALE)
    y = mixed_gemm.fpA_intB_gemm(x, mixed_gemm.pack_weights(q, 4), scales, bits=4)
    (found,) = torch.autograd.grad(y.sum(), x)
    return torch.equal(found.double(), (q.double() * SCALE).sum(0).expand(M, K))


def main() -> int:
    devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    products = {"gradient": gradient()}
    for device in devices:
        for bits in (4, 8):
            for dtype in (torch.float16, torch.bfloat16):
                name = f"{device} int{bits} {str(dtype).removeprefix('torch.')}"
                products[name] = weight_only(device, dtype, bits)
        products[f"{device} int8 int8"] = int8(device)
    report = mixed_gemm.env()
    print(
        json.dumps(
            {
                "torch": report.torch,
                "python": platform.python_version(),
                "gpus": report.gpus,
                "mixed_gemm": report.build["version"],
                "has_autograd": mixed_gemm._library.has_autograd,
                "products": products,
            }
        )
    )
    return int(not all(products.values()))


if __name__ == "__main__":
    sys.exit(main())
