"""Boundary subset for compute-sanitizer (test_gpu_sanitizer.py runs it): ragged M, N and K, every
scale mode, dtype and bit width, splits and small kernels, with more k-tiles than stages so that the
pipeline wraps. Not a pytest file."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from cases import Case, make
from configs import DTYPES, KERNELS, MODES, TILED, clusters_of, has_mode
from scaled_cases import AZP, OUT_DTYPES, ScaledCase
from scaled_cases import make as make_scaled
from scaled_configs import FLOAT8, TILE_K, configs_of, run_config, sum_epsilon, tile_of
from scaled_configs import KERNELS as SCALED_KERNELS

import mixed_gemm

SPLITS = ("", "_streamk2", "_parallel3")
SCALED_SPLITS = ("", "_streamk2", "_streamk3", "_parallel3", "_cluster2")


def scaled_gemms() -> int:
    """The same for 8-bit operands, and the quantizers."""
    runs = 0
    for i, kernel in enumerate(SCALED_KERNELS):
        azp, out_dtype = AZP[i % len(AZP)], OUT_DTYPES[i // 2 % len(OUT_DTYPES)]
        m, n, k = tile_of(kernel)[0] + 3, 72 + 65 * (i % 2), 10 * TILE_K + 8 * (i % 3)
        for operand, splits in ((torch.int8, SCALED_SPLITS), (FLOAT8, SCALED_SPLITS[i % 2 :: 4])):
            case = ScaledCase(m, n, k, out_dtype, operand, azp=azp, bias=True)
            if operand == FLOAT8:
                case = replace(case, azp="none")
            problem = make_scaled(case, "cuda")
            for config in configs_of(m, n, k, str(operand)[6:], kernel):
                if config.removeprefix(kernel) not in splits:
                    continue
                ratio = problem.ratio(run_config(problem, config), sum_epsilon())
                assert ratio <= 1, (case, config, ratio)
                runs += 1
    for dtype, k in ((torch.float16, 257), (torch.bfloat16, 20_000), (torch.float32, 64)):
        x = torch.randn(5, k, device="cuda", dtype=dtype)
        for symmetric in (True, False):
            mixed_gemm.quantize_per_token(x, symmetric=symmetric)
        mixed_gemm.quantize_per_tensor(x, torch.tensor(0.02, device="cuda"))
    return runs


def main() -> None:
    runs = scaled_gemms()
    assert runs >= 3 * len(SCALED_KERNELS)
    for i, kernel in enumerate(KERNELS):
        tile_m = int(re.search(r"_m(\d+)n", kernel)[1])
        for j, (mode, (groups, zero_modes)) in enumerate(MODES.items()):
            if not has_mode(kernel, mode):
                continue
            small = mode == "half" and kernel.startswith("skinny")  # quarters, of int4
            bits, dtype = (4, 8)[(i + j) % 2], DTYPES[(i + j // 2) % 2]
            case = Case(
                1 if small else tile_m + 3,
                72 + 65 * (j % 2),
                64 * 6 + 8 * (j % 3),
                dtype,
                bits,
                groups[0],
                zero_modes[0],
                bias=True,
                pre_scale=j == 1,
                activation="silu",
            )
            problem = make(case, "cuda")
            splits = SPLITS if kernel.startswith(TILED) else ("",)
            configs = [kernel + split for split in splits] + clusters_of(kernel, case)[:2]
            for config in configs:
                out = torch.ops.mixed_gemm.fpA_intB_gemm_config(
                    problem.a,
                    problem.b_packed,
                    *problem.extras(),
                    bits=bits,
                    activation="silu",
                    config=config,
                    **problem.scheme(),
                )
                ratio = problem.ratio(out)
                assert ratio <= 1, (case, config, ratio)
                runs += 1
    for bits in (4, 8):
        q = torch.randint(-8, 8, (65, 131), dtype=torch.int8, device="cuda")
        packed = mixed_gemm.pack_weights(q, bits)
        assert torch.equal(mixed_gemm.unpack_weights(packed, bits, 65, 131), q)
        scales = torch.rand(5, 65, device="cuda", dtype=torch.float16)
        for dtype in (torch.float16, torch.float32):
            mixed_gemm.dequantize_weights(
                packed, scales, None, bits=bits, group_size=32, n=65, k=131, dtype=dtype
            )
    torch.cuda.synchronize()
    assert runs >= 5 * len(KERNELS) + 3 * len(SCALED_KERNELS)
    print(f"sanitized {runs} GEMMs")


if __name__ == "__main__":
    main()
