"""int4 weights beside what other libraries do with 4 bits, in one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from mixed_gemm.selection.timing import Call

from ..benchmark import Benchmark, Case, Effort
from ..row import Point
from ..schemes import Scheme
from ..timed import ATEN, DENSE, GEMM
from . import peer_libraries as peers
from .gemm import CPU_MS, CPU_SHAPE, GemmOperands, plan_of

SHAPES = ((4096, 4096), (8192, 8192), (28672, 4096))
MS = (1, 16, 64, 256, 1024, 4096)
NF4, MARLIN, MACHETE = "bitsandbytes NF4", "vLLM Marlin", "vLLM Machete"
ONNX = {"ONNX Runtime": 0, "ONNX Runtime, int8 activations": 4}  # op -> level of accuracy


class PeerOperands(GemmOperands):
    def dense_copies(self, dtype: str) -> list[torch.Tensor]:
        """Small weights, as many as there are copies of packed ones."""
        first = self.normal(self.n, self.k, dtype=dtype) * 0.02
        return [torch.roll(first, i, 0) for i in range(len(self._packed(4)))]

    def nf4(self, m: int, dtype: str) -> list[Call]:
        weights = self.once(("nf4", dtype), lambda: self.dense_copies(dtype))
        return peers.nf4(self.activations(m, dtype), weights)

    def onnx(self, m: int, level: int) -> list[Call]:
        codes = self.integers(0, 16, self.n, self.k, dtype=torch.uint8)
        copies = [torch.roll(codes, i, 0) for i in range(len(self._packed(4)))]
        scales = self.uniform(self.n, self.k // peers.GROUP, dtype="float32") * 0.01
        return peers.matmul_nbits(self.activations(m, "float32"), copies, scales, level)

    def words(self, *shape: int) -> list[torch.Tensor]:
        """int32 of random bits, as many as there are copies of packed weights."""
        made = (self.integers(-(2**31), 2**31, *shape, dtype=torch.int64) for _ in self._packed(4))
        return [x.int() for x in made]

    def vllm(self, m: int) -> dict[str, list[Call]]:
        a, scales = self.activations(m, "float16"), self.uniform(self.k // peers.GROUP, self.n)
        return {
            MARLIN: peers.marlin(a, self.words(self.k // 16, 2 * self.n), scales * 0.01),
            MACHETE: peers.machete(a, self.words(self.n, self.k // 8), scales * 0.01),
        }


class GemmPeers(Benchmark):
    """fpA_intB_gemm with int4 weights beside torch's dense and int4 products and those of
    ONNX Runtime (on the CPU), bitsandbytes and vLLM (on a GPU), which are timed where they are
    installed."""

    name = "gemm_peers"
    effort = Effort(rounds=7)
    settle_s = 1.5

    def all_points(self) -> Iterable[Point]:
        if self.device.type != "cuda":
            return [Point(*CPU_SHAPE, m) for m in CPU_MS]
        return [Point(n, k, m) for n, k in SHAPES for m in MS]

    def operands(self, point: Point) -> PeerOperands:
        return PeerOperands(point.n, point.k, self.device)

    def cases(self, operands: PeerOperands, point: Point, effort: Effort) -> Iterator[Case]:
        on_gpu = self.device.type == "cuda"
        dtypes = ("float16", "bfloat16") if on_gpu else ("float32", "bfloat16")
        for dtype in dtypes:
            scheme = Scheme(4, peers.GROUP, None, dtype)
            config = plan_of(scheme, point, self.device).selected
            calls = operands.ours(scheme, point.m, config)
            yield Case(GEMM, scheme, calls, kernel=config, selected=True)
            yield Case(DENSE, Scheme.dense(dtype), operands.dense(dtype, point.m))
        if not on_gpu or point.m <= 64:  # beyond it aten takes many times as long on a GPU
            scheme = Scheme(4, peers.GROUP, None, "bfloat16")
            yield Case(ATEN, scheme, operands.aten_int4(point.m))
        # On a CPU its fast kernel would be fetched from a hub.
        if on_gpu and peers.installed("bitsandbytes"):
            scheme = Scheme(4, peers.NF4_BLOCK, None, "bfloat16")
            yield Case(NF4, scheme, operands.nf4(point.m, "bfloat16"))
        if on_gpu and peers.installed("vllm"):
            scheme = Scheme(4, peers.GROUP, None, "float16")
            for op, others in operands.vllm(point.m).items():
                yield Case(op, scheme, others)
        if not on_gpu and peers.installed("onnxruntime") and peers.installed("onnx"):
            for op, level in ONNX.items():
                scheme = Scheme(4, peers.GROUP, None, "float32")
                yield Case(op, scheme, operands.onnx(point.m, level))
