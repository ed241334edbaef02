"""fpA_intB_gemm: weights of 4 and 8 bits, 16- or 32-bit activations."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import torch

import mixed_gemm
from mixed_gemm.selection.timing import Call

from ..benchmark import Benchmark, Case, Effort
from ..operands import Operands
from ..references import references_at
from ..row import Point
from ..schemes import SUITES, Scheme
from ..timed import ATEN, DENSE, GEMM

ATEN_ON_GPU = Scheme(4, 128, None, "bfloat16")  # the scheme of its int4 GEMM that is timed
ATEN_MAX_M = 512  # on a GPU: beyond it a point takes seconds, and aten is 20 times behind
ATEN_GROUPS = (32, 64, 128, 256)  # that its int4 GEMM for the CPU takes
CPU_SHAPE, CPU_MS = (4096, 4096), (1, 4, 16, 64, 256)


class GemmOperands(Operands):
    """Random operands of a product with an [N, K] weight of few bits."""

    def ours(self, scheme: Scheme, m: int, config: str) -> list[partial[torch.Tensor]]:
        """Return one call of the op, with a configuration forced, for each copy of the weight."""
        options = {
            "bits": scheme.bits,
            "group_size": scheme.group_size,
            "zero_mode": scheme.zero_mode or "sub",
            "config": config,
        }
        a = self.activations(m, scheme.dtype)
        op = torch.ops.mixed_gemm.fpA_intB_gemm_config
        operands = zip(self._packed(scheme.bits or 4), self._parameters(scheme), strict=True)
        return [partial(op, a, b, scales, zeros, **options) for b, (scales, zeros) in operands]

    def aten_int4(self, m: int, group_size: int = 128) -> list[Call]:
        """The int4 GEMM that PyTorch ships: aten::_weight_int4pack_mm, bfloat16."""
        a = self.activations(m, "bfloat16")
        parameters = self.once(
            ("aten", group_size),
            lambda: self.uniform(self.k // group_size, self.n, 2, dtype="bfloat16"),
        )
        aten = torch.ops.aten
        on_gpu = self.device.type == "cuda"
        op = aten._weight_int4pack_mm if on_gpu else aten._weight_int4pack_mm_for_cpu
        return [partial(op, a, w, group_size, parameters) for w in self._aten_int4_weights()]

    def aten_int8(self, m: int) -> list[Call]:
        """aten::_weight_int8pack_mm: bfloat16, per channel."""
        a = self.activations(m, "bfloat16")
        scales = self.once("aten int8", lambda: self.uniform(self.n, dtype="bfloat16"))
        weights = self.once(
            "aten int8 weights",
            lambda: self.copies(self.integers(-128, 128, self.n, self.k)),
        )
        return [partial(torch.ops.aten._weight_int8pack_mm, a, w, scales) for w in weights]

    def _packed(self, bits: int) -> list[torch.Tensor]:
        half = 2 ** (bits - 1)

        def make() -> list[torch.Tensor]:
            q = self.integers(-half, half, self.n, self.k)
            return self.copies(mixed_gemm.pack_weights(q, bits))

        return self.once(("packed", bits), make)

    def _parameters(self, scheme: Scheme) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Scales and zeros of each copy. Zeros are whole numbers, as AWQ and GPTQ hold them: some
        kernels are slower with fractions."""
        shape, half = (scheme.num_groups(self.k), self.n), 2 ** ((scheme.bits or 4) - 1)

        def zeros() -> torch.Tensor | None:
            if scheme.zero_mode is None:
                return None
            whole = self.integers(-half, half, *shape)
            return whole.to(getattr(torch, scheme.dtype))

        return self.once(
            scheme,
            lambda: [
                (self.uniform(*shape, dtype=scheme.dtype) * 0.01, zeros())
                for _ in self._packed(scheme.bits or 4)
            ],
        )

    def _aten_int4_weights(self) -> list[torch.Tensor]:
        aten = torch.ops.aten

        def make() -> list[torch.Tensor]:
            if self.device.type != "cuda":
                codes = self.integers(0, 16, self.n, self.k, dtype=torch.int32)
                return self.copies(aten._convert_weight_to_int4pack_for_cpu(codes, 1))
            raw = self.integers(0, 256, self.n, self.k // 2, dtype=torch.uint8)
            return [aten._convert_weight_to_int4pack(rows, 8) for rows in self.copies(raw)]

        return self.once("aten int4 weights", make)


def plan_of(scheme: Scheme, point: Point, device: torch.device | str) -> mixed_gemm.selection.Plan:
    """``device`` as mixed_gemm.plan() takes it."""
    return mixed_gemm.plan(
        point.m,
        point.n,
        point.k,
        dtype=scheme.dtype,
        **({"bits": scheme.bits or 4} if scheme.weight is None else {"weight": scheme.weight}),
        group_size=-1 if scheme.group_size is None else scheme.group_size,
        zero_mode=scheme.zero_mode,
        device=device,
    )


def configs_of(
    scheme: Scheme, point: Point, effort: Effort, device: torch.device | str
) -> list[str]:
    """Choose those to time, the selected one first: the predicted best, and every tile without a
    split, which no prediction of a split spoils."""
    plan = plan_of(scheme, point, device)
    predicted = {c.config: c.predicted_us for c in plan.candidates}
    within = Effort(effort.rounds, None, effort.within).chosen(plan.selected, predicted)
    plain = [name for name in within if "_serial" not in name and "_parallel" not in name]
    return list(dict.fromkeys([*effort.chosen(plan.selected, predicted), *plain]))


class Gemm(Benchmark):
    """fpA_intB_gemm at the points of the peer timings, with torch's dense GEMM and aten's packed
    ones in the same run: one command for a whole suite of schemes."""

    name = "gemm"
    effort = Effort(rounds=7, keep=2)
    # The last points of a weight are large enough to meet the GPU's power limit, and its clock
    # takes a second to rise again: an H200 ran the first points of the next weight at 1470 MHz for
    # 1980, 91 us for 71.
    settle_s = 1.5

    def __init__(self, device: torch.device, options: argparse.Namespace) -> None:
        super().__init__(device, options)
        suite = options.suite or ("full" if device.type == "cuda" else "cpu")
        named = options.schemes.split(",") if options.schemes else []
        self.schemes = [Scheme.parse(name) for name in named] or list(SUITES[suite])

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--suite", choices=SUITES, help="full, on a CPU cpu by default")
        parser.add_argument("--schemes", help="w4_g128_fp16,w8_channel_sub_bf16 instead of a suite")

    def all_points(self) -> Iterable[Point]:
        if self.device.type != "cuda":
            return [Point(*CPU_SHAPE, m) for m in CPU_MS]
        return {point for scheme in self.schemes for point in scheme.points()}

    def operands(self, point: Point) -> GemmOperands:
        return GemmOperands(point.n, point.k, self.device)

    def schemes_at(self, point: Point) -> list[Scheme]:
        """All that fit at a point that was asked for, else those that are compared with something
        there."""
        if self.options.shapes or self.options.m or self.device.type != "cuda":
            return [scheme for scheme in self.schemes if (scheme.group_size or 0) <= point.k]
        return [scheme for scheme in self.schemes if point in scheme.points()]

    def cases(self, operands: GemmOperands, point: Point, effort: Effort) -> Iterator[Case]:
        schemes = self.schemes_at(point)
        for scheme in schemes:
            names = configs_of(scheme, point, effort, self.device)
            for name in names:
                calls = operands.ours(scheme, point.m, name)
                yield Case(GEMM, scheme, calls, kernel=name, selected=name == names[0])
        dtypes = [scheme.dtype for scheme in schemes]
        if self.device.type != "cuda":  # the two that are worth a comparison there
            dtypes = ["float32", "bfloat16"]
        for dtype in dict.fromkeys(dtypes):
            yield Case(DENSE, Scheme.dense(dtype), operands.dense(dtype, point.m))
        kinds = {(scheme.bits, scheme.group_size) for scheme in schemes}
        if self.device.type == "cuda":
            if point.m <= ATEN_MAX_M and (4, 128) in kinds:
                yield Case(ATEN, ATEN_ON_GPU, operands.aten_int4(point.m))
            return
        if (8, -1) in kinds:
            yield Case(ATEN, Scheme(8, -1, None, "bfloat16"), operands.aten_int8(point.m))
        for group in ATEN_GROUPS:
            if (4, group) in kinds and point.k % group == 0:
                scheme = Scheme(4, group, None, "bfloat16")
                yield Case(ATEN, scheme, operands.aten_int4(point.m, group))

    def known_us(self, point: Point, scheme: Scheme) -> Mapping[str, float]:
        peers = references_at(point, scheme)
        found = {"best peer": peers.peer, "best mma.sync peer": peers.mma_sync}
        return {name: us for name, us in found.items() if us is not None}
