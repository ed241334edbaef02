"""The quantizer that transformers drives: which modules to swap before it loads the files, and what
to make of them afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.quantizers_utils import should_convert_module

from ...formats.detect import Format, detect
from ...formats.errors import CheckpointError
from ...formats.index import TensorIndex
from ...formats.layer import LayerTensors, modules_with
from ...formats.native import Native
from ...nn.linear import Linear
from ...weights.state import FLOATS, refuse_bad_permutation, refuse_non_finite
from .config import MixedGemmConfig
from .names import module_names
from .pending import PendingLinear, warn_of_differences
from .scaled_activation import leftover_scales, swap_activations


class MixedGemmQuantizer(HfQuantizer):
    """Three cases: files that save_pretrained wrote (``pre_quantized``, no source), files of
    another format (``pre_quantized`` with a source), and unquantized files.
    """

    requires_calibration = False
    quantization_config: MixedGemmConfig

    def __init__(self, quantization_config: MixedGemmConfig, **kwargs: Any) -> None:
        super().__init__(quantization_config, **kwargs)
        self._to_quantize: set[str] = set()

    def validate_environment(self, *args: Any, device_map: Any = None, **kwargs: Any) -> None:
        """Refuse offloading: it would move the tensors of the swapped layers behind their back."""
        places = set(device_map.values()) if isinstance(device_map, dict) else set()
        if "disk" in places or ("cpu" in places and len(places) > 1):
            raise ValueError(
                f"mixed_gemm: device_map must not offload to cpu or disk, got {device_map}. Hint: "
                "device_map='cpu' runs everything on the CPU"
            )

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        """Adapters on top train; the quantized weights do not."""
        return True

    @property
    def is_compileable(self) -> bool:
        return True

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: list[str] | None = None, **kwargs: Any
    ) -> Any:
        if not self.pre_quantized:
            self._to_quantize = set(self._choose(model))
            return model
        if not checkpoint_files:
            raise ValueError(
                "mixed_gemm: a quantized model is loaded from files, not from a state_dict"
            )
        files = [Path(file) for file in checkpoint_files]
        where = files[0].parent
        index = TensorIndex(where, files)
        source = self.quantization_config.source
        try:
            scheme = Native({}, where) if source is None else detect(source, where, index)
        except ValueError as error:
            raise CheckpointError(where / "config.json", "", str(error)) from error
        self._swap(model, scheme, index)
        return model

    def _swap(self, model: Any, scheme: Format, index: TensorIndex) -> None:
        """A placeholder for every module that has quantized tensors in the files."""
        found = modules_with(index, scheme.anchor)
        if not found:
            raise CheckpointError(
                index.path,
                "",
                f"is {scheme.title} by its configuration, but no tensor is a {scheme.anchor}",
            )
        ignored = model._keys_to_ignore_on_load_unexpected or ()
        infos = []
        for name, target in module_names(model, self, found):
            layer = LayerTensors(index, name)
            module = _get(model, target)
            if module is None and any(re.search(x, f"{target}.weight") for x in ignored):
                continue
            if not isinstance(module, nn.Linear):
                kind = "no module" if module is None else f"a {type(module).__name__}"
                raise layer.error(
                    scheme.anchor,
                    f"is quantized, but {target} is {kind} of the model, not a Linear",
                )
            infos.append(_check(layer, scheme, module))
            new: nn.Module
            if isinstance(scheme, Native):
                new = _empty_linear(layer, scheme, module)
            else:
                new = PendingLinear(name, scheme, layer, module)
            model.set_submodule(target, new)
        scaled = leftover_scales(index.names(), found)
        swap_activations(model, index, module_names(model, self, scaled), model.dtype)
        warn_of_differences(scheme, infos, index.path)

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        for name, module in list(model.named_modules()):
            if isinstance(module, PendingLinear):
                model.set_submodule(name, module.finish())
            elif isinstance(module, Linear):
                _check_loaded(name, module)
        if self.quantization_config.source is not None:  # what save_pretrained writes now is ours
            self.quantization_config = MixedGemmConfig()
            model.config.quantization_config = self.quantization_config
        return model

    # --- unquantized files ---------------------------------------------------------------------

    def _choose(self, model: Any) -> Iterator[str]:
        config = self.quantization_config
        keep = self.get_modules_to_not_convert(
            model, config.modules_to_not_convert, model._keep_in_fp32_modules, True
        )
        for name, module in model.named_modules():
            if type(module) is nn.Linear and should_convert_module(name, keep):
                if config.group_size > module.in_features:
                    raise ValueError(
                        f"mixed_gemm: {name} has in_features={module.in_features}, less than "
                        f"group_size={config.group_size}. Hint: MixedGemmConfig("
                        "modules_to_not_convert=[...]), or a smaller group_size"
                    )
                yield name

    def param_needs_quantization(self, model: Any, param_name: str, **kwargs: Any) -> bool:
        module, _, parameter = param_name.rpartition(".")
        return parameter == "weight" and module in self._to_quantize

    def get_quantize_ops(self) -> Any:
        from .convert import QuantizeWeight

        return QuantizeWeight(self.quantization_config)

    def _dequantize(self, model: Any, dtype: torch.dtype | None = None) -> Any:
        for name, module in list(model.named_modules()):
            if isinstance(module, Linear):
                model.set_submodule(name, module.to_float().to(dtype))
        return model


def _get(model: nn.Module, name: str) -> nn.Module | None:
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None


def _check(layer: LayerTensors, scheme: Format, module: nn.Linear) -> Any:
    """The LayerInfo, when the module has its shape and its bias."""
    info = scheme.describe(layer)
    shape = (info.out_features, info.in_features)
    if shape != (module.out_features, module.in_features):
        raise layer.error(
            scheme.anchor,
            f"is a weight of {shape}, and the model has ({module.out_features}, "
            f"{module.in_features})",
        )
    if module.bias is not None and not layer.has("bias"):
        raise layer.error("bias", "is missing, and the model has one")
    return info


def _empty_linear(layer: LayerTensors, scheme: Native, module: nn.Linear) -> Linear:
    found = scheme.layer_of(layer)
    return Linear(
        found.in_features,
        found.out_features,
        layer.has("bias"),
        bits=found.scheme.bits,
        group_size=found.scheme.group_size,
        zero_mode=found.scheme.zero_mode,
        pre_scale=layer.has("pre_scale"),
        permutation=found.permuted,
        device="meta",
        dtype=module.weight.dtype,
    )


def _check_loaded(name: str, linear: Linear) -> None:
    """transformers sets tensors of any shape and any value."""
    buffers: dict[str, Tensor | None] = {**linear._buffers, "bias": linear.bias}
    problems = linear._layer().tensor_problems(buffers)
    problems += [f"{x} was not loaded" for x, t in buffers.items() if t is not None and t.is_meta]
    if problems:
        raise CheckpointError("", name, "; ".join(problems))
    refuse_non_finite({x: buffers[x] for x in FLOATS}, name)
    refuse_bad_permutation(linear.permutation, name)
