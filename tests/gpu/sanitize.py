"""Calls for compute-sanitizer, divided into parts that can run at the same time
(test_gpu_sanitizer.py runs them): every compiled kernel of every family once plainly and once with
its work split, with ragged M, N and K and more k-tiles than stages, so that the pipeline wraps. Not
a pytest file. The families stand beside each other, in more than 400 lines, since what they are
called with is what they have in common.

    compute-sanitizer ... python3 tests/gpu/sanitize.py PART
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import float8_calls
import scaled_configs
from configs import DTYPES, KERNELS, MODES, TILED, clusters_of, has_mode
from problems import registry
from problems.block import BlockCase
from problems.block import make as make_block
from problems.conv import ConvCase
from problems.conv_int8 import ConvInt8Case
from problems.covering import each_once
from problems.floats import FloatCase
from problems.gemm import DTYPES as FLOATS
from problems.gemm import Case, make
from problems.moe_permute import PermuteCase
from problems.scaled import AZP, OUT_DTYPES, ScaledCase
from problems.scaled import make as make_scaled
from scaled_configs import FLOAT8, TILE_K
from support.awq import awq
from test_gpu_checkpoints import placed

import mixed_gemm
from mixed_gemm import reference

Calls = Iterator[tuple[str, float]]  # what was called, its error over the bound


def exact(out: torch.Tensor, expected: torch.Tensor) -> float:
    return 0.0 if torch.equal(out, expected) else float("inf")


def judge(problem: Any) -> Callable[[torch.Tensor], float]:
    """Output -> its error over the bound; the reference is computed once."""
    return lambda out: float(problem.verdict(out))


# --- fpA_intB_gemm -------------------------------------------------------------------------------

# Skinny kernels have modes of their own for int4 groups of half an iteration (64), and of a quarter
# (32) up to two rows: (group sizes, zero modes).
SKINNY_MODES = {
    "skinny_half": ((64, 192, 320), ("none",)),
    "skinny_half_zero": ((64, 192, 320), ("sub", "sub_real")),
    "skinny_quarter": ((32, 96, 160), ("none",)),
    "skinny_quarter_zero": ((32, 96, 160), ("sub", "sub_real")),
}
ALL_MODES = {**MODES, **SKINNY_MODES, "per_channel": ((-1,), ("none",))}


def wrapping_k(kernel: str) -> int:
    """So many elements of K that every stage is filled twice (skinny: every warp has two parts)."""
    found = re.search(r"n\d+(?:k(\d+))?[sw](\d+)", kernel)
    assert found, kernel
    depth = int(found[2])
    return int(found[1] or 64) * (2 * depth if kernel.startswith("skinny") else depth + 2)


def modes_of(kernel: str) -> list[str]:
    skinny = kernel.startswith("skinny")
    return [
        mode
        for mode in ALL_MODES
        if has_mode(kernel, mode) and (skinny or mode not in SKINNY_MODES)
    ]


def gemm_cases(family: str) -> Iterator[tuple[str, Case]]:
    """(kernel, case): every mode, width and dtype of every kernel, each of which is a kernel of its
    own, or a loop of one; sizes and what else there is so that they meet each other. K is now a
    multiple of 8 and now not, which takes the operands through copies of their own; one group with
    zeros meets both, as its rows of scales are as many as K is long."""
    kernels = [kernel for kernel in KERNELS if kernel.startswith(family)]
    factors = {
        "loop": [
            (kernel, mode, bits, dtype)
            for kernel in kernels
            for mode, bits, dtype in itertools.product(modes_of(kernel), (4, 8), DTYPES)
        ],
        "scheme": [*dict.fromkeys(x for mode in ALL_MODES for x in schemes_of(mode))],
        "n": (72, 137),
        "more": (8, 13, 40),
        "pre_scale": (False, True),
    }
    rules = {("loop", "scheme"): lambda loop, scheme: scheme in schemes_of(loop[1])}
    for row in each_once("loop", factors, rules):
        kernel, mode, bits, dtype = row["loop"]
        tile_m = int(re.search(r"_m(\d+)n", kernel)[1])  # type: ignore[index]
        group_size, zero_mode = row["scheme"]
        case = Case(
            2 if mode.startswith("skinny_quarter") else tile_m + 3,  # a quarter: up to two rows
            row["n"],
            wrapping_k(kernel) + row["more"],
            dtype,
            bits,
            group_size,
            zero_mode,
            bias=True,
            pre_scale=row["pre_scale"],
            activation="silu",
        )
        yield kernel, case
        if group_size == -1 and zero_mode != "none":
            other = 8 if row["more"] % 8 else 13
            yield kernel, replace(case, k=wrapping_k(kernel) + other)


def schemes_of(mode: str) -> list[tuple[int, str]]:
    return list(itertools.product(*ALL_MODES[mode]))


def fpA_intB(family: str, part: int = 0, parts: int = 1) -> Calls:
    for j, (kernel, case) in enumerate(gemm_cases(family)):
        if j % parts != part:
            continue
        problem = make(case, "cuda")
        ratio = judge(problem)
        splits = clusters_of(kernel, case)
        if kernel.startswith(TILED):
            splits += [f"{kernel}_streamk2", f"{kernel}_parallel3"]
        for config in (kernel, *splits[j // parts % max(len(splits), 1) :][:1]):
            yield f"{config} {case}", ratio(problem.call(config=config))


# --- fpA_fpB_gemm --------------------------------------------------------------------------------

# The types whose kernels are their own, with the group sizes of every mode: rows of scales of half
# a k-tile or more, of an mma step, and one.
FLOAT_GROUPS = {"e2m1": (32, 96, 16, -1), "e4m3": (32, 128, 48, -1), "nf4": (32, 64, -1)}


def fpA_fpB(family: str) -> Calls:
    loop = [
        (kernel, weight, group_size, dtype)
        for kernel in KERNELS
        if kernel.startswith(family)
        for weight, groups in FLOAT_GROUPS.items()
        for group_size, dtype in itertools.product(groups, DTYPES)
    ]
    factors = {"loop": loop, "n": (72, 137), "more": (8, 13), "factor": (True, False)}
    for j, row in enumerate(each_once("loop", factors, {})):
        kernel, weight, group_size, dtype = row["loop"]
        tile_m = int(re.search(r"_m(\d+)n", kernel)[1])  # type: ignore[index]
        k = wrapping_k(kernel) + row["more"]
        case = FloatCase(
            tile_m + 3, row["n"], k, dtype, weight, group_size, "any", row["factor"], bias=True,
        )  # fmt: skip
        problem = registry.make(case, "cuda", "cuda")
        able = problem.configs()
        splits = [x for x in able if x.startswith(f"{kernel}_")]
        for config in (kernel, *splits[j % max(len(splits), 1) :][:1]):
            if config in able:
                yield f"{config} {case}", float(problem.verdict(problem.run(config=config), config))


def dense() -> Calls:
    """Dequantize, then the library's GEMM; float32 goes that way as well."""
    schemes = ((-1, "none"), (-1, "sub"), (32, "add"), (48, "sub_real"))
    factors = {
        "loop": tuple(itertools.product((4, 8), FLOATS, schemes)),
        "k": (320, 333),
        "config": (None, "dequantize_dense"),
    }
    for row in each_once("loop", factors):
        bits, dtype, (group, zero_mode) = row["loop"]
        case = Case(130, 137, row["k"], dtype, bits, group, zero_mode, bias=True)
        problem = make(case, "cuda")
        yield f"dense {case}", judge(problem)(problem.call(config=row["config"]))
        scheme = {"bits": bits, "n": case.n, "k": case.k, **problem.scheme()}
        weight = (problem.b_packed, problem.scales, problem.zeros)
        on_host = tuple(None if t is None else t.cpu() for t in weight)
        for to in (dtype, torch.float32):
            out = mixed_gemm.dequantize_weights(*weight, dtype=to, **scheme)
            want = mixed_gemm.dequantize_weights(*on_host, dtype=to, **scheme)
            yield f"dequantize to {to} {case}", exact(out.cpu(), want)


def pack() -> Calls:
    for bits, n, k in itertools.product((4, 8), (1, 65, 128), (1, 77, 131, 256)):
        limit = 2 ** (bits - 1)
        q = torch.randint(-limit, limit, (n, k), dtype=torch.int8, device="cuda")
        packed = mixed_gemm.pack_weights(q, bits)
        yield f"pack {bits} {n} {k}", exact(mixed_gemm.unpack_weights(packed, bits, n, k), q)
        filters = q.view(n, k, 1, 1)
        on_host = mixed_gemm.pack_conv_weights(filters.cpu(), bits)
        out = mixed_gemm.pack_conv_weights(filters, bits)
        yield f"pack_conv {bits} {n} {k}", exact(out.cpu(), on_host)
    for bits, k in itertools.product((2, 3, 4, 8), (96, 160)):
        words = torch.randint(-(2**31), 2**31 - 1, (k * bits // 32, 72), dtype=torch.int32)
        for perm in (None, torch.randperm(k, dtype=torch.int32)):
            on_host = mixed_gemm.ops.gptq_repack(words, perm, bits=bits)
            on_device = mixed_gemm.ops.gptq_repack(
                words.cuda(), None if perm is None else perm.cuda(), bits=bits
            )
            yield f"gptq_repack {bits} {k}", exact(on_device.cpu(), on_host)
    for n, k in ((8, 1), (72, 130), (264, 64)):
        words = torch.randint(-(2**31), 2**31 - 1, (k, n // 8), dtype=torch.int32)
        on_host = mixed_gemm.ops.awq_repack(words)
        yield f"awq_repack {n} {k}", exact(mixed_gemm.ops.awq_repack(words.cuda()).cpu(), on_host)


# --- 8-bit operands ------------------------------------------------------------------------------


def scaled_cases(family: str) -> Iterator[tuple[str, ScaledCase]]:
    """(kernel, case): every form of operands, zero points and output of every kernel."""
    forms = [
        (operand, azp, out_dtype)
        for operand, azp, out_dtype in itertools.product((torch.int8, FLOAT8), AZP, OUT_DTYPES)
        if operand == torch.int8 or azp == "none"
    ]
    kernels = [kernel for kernel in scaled_configs.KERNELS if kernel.startswith(family)]
    odd = scaled_configs.VECTOR_K if family == "skinny" else 13
    factors = {
        "loop": tuple(itertools.product(kernels, forms)),
        "n": (72, 137),
        "k": tuple(10 * TILE_K + more for more in (0, odd, 2 * odd)),
        "bias": (False, True),
    }
    for row in each_once("loop", factors):
        kernel, (operand, azp, out_dtype) = row["loop"]
        m = scaled_configs.tile_of(kernel)[0] + 3
        sizes = (m, row["n"], row["k"])
        yield kernel, ScaledCase(*sizes, out_dtype, operand, azp=azp, bias=row["bias"])


def scaled(family: str) -> Calls:
    for j, (kernel, case) in enumerate(scaled_cases(family)):
        problem = make_scaled(case, "cuda")
        expected, bound = problem.oracle(*scaled_configs.sums_of(kernel))
        listed = scaled_configs.configs_of(case, kernel)
        plain = [name for name in listed if name == kernel]
        splits = [name for name in listed if name != kernel]
        every = len(AZP) * len(OUT_DTYPES)
        for config in plain + splits[j % every :: every]:
            out = problem.run(config=config)
            yield f"{config} {case}", reference.error_ratio(out, expected, bound)


def float8_blocks() -> Calls:
    for i, kernel in enumerate(float8_calls.kernels()):
        m, k = scaled_configs.tile_of(kernel)[0] + 3, 10 * TILE_K + 13
        dtype = FLOATS[i % len(FLOATS)]
        problem = float8_calls.make(m, 137, k, out_dtype=dtype, blocks=True, bias=i % 2 == 0)
        oracle = problem.oracle()
        splits = [c for c in float8_calls.splits_of(kernel, k) if c.endswith(("streamk2", "l3"))]
        for config in (kernel, *splits):
            out = problem.run(config)
            yield f"{config} blocks", reference.error_ratio(out, *oracle)


def quantize() -> Calls:
    shapes = ((5, 257), (3, 20_000), (2, 64), (129, 1), (1, 4099))
    for dtype, (m, k) in itertools.product(FLOATS, shapes):
        x = torch.randn(m, k, dtype=dtype)
        for block in (None, 128, 300):
            fp8 = torch.ops.mixed_gemm.quantize_fp8
            want, _ = fp8(x, block_size=block)
            out, _ = fp8(x.cuda(), block_size=block)
            yield f"fp8 {dtype} {m} {k} {block}", exact(out.cpu().float(), want.float())
        for symmetric in (True, False):
            on_host = mixed_gemm.quantize_per_token(x, symmetric=symmetric)
            on_device = mixed_gemm.quantize_per_token(x.cuda(), symmetric=symmetric)
            yield f"per_token {dtype} {m} {k}", exact(on_device[0].cpu(), on_host[0])
        scale, azp = torch.tensor(0.02), torch.tensor(3, dtype=torch.int32)
        for zero in (None, azp):
            want = mixed_gemm.quantize_per_tensor(x, scale, zero)
            out = mixed_gemm.quantize_per_tensor(
                x.cuda(), scale.cuda(), None if zero is None else zero.cuda()
            )
            yield f"per_tensor {dtype} {m} {k}", exact(out.cpu(), want)


def experts() -> Calls:
    """Every kernel around the experts, with rows of whole vectors and others; then a full block
    that counts its experts in parts."""
    for op in ("moe_permute", "moe_combine", "gated_activation"):
        for case, dtype, more in itertools.product(registry.TYPICAL[op], FLOATS, (0, 3)):
            problem = registry.make(replace(case, dtype=dtype, k=case.k + more), "cuda")
            yield f"{problem.case}", judge(problem)(problem.run())
    for ids in (torch.int32, torch.int64):
        problem = registry.make(PermuteCase(300, 24, experts=7000, top_k=8, ids=ids), "cuda")
        yield f"{problem.case}", judge(problem)(problem.run())


def block_gemm() -> Calls:
    base = BlockCase()
    shapes = (
        replace(base, m=19, n=72, k=1037, block_size=128),
        replace(base, m=35, n=137, k=777, block_size=-1, offsets=False),
        replace(base, m=67, n=65, k=1040, block_size=48, bias=False),
        replace(base, m=131, n=200, k=1288, block_size=64, activation="silu"),
        replace(base, m=37, n=137, k=1037, block_size=128, sums=True),
    )
    for case, dtype in itertools.product(shapes, FLOATS):
        problem = make_block(replace(case, dtype=dtype), "cuda")
        ratio = judge(problem)
        for config in problem.configs():
            yield f"{config} {case}", ratio(problem.run(config=config))


def grouped_calls() -> Calls:
    """Products of experts, ragged, by every configuration."""
    for op in ("grouped_fpA_intB_gemm", "grouped_fpA_fpB_gemm"):
        for case, dtype in itertools.product(registry.TYPICAL[op], FLOATS):
            problem = registry.make(replace(case, dtype=dtype), "cuda")
            ratio = judge(problem)
            for config in [None, *problem.configs()]:
                yield f"{config} {problem.case}", ratio(problem.run(config=config))


# --- AutoAWQ tensors -----------------------------------------------------------------------------


# Two tools cannot follow a cuBLAS product of few columns, which many rows of tokens lead to.
# initcheck does not see what its kernels write through TMA and blames whoever reads it.
# racecheck 2025.3, told to check our kernels alone, makes torch's `a @ w` of 160 x 80 by 80 x 8 end
# in an illegal access by itself, in a process that never imports mixed_gemm.
SEES_LIBRARY = os.environ.get("MIXED_GEMM_SANITIZER") not in ("initcheck", "racecheck")


def awq_calls() -> Calls:
    """A row count for each kernel, and beyond them; narrow and wide N; coarse and fine groups."""
    rows = (1, 2, 12, 27, 40, 100, *((160,) if SEES_LIBRARY else ()))
    schemes = ((16, 80), (32, 288), (48, 144), (64, 1024), (128, 1152), (-1, 30), (-1, 1000))
    for (group, k), n, dtype in itertools.product(schemes, (8, 72, 264), FLOATS):
        w = placed(awq(n, k, group, dtype))
        a = torch.randn(max(rows), k).to("cuda", dtype)
        arguments, scheme = (a, w.q, w.scales, w.zeros), {"group_size": group}
        expected = reference.fpA_intB_gemm(*arguments, **scheme)
        bound = reference.error_bound(*arguments, **scheme)
        for m in rows if n == 72 else rows[::3]:
            out = mixed_gemm.awq_gemm(a[:m], w.qweight, w.scales, w.qzeros)
            name = f"awq_gemm {m} {n} {k} {group} {dtype}"
            yield name, reference.error_ratio(out, expected[:m], bound[:m])
        dense_weight = mixed_gemm.awq_dequantize(w.qweight, w.scales, w.qzeros)
        yield f"awq_dequantize {n} {k} {dtype}", exact(dense_weight, w.dense().to(dtype))
    w = placed(awq(17_416, 192, 64, torch.float16))  # more columns than blocks fill the GPU with
    for m in (1, 8, 24):
        a = torch.randn(m, 192).to("cuda", torch.float16)
        yield (
            f"awq_gemm wide {m}",
            w.ratio(mixed_gemm.awq_gemm(a, w.qweight, w.scales, w.qzeros), a),
        )


# --- convolutions --------------------------------------------------------------------------------

CONVS = (
    ConvCase(1, 130, 72, (6, 7), block_size=64, offsets=True, bias=True),
    ConvCase(2, 24, 137, (9, 8), (7, 5), (2, 3), (3, 2), activation="silu"),
    ConvCase(1, 513, 65, (3, 3), (1, 1), padding=(0, 0), block_size=48, offsets=True),  # no gather
    ConvCase(2, 100, 64, (5, 5), (1, 1), (2, 2), (0, 0), block_size=96, offsets=True),
    ConvCase(1, 65, 40, (6, 9), (3, 3), (3, 1), (4, 2), (2, 3), block_size=16, channels_last=False),
)


def conv() -> Calls:
    for base, bits, dtype in itertools.product(CONVS, (4, 8), DTYPES):
        problem = registry.make(replace(base, bits=bits, dtype=dtype), "cuda")
        fields = {k: v.cpu() for k, v in vars(problem).items() if isinstance(v, torch.Tensor)}
        expected, bound = (x.cuda() for x in replace(problem, **fields).oracle())  # SEES_LIBRARY
        for config in [None, *problem.configs()]:
            out = problem.run(config=config)
            yield f"{config} {problem.case}", reference.error_ratio(out, expected, bound)


def conv_int8() -> Calls:
    shared = ("images", "in_c", "out_c", "size", "kernel", "stride", "padding", "dilation")
    for base, (bias, zero_point) in itertools.product(CONVS, ((False, -128), (True, 37))):
        case = ConvInt8Case(
            **{name: getattr(base, name) for name in shared},
            bias=bias,
            input_zero_point=zero_point,
            layout="channels_last" if base.channels_last else "nchw",
            sums=bias,
        )
        problem = registry.make(case, "cuda")
        for config in [None, *problem.configs()]:
            yield f"{config} {case}", float(problem.verdict(problem.run(config=config)))


# Each about as long as the others under a tool.
PARTS: dict[str, Callable[[], Calls]] = {
    "grouped": grouped_calls,
    "skinny": lambda: fpA_intB("skinny"),
    "multistage-1": lambda: fpA_intB("multistage", 0, 2),
    "multistage-2": lambda: fpA_intB("multistage", 1, 2),
    "wgmma-1": lambda: fpA_intB("wgmma", 0, 3),
    "wgmma-2": lambda: fpA_intB("wgmma", 1, 3),
    "wgmma-3": lambda: fpA_intB("wgmma", 2, 3),
    "floats_skinny": lambda: fpA_fpB("skinny"),
    "floats_multistage": lambda: fpA_fpB("multistage"),
    "floats_wgmma": lambda: fpA_fpB("wgmma"),
    "scaled": lambda: scaled("scaled"),
    "scaled_skinny": lambda: scaled("skinny"),
    "scaled_wgmma": lambda: scaled("wgmma"),
    "fp8_blocks": float8_blocks,
    "block_gemm": block_gemm,
    "awq": awq_calls,
    "conv": conv,
    "conv_int8": conv_int8,
    "rest": lambda: itertools.chain(dense(), pack(), quantize(), experts()),
}
HOPPER_ONLY = ("wgmma-1", "wgmma-2", "wgmma-3", "floats_wgmma", "scaled_wgmma", "fp8_blocks")


def main(part: str) -> None:
    runs = 0
    for call, ratio in PARTS[part]():
        assert ratio <= 1, (call, ratio)
        runs += 1
    torch.cuda.synchronize()
    print(f"sanitized {runs} calls")


if __name__ == "__main__":
    main(sys.argv[1])
