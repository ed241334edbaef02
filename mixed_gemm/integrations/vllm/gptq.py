"""GPTQ files that vLLM refuses before it asks any kernel: 8 bits where it has no kernel that it
would admit them for, zero points (sym=False), act-order (desc_act=True) and float32. vLLM asks this
configuration first, which takes those and leaves the others to vLLM. Imports vLLM: only ``offers``
imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.linear import (
    LinearBase,
    LinearMethodBase,
    UnquantizedLinearMethod,
    register_weight_loader_v2_supported_method,
)
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig
from vllm.model_executor.layers.quantization.utils.gptq_utils import is_layer_gptq_quantized
from vllm.model_executor.models.utils import WeightsMapper
from vllm.model_executor.parameter import (
    ChannelQuantScaleParameter,
    GroupQuantScaleParameter,
    PackedColumnParameter,
    PackedvLLMParameter,
    RowvLLMParameter,
)
from vllm.platforms import current_platform

from ... import _library
from ...formats.gptq import Gptq
from ...formats.keys import look_up
from ...formats.layer import LayerTensors
from ...formats.loaded import LoadedTensors
from ...weights.integer import IntegerWeight
from . import place
from .experts_integers import CONFIG_FILE, take_order, why_not_file
from .interface import has_field, lacking_of
from .layers import replace
from .log import logger, say_once

NAME = "mixed_gemm_gptq"
NAMES = (NAME,)
# (a feature that vLLM refuses, a function that tells whether a quantization_config has it)
_REFUSED_BY_VLLM: tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...] = (
    ("zero points (sym=False)", lambda config: config.get("sym") is False),
    (
        "act-order (desc_act=True)",
        lambda config: (
            bool(config.get("desc_act"))
            and config.get("group_size") != -1
            and not has_field("MPLinearLayerConfig", "has_g_idx")  # else kernels are asked
        ),
    ),
    (
        "8 bits on the CPU",
        lambda config: config.get("bits") == 8 and current_platform.is_cpu(),
    ),
)


def why_ours(config: dict[str, Any]) -> str:
    """List what vLLM would refuse of a GPTQ file; empty where it reads it."""
    return ", ".join(what for what, asks in _REFUSED_BY_VLLM if asks(config))


def why_not_gptq(config: dict[str, Any]) -> str:
    """List what we do not read either; empty where we do."""
    if not _library.available:
        return str(_library.error)
    if config.get("lm_head"):
        return "a quantized lm_head is not read"
    return why_not_file(config, "gptq")


class MixedGemmGPTQConfig(AutoGPTQConfig):  # type: ignore[misc]
    """The quantization_config of a GPTQ file, as vLLM asks for it."""

    def __init__(self, config: dict[str, Any]) -> None:
        # The constructor of AutoGPTQConfig refuses the files that this class is for.
        super(AutoGPTQConfig, self).__init__()
        self.full_config = config
        self.weight_bits, self.group_size = int(config["bits"]), int(config["group_size"])
        self.act_order = bool(config.get("desc_act"))
        self.modules_in_block_to_quantize = config.get("modules_in_block_to_quantize") or []

    def __repr__(self) -> str:
        return f"MixedGemmGPTQConfig({why_ours(self.full_config)})"

    @classmethod
    def get_name(cls) -> str:
        return NAME

    @classmethod
    def get_supported_act_dtypes(cls) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        return 80

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> MixedGemmGPTQConfig:
        return cls(config)

    @staticmethod
    def get_checkpoint_weight_mapper() -> Any:
        """Return a mapper that keeps g_idx, which vLLM's own drops."""
        return WeightsMapper()

    @classmethod
    def override_quantization_method(
        cls, hf_quant_cfg: Any, user_quant: str | None, hf_config: Any = None
    ) -> str | None:
        """Return NAME for a file that is ours; None leaves it to vLLM. vLLM asks for every model,
        unguarded."""
        try:
            return _takes(hf_quant_cfg, user_quant)
        except Exception as error:  # a configuration that we do not know
            logger.warning("mixed_gemm: %s: %s", type(error).__name__, error)
            return None

    def get_quant_method(self, layer: nn.Module, prefix: str) -> Any:
        if not isinstance(layer, LinearBase):
            return self._of_others(layer, prefix)
        if is_layer_gptq_quantized(
            prefix, self.modules_in_block_to_quantize, self.packed_modules_mapping
        ):
            return MixedGemmGPTQLinearMethod(self)
        return UnquantizedLinearMethod()

    def _of_others(self, layer: nn.Module, prefix: str) -> Any:
        if lacking_of("gptq_experts"):  # which the log says
            return None
        from .auto_gptq import of_refused_file

        return of_refused_file(self, layer, prefix)


def _takes(config: dict[str, Any], user_quant: str | None) -> str | None:
    if place() == "off" or str(config.get("quant_method", "")).lower() not in ("gptq", NAME):
        return None
    if user_quant not in (None, "gptq", NAME):
        return None
    asked = why_ours(config)
    if not asked and user_quant != NAME:
        return None
    if reason := why_not_gptq(config):
        say_once(f"{NAME} does not read this GPTQ file: {reason}")
        return None
    say_once(f"{NAME} reads this GPTQ file, which vLLM would refuse: {asked}")
    answer = look_up(config, "gptq")
    for note in answer.notes:
        say_once(f"{NAME}: {note}")
    if answer.unknown:
        say_once(f"{NAME} does not know and does not use {', '.join(answer.unknown)}")
    return NAME


class _Order(RowvLLMParameter):  # type: ignore[misc]
    """Load ``g_idx``: each of the matrices that vLLM joins brings its own; all must be the same."""

    def _take(self, loaded: Tensor) -> None:
        take_order(self.data, loaded, "the matrices that vLLM joins to one layer")

    def load_merged_column_weight(self, loaded_weight: Tensor, **kwargs: Any) -> None:
        self._take(loaded_weight)

    def load_qkv_weight(self, loaded_weight: Tensor, **kwargs: Any) -> None:
        self._take(loaded_weight)


@register_weight_loader_v2_supported_method
class MixedGemmGPTQLinearMethod(LinearMethodBase):  # type: ignore[misc]
    """``fpA_intB_gemm`` on a GPTQ layer."""

    def __init__(self, config: MixedGemmGPTQConfig) -> None:
        self._config = config
        self._bits, self._group = config.weight_bits, config.group_size

    def create_weights(
        self,
        layer: nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        """Make parameters as the file has them.

        Raises:
            ValueError: input features are split over ranks where that does not go.
        """
        k, n, per_word = input_size_per_partition, sum(output_partition_sizes), 32 // self._bits
        split = k != input_size
        if split and self._config.act_order:
            raise ValueError(
                "mixed_gemm: act-order (desc_act=True) with input features split over ranks is not "
                "supported. Hint: tensor_parallel_size=1"
            )
        if split and self._group != -1 and k % self._group:
            raise ValueError(
                f"mixed_gemm: {k} input features of a rank must be divisible by group_size "
                f"{self._group}. Hint: a smaller tensor_parallel_size"
            )
        loader = extra_weight_attrs.get("weight_loader")
        groups = 1 if self._group == -1 else -(-k // self._group)
        packed = {"packed_factor": per_word, "weight_loader": loader}

        def words(*shape: int) -> Tensor:
            return torch.empty(*shape, dtype=torch.int32)

        codes = PackedvLLMParameter(
            data=words(k // per_word, n), input_dim=0, output_dim=1, packed_dim=0, **packed
        )
        zero_words, values = words(groups, n // per_word), torch.empty(groups, n).to(params_dtype)
        if self._group == -1:  # every rank has all of them
            zeros = PackedColumnParameter(data=zero_words, output_dim=1, packed_dim=1, **packed)
            scales = ChannelQuantScaleParameter(data=values, output_dim=1, weight_loader=loader)
        else:
            zeros = PackedvLLMParameter(
                data=zero_words, input_dim=0, output_dim=1, packed_dim=1, **packed
            )
            scales = GroupQuantScaleParameter(
                data=values, input_dim=0, output_dim=1, weight_loader=loader
            )
        order = _Order(
            data=torch.full((k,), -1, dtype=torch.int32), input_dim=0, weight_loader=loader
        )
        for name, parameter in (
            ("qweight", codes), ("qzeros", zeros), ("scales", scales), ("g_idx", order)
        ):  # fmt: skip
            layer.register_parameter(name, parameter)
        self._dtype, self._split = params_dtype, split

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        """Pack in place.

        Raises:
            ValueError: the tensors do not fit together.
        """
        names = ("qweight", "qzeros", "scales", "g_idx")
        found = {name: getattr(layer, name).data for name in names}
        if bool((found["g_idx"] < 0).any()):  # none came from the file
            if self._config.act_order:
                raise ValueError(
                    "mixed_gemm: the file says act-order (desc_act=True), but vLLM loaded no "
                    "g_idx. Hint: serve the model with transformers"
                )
            del found["g_idx"]
        elif self._split:
            del found["g_idx"]  # numbers of the whole matrix; without act-order groups lie in a row
        tensors = LayerTensors(LoadedTensors("", found), "")
        codec = Gptq(self._config.full_config, CONFIG_FILE)
        decoded = codec.decode(tensors, codec.describe(tensors))
        weight = IntegerWeight.store(decoded, self._dtype)
        self._options = dict(weight.scheme.gemm_options)
        for name, values in (
            ("qweight", weight.b_packed),
            ("scales", weight.scales),
            ("qzeros", weight.zeros),
            ("g_idx", weight.permutation),
        ):
            replace(layer, name, values)

    def apply(self, layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        own = layer._parameters
        if own["g_idx"] is not None:
            x = x.index_select(-1, own["g_idx"])
        out: Tensor = torch.ops.mixed_gemm.fpA_intB_gemm(
            x, own["qweight"], own["scales"], own["qzeros"], bias, None, **self._options
        )
        return out
