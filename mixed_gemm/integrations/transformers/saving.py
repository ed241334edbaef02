"""The files that ``save_pretrained`` writes for a model with quantized layers: compressed-tensors,
which stock transformers, vLLM and SGLang read, bitsandbytes, or the MXFP4 of gpt-oss.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any, cast

from torch import Tensor, nn

from ..._freed import packed
from ...formats.ct_encode import carried
from ...formats.experts import left_out_by_others
from ...formats.kv_cache import kept_of
from ...formats.outline import Outline, outline_of
from ...formats.readme import write_readme
from ...formats.save import tell_what_is_lost
from ...formats.sources import RECIPE, dense_matrices, state_of_others, tied_heads
from ...formats.target import CONFIG
from ...formats.written import written_as
from ...nn.conv_base import QuantizedConv2d
from ...nn.embedding import Embedding
from ...nn.linear import Linear
from ...weights.exchange import QuantizedWeight
from .scaled_activation import ScaledActivation


@dataclass(frozen=True)
class Saved:
    """The content of a model's files.

    state: tensors by name. config: the quantization_config, None where no linear and no embedding
    is quantized. own: layer -> why only this library reads it.
    """

    state: dict[str, Tensor]
    config: dict[str, Any] | None
    own: dict[str, str]


def what_is_saved(model: nn.Module, tensors: bool = True) -> Saved:
    """Write convolutions as the dense ones that they compute: the format knows linears only.

    Args:
        model: of transformers.
        tensors: whether tensors are wanted, too, or the configuration alone.
    """
    modules = dict(model.named_modules())
    layers = _layers(model)
    convs = {
        name: x for name, x in modules.items() if isinstance(x, QuantizedConv2d) and x.is_quantized
    }
    state = _state_of_others(model, layers, convs) if tensors else {}
    from .experts import layers_of_experts, why_own_expert  # these import transformers
    from .names import file_names

    dense: tuple[str, ...] = dense_matrices(model, layers)
    # Some readers ask by the names of the files, and some by those of the model.
    dense = tuple(dict.fromkeys((*dense, *(file_names(model, dense) or {}).values())))
    scaled = [name for name, x in modules.items() if isinstance(x, ScaledActivation)]
    source = getattr(getattr(model, "config", None), "quantization_config", None)
    recipe = getattr(model, RECIPE, None)
    scales = kept_of(model)
    kept = carried(source, has_scales=bool(scales))
    state |= scales
    outlines = {name: outline_of(layer) for name, layer in layers.items()}
    config = model.config.to_dict()  # type: ignore[operator,union-attr]  # as transformers has it
    groups = written_as(outlines, dense, kept, own=bool(scaled), config=config)
    left_out = {} if groups.joins_experts else left_out_by_others(model, layers)
    in_files = file_names(model, layers) or {name: name for name in layers}
    experts = layers_of_experts(model)
    alone = {in_files[name]: reason for name, reason in left_out.items()}
    alike: dict[Outline, QuantizedWeight] = {}
    for name, layer in layers.items():
        outline = outlines[name]
        weight = alike.get(outline)
        if weight is None:
            weight = layer.to_quantized_weight(name)
            packed(weight.q.nbytes)
        if not tensors and outline.says_all and not hasattr(layer.weight, "placements"):
            alike[outline] = weight
        groups.add(weight, name, in_files[name])
        if name in experts and (reason := why_own_expert(layer.scheme)):
            alone.setdefault(in_files[name], reason)
        if tensors:
            state |= {key: x.contiguous() for key, x in groups.encode(weight)}
    is_own = bool(scaled or left_out)
    said = groups.configuration(dense, is_own, kept, recipe) if layers else None
    whole = dict.fromkeys(scaled, "an activation function with scales (AutoAWQ)")
    return Saved(state, said, {**alone, **groups.own, **whole})


def _state_of_others(
    model: nn.Module, layers: Iterable[str], convs: Mapping[str, QuantizedConv2d]
) -> dict[str, Tensor]:
    """Return the tensors beside those of quantized layers; convolutions are dense ones there."""
    state = state_of_others(model, {*layers, *convs, *tied_heads(model)})
    for name, conv in convs.items():
        state |= {f"{name}.{part}": x for part, x in conv.to_float().state_dict().items()}
    return state


def _layers(model: nn.Module) -> dict[str, Linear | Embedding]:
    heads = tied_heads(model)
    return {
        name: x
        for name, x in model.named_modules()
        if isinstance(x, Linear | Embedding) and x.is_quantized and name not in heads
    }


def save_pretrained(self: Any, save_directory: str | Path, *args: Any, **kwargs: Any) -> None:
    """Save as the class of the model does, with a README.md where other readers refuse the folder,
    and a warning of what its own files asked for and these do not.
    Arguments as of transformers' own; ``save_original_format`` is False where that format joins,
    splits or permutes layers that are quantized."""
    from .names import file_names

    tell_what_is_lost(self, save_directory)
    if file_names(self, _layers(self)) is None:
        kwargs["save_original_format"] = False
    type(self).save_pretrained(self, save_directory, *args, **kwargs)
    folder, quantizer = Path(save_directory), getattr(self, "hf_quantizer", None)
    own = getattr(quantizer, "own", {})
    is_main = args[0] if args else kwargs.get("is_main_process", True)
    if own and is_main and _is_first_rank() and (folder / CONFIG).exists():
        write_readme(folder, own, _auto_class(self))


def _is_first_rank() -> bool:
    """Tell whether this process writes, of all that save the model together: transformers' rule."""
    import torch.distributed as dist

    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def _auto_class(model: Any) -> str:
    """Return the class of transformers that would load it; its own where there is none."""
    import transformers

    for name in ("AutoModelForCausalLM", "AutoModelForImageClassification", "AutoModel"):
        mapping = getattr(transformers, name)._model_mapping
        # It is looked up by its configuration: the table as a whole may name classes that do not
        # exist.
        found = mapping.get(type(model.config), ())
        if type(model) in (found if isinstance(found, tuple) else (found,)):
            return name
    return type(model).__name__


def tell_how_to_load(model: Any) -> None:
    """Let ``save_pretrained`` of this model write a README.md, too: it asks the quantizer for
    tensors and for the configuration, but never says where they go. A method of the object, which
    copies of it keep.

    Args:
        model: of transformers.
    """
    model.save_pretrained = MethodType(save_pretrained, model)


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
    source = what_is_saved(model, tensors=False).config
    found, attached = MixedGemmConfig(source=source), cast(Any, model)
    attached.hf_quantizer = MixedGemmQuantizer(found, pre_quantized=True)
    tell_how_to_load(model)
    if source is not None:
        attached.config.quantization_config = found
