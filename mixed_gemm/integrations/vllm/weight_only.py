"""Linear layers with 4- and 8-bit weights and activations as they are (vLLM's "mp" kernels), which
serves GPTQ, compressed-tensors and AWQ models alike. A class at the top of a module, so that it
pickles. Imports vLLM: only ``offers`` imports it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.kernels.linear import MPLinearKernel
from vllm.model_executor.parameter import permute_param_layout_

from ... import _library
from ...ops.problem import DTYPES
from ...ops.repack import gptq_repack
from ...selection.planning import why_not
from .interface import unknown_fields
from .layers import replace, unpack_rows
from .log import answer, answer_ahead


def why_not_weight_only(c: Any) -> str | None:
    """Tell why the kernel cannot serve a layer; None when it can.

    Args:
        c: vLLM's MPLinearLayerConfig.
    """
    if not _library.available:
        return str(_library.error)
    k, n = c.partition_weight_shape
    kind = c.weight_type
    bias = 0 if c.zero_points else 1 << (kind.size_bits - 1)
    if unknown := unknown_fields(c, "MPLinearLayerConfig"):
        return f"vLLM asks for {unknown}, which is not known here"
    if c.act_type not in DTYPES:
        return f"activations must be float16, bfloat16 or float32, got {c.act_type}"
    if c.out_type not in (None, c.act_type):
        return f"activations and results must have one dtype, got {c.act_type} and {c.out_type}"
    if not kind.is_integer() or kind.is_signed() or kind.bias != bias:
        return f"weights must be unsigned codes with {'no' if bias == 0 else bias} bias, got {kind}"
    if c.group_size != -1 and c.group_size < 1:
        return f"group_size must be -1 or positive, got {c.group_size}"
    if c.group_size != -1 and k % c.group_size != 0:
        return f"in_features per partition {k} is not divisible by group_size {c.group_size}"
    if _has_order(c) and k != c.full_weight_shape[0]:
        # Groups of the whole matrix lie scattered over the ranks.
        return (
            f"act-order with input features split over ranks ({k} of {c.full_weight_shape[0]}) is "
            "not supported"
        )
    refusal = why_not(
        1, n, k, dtype=c.act_type, bits=kind.size_bits, group_size=_group_size(c), device="cpu"
    )
    return None if refusal is None else "; ".join(refusal.reasons)


def _has_order(c: Any) -> bool:
    """Tell whether the layer brings act-order's ``g_idx``: vLLM up to 0.29 asks kernels for it."""
    return bool(getattr(c, "has_g_idx", False))


def _group_size(c: Any) -> int:
    return -1 if c.group_size >= c.partition_weight_shape[0] else int(c.group_size)


def _values(layer: nn.Module, name: str, shape: tuple[int, int], **packed: int) -> Tensor:
    """Return a parameter of the layer as ``[input, output]``, its ``shape`` checked."""
    parameter: Any = getattr(layer, name, None)
    if parameter is None:
        raise ValueError(f"mixed_gemm: the layer has no parameter {name!r}")
    # This is done on a copy: the parameter keeps the order of its dimensions for weights that are
    # loaded again.
    copy: Any = torch.Tensor._make_subclass(type(parameter), parameter.data)
    copy.__dict__.update(parameter.__dict__)
    permute_param_layout_(copy, input_dim=0, output_dim=1, **packed)
    values: Tensor = copy.data
    if values.shape != shape:
        raise ValueError(f"mixed_gemm: {name!r} must be {list(shape)}, got {list(values.shape)}")
    return values.contiguous()


def _order(layer: nn.Module, name: str, k: int, group: int) -> Tensor:
    """Return int32 ``[k]``: the input features group by group, from ``g_idx`` ``[k]``, the group of
    each.

    Raises:
        ValueError: it is missing or of another shape; or a group has not ``group`` features, so
            that the scales are of no rows that lie side by side in any order.
    """
    parameter = getattr(layer, name, None)
    if parameter is None:
        raise ValueError(f"mixed_gemm: the layer has no parameter {name!r}")
    groups: Tensor = parameter.data
    if groups.shape != (k,):
        raise ValueError(f"mixed_gemm: {name!r} must be [{k}], got {list(groups.shape)}")
    found, order = groups.sort(stable=True)
    wrong = (found != torch.arange(k, device=found.device) // group).nonzero()
    if wrong.numel():
        at = int(wrong[0])
        raise ValueError(
            f"mixed_gemm: {name!r} must number {group} input features for each group, got group "
            f"{int(found[at])} at place {at} of {k} in order. Hint: serve the model with "
            "transformers"
        )
    return order.to(torch.int32)


class MixedGemmLinearKernel(MPLinearKernel):  # type: ignore[misc]
    """``fpA_intB_gemm`` behind vLLM's mixed-precision linear layers."""

    @classmethod
    def get_min_capability(cls) -> int:
        return 80

    @classmethod
    def can_implement(cls, c: Any) -> tuple[bool, str | None]:
        return answer(cls.__name__, why_not_weight_only, c)

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        """Repack in place.

        Raises:
            ValueError: a parameter is missing, or its shape is not what the config says.
        """
        c = self.config
        (k, n), bits = c.partition_weight_shape, c.weight_type.size_bits
        groups = 1 if _group_size(c) == -1 else k // _group_size(c)
        words = 32 // bits

        # All are read and checked before the first is replaced.
        codes = _values(layer, self.w_q_name, (-(-k // words), n), packed_dim=0)
        scales = _values(layer, self.w_s_name, (groups, n)).to(c.act_type)
        new: dict[str, Tensor] = {self.w_s_name: scales}
        if c.zero_points:
            packed = _values(layer, self.w_zp_name, (groups, -(-n // words)), packed_dim=1)
            signed = unpack_rows(packed, bits, n) - (1 << (bits - 1))
            new[self.w_zp_name] = signed.to(c.act_type)
        order = None
        if _has_order(c):
            order = _order(layer, self.w_gidx_name, k, k // groups)
            new[self.w_gidx_name] = order
        new[self.w_q_name] = gptq_repack(codes, order, bits=bits)
        for name, values in new.items():
            replace(layer, name, values)
        # The settings of a call beside tensors: looked up once, since decoding calls a layer often.
        self._bits, self._group = int(bits), _group_size(c)
        self._order_name = None if order is None else self.w_gidx_name

    def apply_weights(self, layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        parameters = layer._parameters
        if self._order_name is not None:
            order = parameters[self._order_name]
            assert order is not None
            x = x.index_select(-1, order)
        out: Tensor = torch.ops.mixed_gemm.fpA_intB_gemm(
            x,
            parameters[self.w_q_name],
            parameters[self.w_s_name],
            parameters[self.w_zp_name] if self.config.zero_points else None,
            bias,
            None,
            bits=self._bits,
            group_size=self._group,
            zero_mode="sub",
        )
        return out


class MixedGemmLinearKernelMeasuredAhead(MixedGemmLinearKernel):
    """The class that stands before vLLM's kernels under ``auto``, and takes what is measured ahead
    of them."""

    @classmethod
    def can_implement(cls, c: Any) -> tuple[bool, str | None]:
        takes, reason = super().can_implement(c)
        return answer_ahead(cls.__name__, "weight_only", c) if takes else (takes, reason)
