"""The parts of vLLM that we rely on, as data: fields, signatures and names. ``register`` compares
it with the vLLM that is there, the tests with several releases
(tests/python/integrations/vllm_releases.json), so that a release with another interface is a line
in the log and a red test.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from .needs import Need, call, lacking_in_vllm

_LINEAR = "vllm.model_executor.kernels.linear"
_LAYERS = "vllm.model_executor.layers"
_PARAMETER = "vllm.model_executor.parameter"
_QUANTIZATION = f"{_LAYERS}.quantization"
_QUANT_UTILS = f"{_QUANTIZATION}.utils.quant_utils"

_REGISTRATION = (
    call(_LINEAR, "register_linear_kernel", "kernel_class platform kernel_type"),
    Need("vllm.platforms", "PlatformEnum", "members", ("CUDA", "CPU")),
    Need("vllm.envs", "environment_variables", "members"),
)
_CONFIGURATION = (
    call(_QUANTIZATION, "register_quantization_config", "quantization"),
    Need(_QUANTIZATION, "_CUSTOMIZED_METHOD_TO_QUANT_CONFIG", "members"),
)
_COMPRESSED = f"{_QUANTIZATION}.compressed_tensors.compressed_tensors"
_MOE = f"{_LAYERS}.fused_moe"
_EXPERTS = (
    Need(
        f"{_MOE}.routed_experts",
        "RoutedExperts.__init__",
        "attributes",
        (
            *("moe_config", "apply_router_weight_on_input", "quant_method"),
            *("ckpt_gate_proj_name", "ckpt_up_proj_name", "ckpt_down_proj_name"),
        ),
    ),
    Need(f"{_MOE}.routed_experts", "RoutedExperts", "members", ("expert_map",)),
    call(
        f"{_MOE}.routed_experts",
        "RoutedExperts.weight_loader",
        "self param loaded_weight weight_name shard_id expert_id return_success",
    ),
    Need(
        f"{_MOE}.routed_experts",
        "FusedMoeWeightScaleSupported",
        "members",
        ("GROUP", "CHANNEL", "TENSOR", "BLOCK"),
    ),
    Need(
        f"{_MOE}.fused_moe_method_base",
        "FusedMoEMethodBase.__init__",
        "attributes",
        ("moe", "moe_kernel"),
    ),
    call(f"{_MOE}.fused_moe_method_base", "FusedMoEMethodBase.__init__", "self moe"),
    call(
        f"{_MOE}.fused_moe_method_base",
        "FusedMoEMethodBase.create_weights",
        "self layer num_experts hidden_size intermediate_size_per_partition params_dtype "
        "extra_weight_attrs",
    ),
    call(
        f"{_MOE}.fused_moe_method_base",
        "FusedMoEMethodBase.apply",
        "self layer x topk_weights topk_ids shared_experts shared_experts_input",
    ),
    call(
        f"{_MOE}.fused_moe_method_base",
        "FusedMoEMethodBase.get_fused_moe_quant_config",
        "self layer",
    ),
    Need(
        f"{_MOE}.activation",
        "MoEActivation",
        "members",
        ("SILU", "GELU", "GELU_TANH", "SWIGLUOAI", "SWIGLUOAI_UNINTERLEAVE"),
    ),
    Need(
        f"{_MOE}.config",
        "FusedMoEParallelConfig",
        "fields",
        (
            *("tp_size", "pcp_size", "dp_size", "ep_size", "sp_size", "use_ep"),
            *("tp_rank", "pcp_rank", "dp_rank", "ep_rank", "all2all_backend", "enable_eplb"),
        ),
    ),
    Need(
        f"{_MOE}.config",
        "FusedMoEConfig",
        "fields",
        (
            *("num_experts", "num_local_experts", "num_logical_experts", "experts_per_token"),
            *("hidden_dim", "hidden_dim_unpadded", "intermediate_size", "intermediate_pad"),
            "intermediate_size_per_partition",
            "intermediate_size_per_partition_unpadded",
            *("activation", "swiglu_limit", "swiglu_alpha", "swiglu_beta"),
            *("in_dtype", "device", "moe_parallel_config", "moe_backend", "max_num_tokens"),
            *("has_bias", "is_lora_enabled", "max_capture_size", "skip_final_all_reduce"),
            # The router and vLLM's own kernels have these, which ask for nothing here.
            *("routing_method", "router_logits_dtype"),
            *("rocm_aiter_fmoe_enabled", "aiter_fmoe_shared_expert_enabled"),
        ),
        more=(
            "tp_shard_with_padding",
            # Activations that are not served, the router and vLLM's own kernels have these.
            *("activation_situ_beta", "activation_situ_linear_beta", "has_hash_routing"),
            *("defer_moe_finalize", "_defer_moe_finalize"),
            *("defer_moe_finalize_max_num_tokens", "elastic_ep_max_dp_size"),
            *("shared_expert_prefix", "use_mxfp4_w4a4_dsv4", "require_decomposed_backend"),
        ),
    ),
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
        call(_LINEAR, "MPLinearKernel.get_min_capability", "cls"),
        call(_LINEAR, "MPLinearKernel.can_implement", "cls c"),
        call(_LINEAR, "MPLinearKernel.process_weights_after_loading", "self layer"),
        call(_LINEAR, "MPLinearKernel.apply_weights", "self layer x bias"),
        call(_PARAMETER, "permute_param_layout_", "param input_dim output_dim kwargs"),
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
        call(_LINEAR, "ScaledMMLinearKernel.is_supported", "cls compute_capability"),
        call(_LINEAR, "ScaledMMLinearKernel.can_implement", "cls c"),
        call(_LINEAR, "ScaledMMLinearKernel.process_weights_after_loading", "self layer"),
        call(_LINEAR, "ScaledMMLinearKernel.apply_weights", "self layer x bias"),
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
        call(_LINEAR, "ScaledMMLinearKernel.is_supported", "cls compute_capability"),
        call(_LINEAR, "ScaledMMLinearKernel.can_implement", "cls c"),
        call(_LINEAR, "FP8ScaledMMLinearKernel.apply_weights", "self layer x bias"),
        call(_LINEAR, "FP8ScaledMMLinearKernel._get_layer_params", "self layer"),
        call(
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
            call(f"{_LINEAR}.{kind}.base", f"{name}.{method}", parameters)
            for kind, name in (("mxfp4", "MxFp4LinearKernel"), ("nvfp4", "NvFp4LinearKernel"))
            for method, parameters in (
                ("is_supported", "cls compute_capability"),
                ("can_implement", "cls config"),
                ("process_weights_after_loading", "self layer"),
                ("apply_weights", "self layer x bias"),
            )
        ),
    ),
    "weight_only_nvfp4": (
        call(_LINEAR, "init_nvfp4_linear_kernel", "use_a16"),
        Need(_LINEAR, "NvFp4LinearLayerConfig", "members"),
        Need("vllm.config.vllm", "get_current_vllm_config_or_none", "members"),
    ),
    "gptq": (
        *_CONFIGURATION,
        Need(
            f"{_QUANTIZATION}.auto_gptq",
            "AutoGPTQConfig",
            "members",
            ("maybe_update_config", "apply_vllm_mapper"),
        ),
        call(
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
        call(
            f"{_QUANTIZATION}.base_config",
            "QuantizationConfig.get_quant_method",
            "self layer prefix",
        ),
        call(
            f"{_QUANTIZATION}.utils.gptq_utils",
            "is_layer_gptq_quantized",
            "prefix quantized_layers fused_mapping",
        ),
        call(
            f"{_LAYERS}.linear",
            "LinearMethodBase.create_weights",
            "self layer input_size_per_partition output_partition_sizes input_size output_size "
            "params_dtype extra_weight_attrs",
        ),
        call(f"{_LAYERS}.linear", "LinearMethodBase.apply", "self layer x bias"),
        call(f"{_LAYERS}.linear", "register_weight_loader_v2_supported_method", "cls"),
        call(
            _PARAMETER,
            "PackedvLLMParameter.__init__",
            "self packed_factor packed_dim marlin_tile_size kwargs",
        ),
        call(_PARAMETER, "RowvLLMParameter.__init__", "self input_dim kwargs"),
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
    "experts": (
        *_CONFIGURATION,
        call(_COMPRESSED, "CompressedTensorsConfig.get_quant_method", "self layer prefix"),
        call(_COMPRESSED, "CompressedTensorsConfig.get_scheme_dict", "self layer layer_name"),
        call(_COMPRESSED, "CompressedTensorsConfig._add_fused_moe_to_target_scheme_map", "self"),
        Need(_COMPRESSED, "CompressedTensorsConfig.__init__", "attributes", ("quant_format",)),
        *_EXPERTS,
    ),
    "gptq_experts": (
        *_CONFIGURATION,
        *_EXPERTS,
        call(f"{_QUANTIZATION}.auto_gptq", "AutoGPTQConfig.from_config", "cls config"),
        call(f"{_QUANTIZATION}.auto_gptq", "AutoGPTQConfig.get_name", "cls"),
        call(f"{_QUANTIZATION}.auto_gptq", "AutoGPTQConfig.get_quant_method", "self layer prefix"),
        Need(
            f"{_QUANTIZATION}.auto_gptq",
            "AutoGPTQConfig.__init__",
            "attributes",
            ("full_config", "modules_in_block_to_quantize"),
        ),
    ),
    "awq_experts": (
        *_CONFIGURATION,
        *_EXPERTS,
        call(f"{_QUANTIZATION}.auto_awq", "AutoAWQConfig.get_quant_method", "self layer prefix"),
        Need(
            f"{_QUANTIZATION}.auto_awq",
            "AutoAWQConfig.__init__",
            "attributes",
            ("full_config", "modules_to_not_convert"),
        ),
    ),
    "gpt_oss": (
        *_CONFIGURATION,
        *_EXPERTS,
        call(f"{_QUANTIZATION}.mxfp4", "Mxfp4Config.get_quant_method", "self layer prefix"),
        Need(f"{_QUANTIZATION}.mxfp4", "GptOssMxfp4Config", "members", ("get_name",)),
    ),
}


def lacking_of(part: str) -> list[str]:
    """List what the vLLM that is installed has otherwise than a part of the plug-in relies on.

    Args:
        part: of :data:`RELIES_ON`.
    """
    return [text for need in RELIES_ON[part] for text in lacking_in_vllm(need)]


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
