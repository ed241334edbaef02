"""``RowwiseParallel`` that hides the sum over the ranks, or makes it short."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor import parallel as torch_parallel
from torch.distributed.tensor.placement_types import Placement

from ..ops.errors import ArgumentTypeError, ArgumentValueError
from ..weights.act_order import ActOrderColumns
from ..weights.tensor import QuantizedTensor
from .all_reduce import METHODS, AllReduce, shared, sum_over_ranks
from .prefetch import PREFETCH_BYTES, first_bytes

# Rows in a part of a product, whose sum travels while the next part is multiplied. Measured on 2
# H100s (docs/parallel.md): with fewer, the tiles of a part no longer fill the GPU.
ROWS_OF_A_PART = 1024


class RowwiseParallel(torch_parallel.RowwiseParallel):
    """torch's ``RowwiseParallel`` for a ``mixed_gemm.Linear`` (or a dense one) whose input is
    spread over its last dimension and whose output is whole on every rank. Few rows are summed by a
    kernel that reads the other ranks' memory; many are multiplied in parts, whose sums travel while
    the next part is multiplied. The bias is added once, after the sum.

    The weight becomes the same DTensor that torch's class makes of it.

    Args:
        all_reduce: "auto", "one_shot", "peer", "push" or "group", as of ``AllReduce``.
        rows_of_a_part: a product of at least twice as many rows is cut into parts; 0 never cuts.
            "push" never does.
        followed_by: the layer whose weight is read next, dense or of 4- or 8-bit integers: while
            the ranks wait for each other, "push" brings the beginning of it into L2. Other methods
            leave it alone.
        prefetch_bytes: of that weight, at most.
        input_layouts: ``Shard(-1)``. output_layouts: ``Replicate()``; torch's own class has others.
        use_local_output: whether the output is a plain tensor, else a DTensor.

    Raises:
        ValueError: a layout is another one, or ``all_reduce`` is no method.
        TypeError: ``followed_by`` is no module.
    """

    def __init__(
        self,
        *,
        all_reduce: str = "auto",
        rows_of_a_part: int = ROWS_OF_A_PART,
        followed_by: nn.Module | None = None,
        prefetch_bytes: int = PREFETCH_BYTES,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(
            input_layouts=input_layouts, output_layouts=output_layouts,
            use_local_output=use_local_output,
        )  # fmt: skip
        if all_reduce not in METHODS:
            raise ArgumentValueError(
                f"RowwiseParallel: all_reduce must be one of {METHODS}, got {all_reduce!r}"
            )
        if self.input_layouts != (Shard(-1),) or self.output_layouts != (Replicate(),):
            raise ArgumentValueError(
                "mixed_gemm.parallel.RowwiseParallel: input_layouts must be Shard(-1) and "
                f"output_layouts Replicate(), got {self.input_layouts} and {self.output_layouts}. "
                "Hint: torch.distributed.tensor.parallel.RowwiseParallel has the others"
            )
        if not (followed_by is None or isinstance(followed_by, nn.Module)):
            raise ArgumentTypeError(
                "RowwiseParallel: followed_by must be a module or None, got "
                f"{type(followed_by).__name__}"
            )
        self._method = all_reduce
        self._summed = partial(
            product, rows_of_a_part=rows_of_a_part,
            next_weight=None if followed_by is None else _NextWeight(followed_by, prefetch_bytes),
        )  # fmt: skip

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        if not isinstance(module, nn.Linear) or device_mesh.ndim != 1:
            raise ArgumentValueError(
                "mixed_gemm.parallel.RowwiseParallel: takes linear layers and a one-dimensional "
                f"mesh, got {type(module).__name__} and {device_mesh.ndim} dimensions"
            )
        self._partition_linear_fn("", module, device_mesh)  # type: ignore[no-untyped-call]
        share = module.weight._local_tensor  # type: ignore[attr-defined]
        if isinstance(share, ActOrderColumns):  # which need the input of all ranks
            style = torch_parallel.RowwiseParallel(use_local_output=self.use_local_output)
            return style._apply(module, device_mesh)
        reduce = shared(device_mesh, self._method)
        summed, local = self._summed, self.use_local_output

        def forward(module: nn.Linear, input: Tensor) -> Tensor:
            x = input.to_local() if isinstance(input, DTensor) else input
            out = summed(module, x, reduce)
            return out if local else DTensor.from_local(
                out, device_mesh, [Replicate()], run_check=False
            )  # fmt: skip

        module.forward = MethodType(forward, module)  # type: ignore[method-assign]
        return module


@dataclass(frozen=True)
class _NextWeight:
    """module: its weight may be exchanged until it is asked for. most_bytes: of it."""

    module: nn.Module
    most_bytes: int

    def first_bytes(self, device: torch.device) -> Tensor | None:
        found = first_bytes(getattr(self.module, "weight", None), self.most_bytes)
        return None if found is None or found.device != device else found


def product(
    module: nn.Linear, x: Tensor, reduce: AllReduce, rows_of_a_part: int,
    next_weight: _NextWeight | None = None,
) -> Tensor:  # fmt: skip
    """The sum over ranks of ``x @ w.T``, plus the bias.

    Args:
        x: ``[..., K / ranks]``, this rank's columns.
    """
    weight, bias = _local(module.weight), _local(module.bias)
    if torch.is_grad_enabled() and x.requires_grad:
        out: Tensor = _Summed.apply(_times(x, weight), reduce)  # type: ignore[no-untyped-call]
    else:
        rows = x.reshape(-1, x.shape[-1])
        out = _in_parts(rows, weight, reduce, rows_of_a_part, next_weight)
        out = out.reshape(*x.shape[:-1], out.shape[-1])
    return out if bias is None else out + bias


def _local(parameter: Any) -> Any:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _times(x: Tensor, weight: Any) -> Tensor:
    if isinstance(weight, QuantizedTensor):
        return weight.product(x)
    return nn.functional.linear(x, weight)


def _in_parts(
    x: Tensor, weight: Any, reduce: AllReduce, rows_of_a_part: int, next_weight: _NextWeight | None
) -> Tensor:
    rows, n = x.shape[0], weight.shape[0]
    nbytes = rows * n * x.element_size()
    prefetch = None
    if next_weight is not None and reduce.prefetches(nbytes, x.dtype):
        prefetch = next_weight.first_bytes(x.device)
    if torch.compiler.is_compiling():
        total: Tensor = sum_over_ranks(_times(x, weight), reduce.key, prefetch)
        return total
    cut = rows_of_a_part and rows >= 2 * rows_of_a_part
    if not cut or not reduce.takes_parts(nbytes):
        return reduce(_times(x, weight), prefetch)
    parts = x.tensor_split(-(-rows // rows_of_a_part))
    out = x.new_empty(rows, n)
    return reduce.in_parts([partial(_times, part, weight) for part in parts], out)


class _Summed(torch.autograd.Function):
    """The sum over ranks, whose gradient every rank has already."""

    @staticmethod
    def forward(ctx: Any, term: Tensor, reduce: AllReduce) -> Tensor:
        total: Tensor = sum_over_ranks(term, reduce.key)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None
