"""awq_gemm: checkpoints of AutoAWQ as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import torch

import mixed_gemm
from mixed_gemm.formats.awq import unpack_columns
from mixed_gemm.selection.operands import copies_for
from mixed_gemm.selection.timing import Call

from ..benchmark import Benchmark, Case, Effort
from ..operands import Operands
from ..peer_times import times_of
from ..row import Point
from ..schemes import Scheme
from ..timed import AWQ_GEMM, GEMM
from .gemm import plan_of

SCHEME = Scheme.parse("w4_g128_sub_fp16")
GROUP, SPLIT_K = 128, 8  # vLLM calls its op with a split of 8


def triton_us() -> dict[Point, float]:
    """The times of vLLM's Triton op, which has the checkpoints and arguments of awq_gemm."""
    return times_of("peers_h200", "vllm_triton_awq_gemm_g128")


class AwqOperands(Operands):
    """Random tensors of AutoAWQ, and the same weights for fpA_intB_gemm: enough copies of both that
    no cache holds them."""

    def weights(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Make qweight [K, N / 8], scales [G, N] and qzeros [G, N / 8]."""
        groups, width = self.k // GROUP, self.n // 8
        # Any word is a valid one.
        words = partial(self.integers, -(2**31), 2**31, dtype=torch.int32)
        count = copies_for(self.k * width * 4, self.device)
        return self.once(
            "awq",
            lambda: [
                (
                    words(self.k, width),
                    self.uniform(groups, self.n) / 16,
                    words(groups, width),
                )
                for _ in range(count)
            ],
        )

    def repacked(self) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Make b_packed, scales and zeros of fpA_intB_gemm."""
        return self.once(
            "repacked",
            lambda: [
                (
                    mixed_gemm.ops.awq_repack(qweight),
                    scales,
                    unpack_columns(qzeros).to(scales.dtype) - 8,
                )
                for qweight, scales, qzeros in self.weights()
            ],
        )

    def awq(self, m: int) -> list[Call]:
        op = partial(torch.ops.mixed_gemm.awq_gemm, self.activations(m, SCHEME.dtype))
        return [partial(op, *weight, SPLIT_K) for weight in self.weights()]

    def native(self, m: int) -> list[Call]:
        op = partial(torch.ops.mixed_gemm.fpA_intB_gemm, self.activations(m, SCHEME.dtype))
        return [partial(op, *weight, bits=4, group_size=GROUP) for weight in self.repacked()]


class AwqGemm(Benchmark):
    """awq_gemm at the points where vLLM's Triton op was timed, with fpA_intB_gemm on the same
    weights, repacked, in the same run."""

    name = "awq_gemm"
    effort = Effort(rounds=7)

    def all_points(self) -> Iterable[Point]:
        return triton_us()

    def operands(self, point: Point) -> AwqOperands:
        return AwqOperands(point.n, point.k, self.device)

    def cases(self, operands: AwqOperands, point: Point, effort: Effort) -> Iterator[Case]:
        groups = point.k // GROUP
        # Its zero points have 4 bits, not 16.
        nbytes = SCHEME.traffic_bytes(point) - 2 * groups * point.n + groups * point.n / 2
        yield Case(AWQ_GEMM, SCHEME, operands.awq(point.m), selected=True, nbytes=nbytes)
        kernel = plan_of(SCHEME, point, self.device).selected
        yield Case(GEMM, SCHEME, operands.native(point.m), kernel=kernel, selected=True)

    def known_us(self, point: Point, scheme: Scheme) -> Mapping[str, float]:
        triton = triton_us()
        return {"vLLM's Triton op": triton[point]} if point in triton else {}
