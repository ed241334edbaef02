"""The tensors that benchmarks multiply and the calls that multiply them: for one (N, K), enough
copies of each form of the weight that no cache holds them, made once and shared by all M, schemes
and configurations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from schemes import Scheme
from timing import copies_for

import mixed_gemm

ATEN_GROUP = 128
T = TypeVar("T")
Call = Callable[[], object]


class Operands:
    """Random operands of a GEMM with an [N, K] weight; each form is made when first asked for."""

    def __init__(self, n: int, k: int, device: str = "cuda") -> None:
        self.n, self.k, self.device = n, k, device
        self._made: dict[Any, Any] = {}

    def ours(self, scheme: Scheme, m: int, config: str) -> list[Call]:
        """One call of the op for each copy of the weight."""
        options = {
            "bits": scheme.bits,
            "group_size": scheme.group_size,
            "zero_mode": scheme.zero_mode or "sub",
            "config": config,
        }
        a = self._activations(m, scheme.dtype)
        op = torch.ops.mixed_gemm.fpA_intB_gemm_config
        operands = zip(self._packed(scheme.bits), self._parameters(scheme), strict=True)
        return [partial(op, a, b, scales, zeros, **options) for b, (scales, zeros) in operands]

    def cublas(self, dtype: str, m: int) -> list[Call]:
        a = self._activations(m, dtype)
        return [partial(torch.nn.functional.linear, a, w) for w in self._dense(dtype)]

    def aten_int4(self, m: int) -> list[Call]:
        """aten::_weight_int4pack_mm (bf16, group 128), the kernel that PyTorch ships."""
        a = self._activations(m, "bfloat16")
        scales = self._once("aten scales", lambda: self._random(self.k // ATEN_GROUP, 2))
        op = torch.ops.aten._weight_int4pack_mm
        return [partial(op, a, w, ATEN_GROUP, scales) for w in self._aten_weights()]

    def _once(self, key: Any, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def _random(self, rows: int, last: int | None = None, dtype: str = "bfloat16") -> torch.Tensor:
        shape = (rows, self.n) if last is None else (rows, self.n, last)
        return torch.rand(shape, device=self.device, dtype=getattr(torch, dtype)) + 0.5

    def _activations(self, m: int, dtype: str) -> torch.Tensor:
        kind = getattr(torch, dtype)
        return self._once(
            ("a", m, dtype), lambda: torch.randn(m, self.k, device=self.device, dtype=kind)
        )

    def _packed(self, bits: int) -> list[torch.Tensor]:
        def make() -> list[torch.Tensor]:
            half = 2 ** (bits - 1)
            size = (self.n, self.k)
            q = torch.randint(-half, half, size, device=self.device, dtype=torch.int8)
            first = mixed_gemm.pack_weights(q, bits)
            # Other bytes in each copy, all valid: rolled rows of the packed weight.
            count = copies_for(self.n * self.k * bits // 8)
            return [torch.roll(first, i, 0) for i in range(count)]

        return self._once(("packed", bits), make)

    def _parameters(self, scheme: Scheme) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        def make() -> list[tuple[torch.Tensor, torch.Tensor | None]]:
            groups = scheme.num_groups(self.k)
            return [
                (
                    self._random(groups, dtype=scheme.dtype) * 0.01,
                    None if scheme.zero_mode is None else self._zeros(groups, scheme),
                )
                for _ in self._packed(scheme.bits)
            ]

        return self._once(scheme, make)

    def _zeros(self, groups: int, scheme: Scheme) -> torch.Tensor:
        """Whole numbers, as AWQ and GPTQ hold them: some kernels are slower with fractions."""
        half = 2 ** (scheme.bits - 1)
        size = (groups, self.n)
        zeros = torch.randint(-half, half, size, device=self.device)
        return zeros.to(getattr(torch, scheme.dtype))

    def _dense(self, dtype: str) -> list[torch.Tensor]:
        def make() -> list[torch.Tensor]:
            kind, count = getattr(torch, dtype), copies_for(2 * self.n * self.k)
            size = (self.n, self.k)
            return [torch.randn(size, device=self.device, dtype=kind) for _ in range(count)]

        return self._once(("dense", dtype), make)

    def _aten_weights(self) -> list[torch.Tensor]:
        def make() -> list[torch.Tensor]:
            size = (self.n, self.k // 2)
            raw = torch.randint(0, 256, size, device=self.device, dtype=torch.uint8)
            pack = torch.ops.aten._convert_weight_to_int4pack
            return [pack(torch.roll(raw, i, 0), 8) for i in range(copies_for(raw.numel()))]

        return self._once("aten weights", make)
