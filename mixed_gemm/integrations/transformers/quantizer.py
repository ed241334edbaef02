"""The quantizer that transformers drives: which modules to swap before it loads the files, and what
to make of them afterwards.
"""

from __future__ import annotations

import re
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.quantizers.base import HfQuantizer

from ...formats.codec import Codec
from ...formats.config import model_config, quantization_config
from ...formats.detect import detect
from ...formats.errors import CheckpointError
from ...formats.experts import is_expert, refusal
from ...formats.index import TensorIndex
from ...formats.layer import LayerInfo, LayerTensors, modules_with
from ...formats.sources import tied_heads
from ...formats.unread import check_unread
from ...nn.embedding import Embedding
from ...nn.expert_tensors import together
from ...nn.experts import Experts, stack_experts
from ...nn.linear import Linear
from ...quantization.conv1d import as_conv1d, as_linear, is_conv1d
from ...quantization.fuse import fuse_
from ...quantization.fuse_report import warn_unless_fused
from ...quantization.plain import why_no_product
from ...quantization.plain_rows import why_not_rows
from .config import MixedGemmConfig
from .dense import Chosen, choose, wait_for_embeddings
from .experts import (
    STACKED,
    are_multiplied_together,
    device_near,
    has_experts,
    leave_apart,
    take_apart_for,
)
from .gguf import file_of
from .kept import keep_for_saving
from .kept_dtype import asked_dtypes, give_dtypes, kept_dtypes
from .names import attribute_renamings, module_names, weights_in
from .offload import Place
from .pending import PendingLinear, pending, warn_of_differences
from .read_experts import read_experts
from .saving import tell_how_to_load, what_is_saved
from .scaled_activation import leftover_scales, swap_activations
from .tied_head import PendingHead
from .tying import tie_again, untie

_WEIGHT = ".weight"


class MixedGemmQuantizer(HfQuantizer):
    """Two cases: quantized files (``pre_quantized``, whose config is the source), and unquantized
    ones.
    """

    requires_calibration = False
    quantization_config: MixedGemmConfig

    def __init__(self, quantization_config: MixedGemmConfig, **kwargs: Any) -> None:
        super().__init__(quantization_config, **kwargs)
        self._chosen = Chosen()
        self._dense: tuple[Any, list[Path]] | None = None  # the model and its unquantized files
        # Layer of the model that was saved last -> why only we read it.
        self.own: dict[str, str] = {}
        # These modules are to be swapped as soon as transformers says how it renames the keys of
        # the files.
        self._waiting: tuple[Any, Codec, TensorIndex] | None = None
        self._dtypes: dict[str, torch.dtype] = {}  # parameters have them before they are loaded
        self._heads: dict[str, str] = {}  # output head -> the embedding that it is tied to
        self._has_experts = False
        self._model: weakref.ref[Any] | None = None  # that was loaded
        self._device_map: Any = None
        self._plans: list[dict[str, str]] = []  # tensor-parallel plans that name waiting layers

    def validate_environment(self, *args: Any, device_map: Any = None, **kwargs: Any) -> None:
        """Refuse offloading what is quantized on the way: transformers writes it as it comes."""
        if self.pre_quantized:
            return
        self._device_map = device_map
        places = set(device_map.values()) if isinstance(device_map, dict) else set()
        if "disk" in places or ("cpu" in places and len(places) > 1):
            raise ValueError(
                "mixed_gemm: device_map must not offload to cpu or disk while a model is "
                f"quantized, got {device_map}. Hint: save the quantized model first, and load that"
            )

    def _placed(self) -> dict[str, Any] | None:
        """The device map that transformers has settled on."""
        return self._device_map if isinstance(self._device_map, dict) else None

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        """Adapters on top train; the quantized weights do not."""
        return True

    @property
    def is_compileable(self) -> bool:
        """Whether ``generate`` may compile a step as one graph, which experts that are computed one
        by one break."""
        model = None if self._model is None else self._model()
        return not self._has_experts or (model is not None and are_multiplied_together(model))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None}  # a copy knows no model: it does not compile

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: list[str] | None = None, **kwargs: Any
    ) -> Any:
        if not self.pre_quantized:
            dense = [Path(file) for file in checkpoint_files or ()]
            self._chosen = choose(model, self.quantization_config, dense)
            self._dense = model, dense
            return model
        source = self.quantization_config.source or {}
        files = [Path(file) for file in checkpoint_files or ()]
        if not files and (file := file_of(source)) is not None:
            files = [file]
        if not files:
            raise ValueError(
                "mixed_gemm: a quantized model is loaded from files, not from a state_dict"
            )
        where = files[0].parent
        index = TensorIndex(where, files)
        source = index.config.get("quantization_config", source)
        _, said_in = quantization_config(where, model_config(where))
        try:
            codec = detect(source, said_in, index)
        except ValueError as error:
            raise CheckpointError(said_in, "", str(error)) from error
        self._waiting = model, codec, index
        return model

    def update_weight_conversions(self, weight_conversions: Any, *model: Any) -> Any:
        """Take the renamings that transformers is going to load with, ``key_mapping`` included, and
        put placeholders where the files have quantized tensors.

        Args:
            weight_conversions: of transformers. model: since transformers 5.24.
        """
        found = super().update_weight_conversions(weight_conversions, *model)
        if self._dense is not None:
            (owner, files), self._dense = self._dense, None
            found = leave_apart(owner, found)
            readers = read_experts(
                owner, self._chosen.stacks, files, found, self.get_quantize_ops(), self._placed
            )
            found = [*readers, *found]
            self._heads = wait_for_embeddings(owner, self._chosen, files, found)
        if self._waiting is not None:
            (owner, codec, index), self._waiting = self._waiting, None
            found = take_apart_for(owner, modules_with(index, codec.anchor), found)
            found = [*attribute_renamings(codec.roles), *found]
            self._swap(owner, codec, index, found)
            for plan in self._plans:
                self.update_parallel_plan(owner, plan)
        return found

    def _swap(self, model: Any, codec: Codec, index: TensorIndex, mapping: list[Any]) -> None:
        """Put a placeholder for every module that has quantized tensors in the files.

        Args:
            mapping: how transformers converts the keys of the files.
        """
        found = modules_with(index, codec.anchor)
        if not found:
            check_unread(index, codec, found)  # which knows experts in one tensor
            raise CheckpointError(
                index.path,
                "",
                f"is {codec.title} by its configuration, but no tensor is a {codec.anchor}",
            )
        ignored = model._keys_to_ignore_on_load_unexpected or ()
        asked, dtype = self.quantization_config, model.dtype
        embeddings: frozenset[str] = getattr(codec, "embeddings", frozenset())
        # Name in the model -> what is there.
        places: dict[str, tuple[LayerTensors, nn.Module, LayerInfo]] = {}
        for name, target in module_names(model, mapping, found):
            layer = LayerTensors(index, name)
            module = _get(model, target)
            if module is None and any(re.search(x, f"{target}.weight") for x in ignored):
                continue
            dense = as_linear(module) if module is not None and is_conv1d(module) else module
            wanted = nn.Embedding if name in embeddings else nn.Linear
            if module is None or not isinstance(dense, wanted):
                raise layer.error(codec.anchor, _why_no_place(model, target, wanted, name))
            if reason := _why_no_rows_or_product(dense):
                raise layer.error(codec.anchor, f"is quantized, but {target} {reason}")
            places[target] = layer, module, _check(layer, codec, dense)
        stored = weights_in(model, index.names(), mapping)
        try:
            self._heads = untie(
                model, places, lambda parameter: parameter.removesuffix(_WEIGHT) in stored
            )
        except ValueError as error:
            raise CheckpointError(index.path, "", str(error)) from error
        kept = kept_dtypes(model, dtype)
        self._dtypes = asked_dtypes(model, kept)
        for target, (layer, module, info) in places.items():
            new = pending(layer.name, codec, layer, module, asked.weight_only, asked.float8)
            new.info = info
            new.dtype_of_layer = kept(f"{target}.weight") or new.dtype_of_layer
            new.is_multiplied = target in self._heads.values()
            model.set_submodule(target, new)
            new.not_unexpected = (model, target)
            if new.reads_itself:
                known = set(model._keys_to_ignore_on_load_unexpected or ())
                model._keys_to_ignore_on_load_unexpected = known | {STACKED}
        for head in self._heads:
            waiting: Any = model.get_submodule(head)
            model.set_submodule(head, PendingHead(waiting))
        check_unread(index, codec, found)
        keep_for_saving(model, codec, index, mapping)
        scaled = leftover_scales(index.names(), found)
        swap_activations(model, index, module_names(model, mapping, scaled), dtype)
        infos = [info for _, _, info in places.values()]
        warn_of_differences(codec, infos, index.path, asked.float8)

    def update_parallel_plan(self, model: Any, plan: dict[str, str]) -> None:
        """Each rank reads its shard of quantized layers, see sharding.py."""
        if self._waiting is not None:
            self._plans.append(plan)
            return
        super().update_parallel_plan(model, plan)
        if not plan and not has_experts(model):
            return
        quantized: dict[str, Any] = {
            name: None for name, x in model.named_modules() if isinstance(x, PendingLinear)
        }
        for name, scheme in self._chosen.schemes.items():
            if isinstance(model.get_submodule(name), nn.Linear | nn.Embedding):
                quantized[name] = scheme
        if quantized and has_experts(model):
            from .sharded_experts import let_experts_be_shared

            let_experts_be_shared(model, plan, quantized)
        if quantized and plan:
            from .sharding import let_layers_be_sharded

            let_layers_be_sharded(model, plan, quantized)

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        if self._waiting is not None:
            raise RuntimeError(
                "mixed_gemm: transformers did not say how it renames the keys of the files, so no "
                "quantized layer was loaded. Hint: another release of transformers"
            )
        modules = dict(model.named_modules())
        for name in [name for name, x in modules.items() if isinstance(x, PendingLinear)]:
            module: Any = modules.pop(name)  # whose tensors go when it is done
            place, made = Place.of(module), module.finish()
            if module.reads_itself:
                made.to(device_near(model, name))
            owner, _, child = name.rpartition(".")
            setattr(modules[owner], child, made if place is None else place.put(name, made))
            self._finish_heads(model, name, made, place)
        if self.pre_quantized:
            give_dtypes(model, self._dtypes)
        else:
            for name in set(self._heads.values()):
                embedding: Any = model.get_submodule(name)
                self._finish_heads(model, name, embedding, Place.of(embedding))
        tie_again(model, self._heads)
        tell_how_to_load(model)
        if any(x.spread is not None for x in model.modules() if isinstance(x, Experts)):
            from .sharded_experts import settle_experts

            settle_experts(model)
        stack_experts(model)
        self._has_experts, self._model = has_experts(model), weakref.ref(model)
        if self.quantization_config.fuse:
            warn_unless_fused("MixedGemmConfig", fuse_(model))
        return model

    def _finish_heads(self, model: Any, name: str, embedding: Any, place: Place | None) -> None:
        """Let the heads that wait for an embedding multiply by its weight."""
        for head in (x for x, table in self._heads.items() if table == name):
            waiting: Any = model.get_submodule(head)
            model.set_submodule(head, waiting.finish(head, embedding.weight, place))

    def get_state_dict_and_metadata(self, model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what ``save_pretrained`` writes; it asks before it writes the config."""
        saved = what_is_saved(model)
        state, found, self.own = saved.state, saved.config, saved.own
        self.quantization_config = MixedGemmConfig(source=found)
        if found is not None:
            model.config.quantization_config = self.quantization_config
        elif hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        return state, {}

    # --- unquantized files ---------------------------------------------------------------------

    def param_needs_quantization(self, model: Any, param_name: str, **kwargs: Any) -> bool:
        module, _, parameter = param_name.rpartition(".")
        return parameter == "weight" and module in self._chosen.schemes

    def get_quantize_ops(self) -> Any:
        from .convert import QuantizeWeight

        return QuantizeWeight(self._chosen)

    def _dequantize(self, model: Any, dtype: torch.dtype | None = None) -> Any:
        heads = tied_heads(model)
        for name, module in list(model.named_modules()):
            if isinstance(module, Linear | Embedding):
                dense: Any = module.to_float().to(dtype)
                is_conv1d = getattr(module, "is_conv1d", False)
                model.set_submodule(name, as_conv1d(dense) if is_conv1d else dense)
        for name, module in list(model.named_modules()):
            if isinstance(module, Experts) and module.in_one_tensor:  # files have no other form
                whole = together(module)
                if whole is not None:
                    model.set_submodule(name, whole)
        if heads:
            model.tie_weights(recompute_mapping=False)
        return model


def _get(model: nn.Module, name: str) -> nn.Module | None:
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None


def _why_no_rows_or_product(module: nn.Module) -> str:
    """Tell why a quantized layer would not compute what a module of the model does; empty when it
    would."""
    if isinstance(module, nn.Embedding):
        return why_not_rows(module)
    return why_no_product(module)


def _why_no_place(model: nn.Module, target: str, wanted: type[nn.Module], name: str) -> str:
    """Tell why a quantized layer of the files has no place in the model.

    Args:
        target: what it is called in the model. wanted: nn.Linear or nn.Embedding. name: in the
            files.
    """
    owner, _, part = target.rpartition(".")
    module, holder = _get(model, target), _get(model, owner)
    is_joined = getattr(getattr(holder, part, None), "ndim", 2) == 3
    if is_joined or is_expert(name):
        who = type(model).__name__ if holder is None else type(holder).__name__
        return refusal(f"them in a {who}")
    kind = "no module" if module is None else f"a {type(module).__name__}"
    return f"is quantized, but {target} is {kind} of the model, not a {wanted.__name__}"


def _check(layer: LayerTensors, codec: Codec, module: nn.Linear | nn.Embedding) -> LayerInfo:
    """Return the LayerInfo, when the module has its shape and its bias."""
    info = codec.describe(layer)
    shape = (info.out_features, info.in_features)
    if shape != tuple(module.weight.shape):
        raise layer.error(
            codec.anchor,
            f"is a weight of {shape}, and the model has {tuple(module.weight.shape)}",
        )
    if getattr(module, "bias", None) is not None and not layer.has("bias"):
        raise layer.error("bias", "is missing, and the model has one")
    return info
