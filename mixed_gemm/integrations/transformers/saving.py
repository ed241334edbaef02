"""What ``save_pretrained`` writes of a model with quantized layers: compressed-tensors, which stock
transformers, vLLM and SGLang read.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from torch import Tensor, nn

from ...formats.ct_encode import Groups, encode
from ...nn.conv_base import QuantizedConv2d
from ...nn.embedding import Embedding
from ...nn.linear import Linear
from .scaled_activation import ScaledActivation


def state_and_config(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """(tensors by name, quantization_config); None for the second where no linear and no embedding
    is quantized.

    Convolutions are written as the dense ones that they compute: the format knows linears only.
    """
    modules = dict(model.named_modules())
    layers = {name: x for name, x in modules.items() if isinstance(x, Linear | Embedding)}
    convs = {name: x for name, x in modules.items() if isinstance(x, QuantizedConv2d)}
    inside = tuple(f"{name}." for name in (*layers, *convs))
    state = {
        name: x for name, x in model.state_dict().items() if not name.startswith(inside or ("\0",))
    }
    for name, conv in convs.items():
        state |= {f"{name}.{part}": x for part, x in conv.to_float().state_dict().items()}
    from .names import file_names  # which imports transformers

    groups, in_files = Groups(), file_names(model, layers)
    for name, layer in layers.items():
        weight = layer.to_quantized_weight(name)
        groups.add(weight, in_files[name])
        state |= {f"{name}.{role}": x.contiguous() for role, x in encode(weight).items()}
    dense = [name for name, x in modules.items() if isinstance(x, nn.Linear) and name not in layers]
    scaled = any(isinstance(x, ScaledActivation) for x in modules.values())
    return state, groups.configuration(dense, own=scaled) if layers else None


def let_save_pretrained_write(model: nn.Module) -> None:
    """Give a model of transformers the quantizer that ``save_pretrained`` asks; nothing for others,
    and none of transformers is imported for them."""
    loaded = sys.modules.get("transformers.modeling_utils")
    if loaded is None or not isinstance(model, loaded.PreTrainedModel):
        return
    from .config import MixedGemmConfig
    from .quantizer import MixedGemmQuantizer

    if not any(isinstance(x, Linear | Embedding | QuantizedConv2d) for x in model.modules()):
        return
    source = state_and_config(model)[1]
    found, attached = MixedGemmConfig(source=source), cast(Any, model)
    attached.hf_quantizer = MixedGemmQuantizer(found, pre_quantized=True)
    if source is not None:
        attached.config.quantization_config = found
