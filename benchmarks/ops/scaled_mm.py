"""scaled_mm, scaled_mm_azp and the quantizers of their activations: 8-bit operands on both
sides."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import torch

import mixed_gemm
from mixed_gemm.selection.timing import Call

from .. import timed
from ..benchmark import Benchmark, Case, Effort
from ..operands import Operands
from ..peer_times import peer_rows, times_of
from ..row import Point
from ..schemes import Scheme
from ..timed import Timed

INT_MM_ROWS = 32  # torch._int_mm refuses 16 rows and fewer: those are padded
FOLDED_AZP = 5
PEERS = "peers_w8a8_h200"
FP8_ON_HOPPER = (timed.FP8_BF16, timed.FP8_FP16, timed.TORCH_FP8)


class ScaledOperands(Operands):
    """Random 8-bit operands of a product with an [N, K] weight."""

    def ours_int8(
        self, m: int, config: str, what: Timed = timed.SCALED_MM, bias: bool = False
    ) -> list[partial[torch.Tensor]]:
        """Return one call of the op, with a configuration forced, for each copy of the weight; on
        the CPU, where nothing is to choose, of the op itself. ``what``: whose zero points
        (SCALED_MM, AZP, AZP_PER_TOKEN)."""
        a, scale_a, scale_b = self.rows(m), self.row_scales(m), self.column_scales()
        points, adjustments = self._zero_points(what, m)
        added = self.once("bias", lambda: 1e-3 * self.uniform(self.n)) if bias else None
        half = torch.float16
        if self.device.type != "cuda" and what == timed.SCALED_MM:
            op = partial(mixed_gemm.scaled_mm, out_dtype=half)
            return [partial(op, a, w.t(), scale_a, scale_b, added) for w in self.int8_weights()]
        op = partial(mixed_gemm.scaled_mm_azp, out_dtype=half)
        if self.device.type == "cuda":
            forced = torch.ops.mixed_gemm._scaled_mm_config
            op = partial(forced, out_dtype=half, config=config)
        return [
            partial(op, a, w.t(), scale_a, scale_b, adjustment, points, added)
            for w, adjustment in zip(self.int8_weights(), adjustments, strict=True)
        ]

    def calls(self, what: Timed, m: int) -> Sequence[Call]:
        """Return the same calls of what the op is compared with."""
        make: dict[Timed, Callable[[int], Sequence[Call]]] = {
            timed.AZP: partial(self._azp, timed.AZP),
            timed.AZP_PER_TOKEN: partial(self._azp, timed.AZP_PER_TOKEN),
            timed.INT_MM: self._int_mm,
            timed.INT_MM_SCALED: self._int_mm_scaled,
            timed.DENSE_FP16: partial(self.dense, "float16"),
            timed.FP8_BF16: partial(self._fp8, torch.bfloat16),
            timed.FP8_FP16: partial(self._fp8, torch.float16),
            timed.TORCH_FP8: self._torch_fp8,
            timed.W8A8_LAYER: self._layer,
        }
        return make[what](m)

    def _azp(self, what: Timed, m: int) -> list[Call]:
        a, scale_a, scale_b = self.rows(m), self.row_scales(m), self.column_scales()
        points, adjustments = self._zero_points(what, m)
        op = partial(torch.ops.mixed_gemm.scaled_mm_azp, out_dtype=torch.float16)
        return [
            partial(op, a, w.t(), scale_a, scale_b, adjustment, points, None)
            for w, adjustment in zip(self.int8_weights(), adjustments, strict=True)
        ]

    def _zero_points(
        self, what: Timed, m: int
    ) -> tuple[torch.Tensor | None, Sequence[torch.Tensor | None]]:
        """The tensors of the rows, and those that adjust each copy of the weight."""
        weights = self.int8_weights()
        if what == timed.SCALED_MM:
            return None, [None] * len(weights)
        folded = FOLDED_AZP if what == timed.AZP else None
        adjustments = self.once(
            ("azp_adj", folded), lambda: [mixed_gemm.ops.azp_adjustment(w, folded) for w in weights]
        )
        if what == timed.AZP:
            return None, adjustments
        return self.integers(-128, 128, m, 1, dtype=torch.int32), adjustments

    def _int_mm(self, m: int) -> list[Call]:
        a = self.rows(max(m, INT_MM_ROWS))
        return [partial(torch._int_mm, a, w.t()) for w in self.int8_weights()]

    def _int_mm_scaled(self, m: int) -> list[Call]:
        """Scale in torch, eager: the first product reads int32 and is fp32, so there are three
        elementwise kernels; the padding is not scaled."""
        a = self.rows(max(m, INT_MM_ROWS))
        scale_a, scale_b = self.row_scales(m), self.column_scales()

        def call(w: torch.Tensor) -> torch.Tensor:
            return (torch._int_mm(a, w.t())[:m] * scale_a * scale_b).half()

        return [partial(call, w) for w in self.int8_weights()]

    def _fp8(self, out_dtype: torch.dtype, m: int) -> list[Call]:
        a, scale_a, scale_b = self.rows_fp8(m), self.row_scales(m), self.column_scales()
        op = partial(mixed_gemm.scaled_mm, out_dtype=out_dtype)
        return [partial(op, a, w.t(), scale_a, scale_b) for w in self._fp8_weights()]

    def _torch_fp8(self, m: int) -> list[Call]:
        a, scale_a, scale_b = self.rows_fp8(m), self.row_scales(m), self.column_scales()
        op = partial(torch._scaled_mm, out_dtype=torch.bfloat16)
        return [partial(op, a, w.t(), scale_a, scale_b[None]) for w in self._fp8_weights()]

    def _layer(self, m: int) -> list[Call]:
        x, scale_b = self.activations(m, "float16"), self.column_scales()

        def call(w: torch.Tensor) -> torch.Tensor:
            q, scale, _ = mixed_gemm.quantize_per_token(x)
            return mixed_gemm.scaled_mm(q, w.t(), scale, scale_b, out_dtype=torch.float16)

        return [partial(call, w) for w in self.int8_weights()]

    def row_scales(self, m: int) -> torch.Tensor:
        """Return scales so small that fp16 outputs are finite; those of the columns are, too."""
        return self.once(("scale_a", m), lambda: 1e-3 * self.uniform(m, 1, dtype="float32"))

    def column_scales(self) -> torch.Tensor:
        return self.once("scale_b", lambda: 1e-3 * self.uniform(self.n, dtype="float32"))

    def rows(self, m: int) -> torch.Tensor:
        return self.once(("int8 a", m), lambda: self.integers(-128, 128, m, self.k))

    def rows_fp8(self, m: int) -> torch.Tensor:
        return self.once(("fp8 a", m), lambda: self.normal(m, self.k).to(torch.float8_e4m3fn))

    def int8_weights(self) -> list[torch.Tensor]:
        return self.once("int8", lambda: self.copies(self.integers(-128, 128, self.n, self.k)))

    def _fp8_weights(self) -> list[torch.Tensor]:
        def make() -> list[torch.Tensor]:
            first = self.normal(self.n, self.k).to(torch.float8_e4m3fn)
            return [w.view(torch.float8_e4m3fn) for w in self.copies(first.view(torch.int8))]

        return self.once("fp8", make)


def quantizer_calls(what: Timed, point: Point, device: torch.device) -> Sequence[Call]:
    """Return one call for each of enough inputs [m, k] in float16."""
    made = Operands(point.m, point.k, device)
    scale = torch.full((1,), 0.03, device=device)
    call: dict[Timed, Callable[[torch.Tensor], object]] = {
        timed.QUANTIZE: mixed_gemm.quantize_per_token,
        timed.QUANTIZE_AZP: partial(mixed_gemm.quantize_per_token, symmetric=False),
        timed.QUANTIZE_TENSOR: lambda x: mixed_gemm.quantize_per_tensor(x, scale),
    }
    return [partial(call[what], x) for x in made.dense_weights("float16")]


class ScaledMm(Benchmark):
    """scaled_mm and scaled_mm_azp at the points of the W8A8 peer timings, with torch._int_mm,
    torch._scaled_mm and torch's dense GEMM in the same run, and the quantizers."""

    name = "scaled_mm"
    effort = Effort(rounds=9, within=3.0)

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--ours-only", action="store_true", help="nothing but the configurations of int8"
        )

    @property
    def others(self) -> list[Timed]:
        """The cases that are timed beside the configurations of int8."""
        if self.options.ours_only:
            return []
        common = (timed.AZP, timed.AZP_PER_TOKEN, timed.INT_MM, timed.INT_MM_SCALED)
        found = [*common, timed.DENSE_FP16, timed.W8A8_LAYER]
        on_gpu = self.device.type == "cuda"
        if not on_gpu or torch.cuda.get_device_capability(self.device) >= (9, 0):
            found += FP8_ON_HOPPER
        return found

    def all_points(self) -> Iterable[Point]:
        return peer_rows(PEERS)

    def points(self) -> list[Point]:
        """The points of the quantizers have N = 0."""
        found = super().points()
        if self.options.ours_only:
            return found
        return sorted({Point(0, p.k, p.m) for p in found}) + found

    def operands(self, point: Point) -> ScaledOperands:
        return ScaledOperands(point.n, point.k, self.device)

    def cases(self, operands: ScaledOperands, point: Point, effort: Effort) -> Iterator[Case]:
        if point.n == 0:
            nbytes = timed.QUANTIZER_BYTES * point.m * point.k
            for what in timed.QUANTIZERS:
                calls = quantizer_calls(what, point, self.device)
                yield Case(what.op, scheme_of(what), calls, selected=True, nbytes=nbytes)
            return
        plan = mixed_gemm.plan(point.m, point.n, point.k, dtype=torch.int8, device=self.device)
        predicted = {c.config: c.predicted_us for c in plan.candidates}
        for name in effort.chosen(plan.selected, predicted):
            calls = operands.ours_int8(point.m, name)
            int8 = scheme_of(timed.SCALED_MM)
            yield Case(timed.SCALED_MM.op, int8, calls, kernel=name, selected=name == plan.selected)
        for what in self.others:
            dtype = "int8" if what == timed.W8A8_LAYER else None
            calls = operands.calls(what, point.m)
            yield Case(what.op, scheme_of(what), calls, arithmetic=dtype)

    def known_us(self, point: Point, scheme: Scheme) -> Mapping[str, float]:
        peers = times_of(PEERS, "torch_int_mm_plus_scaling_fp16")
        return {"peer's _int_mm + scaling": peers[point]} if point in peers else {}


def scheme_of(what: Timed) -> Scheme:
    assert what.scheme is not None
    return what.scheme
