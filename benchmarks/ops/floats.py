"""fpA_fpB_gemm: weights of floats (MXFP4, NVFP4, FP8) and of code books (NF4, FP4)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from functools import partial

import torch

import mixed_gemm
from mixed_gemm.selection.timing import Call

from ..benchmark import Benchmark, Case, Effort
from ..row import Point
from ..schemes import SUITES, Scheme
from ..timed import DENSE, FLOAT_GEMM, GEMM
from . import peer_libraries as peers
from .gemm import CPU_MS, CPU_SHAPE, configs_of, plan_of
from .gemm_peers import MARLIN, NF4, PeerOperands

SHAPES = ((8192, 8192), (28672, 4096))
MS = (1, 4, 16, 32, 64, 128, 256, 1024, 4096)
MXFP4_GROUP = 32
E4M3_NAN = 0x7F  # its magnitude; no weight holds it


class FloatOperands(PeerOperands):
    def floats(self, scheme: Scheme, m: int, config: str) -> list[Call]:
        """Return one call of the op, with a configuration forced, for each copy of the weight."""
        assert scheme.weight is not None
        options = {
            "weight": scheme.weight,
            "group_size": scheme.group_size,
            "config": config,
        }
        op = torch.ops.mixed_gemm.fpA_fpB_gemm_config
        a, factor = self.activations(m, scheme.dtype), self.factor()
        operands = zip(self.codes(scheme.weight), self.scales(scheme), strict=True)
        return [partial(op, a, b, scales, factor, **options) for b, scales in operands]

    def factor(self) -> torch.Tensor:
        return self.once("factor", lambda: self.uniform(self.n, dtype="float32") * 0.01)

    def codes(self, weight: str) -> list[torch.Tensor]:
        def make() -> list[torch.Tensor]:
            low, high = (-128, 128) if weight == "e4m3" else (0, 16)
            q = self.integers(low, high, self.n, self.k)
            if weight == "e4m3":
                q = torch.where(q & 0x7F == E4M3_NAN, 0, q)
            return self.copies(mixed_gemm.pack_codes(q, weight))

        return self.once(("codes", weight), make)

    def scales(self, scheme: Scheme) -> list[torch.Tensor]:
        """The scales of each copy, in [0.5, 1.5] as a weight stores them over its factor: of 4-bit
        floats powers of two in groups of 32, and numbers of float8_e4m3fn in others."""
        shape, dtype = (scheme.num_groups(self.k), self.n), getattr(torch, scheme.dtype)

        def make() -> torch.Tensor:
            found = self.uniform(*shape, dtype="float32")
            if scheme.weight == "e2m1" and scheme.group_size == MXFP4_GROUP:
                found = found.log2().round().exp2()
            elif scheme.weight == "e2m1":
                found = found.to(torch.float8_e4m3fn).float()
            return found.to(dtype)

        return self.once(scheme, lambda: [make() for _ in self.codes(scheme.weight or "")])

    def marlin(self, scheme: Scheme, m: int) -> list[Call]:
        """Calls with random bits in the form of vLLM's kernel: MXFP4 in groups of 32, else
        NVFP4."""
        words = self.once("marlin", lambda: self.words(self.k // 16, 2 * self.n))
        shape = scheme.num_groups(self.k), self.n
        is_mxfp4 = scheme.group_size == MXFP4_GROUP
        if is_mxfp4:
            exponents = self.integers(110, 130, *shape, dtype=torch.uint8)
            scales, whole = exponents.view(torch.float8_e8m0fnu), None
        else:
            scales = self.uniform(*shape, dtype="float32").to(torch.float8_e4m3fn)
            whole = torch.ones(1, device=self.device)
        a = self.activations(m, scheme.dtype)
        return peers.marlin(a, words, scales, "float4_e2m1f", whole)


class FloatGemm(Benchmark):
    """fpA_fpB_gemm with weights of floats and of code books, beside fpA_intB_gemm with integers of
    the same width in the same groups, torch's dense GEMM, and, where they are installed,
    bitsandbytes' NF4 and vLLM's MXFP4 and NVFP4, in one run."""

    name = "floats"
    effort = Effort(rounds=7, keep=2)
    settle_s = 1.5

    def __init__(self, device: torch.device, options: argparse.Namespace) -> None:
        super().__init__(device, options)
        suite = "floats" if device.type == "cuda" else "floats_cpu"
        named = options.schemes.split(",") if options.schemes else []
        self.schemes = [Scheme.parse(name) for name in named] or list(SUITES[suite])

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--schemes", help="e2m1_g32_bf16,nf4_g64_fp16 instead of all")

    def all_points(self) -> Iterable[Point]:
        if self.device.type != "cuda":
            return [Point(*CPU_SHAPE, m) for m in CPU_MS]
        return [Point(n, k, m) for n, k in SHAPES for m in MS]

    def operands(self, point: Point) -> FloatOperands:
        return FloatOperands(point.n, point.k, self.device)

    def cases(self, operands: FloatOperands, point: Point, effort: Effort) -> Iterator[Case]:
        for scheme in self.schemes:
            names = configs_of(scheme, point, effort, self.device)
            for name in names:
                calls = operands.floats(scheme, point.m, name)
                yield Case(FLOAT_GEMM, scheme, calls, kernel=name, selected=name == names[0])
        for scheme in dict.fromkeys(
            Scheme(x.bits, x.group_size, None, x.dtype) for x in self.schemes
        ):
            name = plan_of(scheme, point, self.device).selected
            integers = operands.ours(scheme, point.m, name)
            yield Case(GEMM, scheme, integers, kernel=name, selected=True)
        for dtype in dict.fromkeys(scheme.dtype for scheme in self.schemes):
            yield Case(DENSE, Scheme.dense(dtype), operands.dense(dtype, point.m))
        books = [x for x in self.schemes if x.weight == "nf4" and x.group_size == peers.NF4_BLOCK]
        if self.device.type == "cuda" and peers.installed("bitsandbytes"):
            for scheme in books:
                yield Case(NF4, scheme, operands.nf4(point.m, scheme.dtype))
        if self.device.type == "cuda" and peers.installed("vllm"):
            for scheme in self.schemes:
                if scheme.weight == "e2m1" and scheme.dtype == "bfloat16":
                    yield Case(MARLIN, scheme, operands.marlin(scheme, point.m))
