"""Who runs a layer of experts: our method where $MIXED_GEMM_VLLM puts it first, or where vLLM has
none. Imports vLLM: only the configurations of files import it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.platforms import current_platform

from . import place
from .experts import MixedGemmExpertsMethod
from .experts_asked import Asked, why_not_experts
from .experts_layout import Layout
from .log import answer, answer_ahead, say_once
from .measured import scheme_of

METHOD = MixedGemmExpertsMethod.__name__


class ServesExperts:
    """The base of our configurations, before one of vLLM's: they answer as vLLM's does, but for
    layers of experts that we serve."""

    def layout_of_experts(self, layer: Any, prefix: str) -> Layout | str | None:
        """How the file has the experts of a layer, or why that is nothing that we read; None where
        vLLM's own configuration answers without a word, as for experts that are not quantized.

        Args:
            layer: vLLM's ``RoutedExperts``. prefix: its name.
        """
        raise NotImplementedError(f"{type(self).__name__} must say how its files have experts")

    def get_quant_method(self, layer: nn.Module, prefix: str) -> Any:
        """Return the method of a layer; raises what vLLM's own raises where ours is none either.

        Args:
            layer: of vLLM. prefix: its name.
        """
        above: Any = super()

        def own() -> Any:
            return above.get_quant_method(layer, prefix)

        if not isinstance(layer, RoutedExperts):
            return own()
        return method_of_experts(layer, lambda: self.layout_of_experts(layer, prefix), own)


def method_of_experts(
    layer: Any, layout: Callable[[], Layout | str | None], own: Callable[[], Any]
) -> Any:
    """Return the method of a layer; raises what vLLM's own raises where ours is none either.

    Args:
        layer: vLLM's ``RoutedExperts``.
        layout: gives what ``ServesExperts.layout_of_experts`` does.
        own: asks vLLM's own configuration.
    """
    asked = None if place() == "off" else _asked(layer, layout)
    if asked is None or not answer(METHOD, why_not_experts, asked)[0]:
        return own()
    what = scheme_of("experts", asked)
    if _is_first(asked):
        say_once(f"mixed_gemm: {METHOD} runs {what}")
        return MixedGemmExpertsMethod(asked)
    try:
        return own()
    except Exception as error:  # vLLM has none of its own for the layer
        reason = f"{type(error).__name__}: {error}"
        say_once(f"mixed_gemm: {METHOD} runs {what}, which vLLM refuses: {reason}")
        return MixedGemmExpertsMethod(asked)


def _is_first(asked: Asked) -> bool:
    if asked.on_cpu and not isinstance(asked.layout, str) and asked.layout.ends_on_cpu:
        return True
    if place() == "auto" and not asked.on_cpu:
        return answer_ahead(METHOD, "experts", asked)[0]
    return place() == "first"


def _asked(layer: Any, layout: Callable[[], Layout | str | None]) -> Asked | None:
    try:
        found = layout()
        if found is None:
            return None
        return Asked(
            layout=found,
            moe=layer.moe_config,
            on_input=bool(layer.apply_router_weight_on_input),
            on_cpu=current_platform.is_cpu(),
        )
    except Exception as error:  # whatever another vLLM may raise
        say_once(f"{METHOD} cannot read off a layer: {type(error).__name__}: {error}")
        return None
