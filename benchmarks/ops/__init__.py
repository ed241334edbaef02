"""The ops that are timed, a file for each: what is timed, on which operands, at which points."""

from __future__ import annotations

from ..benchmark import Benchmark
from .awq_gemm import AwqGemm
from .block_quant_gemm import BlockQuantGemm
from .floats import FloatGemm
from .fp8 import Fp8
from .gemm import Gemm
from .gemm_peers import GemmPeers
from .qconv2d import Qconv2d
from .scaled_mm import ScaledMm

BENCHMARKS: tuple[type[Benchmark], ...] = (
    Gemm,
    GemmPeers,
    FloatGemm,
    ScaledMm,
    Fp8,
    AwqGemm,
    BlockQuantGemm,
    Qconv2d,
)
