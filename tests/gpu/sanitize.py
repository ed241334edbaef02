"""Boundary subset for compute-sanitizer (test_gpu_sanitizer.py runs it): ragged M, N and K, every
scale mode, dtype and bit width, splits and small kernels, with more k-tiles than stages so that the
pipeline wraps. Not a pytest file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from cases import Case, make
from configs import DTYPES, KERNELS, MODES, clusters_of

import mixed_gemm

SPLITS = ("", "_streamk2", "_parallel3")


def main() -> None:
    runs = 0
    for i, kernel in enumerate(KERNELS):
        tile_m = int(re.search(r"_m(\d+)n", kernel)[1])
        for j, (groups, zero_modes) in enumerate(MODES.values()):
            bits, dtype = (4, 8)[(i + j) % 2], DTYPES[(i + j // 2) % 2]
            case = Case(
                tile_m + 3,
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
            configs = [kernel]
            if kernel.startswith("multistage"):
                configs = [kernel + split for split in SPLITS] + clusters_of(kernel, case)[:2]
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
    assert runs >= 5 * len(KERNELS)
    print(f"sanitized {runs} GEMMs")


if __name__ == "__main__":
    main()
