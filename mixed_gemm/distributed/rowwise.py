"""``RowwiseParallel`` that hides the sum over the ranks, or makes it short."""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor import parallel as torch_parallel
from torch.distributed.tensor.placement_types import Placement

from ..ops.errors import ArgumentValueError
from ..weights.act_order import ActOrderColumns
from ..weights.plain import PlainWeight
from ..weights.tensor import QuantizedTensor
from .all_reduce import AllReduce, shared, sum_over_ranks
from .methods import METHODS
from .sums import summed

# Rows in a part of a product, whose sum travels while the next part is multiplied. On 2 H100s parts
# of 512 rows take as long (docs/parallel.md).
ROWS_OF_A_PART = 1024


class RowwiseParallel(torch_parallel.RowwiseParallel):
    """torch's ``RowwiseParallel`` for a ``mixed_gemm.Linear`` (or a dense one) whose input is
    sharded over its last dimension and whose output is whole on every rank. Few rows are summed by
    a kernel that writes into the other ranks' memory; many are multiplied in parts, whose sums
    travel while the next part is multiplied. The bias is added once, after the sum.

    The weight becomes the same DTensor that torch's class makes of it.

    Args:
        all_reduce: "auto", "push", "peer" or "group", as of ``AllReduce``.
        rows_of_a_part: a product of at least twice as many rows is cut into parts, where its sum
            is of more than 8 MiB and not by "push" or "group"; 0 never cuts.
        input_layouts: ``Shard(-1)``. output_layouts: ``Replicate()``; torch's own class has others.
        use_local_output: whether the output is a plain tensor, else a DTensor.

    Raises:
        ValueError: a layout is another one, or ``all_reduce`` is no method.
    """

    def __init__(
        self,
        *,
        all_reduce: str = "auto",
        rows_of_a_part: int = ROWS_OF_A_PART,
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
        self._method = all_reduce
        self._rows_of_a_part = rows_of_a_part

    def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
        if not isinstance(module, nn.Linear) or device_mesh.ndim != 1:
            raise ArgumentValueError(
                "mixed_gemm.parallel.RowwiseParallel: takes linear layers and a one-dimensional "
                f"mesh, got {type(module).__name__} and {device_mesh.ndim} dimensions"
            )
        self._partition_linear_fn("", module, device_mesh)  # type: ignore[no-untyped-call]
        shard = module.weight._local_tensor  # type: ignore[attr-defined]
        if isinstance(shard, ActOrderColumns):  # which need the input of all ranks
            style = torch_parallel.RowwiseParallel(use_local_output=self.use_local_output)
            return style._apply(module, device_mesh)
        reduce = shared(device_mesh, self._method)
        rows_of_a_part, local = self._rows_of_a_part, self.use_local_output

        def forward(module: nn.Linear, input: Tensor) -> Tensor:
            x = input.to_local() if isinstance(input, DTensor) else input
            out = product(module, x, reduce, rows_of_a_part)
            return out if local else DTensor.from_local(
                out, device_mesh, [Replicate()], run_check=False
            )  # fmt: skip

        module.forward = MethodType(forward, module)  # type: ignore[method-assign]
        return module


def product(module: nn.Linear, x: Tensor, reduce: AllReduce, rows_of_a_part: int) -> Tensor:
    """The sum over ranks of ``x @ w.T``, plus the bias.

    Args:
        x: ``[..., K / ranks]``, this rank's columns.
    """
    weight, bias = _shard(module), _local(module.bias)
    if torch.is_grad_enabled() and x.requires_grad:
        out = summed(_times(x, weight), reduce)
    else:
        rows = x.reshape(-1, x.shape[-1])
        out = _in_parts(rows, weight, reduce, rows_of_a_part)
        out = out.reshape(*x.shape[:-1], out.shape[-1])
    return out if bias is None else out + bias


def _shard(module: nn.Linear) -> Any:
    """This rank's columns of the weight: plain parts, where it is quantized, so that no tensor
    subclass is an input of a graph of torch.compile."""
    plain = getattr(module, "plain_weight", None)
    return _local(module.weight) if plain is None else plain.shard


def _local(parameter: Any) -> Any:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _times(x: Tensor, weight: Any) -> Tensor:
    if isinstance(weight, QuantizedTensor | PlainWeight):
        return weight.product(x)  # type: ignore[union-attr]
    return nn.functional.linear(x, weight)


def _in_parts(x: Tensor, weight: Any, reduce: AllReduce, rows_of_a_part: int) -> Tensor:
    rows, n = x.shape[0], weight.shape[0]
    if torch.compiler.is_compiling():
        total: Tensor = sum_over_ranks(_times(x, weight), reduce.key)
        return total
    cut = rows_of_a_part and rows >= 2 * rows_of_a_part
    if not cut or not reduce.takes_parts(rows * n * x.element_size()):
        return reduce(_times(x, weight))
    parts = x.tensor_split(-(-rows // rows_of_a_part))
    out = x.new_empty(rows, n)
    return reduce.in_parts([partial(_times, part, weight) for part in parts], out)
