"""The quantization_config of AWQ files, as vLLM has it, with our method for layers of experts.
Imports vLLM: only ``offers`` imports it.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig

from .experts_choice import ServesExperts
from .experts_integers import integers
from .experts_layout import Layout

NAMES = ("awq", "auto_awq")  # the first on a CPU


class MixedGemmAutoAWQConfig(ServesExperts, AutoAWQConfig):  # type: ignore[misc]
    """In the place of vLLM's."""

    def layout_of_experts(self, layer: Any, prefix: str) -> Layout | str | None:
        """None: experts that are not quantized, as vLLM tells them, by a part of their name.

        Args:
            layer, prefix: as of ``ServesExperts``.
        """
        if any(name in prefix for name in self.modules_to_not_convert or ()):
            return None
        return integers(self.full_config, "awq")
