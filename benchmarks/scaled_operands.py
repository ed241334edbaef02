"""The calls that bench_scaled_mm.py times, over enough copies of the weight that no cache holds
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from operands import Call, Operands
from scaled_results import (
    AZP,
    AZP_PER_TOKEN,
    CUBLAS,
    FP8,
    FP8_BF16,
    FP8_FP16,
    INT_MM,
    INT_MM_SCALED,
    LAYER,
    OURS,
    QUANTIZE,
    QUANTIZE_AZP,
    QUANTIZE_TENSOR,
    TORCH_FP8,
    Variant,
)
from timing import copies_for

import mixed_gemm

INT_MM_ROWS = 32  # torch._int_mm refuses 16 rows and fewer: those are padded
FOLDED_AZP = 5


class ScaledOperands(Operands):
    """Random 8-bit operands of a GEMM with an [N, K] weight."""

    def calls(self, variant: Variant, m: int) -> list[Call]:
        """One call for each copy of the weight."""
        make: dict[Variant, Callable[[int], list[Call]]] = {
            AZP: partial(self._azp, AZP),
            AZP_PER_TOKEN: partial(self._azp, AZP_PER_TOKEN),
            INT_MM: self._int_mm,
            INT_MM_SCALED: self._int_mm_scaled,
            CUBLAS: partial(self.cublas, "float16"),
            FP8_BF16: partial(self._fp8, torch.bfloat16),
            FP8_FP16: partial(self._fp8, torch.float16),
            TORCH_FP8: self._torch_fp8,
            LAYER: self._layer,
        }
        return make[variant](m)

    def ours_int8(
        self, m: int, config: str, variant: Variant = OURS, bias: bool = False
    ) -> list[Call]:
        """A configuration by name, with the zero points of a variant."""
        points, adjustments = self._zero_points(variant, m)
        added = self._once("bias", lambda: self._small(self.n).half()) if bias else None
        a, scale_a, scale_b = self._rows(m), self._row_scales(m), self._column_scales()
        op = torch.ops.mixed_gemm._scaled_mm_config
        return [
            partial(
                op, a, w.t(), scale_a, scale_b, adjustment, points, added,
                out_dtype=torch.float16, config=config,
            )
            for w, adjustment in zip(self._int8(), adjustments, strict=True)
        ]  # fmt: skip

    def _azp(self, variant: Variant, m: int) -> list[Call]:
        points, adjustments = self._zero_points(variant, m)
        a, scale_a, scale_b = self._rows(m), self._row_scales(m), self._column_scales()
        op = torch.ops.mixed_gemm.scaled_mm_azp
        return [
            partial(op, a, w.t(), scale_a, scale_b, adj, points, None, out_dtype=torch.float16)
            for w, adj in zip(self._int8(), adjustments, strict=True)
        ]

    def _zero_points(
        self, variant: Variant, m: int
    ) -> tuple[torch.Tensor | None, Sequence[torch.Tensor | None]]:
        """Those of the rows, and what each copy of the weight is adjusted by."""
        if variant == OURS:
            return None, [None] * len(self._int8())
        folded = FOLDED_AZP if variant == AZP else None
        adjustments = self._once(
            ("azp_adj", folded),
            lambda: [mixed_gemm.azp_adjustment(w, folded) for w in self._int8()],
        )
        if variant == AZP:
            return None, adjustments
        points = torch.randint(-128, 128, (m, 1), device=self.device, dtype=torch.int32)
        return points, adjustments

    def _int_mm(self, m: int) -> list[Call]:
        a = self._rows(max(m, INT_MM_ROWS))
        return [partial(torch._int_mm, a, w.t()) for w in self._int8()]

    def _int_mm_scaled(self, m: int) -> list[Call]:
        """The scaling in torch, eager: the first product reads int32 and is fp32, so there are
        three elementwise kernels; the padding is not scaled."""
        a = self._rows(max(m, INT_MM_ROWS))
        scale_a, scale_b = self._row_scales(m), self._column_scales()

        def call(w: torch.Tensor) -> torch.Tensor:
            return (torch._int_mm(a, w.t())[:m] * scale_a * scale_b).half()

        return [partial(call, w) for w in self._int8()]

    def _fp8(self, out_dtype: torch.dtype, m: int) -> list[Call]:
        a, scale_a, scale_b = self._rows_fp8(m), self._row_scales(m), self._column_scales()
        op = mixed_gemm.scaled_mm
        return [partial(op, a, w.t(), scale_a, scale_b, out_dtype=out_dtype) for w in self._fp8s()]

    def _torch_fp8(self, m: int) -> list[Call]:
        a, scale_a, scale_b = self._rows_fp8(m), self._row_scales(m), self._column_scales()
        op = partial(torch._scaled_mm, out_dtype=torch.bfloat16)
        return [partial(op, a, w.t(), scale_a, scale_b[None]) for w in self._fp8s()]

    def _layer(self, m: int) -> list[Call]:
        x, scale_b = self._activations(m, "float16"), self._column_scales()

        def call(w: torch.Tensor) -> torch.Tensor:
            q, scale, _ = mixed_gemm.quantize_per_token(x)
            return mixed_gemm.scaled_mm(q, w.t(), scale, scale_b, out_dtype=torch.float16)

        return [partial(call, w) for w in self._int8()]

    def _row_scales(self, m: int) -> torch.Tensor:
        return self._once(("scale_a", m), lambda: self._small(m).view(m, 1))

    def _column_scales(self) -> torch.Tensor:
        return self._once("scale_b", lambda: self._small(self.n))

    def _small(self, count: int) -> torch.Tensor:
        """Scales that keep fp16 outputs finite."""
        return 1e-3 * (0.5 + torch.rand(count, device=self.device))

    def _random_int8(self, rows: int) -> torch.Tensor:
        return torch.randint(-128, 128, (rows, self.k), device=self.device, dtype=torch.int8)

    def _random_fp8(self, rows: int) -> torch.Tensor:
        return torch.randn(rows, self.k, device=self.device, dtype=torch.float16).to(
            getattr(torch, FP8)
        )

    def _rows(self, m: int) -> torch.Tensor:
        return self._once(("int8 a", m), lambda: self._random_int8(m))

    def _rows_fp8(self, m: int) -> torch.Tensor:
        return self._once(("fp8 a", m), lambda: self._random_fp8(m))

    def _int8(self) -> list[torch.Tensor]:
        count = copies_for(self.n * self.k)
        return self._once("int8", lambda: [self._random_int8(self.n) for _ in range(count)])

    def _fp8s(self) -> list[torch.Tensor]:
        count = copies_for(self.n * self.k)
        return self._once("fp8", lambda: [self._random_fp8(self.n) for _ in range(count)])


def quantizer_calls(variant: Variant, k: int, m: int, device: str = "cuda") -> Sequence[Call]:
    """One call for each of enough inputs [m, k] in float16."""
    inputs = [
        torch.randn(m, k, device=device, dtype=torch.float16) for _ in range(copies_for(2 * m * k))
    ]
    scale = torch.full((1,), 0.03, device=device)
    call: dict[Variant, Callable[[torch.Tensor], object]] = {
        QUANTIZE: mixed_gemm.quantize_per_token,
        QUANTIZE_AZP: partial(mixed_gemm.quantize_per_token, symmetric=False),
        QUANTIZE_TENSOR: lambda x: mixed_gemm.quantize_per_tensor(x, scale),
    }
    return [partial(call[variant], x) for x in inputs]
