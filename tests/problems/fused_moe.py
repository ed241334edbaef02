"""Problems of ``fused_moe``: weights of experts, tokens that chose some, and sums in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import mixed_gemm
from mixed_gemm.weights import kinds
from mixed_gemm.weights.scheme import Scheme

SCHEMES = {
    "int4": Scheme.weight_only(4, 32, "none"),
    "int8": Scheme.weight_only(8, -1, "none"),
    "zeros sub": Scheme.weight_only(4, 32, "sub"),
    "zeros add": Scheme.weight_only(8, 32, "add"),
    "mxfp4": Scheme.named("mxfp4"),
    "nvfp4": Scheme.named("nvfp4"),
}
ACTIVATIONS: dict[str, Any] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": torch.relu,
}


@dataclass
class Problem:
    """Arguments of ``fused_moe``, and the dense weights in float64.

    dense: ``[E, 2 * I, K]`` and ``[E, K, I]``. biases: ``[E, 2 * I]`` and ``[E, K]``, or None.
    """

    x: Tensor
    w13: mixed_gemm.StackedWeight
    w2: mixed_gemm.StackedWeight
    weights: Tensor
    ids: Tensor
    dense: tuple[Tensor, Tensor]
    biases: tuple[Tensor, Tensor] | None

    def run(self, **options: Any) -> Tensor:
        """The result of ``fused_moe``."""
        return mixed_gemm.fused_moe(self.x, self.w13, self.w2, self.weights, self.ids, **options)

    def one(self, x: Tensor, expert: int, activation: str, limit: Any, alpha: float) -> Tensor:
        """The result of one expert for one token, in float64."""
        first, second = (x[expert] for x in self.dense)
        b13, b2 = (0, 0) if self.biases is None else (b[expert].double() for b in self.biases)
        gate, up = (first @ x + b13).chunk(2)
        if limit is not None:
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        if activation == "swiglu_oai":
            hidden = gate * torch.sigmoid(alpha * gate) * (up + 1)
        else:
            hidden = ACTIVATIONS[activation](gate) * up
        return second @ hidden + b2

    def wanted(
        self, *, activation: str = "silu", limit: float | None = None, alpha: float = 1.0,
        expert_map: Tensor | None = None, apply_router_weight_on_input: bool = False,
    ) -> Tensor:  # fmt: skip
        """The sums in float64."""
        out = torch.zeros(self.x.shape, dtype=torch.float64)
        for token, (ids, weights) in enumerate(zip(self.ids, self.weights.double(), strict=True)):
            for given, weight in zip(ids.tolist(), weights, strict=True):
                known = expert_map is None or 0 <= given < len(expert_map)
                expert = given if expert_map is None or not known else int(expert_map[given])
                if not known or not 0 <= expert < self.w13.count:
                    continue
                x = self.x[token].double()
                on_input = apply_router_weight_on_input
                rows = self.one(x * weight if on_input else x, expert, activation, limit, alpha)
                out[token] += rows if on_input else rows * weight
        return out


def made(
    scheme: str, *, tokens: int = 9, experts: int = 5, top_k: int = 2, k: int = 96, inner: int = 64,
    dtype: torch.dtype = torch.float32, biases: bool = False, seed: int = 0,
) -> Problem:  # fmt: skip
    """Random weights and tokens.

    Args:
        scheme: of ``SCHEMES``. k: hidden size. inner: I.
    """
    random = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random).to(dtype)

    def packed(n: int, columns: int) -> Any:
        kind: Any = kinds.kind_of("tests", SCHEMES[scheme], (n, columns))
        return kind.from_float(drawn(n, columns) / math.sqrt(columns), SCHEMES[scheme])

    firsts = [[packed(inner, k), packed(inner, k)] for _ in range(experts)]
    seconds = [[packed(k, inner)] for _ in range(experts)]
    b13 = [[drawn(inner), drawn(inner)] for _ in range(experts)] if biases else None
    b2 = [[drawn(k)] for _ in range(experts)] if biases else None
    return Problem(
        drawn(tokens, k),
        mixed_gemm.StackedWeight.of(firsts, b13),
        mixed_gemm.StackedWeight.of(seconds, b2),
        torch.rand(tokens, top_k, generator=random),
        torch.randint(0, experts, (tokens, top_k), generator=random),
        (_dense(firsts), _dense(seconds)),
        None if b13 is None or b2 is None else (_beside(b13), _beside(b2)),
    )


def exact(experts: int, top_k: int, tokens: int, dtype: torch.dtype) -> Problem:
    """Weights of -1, 0 and 1 and tokens with one element that is not 0, of which sums are exact in
    any dtype with the activation "relu"."""
    shape, scheme = (128, 64), {"bits": 4, "group_size": 32}
    of = mixed_gemm.weights.IntegerWeight.from_quantized

    def packed(n: int, k: int) -> Any:
        codes = torch.randint(-1, 2, (n, k), dtype=torch.int8)
        return of(codes, torch.ones(k // 32, n, dtype=dtype), **scheme)

    firsts = [[packed(*shape), packed(*shape)] for _ in range(experts)]
    seconds = [[packed(*shape[::-1])] for _ in range(experts)]
    x = torch.zeros(tokens, shape[1], dtype=dtype)
    x[torch.arange(tokens), torch.randint(0, shape[1], (tokens,))] = 1
    return Problem(
        x,
        mixed_gemm.StackedWeight.of(firsts),
        mixed_gemm.StackedWeight.of(seconds),
        2.0 ** -torch.randint(0, 2, (tokens, top_k)).to(dtype),
        torch.randint(0, experts, (tokens, top_k)),
        (_dense(firsts), _dense(seconds)),
        None,
    )


def _dense(weights: list[list[Any]]) -> Tensor:
    return torch.stack(
        [torch.cat([x.dequantize(torch.float32) for x in row]) for row in weights]
    ).double()


def _beside(biases: list[list[Tensor]]) -> Tensor:
    return torch.stack([torch.cat(row) for row in biases])
