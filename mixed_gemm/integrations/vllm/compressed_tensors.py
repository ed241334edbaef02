"""The quantization_config of compressed-tensors, as vLLM has it, with our method for layers of
experts. Linear layers choose a kernel from vLLM's lists (``offers.py``). Imports vLLM: only
``offers`` imports it.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
)

from .experts_choice import ServesExperts
from .experts_layout import Layout
from .experts_stored import compressed_tensors

NAMES = ("compressed-tensors",)


class MixedGemmCompressedTensorsConfig(ServesExperts, CompressedTensorsConfig):  # type: ignore[misc]
    """In the place of vLLM's."""

    def layout_of_experts(self, layer: Any, prefix: str) -> Layout | str | None:
        """None: experts that are not quantized, or several schemes in a layer.

        Args:
            layer, prefix: as of ``ServesExperts``.
        """
        names = (layer.ckpt_gate_proj_name, layer.ckpt_up_proj_name, layer.ckpt_down_proj_name)
        self._add_fused_moe_to_target_scheme_map()
        found = [self.get_scheme_dict(layer, f"{prefix}.0.{name}") for name in names]
        if found[0] is None or any(x != found[0] for x in found):
            return None
        return compressed_tensors(
            found[0]["weights"],
            found[0].get("input_activations"),
            found[0].get("format") or self.quant_format,
        )
