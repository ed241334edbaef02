"""A layer while it is quantized: a stand-in with the same weight hangs in its place."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..weights.rounding import checked_dense
from ..weights.tensor import QuantizedTensor
from .select import Target


class Replaced:
    """Parameters that get other values, and those that they had; called, it puts them back.

    Args:
        parameters: before they are written.
    """

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._kept = [(p, p.detach().clone()) for p in parameters]

    def __call__(self) -> None:
        for parameter, value in self._kept:
            parameter.data.copy_(value)

    def exchange(self) -> None:
        """Exchange the values that the parameters have for those that they had; once more takes it
        back."""
        for parameter, value in self._kept:
            now = parameter.detach().clone()
            parameter.data.copy_(value)
            value.copy_(now)


class BlockLayer:
    """A layer of the block: a stand-in with the same weight hangs in its place, so that the
    layer itself stays as it was.

    Attributes:
        name: of the layer. target: the layer and its scheme.
        dense: its weight ``[N, K]``. result: the quantized one, once there is one.

    Raises:
        ValueError: the weight holds NaN or Inf.
    """

    def __init__(self, name: str, target: Target) -> None:
        self.name, self.target = name, target
        self.dense: Tensor = checked_dense(name, target.layer.weight, ("N", "K"))
        self.result: QuantizedTensor | None = None
        self.note = ""
        self.output_error: float | None = None
        self.values: Tensor | None = None  # the weight that AutoRound computes with while it learns
        n, k = self.dense.shape
        self.module = nn.Linear(k, n, bias=False, device="meta")
        if (bias := target.layer.bias) is not None:
            self.module.bias = nn.Parameter(bias.detach(), requires_grad=False)
        self.use_dense()
        self._stored = self.dense

    def use(self, weight: Tensor, is_dense: bool = False) -> None:
        """Compute with another weight ``[N, K]``; a dense one needs gradients as the layer does,
        since torch chooses kernels by that, too."""
        trained = is_dense and self.target.layer.weight.requires_grad
        self.module.weight = nn.Parameter(weight, requires_grad=trained)

    def use_dense(self) -> None:
        self.use(self.dense, is_dense=True)

    def use_result(self) -> None:
        self.use(self._stored, is_dense=self.result is None)

    def finish(self, weight: QuantizedTensor, note: str = "", gram: Tensor | None = None) -> None:
        """Keep the quantized weight, and compute with what it stands for.

        Args:
            weight: the result. note: what was done, in words.
            gram: of the inputs, ``[K, K]``, where it is known: what rounding changes of the output
                follows from it.
        """
        self.result, self.note = weight, note
        self._stored = weight.dequantize(self.dense.dtype)
        self.use_result()
        if gram is not None:
            dense = self.dense.float()
            changed, whole = (
                float(((x @ gram) * x).sum()) for x in (self._stored.float() - dense, dense)
            )
            self.output_error = (max(changed, 0.0) / max(whole, 1e-30)) ** 0.5

    def release(self) -> None:
        """Forget what only calibration needed."""
        self.dense = self._stored = torch.empty(0)
        self.use(self.dense)

    def reset(self) -> None:
        """Compute with the dense weight, as before there was a result."""
        self.result, self._stored = None, self.dense
        self.use_dense()

    def rescale(self, factors: Tensor, dim: int) -> None:
        """Multiply rows (0) or columns (1) of the dense weight, in a copy of it."""
        by = factors[:, None] if dim == 0 else factors
        self.dense = (self.dense.float() * by).to(self.dense.dtype)
        self.reset()

    def rescaled_for_now(self, factors: Tensor) -> Callable[[], None]:
        """Multiply columns of the dense weight; the result takes it back."""
        kept = self.dense
        self.rescale(factors, 1)

        def back() -> None:
            self.dense = kept
            self.reset()

        return back

    @property
    def bias_changed(self) -> bool:
        """Whether factors went into the bias."""
        mine, kept = self.module.bias, self.target.layer.bias
        return bool(mine is not None and mine.data_ptr() != kept.data_ptr())

    def commit(self) -> list[Callable[[], None]]:
        """Take over the bias, where factors went into it; the result takes it back."""
        if not self.bias_changed:
            return []
        bias = self.target.layer.bias
        before = bias.detach().clone()
        bias.data.copy_(self.module.bias)
        return [lambda: bias.data.copy_(before)]
