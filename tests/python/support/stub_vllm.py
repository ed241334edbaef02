"""As much of vLLM as its linear-kernel plug-ins see: registration, selection, parameters that know
their dimensions. Signatures, field names and what is called with what are those of vLLM 0.32;
test_vllm_real.py holds them to an installed one. ``Vllm(..., act_order=True)`` is vLLM up to 0.29,
whose configs and kernels knew ``g_idx``.
"""

from __future__ import annotations

import enum
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor


class PlatformEnum(enum.Enum):
    CUDA = 1
    CPU = 2


@dataclass(frozen=True)
class ScalarType:
    """stored = value + bias; ``mantissa`` is without the sign bit."""

    exponent: int
    mantissa: int
    signed: bool
    bias: int

    @property
    def size_bits(self) -> int:
        return self.exponent + self.mantissa + int(self.signed)

    def is_signed(self) -> bool:
        return self.signed

    def is_integer(self) -> bool:
        return self.exponent == 0


def uint(bits: int, bias: int = 0) -> ScalarType:
    return ScalarType(0, bits, False, bias)


UINT4, UINT8, UINT4B8, UINT8B128 = uint(4), uint(8), uint(4, 8), uint(8, 128)


@dataclass
class MPLinearLayerConfig:
    full_weight_shape: tuple[int, int]  # [in, out]
    partition_weight_shape: tuple[int, int]
    weight_type: ScalarType
    act_type: torch.dtype
    group_size: int
    zero_points: bool
    out_type: torch.dtype | None = None


@dataclass
class ActOrderConfig:
    """MPLinearLayerConfig up to vLLM 0.29."""

    full_weight_shape: tuple[int, int]
    partition_weight_shape: tuple[int, int]
    weight_type: ScalarType
    act_type: torch.dtype
    group_size: int
    zero_points: bool
    has_g_idx: bool
    out_type: torch.dtype | None = None


class MPLinearKernel(ABC):
    @classmethod
    @abstractmethod
    def get_min_capability(cls) -> int: ...

    @classmethod
    @abstractmethod
    def can_implement(cls, c: MPLinearLayerConfig) -> tuple[bool, str | None]: ...

    def __init__(
        self,
        c: MPLinearLayerConfig,
        w_q_param_name: str,
        w_s_param_name: str,
        w_zp_param_name: str | None = None,
    ) -> None:
        assert self.can_implement(c)
        self.config = c
        self.w_q_name, self.w_s_name = w_q_param_name, w_s_param_name
        if c.zero_points:
            assert w_zp_param_name is not None
        self.w_zp_name: str | None = w_zp_param_name

    @abstractmethod
    def process_weights_after_loading(self, layer: torch.nn.Module) -> None: ...

    @abstractmethod
    def apply_weights(
        self, layer: torch.nn.Module, x: Tensor, bias: Tensor | None = None
    ) -> Tensor: ...

    def _transform_param(
        self, layer: torch.nn.Module, name: str | None, fn: Callable[[Any], Any]
    ) -> None:
        if name is not None and getattr(layer, name, None) is not None:
            new = fn(getattr(layer, name))
            layer.register_parameter(name, torch.nn.Parameter(new.data, requires_grad=False))

    def _get_weight_params(self, layer: torch.nn.Module) -> tuple[Tensor | None, ...]:
        return (
            getattr(layer, self.w_q_name),
            getattr(layer, self.w_s_name),
            getattr(layer, self.w_zp_name or "", None),
        )


class ActOrderKernel(MPLinearKernel):
    """MPLinearKernel up to vLLM 0.29."""

    def __init__(
        self,
        c: Any,
        w_q_param_name: str,
        w_s_param_name: str,
        w_zp_param_name: str | None = None,
        w_gidx_param_name: str | None = None,
    ) -> None:
        super().__init__(c, w_q_param_name, w_s_param_name, w_zp_param_name)
        if c.has_g_idx:
            assert w_gidx_param_name is not None
        self.w_gidx_name: str | None = w_gidx_param_name

    def _get_weight_params(self, layer: torch.nn.Module) -> tuple[Tensor | None, ...]:
        return (*super()._get_weight_params(layer), getattr(layer, self.w_gidx_name or "", None))


class Parameter(torch.nn.Parameter):
    """A parameter that knows which of its dimensions is which; a dimension that it is not told
    (scales that all ranks share have no ``input_dim``) is no attribute of it."""

    def __new__(cls, data: Tensor, **dims: int) -> Parameter:
        self = super().__new__(cls, data, requires_grad=False)
        for name, value in dims.items():
            setattr(self, name, value)
        return self


def permute_param_layout_(param: Any, input_dim: int, output_dim: int, **kwargs: int) -> Any:
    now_in, now_out = getattr(param, "input_dim", None), getattr(param, "output_dim", None)
    assert param.data.dim() == 2 and (now_in, now_out) != (None, None)
    now_in = 1 - now_out if now_in is None else now_in
    order = [0, 1]
    order[input_dim], order[output_dim] = now_in, 1 - now_in
    if "packed_dim" in kwargs:
        assert getattr(param, "packed_dim", None) == order[kwargs["packed_dim"]], "repacking"
        param.packed_dim = kwargs["packed_dim"]
    param.data = param.data.permute(*order)
    param.input_dim, param.output_dim = input_dim, output_dim
    return param


class Vllm:
    """The stub modules in sys.modules, and vLLM's selection of a kernel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, act_order: bool = False) -> None:
        self.kernels: dict[PlatformEnum, list[type]] = {PlatformEnum.CUDA: [Builtin]}
        self.config_type = ActOrderConfig if act_order else MPLinearLayerConfig
        names: dict[str, dict[str, Any]] = {
            "vllm": {},
            "vllm.envs": {"environment_variables": {}},
            "vllm.platforms": {"PlatformEnum": PlatformEnum},
            "vllm.model_executor": {},
            "vllm.model_executor.parameter": {"permute_param_layout_": permute_param_layout_},
            "vllm.model_executor.kernels": {},
            "vllm.model_executor.kernels.linear": {
                "MPLinearKernel": ActOrderKernel if act_order else MPLinearKernel,
                "_POSSIBLE_KERNELS": self.kernels,
                "register_linear_kernel": self.register,
            },
        }
        for name, contents in names.items():
            module = ModuleType(name)
            vars(module).update(contents)
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.delitem(sys.modules, "mixed_gemm.integrations.vllm_kernel", raising=False)

    def register(self, kernel_class: type, platform: PlatformEnum, kernel_type: str = "mp") -> None:
        assert kernel_type == "mp"
        self.kernels.setdefault(platform, []).append(kernel_class)

    def choose(self, config: Any, platform: PlatformEnum) -> type[Any]:
        disabled = os.environ.get("VLLM_DISABLED_KERNELS", "").split(",")
        reasons = []
        for kernel in self.kernels[platform]:
            if kernel.__name__ in disabled:
                continue
            # As vLLM: what can_implement raises ends the engine.
            ok, reason = kernel.can_implement(config)  # type: ignore[attr-defined]
            if ok:
                return kernel
            reasons.append(f"{kernel.__name__} cannot implement due to: {reason}")
        raise ValueError("Failed to find a kernel. Reasons: " + "; ".join(reasons))


class Builtin(MPLinearKernel):
    """One of vLLM's own."""

    @classmethod
    def can_implement(cls, c: MPLinearLayerConfig) -> tuple[bool, str | None]:
        return c.group_size == 128, "group size"
