"""float8 products with scales of rows and columns and with scales of blocks, ours beside torch's
with exact and with fast sums and beside our int8, and the quantizers, in one run.

A configuration is timed after it was found to be right here: its outputs, into memory that held
NaN, are compared with those of torch.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

import mixed_gemm
from mixed_gemm.selection.planning import device_string
from mixed_gemm.selection.timing import Call

from .. import timed
from ..benchmark import Benchmark, Case, Effort
from ..row import Point
from ..schemes import Scheme
from . import fp8_peers
from .scaled_mm import ScaledOperands

SHAPES = ((8192, 8192), (28672, 4096))
ROWS = (1, 16, 64, 256, 1024, 4096)
BLOCK = 128
BF16 = torch.bfloat16
# As a part of the norm of all outputs. Sums of which tensor cores keep 14 bits are within 1e-3; an
# output that nobody wrote is not.
WITHIN = 1e-2


class Fp8Operands(ScaledOperands):
    """Random float8 and int8 operands of a product with an [N, K] weight."""

    def _block_scales(self, m: int) -> tuple[torch.Tensor, torch.Tensor]:
        groups = -(-self.k // BLOCK)
        of_a = self.once(("blocks a", m), lambda: 1e-3 * self.uniform(m, groups, dtype="float32"))
        of_b = self.once(
            "blocks b", lambda: 1e-3 * self.uniform(-(-self.n // BLOCK), groups, dtype="float32")
        )
        return of_a, of_b

    def ours_fp8(self, m: int, config: str, blocks: bool) -> list[Call]:
        scales = self._block_scales(m) if blocks else (self.row_scales(m), self.column_scales())
        options: dict[str, Any] = {"block_size": [BLOCK, BLOCK]} if blocks else {}
        op, a = self._ours(config, **options), self.rows_fp8(m)
        return [partial(op, a, w.t(), *scales) for w in self._fp8_weights()]

    def _ours(self, config: str, **options: Any) -> Callable[..., torch.Tensor]:
        """Return calls of our op, of itself on the CPU, where nothing is to choose. Never
        torch's."""
        options["out_dtype"] = BF16
        if self.device.type != "cuda":
            return partial(torch.ops.mixed_gemm.scaled_mm, **options)
        none = dict.fromkeys(("azp_adj", "azp", "bias"))
        return partial(torch.ops.mixed_gemm._scaled_mm_config, config=config, **none, **options)

    def torch_fp8(self, m: int, fast: bool) -> list[Call]:
        a, scale_a, scale_b = self.rows_fp8(m), self.row_scales(m), self.column_scales()[None]
        op = partial(torch._scaled_mm, out_dtype=BF16, use_fast_accum=fast)
        return [partial(op, a, w.t(), scale_a, scale_b) for w in self._fp8_weights()]

    def int8_bf16(self, m: int, config: str) -> list[Call]:
        a, scale_a, scale_b = self.rows(m), self.row_scales(m), self.column_scales()
        return [
            partial(self._ours(config), a, w.t(), scale_a, scale_b) for w in self.int8_weights()
        ]

    def of_peer(self, name: str, m: int) -> list[Call]:
        """Return calls of one of fp8_peers.NAMES."""
        a, weights = self.rows_fp8(m), self._fp8_weights()
        if name == "mslk":
            rows, columns = self.row_scales(m).reshape(-1), self.column_scales()
            return fp8_peers.mslk_rows(a, weights, rows, columns)
        return fp8_peers.deep_gemm_blocks(a, weights, *self._block_scales(m))

    def blocks_reference(self, m: int) -> torch.Tensor:
        """Multiply by the first weight in float32."""
        (of_a, of_b), weight = self._block_scales(m), self._fp8_weights()[0]

        def spread(scales: torch.Tensor) -> torch.Tensor:
            return scales.repeat_interleave(BLOCK, -1)[..., : self.k]

        columns = spread(of_b).repeat_interleave(BLOCK, 0)[: self.n]
        return (self.rows_fp8(m).float() * spread(of_a)) @ (weight.float() * columns).t()


def check(call: Call, wanted: torch.Tensor, what: str) -> None:
    """Compare the outputs with torch's. Raises: RuntimeError where they differ."""
    torch.full_like(wanted, float("nan"), dtype=BF16)  # freed: the op writes there
    out = call()
    assert isinstance(out, torch.Tensor)
    error = float((out.float() - wanted).norm() / wanted.norm())
    if not error < WITHIN:
        raise RuntimeError(f"{what}: {error:.2e} of the norm is wrong")


class Fp8(Benchmark):
    """float8 products, ours by wgmma beside torch._scaled_mm with exact and with fast sums, our
    int8, scales of blocks, and the quantizers."""

    name = "fp8"
    effort = Effort(rounds=9, within=1.6, keep=3)

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        names = ",".join(fp8_peers.NAMES)
        parser.add_argument("--peers", default="", help=f"also time these, installed: {names}")

    def all_points(self) -> Iterable[Point]:
        return [Point(n, k, m) for n, k in SHAPES for m in ROWS]

    def points(self) -> list[Point]:
        """The points of the quantizers have N = 0."""
        found = super().points()
        return sorted({Point(0, p.k, p.m) for p in found}) + found

    def operands(self, point: Point) -> Fp8Operands:
        return Fp8Operands(point.n, point.k, self.device)

    def predicted(self, point: Point, dtype: str) -> dict[str, float | None]:
        """Return our configurations that run it, the one that dispatch/ chooses first."""
        m, n, k = point.m, point.n, point.k
        ask = torch.ops.mixed_gemm._plan_scaled_mm
        answer = json.loads(ask(m, n, k, dtype, "bfloat16", device_string(self.device)))
        found = {
            c["config"]: c["predicted_us"]
            for c in answer["candidates"]
            if not c["config"].startswith("torch.")
        }
        by_wgmma = {name: us for name, us in found.items() if name.startswith("wgmma")}
        return by_wgmma if dtype == timed.FP8 and by_wgmma else found

    def cases(self, operands: Fp8Operands, point: Point, effort: Effort) -> Iterator[Case]:
        if point.n == 0:
            yield from self._quantizers(operands, point)
            return
        m = point.m
        exact = operands.torch_fp8(m, fast=False)
        rows_wanted = exact[0]()
        assert isinstance(rows_wanted, torch.Tensor)
        wanted = {False: rows_wanted.float(), True: operands.blocks_reference(m)}
        predicted = self.predicted(point, timed.FP8)
        selected = next(iter(predicted))
        for blocks in (False, True):
            what = timed.FP8_BLOCKS if blocks else timed.FP8_OURS
            for name in effort.chosen(selected, predicted):
                calls = operands.ours_fp8(m, name, blocks)
                check(calls[0], wanted[blocks], f"{what.op} {name} {point}")
                yield _case(what, calls, name, name == selected)
        yield _case(timed.TORCH_FP8, exact)
        yield _case(timed.TORCH_FP8_FAST, operands.torch_fp8(m, fast=True))
        for name in filter(None, self.options.peers.split(",")):
            what, of_blocks = (timed.MSLK, False) if name == "mslk" else (timed.DEEP_GEMM, True)
            calls = operands.of_peer(name, m)
            check(calls[0], wanted[of_blocks], f"{name} {point}")
            yield _case(what, calls)
        int8 = next(iter(self.predicted(point, "int8")))
        yield _case(timed.INT8_BF16, operands.int8_bf16(m, int8), int8, True)

    def _quantizers(self, operands: Fp8Operands, point: Point) -> Iterator[Case]:
        nbytes = timed.QUANTIZER_BYTES * point.m * point.k
        inputs = operands.copies(operands.normal(point.m, point.k, dtype="bfloat16"))
        op = torch.ops.mixed_gemm.quantize_fp8
        for what, block in ((timed.QUANTIZE_FP8, None), (timed.QUANTIZE_FP8_BLOCKS, BLOCK)):
            calls = [partial(op, x, block_size=block) for x in inputs]
            yield Case(what.op, _scheme(what), calls, selected=True, nbytes=nbytes)
        calls_int8 = [partial(mixed_gemm.quantize_per_token, x) for x in inputs]
        yield Case(
            timed.QUANTIZE.op, _scheme(timed.QUANTIZE), calls_int8, selected=True, nbytes=nbytes
        )


def _scheme(what: timed.Timed) -> Scheme:
    assert what.scheme is not None
    return what.scheme


def _case(
    what: timed.Timed, calls: Sequence[Call], kernel: str = "", selected: bool = False
) -> Case:
    return Case(what.op, _scheme(what), calls, kernel=kernel, selected=selected)
