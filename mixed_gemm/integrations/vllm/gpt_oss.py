"""The quantization_config of gpt-oss in MXFP4, as vLLM has it, with our method for layers of
experts. Imports vLLM: only ``offers`` imports it.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.layers.quantization.mxfp4 import GptOssMxfp4Config

from .experts_choice import ServesExperts
from .experts_gpt_oss import GptOssLayout
from .experts_layout import Layout

NAMES = ("gpt_oss_mxfp4",)


class MixedGemmGptOssConfig(ServesExperts, GptOssMxfp4Config):  # type: ignore[misc]
    """In the place of vLLM's."""

    def layout_of_experts(self, layer: Any, prefix: str) -> Layout | str | None:
        """The one layout that these files have.

        Args:
            layer, prefix: as of ``ServesExperts``.
        """
        return GptOssLayout()
