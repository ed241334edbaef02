"""Layers of experts as vLLM loads them from files of compressed-tensors, GPTQ, AWQ and gpt-oss:
``fused_moe`` behind vLLM's router. Imports vLLM: only ``experts_choice`` imports it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase

from ...nn.fused_moe import fused_moe
from ...weights.scheme import Scheme
from ...weights.stacked import StackedWeight
from .experts_asked import Asked, activation_of
from .experts_integers import order_loader
from .layers import replace


class MixedGemmExpertsMethod(FusedMoEMethodBase):  # type: ignore[misc]
    """``fused_moe`` on the experts of a layer.

    vLLM chooses the experts of each token, adds up what the ranks have, and runs shared experts.

    Args:
        asked: what ``why_not_experts`` has no word against.
    """

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked.moe)
        layout = asked.layout
        assert not isinstance(layout, str)
        activation = activation_of(asked.moe, layout.in_turns)
        assert isinstance(activation, dict)
        self._layout, self._activation, self._shapes = layout, activation, asked.shapes
        self._schemes: dict[str, Scheme] = {}  # w13 and w2 have one each once they are packed
        if layout.in_turns:
            # vLLM's loader of gpt-oss asks for it where a file has each expert by itself.
            self.weight_dtype = "gpt_oss_mxfp4"

    def create_weights(
        self,
        layer: nn.Module,
        num_experts: int,
        hidden_size: int,
        intermediate_size_per_partition: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        """Make parameters as the file has them, an expert behind the other.

        Raises:
            ValueError: vLLM has other sizes than it told before.
        """
        sizes = (hidden_size, intermediate_size_per_partition)
        if sizes != self._shapes["w2"]:
            raise ValueError(
                f"mixed_gemm: experts must be of {self._shapes['w2']} as vLLM told before, got "
                f"{sizes}"
            )
        loader = extra_weight_attrs["weight_loader"]
        for stem, (n, k) in self._shapes.items():
            parts = self._layout.parts(num_experts, n, k, params_dtype, stem)
            for name, part in parts.items():
                parameter = nn.Parameter(part.values, requires_grad=False)
                # vLLM's loader of experts asks a parameter for these.
                parameter.__dict__.update(
                    weight_loader=order_loader(layer) if part.is_order else loader,
                    quant_method=part.shares,
                    is_transposed=part.is_transposed,
                )
                layer.register_parameter(f"{stem}_{name}", parameter)

    def process_weights_after_loading(self, layer: nn.Module) -> None:
        """Pack in place, one expert after the other.

        Raises:
            ValueError: a value is none that the scheme has.
        """
        for stem, (n, _) in self._shapes.items():
            prefix = f"{stem}_"
            names = [x.removeprefix(prefix) for x in layer._parameters if x.startswith(prefix)]
            found = {x: getattr(layer, prefix + x).data for x in names}
            packed = self._layout.packed(found, n, self.moe.in_dtype, stem)
            packed.scheme.work_out_options()
            self._schemes[stem] = packed.scheme
            made = {self._layout.names[part]: x for part, x in packed.tensors.items()}
            if stem == "w2" and self.moe.moe_parallel_config.tp_rank:
                made.pop("bias", None)  # the sum over ranks has it from the first
            for name in {*names, *made}:
                replace(layer, prefix + name, made.get(name))

    def get_fused_moe_quant_config(self, layer: nn.Module) -> None:
        """Return None: it is what vLLM's own kernels would be told."""
        return None

    def apply(
        self,
        layer: nn.Module,
        x: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        shared_experts: Any,
        shared_experts_input: Tensor | None,
    ) -> Tensor:
        """The sum of the results of each token's experts.

        Args:
            x: ``[T, hidden size]``. topk_weights: float32, topk_ids: int32 ``[T, top_k]``.
            shared_experts, shared_experts_input: for kernels that run shared experts themselves;
                vLLM has run them.
        """
        owner: Any = layer
        return fused_moe(
            x,
            self._stacked(layer, "w13"),
            self._stacked(layer, "w2"),
            topk_weights,
            topk_ids,
            expert_map=owner.expert_map,
            apply_router_weight_on_input=owner.apply_router_weight_on_input,
            **self._activation,
        )

    def _stacked(self, layer: nn.Module, stem: str) -> StackedWeight:
        own: Any = layer._parameters
        names = self._layout.names
        parts = {part: own.get(f"{stem}_{name}") for part, name in names.items()}
        return StackedWeight(scheme=self._schemes[stem], **parts)
