"""The quantization_config of GPTQ files that vLLM reads, as vLLM has it, with our method for layers
of experts. Imports vLLM: only ``offers`` and ``gptq`` import it.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig

from .experts_choice import ServesExperts, method_of_experts
from .experts_integers import integers
from .experts_layout import Layout

NAMES = ("auto_gptq",)


class MixedGemmAutoGPTQConfig(ServesExperts, AutoGPTQConfig):  # type: ignore[misc]
    """In the place of vLLM's."""

    def layout_of_experts(self, layer: Any, prefix: str) -> Layout | str | None:
        """None: experts that are not quantized.

        Args:
            layer, prefix: as of ``ServesExperts``.
        """
        return _layout(self)


def of_refused_file(config: Any, layer: nn.Module, prefix: str) -> Any:
    """Return the method of a layer that is no linear one in a file that vLLM refuses; None where it
    has no weights of the file.

    Args:
        config: ours of the file. layer, prefix: as of ``get_quant_method``.
    """
    if not isinstance(layer, RoutedExperts):
        return None

    def own() -> Any:
        return AutoGPTQConfig.from_config(config.full_config).get_quant_method(layer, prefix)

    return method_of_experts(layer, lambda: _layout(config), own)


def _layout(config: Any) -> Layout | str | None:
    """The list of quantized layers is empty where vLLM could not read it off the file."""
    quantized = config.modules_in_block_to_quantize
    if quantized and not any("experts." in str(name) for name in quantized):
        return None
    return integers(config.full_config, "gptq")
