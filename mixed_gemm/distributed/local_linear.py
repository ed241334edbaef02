"""Linears of experts whose weight ranks share, and which multiply what this rank has: activations
and results are tensors of this rank, and who calls adds up the results.

Shards are of any sizes, none at all among them, so that they are gathered here, and not by what
torch does with a DTensor, which takes them to be those of ``torch.chunk``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import Shard

from ..nn.linear import Linear
from ..ops.errors import ArgumentValueError
from ..weights.act_order import ActOrderColumns
from ..weights.scheme import Scheme
from ..weights.tensor import QuantizedTensor
from .gathering import own_part, part_of, together
from .read import ShardOf
from .weight import distribute, whole


class LocalLinear(Linear):
    """A quantized linear of which this rank multiplies its shard.

    Attributes:
        weight: a DTensor ``[N, K]``, whose local tensor is the shard. bias: the elements that this
            rank adds: those of its rows; all of them on the first rank that has columns.
    """

    can_be_stacked: ClassVar[bool] = True

    @classmethod
    def of(
        cls, shard: QuantizedTensor, bias: Tensor | None, mesh: Any, dim: int,
        shape: tuple[int, int], scheme: Scheme,
    ) -> LocalLinear:  # fmt: skip
        """A module around this rank's shard.

        Args:
            shard: some rows (dim 0) or columns (dim 1), or none, of a weight of ``shape``.
            bias: what this rank adds. mesh: one-dimensional. scheme: of the whole weight.

        Raises:
            ValueError: columns are in act-order.
        """
        if isinstance(shard, ActOrderColumns):
            raise ArgumentValueError(
                "mixed_gemm.parallel: columns in act-order take activations of all ranks, which "
                "experts do not gather. Hint: ExpertParallel, whose ranks have whole experts"
            )
        weight = distribute(shard, mesh, [Shard(dim)], shape)
        made = cls.of_shard(weight, bias, scheme)
        assert isinstance(made, LocalLinear)
        return made

    @property
    def own_weight(self) -> Any:
        """The weight that calls on this rank multiply by."""
        weight = super().own_weight
        return getattr(weight, "_local_tensor", weight)

    @property
    def own_bias(self) -> Any:
        """The bias that calls on this rank add, or None."""
        return self._plain_bias_of(super().own_bias)

    def _plain_of(self, weight: Any) -> Any:
        self.__dict__["is_spread"] = True
        local = getattr(weight, "_local_tensor", weight)
        return local.plain() if isinstance(local, QuantizedTensor) else None

    def _plain_bias_of(self, bias: Any) -> Any:
        return None if bias is None or bias.numel() == 0 else bias

    def whole(self) -> tuple[QuantizedTensor, Tensor | None]:
        """The weight ``[N, K]`` and the bias ``[N]`` of all ranks; every rank has to call it."""
        sharded, bias = self._sharded(), self._parameters.get("bias")
        gathered = None if bias is None else together(bias.detach(), sharded.device_mesh, 0)
        return whole(sharded, self.scheme), gathered

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        bias = self._parameters.get("bias")
        if bias is not None:
            mesh = self._sharded().device_mesh
            destination[f"{prefix}bias"] = together(bias.detach(), mesh, 0)

    def _fill_shard(self, sharded: Any, state_dict: dict[str, Any], prefix: str, *rest: Any) -> Any:
        found = super()._fill_shard(sharded, state_dict, prefix, *rest)
        bias, key = self._parameters.get("bias"), f"{prefix}bias"
        if bias is not None and key in found:
            found[key] = part_of(found[key], bias, sharded.device_mesh, 0)
        return found


class LocalDense(nn.Linear):
    """A dense linear of which this rank multiplies its shard.

    Args:
        linear: of which this rank takes a shard. mesh: one-dimensional.
        shard: which rows or columns. bias: what this rank adds, or None.
    """

    is_spread: ClassVar[bool] = True

    def __init__(self, linear: nn.Linear, mesh: Any, shard: ShardOf, bias: Any) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.mesh, self.dim = mesh, shard.dim
        part = linear.weight.detach().narrow(shard.dim, shard.start, shard.stop - shard.start)
        trains = linear.weight.requires_grad
        part = part.clone(memory_format=torch.contiguous_format)
        self.weight = nn.Parameter(part, requires_grad=trains)
        self.register_parameter("bias", bias)
        self.train(linear.training)

    def forward(self, input: Tensor) -> Tensor:
        """This rank's term, or rows, of the product.

        Args:
            input: ``[..., K]``, or this rank's columns of it.
        """
        bias = None if self.bias is None or self.bias.numel() == 0 else self.bias
        return nn.functional.linear(input, self.weight, bias)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                dim = self.dim if name == "weight" else 0
                destination[prefix + name] = together(parameter.detach(), self.mesh, dim)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        mine = dict(state_dict)
        for name, parameter in self._parameters.items():
            given = mine.get(prefix + name)
            if parameter is not None and given is not None:
                dim = self.dim if name == "weight" else 0
                mine[prefix + name] = part_of(given, parameter, self.mesh, dim)
        super()._load_from_state_dict(mine, prefix, *rest)


def local_linear(linear: nn.Linear, mesh: Any, shard: ShardOf) -> LocalLinear | LocalDense:
    """A linear that is whole on every rank as the shard that this one multiplies.

    Args:
        linear: dense or quantized, ``[N, K]``; a shard stays one. mesh: one-dimensional.
        shard: of this rank; none where it ends where it starts.

    Raises:
        ValueError: its weight cannot be cut there.
    """
    if isinstance(linear, LocalLinear):
        trim_bias(linear, shard)
        return linear
    bias = linear._parameters.get("bias")
    part = None if bias is None else own_part(bias, mesh, shard)
    if not isinstance(linear, Linear):
        return LocalDense(linear, mesh, shard, part)
    weight, shape = linear.weight, (linear.out_features, linear.in_features)
    cut = weight if (shard.start, shard.stop) == (0, shape[shard.dim]) else weight.cut(
        shard.dim, shard.start, shard.stop
    )  # fmt: skip
    made = LocalLinear.of(cut, part, mesh, shard.dim, shape, linear.scheme)
    made.is_conv1d = linear.is_conv1d
    made.train(linear.training)
    return made


def trim_bias(linear: LocalLinear, shard: ShardOf) -> None:
    """Keep what this rank adds of a bias that was read as a whole after its weight was cut.

    Args:
        linear: a shard. shard: which one.
    """
    bias, mesh = linear._parameters.get("bias"), linear._sharded().device_mesh
    if bias is not None and bias.numel() == linear.out_features:
        linear.register_parameter("bias", own_part(bias, mesh, shard))
