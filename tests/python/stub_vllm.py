"""As much of vLLM as its linear-kernel plug-ins see, written from its interface: registration,
selection, parameters that know their dimensions.
"""

from __future__ import annotations

import enum
import os
import sys
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
    size_bits: int
    bias: int = 0
    signed: bool = False
    integer: bool = True

    def is_signed(self) -> bool:
        return self.signed

    def is_integer(self) -> bool:
        return self.integer


UINT4, UINT8 = ScalarType(4), ScalarType(8)
UINT4B8, UINT8B128 = ScalarType(4, 8), ScalarType(8, 128)


@dataclass
class MPLinearLayerConfig:
    full_weight_shape: tuple[int, int]
    partition_weight_shape: tuple[int, int]
    weight_type: ScalarType
    act_type: torch.dtype
    group_size: int
    zero_points: bool
    has_g_idx: bool
    out_type: torch.dtype | None = None


class MPLinearKernel:
    def __init__(
        self, c: Any, w_q: str, w_s: str, w_zp: str | None = None, w_gidx: str | None = None
    ) -> None:
        assert self.can_implement(c)[0]
        self.config = c
        self.w_q_name, self.w_s_name, self.w_zp_name, self.w_gidx_name = w_q, w_s, w_zp, w_gidx

    def _transform_param(self, layer: torch.nn.Module, name: str | None, fn: Any) -> None:
        if name is not None and getattr(layer, name, None) is not None:
            new = fn(getattr(layer, name))
            delattr(layer, name)
            layer.register_parameter(name, torch.nn.Parameter(new.data, requires_grad=False))

    def _get_weight_params(self, layer: torch.nn.Module) -> tuple[Tensor | None, ...]:
        names = (self.w_q_name, self.w_s_name, self.w_zp_name, self.w_gidx_name)
        return tuple(getattr(layer, name or "", None) for name in names)


class Parameter(torch.nn.Parameter):
    """A parameter that knows which of its dimensions is which."""

    input_dim: int
    output_dim: int
    packed_dim: int | None

    def __new__(cls, data: Tensor, **dims: int) -> Parameter:
        self = super().__new__(cls, data, requires_grad=False)
        self.packed_dim = None
        for name, value in dims.items():
            setattr(self, name, value)
        return self


def permute_param_layout_(
    x: Parameter, input_dim: int, output_dim: int, packed_dim: int | None = None
) -> Parameter:
    order = [0, 1]
    order[input_dim], order[output_dim] = x.input_dim, x.output_dim
    if packed_dim is not None:
        assert x.packed_dim == order[packed_dim], "packed along the other dimension"
    x.data = x.data.permute(*order)
    x.input_dim, x.output_dim, x.packed_dim = input_dim, output_dim, packed_dim
    return x


class Vllm:
    """The stub modules in sys.modules, and vLLM's selection of a kernel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernels: dict[PlatformEnum, list[type]] = {PlatformEnum.CUDA: [Builtin]}
        self.linear = ModuleType("linear")
        self.envs = ModuleType("envs")
        names: dict[str, dict[str, Any]] = {
            "vllm": {},
            "vllm.envs": {"environment_variables": {}},
            "vllm.platforms": {"PlatformEnum": PlatformEnum},
            "vllm.model_executor": {},
            "vllm.model_executor.parameter": {"permute_param_layout_": permute_param_layout_},
            "vllm.model_executor.kernels": {},
            "vllm.model_executor.kernels.linear": {
                "MPLinearKernel": MPLinearKernel,
                "_POSSIBLE_KERNELS": self.kernels,
                "register_linear_kernel": self._register,
            },
        }
        for name, contents in names.items():
            module = ModuleType(name)
            vars(module).update(contents)
            monkeypatch.setitem(sys.modules, name, module)
        self.modules = sys.modules
        monkeypatch.delitem(sys.modules, "mixed_gemm.integrations.vllm_kernel", raising=False)

    def _register(self, kernel: type, platform: PlatformEnum, kind: str = "mp") -> None:
        assert kind == "mp"
        self.kernels.setdefault(platform, []).append(kernel)

    def choose(self, config: MPLinearLayerConfig, platform: PlatformEnum) -> type[MPLinearKernel]:
        disabled = os.environ.get("VLLM_DISABLED_KERNELS", "").split(",")
        for kernel in self.kernels[platform]:
            if kernel.__name__ not in disabled and kernel.can_implement(config)[0]:
                return kernel
        raise ValueError("Failed to find a kernel")


class Builtin(MPLinearKernel):
    """One of vLLM's own."""

    @classmethod
    def can_implement(cls, c: MPLinearLayerConfig) -> tuple[bool, str | None]:
        return c.group_size == 128, "group size"
