"""A scheme as somebody would add it: this file, a row in ``KINDS`` and a name in ``SCHEMES``.

int8 codes as they are, and one scale for the whole weight.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from mixed_gemm.weights.exchange import QuantizedWeight
from mixed_gemm.weights.question import Question, dense
from mixed_gemm.weights.scheme import Scheme, Side
from mixed_gemm.weights.tensor import Part, QuantizedTensor

TOY = Scheme(Side(num_bits=8, strategy="tensor"))


class ToyWeight(QuantizedTensor):
    kind: ClassVar[str] = "toy"
    parts: ClassVar[tuple[Part, ...]] = (
        Part("codes", (torch.int8,), follows=False, finite=False, rows=0),
        Part("scale"),
    )

    codes: Tensor
    scale: Tensor

    @classmethod
    def stores(cls, scheme: Scheme, dims: int) -> bool:
        return dims == 2 and scheme == TOY

    @classmethod
    def why_not(cls, scheme: Scheme, shape: tuple[int, ...]) -> str:
        return "" if shape[1] <= 4096 else f"in_features must be at most 4096, got {shape[1]}"

    @classmethod
    def present(cls, scheme: Scheme) -> set[str]:
        return {"codes", "scale"}

    @classmethod
    def shapes(cls, shape: tuple[int, ...], scheme: Scheme) -> dict[str, tuple[int, ...]]:
        return {"codes": shape, "scale": ()}

    @classmethod
    def tag_of(cls, shape: tuple[int, ...], scheme: Scheme, permuted: bool) -> dict[str, Any]:
        return {"scheme": "toy", "shape": list(shape)}

    @classmethod
    def from_float(cls, weight: Tensor, scheme: Scheme) -> ToyWeight:
        scale = (weight.detach().abs().max() / 127).clamp(min=1e-30)
        codes = (weight.detach() / scale).round().to(torch.int8)
        parts = {"codes": codes, "scale": scale.to(weight.dtype)}
        return cls(parts, scheme, weight.shape, weight.dtype)

    @classmethod
    def store(cls, weight: QuantizedWeight, dtype: torch.dtype) -> ToyWeight:
        parts = {"codes": weight.q, "scale": weight.scales[0, 0].to(dtype)}
        return cls(parts, weight.scheme, weight.shape, dtype)

    def product(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        return torch.nn.functional.linear(x, self.dequantize(x.dtype), bias)

    def question(self, m: int, out: str, where: str) -> Question:
        return dense(m, *self.shape, out, where, "toy weight", "no kernel takes toys")

    def dequantize(self, dtype: torch.dtype | None = None) -> Tensor:  # type: ignore[override]
        return (self.codes * self.scale).to(dtype or self.dtype)

    def requantized(self, dense: Tensor) -> ToyWeight:
        return type(self).from_float(dense.to(self.dtype), self.scheme)

    def cut(self, dim: int, start: int, stop: int) -> ToyWeight:
        codes = self.codes.narrow(dim, start, stop - start).clone()
        return type(self)({"codes": codes, "scale": self.scale}, TOY, codes.shape, self.dtype)

    @classmethod
    def join(cls, weights: list[ToyWeight]) -> ToyWeight:
        codes = torch.cat([weight.codes for weight in weights])
        return cls({"codes": codes, "scale": weights[0].scale}, TOY, codes.shape, weights[0].dtype)

    def unpacked(self, name: str = "") -> QuantizedWeight:
        scales = self.scale.expand(1, self.shape[0]).contiguous()
        return QuantizedWeight(name, self.codes, scales, bits=8, strategy="tensor")
