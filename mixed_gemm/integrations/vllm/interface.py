"""The parts of vLLM that we rely on, as data: fields, signatures and names. ``register`` compares
it with the vLLM that is there, the tests with several releases
(tests/python/integrations/vllm_releases.json), so that a release with another interface is a line
in the log and a red test.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Literal

_LINEAR = "vllm.model_executor.kernels.linear"
_LAYERS = "vllm.model_executor.layers"
_PARAMETER = "vllm.model_executor.parameter"
_QUANTIZATION = f"{_LAYERS}.quantization"
_QUANT_UTILS = f"{_QUANTIZATION}.utils.quant_utils"

Kind = Literal["fields", "parameters", "attributes", "members", "strings"]


@dataclass(frozen=True)
class Need:
    """One thing of vLLM.

    Attributes:
        module: where it is imported from.
        name: in the module; a method by "Class.method".
        kind: what ``items`` are. "fields": of a dataclass, all that there are. "parameters": of a
            function, in order, all that there are. "attributes": what a method sets on ``self``.
            "members": of a class or a module; none: that it is there. "strings": of a function, in
            a row.
        items: their names.
        more: fields or attributes that a release may have beside them, and that we know.
        optional: a release may be without it, and loses nothing by that.
    """

    module: str
    name: str
    kind: Kind
    items: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    optional: bool = False


def _call(module: str, name: str, items: str) -> Need:
    return Need(module, name, "parameters", tuple(items.split()))


_REGISTRATION = (
    _call(_LINEAR, "register_linear_kernel", "kernel_class platform kernel_type"),
    Need("vllm.platforms", "PlatformEnum", "members", ("CUDA", "CPU")),
    Need("vllm.envs", "environment_variables", "members"),
)
RELIES_ON: dict[str, tuple[Need, ...]] = {
    "weight_only": (
        *_REGISTRATION,
        Need(_LINEAR, "_POSSIBLE_KERNELS", "members"),
        Need(
            _LINEAR,
            "MPLinearLayerConfig",
            "fields",
            (
                *("full_weight_shape", "partition_weight_shape", "weight_type", "act_type"),
                *("group_size", "zero_points", "out_type"),
            ),
            more=("has_g_idx",),  # act-order, which kernels are asked for up to vLLM 0.29
        ),
        Need(
            _LINEAR,
            "MPLinearKernel.__init__",
            "attributes",
            ("config", "w_q_name", "w_s_name", "w_zp_name"),
            more=("w_gidx_name",),  # wherever there is has_g_idx
        ),
        _call(_LINEAR, "MPLinearKernel.get_min_capability", "cls"),
        _call(_LINEAR, "MPLinearKernel.can_implement", "cls c"),
        _call(_LINEAR, "MPLinearKernel.process_weights_after_loading", "self layer"),
        _call(_LINEAR, "MPLinearKernel.apply_weights", "self layer x bias"),
        _call(_PARAMETER, "permute_param_layout_", "param input_dim output_dim kwargs"),
        Need(
            "vllm.scalar_type",
            "ScalarType",
            "members",
            ("size_bits", "is_integer", "is_signed"),
        ),
        Need("vllm.scalar_type", "scalar_types", "members"),
    ),
    "int8": (
        *_REGISTRATION,
        Need(_LINEAR, "_POSSIBLE_INT8_KERNELS", "members"),
        Need(
            _LINEAR,
            "Int8ScaledMMLinearLayerConfig",
            "fields",
            ("is_static_input_scheme", "is_channelwise", "input_symmetric"),
            more=("is_fused_module",),  # the widths of the parts are on the layer
        ),
        Need(
            _LINEAR, "ScaledMMLinearKernel.__init__", "attributes", ("config", "layer_param_names")
        ),
        Need(
            _LINEAR,
            "init_int8_linear_kernel",
            "strings",
            ("weight", "weight_scale", "input_scale", "input_zero_point", "azp_adj"),
        ),
        _call(_LINEAR, "ScaledMMLinearKernel.is_supported", "cls compute_capability"),
        _call(_LINEAR, "ScaledMMLinearKernel.can_implement", "cls c"),
        _call(_LINEAR, "ScaledMMLinearKernel.process_weights_after_loading", "self layer"),
        _call(_LINEAR, "ScaledMMLinearKernel.apply_weights", "self layer x bias"),
    ),
    "fp8": (
        *_REGISTRATION,
        Need(_LINEAR, "_POSSIBLE_FP8_KERNELS", "members"),
        Need(
            _LINEAR,
            "FP8ScaledMMLinearLayerConfig",
            "fields",
            (
                *("weight_quant_key", "activation_quant_key", "weight_shape", "input_dtype"),
                "out_dtype",
            ),
        ),
        Need(_QUANT_UTILS, "QuantKey", "fields", ("dtype", "scale", "scale2", "symmetric")),
        Need(_QUANT_UTILS, "ScaleDesc", "fields", ("dtype", "static", "group_shape")),
        _call(_LINEAR, "ScaledMMLinearKernel.is_supported", "cls compute_capability"),
        _call(_LINEAR, "ScaledMMLinearKernel.can_implement", "cls c"),
        _call(_LINEAR, "FP8ScaledMMLinearKernel.apply_weights", "self layer x bias"),
        _call(_LINEAR, "FP8ScaledMMLinearKernel._get_layer_params", "self layer"),
        _call(
            _LINEAR,
            "FP8ScaledMMLinearKernel.apply_scaled_mm",
            "self A B out_dtype As Bs bias output_shape",
        ),
    ),
    "float4": (
        *_REGISTRATION,
        Need(_LINEAR, "_POSSIBLE_MXFP4_KERNELS", "members"),
        Need(_LINEAR, "_POSSIBLE_NVFP4_KERNELS", "members"),
        Need(
            f"{_LINEAR}.mxfp4.base",
            "MxFp4LinearLayerConfig",
            "fields",
            more=("activation_quant_key",),  # files whose activations are of 4 bits too
        ),
        Need(f"{_LINEAR}.nvfp4.base", "NvFp4LinearLayerConfig", "fields"),
        *(
            _call(f"{_LINEAR}.{kind}.base", f"{name}.{method}", parameters)
            for kind, name in (("mxfp4", "MxFp4LinearKernel"), ("nvfp4", "NvFp4LinearKernel"))
            for method, parameters in (
                ("is_supported", "cls compute_capability"),
                ("can_implement", "cls config"),
                ("process_weights_after_loading", "self layer"),
                ("apply_weights", "self layer x bias"),
            )
        ),
    ),
    "gptq": (
        _call(_QUANTIZATION, "register_quantization_config", "quantization"),
        Need(_QUANTIZATION, "QUANTIZATION_METHODS", "members"),
        Need(
            f"{_QUANTIZATION}.auto_gptq",
            "AutoGPTQConfig",
            "members",
            ("maybe_update_config", "apply_vllm_mapper"),
        ),
        _call(
            f"{_QUANTIZATION}.base_config",
            "QuantizationConfig.override_quantization_method",
            "cls hf_quant_cfg user_quant hf_config",
        ),
        Need(
            f"{_QUANTIZATION}.base_config",
            "QuantizationConfig.get_checkpoint_weight_mapper",
            "parameters",
            optional=True,  # up to vLLM 0.29 nothing drops g_idx
        ),
        Need("vllm.model_executor.models.utils", "WeightsMapper", "members"),
        _call(
            f"{_QUANTIZATION}.base_config",
            "QuantizationConfig.get_quant_method",
            "self layer prefix",
        ),
        _call(
            f"{_QUANTIZATION}.utils.gptq_utils",
            "is_layer_gptq_quantized",
            "prefix quantized_layers fused_mapping",
        ),
        _call(
            f"{_LAYERS}.linear",
            "LinearMethodBase.create_weights",
            "self layer input_size_per_partition output_partition_sizes input_size output_size "
            "params_dtype extra_weight_attrs",
        ),
        _call(f"{_LAYERS}.linear", "LinearMethodBase.apply", "self layer x bias"),
        _call(f"{_LAYERS}.linear", "register_weight_loader_v2_supported_method", "cls"),
        _call(
            _PARAMETER,
            "PackedvLLMParameter.__init__",
            "self packed_factor packed_dim marlin_tile_size kwargs",
        ),
        _call(_PARAMETER, "RowvLLMParameter.__init__", "self input_dim kwargs"),
        Need(
            _PARAMETER,
            "RowvLLMParameter",
            "members",
            ("load_qkv_weight", "load_merged_column_weight"),
        ),
        Need(_PARAMETER, "GroupQuantScaleParameter", "members"),
        Need(_PARAMETER, "ChannelQuantScaleParameter", "members"),
        Need(_PARAMETER, "PackedColumnParameter", "members"),
    ),
}


def lacking(need: Need, found: tuple[str, ...] | None) -> list[str]:
    """List what is otherwise than ``need`` says, in words.

    Args:
        found: fields, parameters and so on that there are; None where the thing is not there.
    """
    where = f"{need.module}.{need.name}"
    if found is None:
        return [] if need.optional else [f"vLLM has no {where}"]
    if need.kind in ("fields", "parameters"):
        ordered = need.kind == "parameters"
        if found == need.items if ordered else set(found) - set(need.more) == set(need.items):
            return []
        return [f"{where} has the {need.kind} {', '.join(found)}, not {', '.join(need.items)}"]
    if missing := [item for item in need.items if item not in found]:
        return [f"{where} has no {', '.join(missing)} among its {need.kind}"]
    return []


def found_in_vllm(need: Need) -> tuple[str, ...] | None:
    """Return what the vLLM that is installed has, for :func:`lacking`."""
    try:
        thing: Any = importlib.import_module(need.module)
        for part in need.name.split("."):
            thing = getattr(thing, part)
    except (ImportError, AttributeError):
        return None
    code = getattr(getattr(thing, "__func__", thing), "__code__", None)
    if need.kind == "fields":
        return tuple(field.name for field in dataclasses.fields(thing))
    if need.kind == "parameters":
        return tuple(inspect.signature(getattr(thing, "__func__", thing)).parameters)
    if need.kind == "attributes":
        return tuple(code.co_names) if code is not None else ()
    if need.kind == "strings":
        rows = [x for x in code.co_consts if isinstance(x, tuple)] if code is not None else []
        return next((x for x in rows if set(need.items) <= set(x)), ())
    return tuple(dir(thing))


def lacking_in_vllm(need: Need) -> list[str]:
    """List what the vLLM that is installed has otherwise. A field more is no reason here: each
    layer is asked whether it is set (:func:`unknown_fields`)."""
    found = found_in_vllm(need)
    if need.kind == "fields" and found is not None:
        found = tuple(x for x in found if x in need.items)
    return lacking(need, found)


def has_field(name: str, field: str) -> bool:
    """Tell whether a description of a layer in the vLLM that is installed has a field."""
    described = getattr(importlib.import_module(_LINEAR), name, None)
    return described is not None and field in {x.name for x in dataclasses.fields(described)}


def unknown_fields(config: Any, name: str) -> str:
    """List fields of a description of a layer that we do not know and that ask for something, as
    text.

    Args:
        config: vLLM's dataclass. name: the one that we know.
    """
    known = {
        item
        for needs in RELIES_ON.values()
        for need in needs
        if need.kind == "fields" and need.name == name
        for item in (*need.items, *need.more)
    }
    more = [field.name for field in dataclasses.fields(config) if field.name not in known]
    return ", ".join(f"{x}={getattr(config, x)!r}" for x in more if getattr(config, x))
