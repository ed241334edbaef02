"""The sources that a folder is written from: a model in memory, an open checkpoint, or a dense one
that is rounded on the way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..nn.base import QuantizedModule
from ..nn.conv_base import QuantizedConv2d
from ..nn.embedding import Embedding
from ..nn.linear import Linear
from ..ops.problem import DTYPES
from ..weights.exchange import QuantizedWeight
from .checkpoint import Checkpoint
from .ct_encode import OWN_ROLES, carried
from .experts import BY_ITSELF, left_out_by_others
from .gpt_oss import GptOss
from .inside import is_inside
from .kv_cache import kept_of
from .layer import LayerTensors
from .outline import Outline, outline_of

RECIPE = "mixed_gemm_recipe"  # the attribute of a model that says how it was quantized


class Source(Protocol):
    """The model that is written: layers one by one, other tensors, and the config."""

    layers: tuple[str, ...]
    ignore: tuple[str, ...]
    config: dict[str, Any]
    carried: dict[str, Any]
    own: dict[str, str]  # layer -> why other readers would leave it out, and say nothing

    def outline(self, name: str) -> Outline | None: ...
    def layer(self, name: str) -> QuantizedWeight: ...
    def plain(self) -> Iterator[tuple[str, Tensor]]: ...


class Stream(Source, Protocol):
    """A checkpoint whose layers are made while they are written: quantization.DenseCheckpoint."""

    path: Path
    files: Any


def tied_heads(model: nn.Module) -> frozenset[str]:
    """Names of linears that have the weight of a quantized embedding, where transformers knows that
    they are tied: no file has a tensor for them.

    Args:
        model: any; only models of transformers tie weights as they load.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    shared = {id(x._parameters.get("weight")) for x in modules.values() if isinstance(x, Embedding)}
    known = {
        f"{name}.{tied}".lstrip(".").removesuffix(".weight")
        for name, module in modules.items()
        for tied in getattr(module, "all_tied_weights_keys", None) or {}
    }
    return frozenset(
        name
        for name, module in modules.items()
        if name in known
        and isinstance(module, Linear)
        and id(module._parameters.get("weight")) in shared
    )


def dense_matrices(model: nn.Module, quantized: Collection[str]) -> tuple[str, ...]:
    """Names of the modules that multiply by a dense matrix, for the list of what other readers are
    not to look for packed: linears, and routers of experts, which are linears elsewhere.

    Args:
        model: any. quantized: names of its quantized layers.
    """
    found = []
    for name, module in model.named_modules(remove_duplicate=False):
        weight = module._parameters.get("weight")
        is_matrix = weight is not None and weight.dim() == 2
        is_table = isinstance(module, nn.Embedding)
        if isinstance(module, nn.Linear) or (is_matrix and not is_table):
            found.append(name)
    return tuple(name for name in found if name not in quantized)


def state_of_others(model: nn.Module, written: Collection[str]) -> dict[str, Tensor]:
    """The tensors of a model that files have as they are, those of layers among them that were
    quantized and have a dense weight now.

    Args:
        model: any. written: names of the modules whose tensors are written otherwise.
    """
    state = {x: t for x, t in model.state_dict().items() if not is_inside(x, written)}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, QuantizedModule) and name not in written:
            state.pop(f"{name}._extra_state", None)  # which says how to read a packed weight
            if getattr(module, "is_conv1d", False) and f"{name}.weight" in state:
                state[f"{name}.weight"] = state[f"{name}.weight"].t()  # as a Conv1D has it
    return state


class FromModel:
    def __init__(self, model: nn.Module) -> None:
        modules = dict(model.named_modules(remove_duplicate=False))
        _refuse_adapters(modules)
        self._heads = tied_heads(model)
        self._quantized = {
            x: m
            for x, m in modules.items()
            if isinstance(m, Linear | Embedding) and m.is_quantized and x not in self._heads
        }
        self.layers = tuple(self._quantized)
        self._convs = {
            x: m for x, m in modules.items() if isinstance(m, QuantizedConv2d) and m.is_quantized
        }
        self.ignore = dense_matrices(model, self._quantized)
        to_dict = getattr(getattr(model, "config", None), "to_dict", dict)
        self.config: dict[str, Any] = to_dict()
        found = getattr(getattr(model, "config", None), "quantization_config", None)
        self._model, self._kept = model, kept_of(model)
        self.carried = carried(found, has_scales=bool(self._kept))
        self.recipe: Mapping[str, Any] | None = getattr(model, RECIPE, None)
        self.own = left_out_by_others(model, self.layers)

    def outline(self, name: str) -> Outline | None:
        return outline_of(self._quantized[name])

    def layer(self, name: str) -> QuantizedWeight:
        return self._quantized[name].to_quantized_weight(name)

    @property
    def is_spread(self) -> bool:
        """Whether it lies on several ranks, which then read it together."""
        tensors = (*self._model.parameters(), *self._model.buffers())
        return any(hasattr(x, "full_tensor") for x in tensors) or any(
            getattr(x, "is_spread", False) for x in self._model.modules()
        )

    def plain(self) -> Iterator[tuple[str, Tensor]]:
        tied = getattr(self._model, "all_tied_weights_keys", None) or {}  # transformers ties again
        written = {*self.layers, *self._convs, *self._heads}
        state = state_of_others(self._model, written)
        _refuse_scaled_activations(state, (*self.layers, *self._convs, *self._heads))
        for name, tensor in state.items():
            if name not in tied and isinstance(tensor, Tensor):
                whole = getattr(tensor, "full_tensor", None)
                yield name, tensor if whole is None else whole()
        for name, conv in self._convs.items():  # dense: the format knows linears only
            dense = conv.to_float().state_dict()
            yield from ((f"{name}.{part}", tensor) for part, tensor in dense.items())
        yield from self._kept.items()


class FromCheckpoint:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self.layers = tuple(checkpoint.layers)
        self.config = checkpoint.config
        self.carried = carried(checkpoint.quantization_config, has_scales=True)
        weights = [x for x in checkpoint.tensors if x.endswith(".weight")]
        matrices = [x for x in weights if len(checkpoint.tensor_shape(x)) == 2]
        self.ignore = tuple(name.removesuffix(".weight") for name in matrices)
        self._checkpoint = checkpoint
        self.recipe = _recipe_in(checkpoint.config)
        # Files of its model hold all experts of a layer in one tensor.
        self.own = dict.fromkeys(self.layers, BY_ITSELF) if _is_gpt_oss(checkpoint) else {}

    def outline(self, name: str) -> Outline | None:
        info, codec = self._checkpoint.layers[name], self._checkpoint.codec
        layer = LayerTensors(self._checkpoint.index, name)
        dtype = codec.dtype_of(layer) or _dtype_in(self.config)
        has_more = any(map(layer.has, OWN_ROLES))
        kind, has_bias = codec.module_of(name), layer.has("bias")
        return Outline(info.scheme, info.shape, dtype, kind, has_more, has_bias)

    def layer(self, name: str) -> QuantizedWeight:
        return self._checkpoint.layer(name)

    def plain(self) -> Iterator[tuple[str, Tensor]]:
        _refuse_scaled_activations(self._checkpoint.tensors, ())
        return ((name, self._checkpoint.tensor(name)) for name in self._checkpoint.tensors)


def _is_gpt_oss(checkpoint: Checkpoint) -> bool:
    return isinstance(checkpoint.codec, GptOss)


def _dtype_in(config: Mapping[str, Any]) -> torch.dtype:
    """The dtype that the configuration of a model states; float32 where it states none."""
    named = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
    return next((x for x in DTYPES if str(x).removeprefix("torch.") == named), torch.float32)


def _recipe_in(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The recipe in a folder of this library, which goes along when it is written again."""
    found: Any = config
    for key in ("quantization_config", "mixed_gemm", "recipe"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _refuse_adapters(modules: Mapping[str, nn.Module]) -> None:
    """Raise ValueError where peft put something around a layer: its tensors would be written under
    names that no reader knows."""
    for name, module in modules.items():
        if hasattr(module, "base_layer") and hasattr(module, "active_adapters"):
            raise ValueError(
                f"save_checkpoint: {name} has an adapter on it, which the format has no place for. "
                "Hint: merge_and_unload() of peft makes one layer of both; save_pretrained of peft "
                "keeps the adapter apart, for mixed_gemm.from_pretrained"
            )


def _refuse_scaled_activations(names: Iterable[str], layers: Iterable[str]) -> None:
    own = {f"{layer}.scales" for layer in layers}
    for name in names:
        if name.endswith(".scales") and name not in own:
            raise ValueError(
                f"{name}: AutoAWQ scales this activation, which compressed-tensors has no place "
                "for. Hint: save_pretrained of a model from mixed_gemm.from_pretrained keeps it"
            )
