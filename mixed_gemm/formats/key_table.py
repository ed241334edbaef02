"""Every key of the configurations of quantized files that is known here, and what is done with it:
format -> key -> row. ``keys.py`` holds a file to it, and docs/checkpoint_keys.md shows it.

The keys are those of transformers, compressed-tensors, vLLM, GPTQModel, AutoGPTQ, optimum,
AutoRound, AutoAWQ and ModelOpt; a test compares them with what these packages know.
"""

from __future__ import annotations

from ..ops.problem import WEIGHTS
from .key_rows import ANY, Row, applied, at_least, inert, one_of, refused, told, without
from .key_table_modelopt import MODELOPT
from .key_texts import (
    ACTIVATIONS,
    ADAPTER,
    CACHE,
    CHOSEN,
    KERNELS,
    LAYERS,
    METHOD,
    ORIGIN,
    ROTATION,
    RULES,
    WORK,
)

_FLOATS = one_of("float16", "bfloat16", "float32")
_FP8_NAMES = one_of("float-quantized", "naive-quantized")
_GPTQ_LAYOUTS = one_of("gptq", "gptq_v2")
# Keys that AutoRound writes into files of every format.
_AUTOROUND: dict[str, Row] = {
    "data_type": applied("integers", without("fp", "float", "_dq", "mx_", "nv_")),
    "act_bits": told(ACTIVATIONS, at_least(16)),
    **inert(
        "act_bits says whether activations are rounded",
        "act_data_type act_group_size act_sym act_dynamic",
    ),
    "super_bits": refused("scales are quantized once more, which only GGUF files are read with"),
    "super_group_size": refused("scales are quantized once more, as super_bits says"),
    "rotation_config": refused(ROTATION),
    "rotation_configs": refused(ROTATION),
    "spinquant_config": refused(ROTATION),
    "static_kv_dtype": told(CACHE),
    "static_attention_dtype": told(CACHE),
    **inert(
        "static_kv_dtype and static_attention_dtype say whether those are rounded",
        "static_kv_granularity static_attention_granularity",
    ),
    **inert(
        CHOSEN,
        "enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input iters lr minmax_lr "
        "nsamples seqlen amp dataset",
    ),
    **inert(WORK, "batch_size gradient_accumulate_steps low_gpu_mem_usage"),
    **inert("scales are read in the dtype that they have", "scale_dtype"),
    **inert(ORIGIN, "autoround_version provider"),
    **inert(
        LAYERS,
        "block_name_to_quantize to_quant_block_names quant_block_list supported_types regex_config",
    ),
    "extra_config": applied(RULES, inside="auto-round", each=True),
    "packing_format": applied("names the layout of the tensors"),
}
# Keys that GPTQModel, AutoGPTQ and optimum write into files of GPTQ and AWQ.
_GPTQMODEL: dict[str, Row] = {
    "method": applied("names the format"),
    "dynamic": applied(RULES, inside="gptq", each=True),
    "activation": told(ACTIVATIONS),
    "rotation": refused(ROTATION),
    "adapter": refused(ADAPTER),
    "meta": applied("meta.quantizer tells how zero points were stored; the rest was the writer's"),
    **inert(
        CHOSEN,
        "damp_percent damp_auto_increment static_groups true_sequential mse hyb_act "
        "act_group_aware gptaq foem v2 v2_alpha hessian fallback preprocessors smoother smooth "
        "mock_quantization weight_only scale_search_chunked_activations model_seqlen "
        "max_input_length tokenizer pad_token_id cache_block_outputs moe",
    ),
    **inert(
        WORK,
        "device telemetry pack_impl parallel_packing offload_to_disk offload_to_disk_path "
        "_offload_temp_dir compute_device_filter calibration_data_device "
        "auto_forward_data_parallel dense_vram_strategy dense_vram_strategy_devices "
        "moe_vram_strategy moe_vram_strategy_devices gc_mode wait_for_submodule_finalizers",
    ),
    **inert(
        KERNELS,
        "backend use_cuda_fp16 use_exllama disable_exllama exllama_config awq_gemm_checkpoint",
    ),
    **inert(ORIGIN, "model_name_or_path model_file_base_name"),
    **inert(
        LAYERS,
        "lm_head modules_to_not_convert modules_in_block_to_quantize "
        "module_name_preceding_first_block",
    ),
}

_WIDTH = {
    "bits": applied("bits of a code"),
    "group_size": applied("elements of K that share a scale; -1 is all of them"),
}

_GPTQ: dict[str, Row] = {
    **_AUTOROUND,
    **_GPTQMODEL,
    **METHOD,
    **_WIDTH,
    "sym": applied("whether there is one zero point; the tensors are believed over it"),
    "desc_act": applied("the order of columns is that of g_idx, their own where there is none"),
    "checkpoint_format": applied(
        "whether zero points are stored less one, or as they are", _GPTQ_LAYOUTS
    ),
    "format": applied("as checkpoint_format", _GPTQ_LAYOUTS),
    "pack_dtype": applied("words of 32 bits", one_of("int32")),
    "is_marlin_format": refused("the tensors are in the order of Marlin's kernels"),
}

_AWQ: dict[str, Row] = {
    **_AUTOROUND,
    **_GPTQMODEL,
    **METHOD,
    **_WIDTH,
    "w_bit": applied("as bits"),
    "q_group_size": applied("as group_size"),
    "zero_point": applied("whether zero points must be there; the tensors are believed over false"),
    **inert("zero_point says it", "sym"),
    "version": applied("names the layout of the tensors"),
    "format": applied("as version"),
    "checkpoint_format": applied("as version"),
    "backend": applied("llm-awq names the layout of the tensors; others are kernels"),
    "pack_dtype": applied("words of 32 bits, of 16 in gemv_fast", one_of("int32", "int16")),
    "desc_act": refused("columns are in another order, which AWQ files have no place for"),
    "is_marlin_format": refused("the tensors are in the order of Marlin's kernels"),
    **inert(KERNELS, "do_fuse fuse_max_seq_len modules_to_fuse"),
}

_AUTO_ROUND: dict[str, Row] = {**_AWQ, **_GPTQ, **inert(KERNELS, "backend vllm_backend")}

_FP8: dict[str, Row] = {
    **_AUTOROUND,
    **_GPTQMODEL,
    **METHOD,
    "activation_scheme": applied("activations are rounded by row (dynamic) or with one scale"),
    "weight_block_size": applied("rows and columns that share a scale; null is all of them"),
    "fmt": applied("float8_e4m3fn", one_of("e4m3", "float8_e4m3fn")),
    "format": applied("float8_e4m3fn", _FP8_NAMES),
    "checkpoint_format": applied("as format", _FP8_NAMES),
    "data_type": applied("float8_e4m3fn", without("e5m2")),
    "bits": applied("bits of a code", one_of(8)),
    "sym": applied("float8 has no zero points", one_of(True)),
    "desc_act": refused("columns are in another order, which these files have no place for"),
    "pack_dtype": applied("nothing is packed", one_of("int32")),
    "scale_fmt": told(
        "the file asks for scales of activations that are powers of two ({path}: {value}); here "
        "they are float32",
        one_of("float"),
    ),
    "expert_dtype": applied("experts are float8 too; others are not supported", one_of("fp8")),
    "store_dtype": refused("experts are stored in another format, which is not read"),
    "weight_scale_semantics": refused(
        "the weight is its float8 values divided by weight_scale_inv, where other files of this "
        "format multiply by it. Hint: quantize again with compressed-tensors"
    ),
    "weight_scale_method": refused("as weight_scale_semantics"),
    "kv_cache_scheme": told(CACHE),
    "kv_cache_quant_targets": told(CACHE),
    **inert("activation_scheme says it", "act_bits"),
    **inert("weight_block_size and the shapes of scales say it", "group_size"),
    **inert("the tensors of the file say it", "extra_config dynamic"),
    **inert(LAYERS, "ignored_layers ignore_patterns modules_to_convert"),
    **inert(KERNELS, "dequantize"),
}

_SIDE = {
    "num_bits": applied("bits of a value"),
    "type": applied(
        "integers or floats; a code book in files of this library alone",
        one_of("int", "float", *(name for name, row in WEIGHTS.items() if row.is_book)),
    ),
    "symmetric": applied("whether there are zero points"),
    "group_size": applied("elements of K that share a scale"),
    "block_structure": applied("rows and columns that share a scale"),
    **inert(CHOSEN, "observer observer_kwargs"),
    **inert("zero points are read in the dtype that they have", "zp_dtype"),
}
_ARGUMENTS = "compressed-tensors config_groups.*.weights"
_ROUNDED = "compressed-tensors config_groups.*.input_activations"
_TRANSFORM = "compressed-tensors transform_config"

_COMPRESSED: dict[str, dict[str, Row]] = {
    "compressed-tensors": {
        **METHOD,
        "format": applied("names the layout of the tensors"),
        "config_groups": applied("by name", inside="compressed-tensors config_groups.*", each=True),
        **inert(LAYERS, "ignore"),
        **inert("the tensors of the file say it", "quantization_status global_compression_ratio"),
        "kv_cache_scheme": told(CACHE, inside=_ROUNDED, kept=ANY),
        "sparsity_config": applied("by name", inside="compressed-tensors sparsity_config"),
        "transform_config": applied("by name", inside=_TRANSFORM),
        "moe_sparsity_config": refused("layers have other numbers of experts than the model says"),
        "version": applied("before 0.18 no value of 3 bits straddles two words"),
        **inert(KERNELS, "run_compressed dequantize use_optimized_inference"),
        **inert("kv_cache_scheme says it", "total_num_heads total_num_kv_heads"),
        "mixed_gemm": applied("by name", inside="compressed-tensors mixed_gemm"),
    },
    "compressed-tensors config_groups.*": {
        "targets": applied("names, patterns and classes of layers"),
        "weights": applied("by name", inside=_ARGUMENTS),
        "input_activations": applied(
            "how activations are rounded, where a kind of weight does; else a note says that they "
            "are not",
            inside=_ROUNDED,
        ),
        "output_activations": told(
            "the file asks for rounded outputs of layers ({path}: {value}); they stay in the dtype "
            "of the model here",
            inside=_ROUNDED,
        ),
        "format": applied("names the layout of the tensors"),
    },
    _ARGUMENTS: {
        **_SIDE,
        "strategy": applied(
            "what shares a scale; tensor_group of 4-bit floats",
            one_of("tensor", "channel", "group", "tensor_group", "block"),
        ),
        "dynamic": refused("the file must hold the scales of weights"),
        "actorder": applied(
            "the order of columns is that of weight_g_idx, their own where there is none"
        ),
        "scale_dtype": applied(
            "the dtype of scales; uint8 and float8_e4m3fn are of 4-bit floats",
            one_of("float16", "bfloat16", "float32", "uint8", "float8_e4m3fn"),
        ),
    },
    _ROUNDED: {
        **_SIDE,
        "strategy": applied("what shares a scale"),
        "dynamic": applied("whether scales are found as the model runs"),
        "scale_dtype": applied("float dtypes of 16 and 32 bits; others are not rounded to"),
        **inert("activations have no order of columns of their own", "actorder"),
    },
    "compressed-tensors sparsity_config": {
        "format": refused(
            'zeros are left out of its tensors, where "dense" is a note about ordinary ones. Hint: '
            "decompress the file with the release of compressed-tensors that wrote it",
            one_of("dense"),
        ),
        **inert(
            "the tensors of the file say it",
            "targets ignore global_sparsity sparsity_structure registry_requires_subclass",
        ),
    },
    _TRANSFORM: {
        "config_groups": applied("by name", inside=f"{_TRANSFORM}.config_groups.*", each=True),
    },
    f"{_TRANSFORM}.config_groups.*": {
        "apply": applied("by name", inside=f"{_TRANSFORM}.config_groups.*.apply"),
        **inert(
            "the weights in the file are rotated already",
            "type randomize requires_grad head_dim precision",
        ),
    },
    f"{_TRANSFORM}.config_groups.*.apply": {
        "location": refused(ROTATION, one_of("weight_input", "weight_output")),
        **inert("the weights in the file are rotated already", "targets ignore inverse"),
    },
    "compressed-tensors mixed_gemm": {
        **inert(ORIGIN, "version recipe"),
        "zeros_added": applied("layers whose zeros are added"),
        "conv1d": applied("layers that are a Conv1D of the model"),
        "embeddings": applied("layers that are embeddings"),
    },
}

_BITSANDBYTES: dict[str, Row] = {
    **METHOD,
    "mixed_gemm": applied("by name", inside="compressed-tensors mixed_gemm"),
    "load_in_4bit": applied("codes of 4 bits", one_of(True)),
    "_load_in_4bit": applied("as load_in_4bit", one_of(True)),
    "load_in_8bit": refused("weights of LLM.int8() are not read; those of 4 bits are"),
    "_load_in_8bit": refused("as load_in_8bit"),
    "bnb_4bit_quant_type": applied("the book, which each layer names", one_of("nf4", "fp4")),
    "bnb_4bit_use_double_quant": applied("scales are quantized, which each layer says"),
    "bnb_4bit_quant_storage": applied("the dtype that holds the bytes of codes"),
    "bnb_4bit_compute_dtype": told(
        "the file asks for products in another dtype ({path}: {value}); here they are in that of "
        "the model",
        one_of("float16", "bfloat16", "float32"),
    ),
    **inert(
        LAYERS,
        "llm_int8_skip_modules llm_int8_threshold llm_int8_has_fp16_weight "
        "llm_int8_enable_fp32_cpu_offload",
    ),
}

TABLE: dict[str, dict[str, Row]] = {
    "bitsandbytes": _BITSANDBYTES,
    "gptq": _GPTQ,
    "awq": _AWQ,
    "auto-round": _AUTO_ROUND,
    "fp8": _FP8,
    **_COMPRESSED,
    **MODELOPT,
    "mxfp4": {
        **METHOD,
        "mixed_gemm": applied("by name", inside="compressed-tensors mixed_gemm"),
        **inert(LAYERS, "modules_to_not_convert"),
        "dequantize": refused("the model is to be dense, and transformers reads it so"),
    },
    # Files of this library from before it wrote compressed-tensors.
    "mixed_gemm": {
        **METHOD,
        **inert(
            "each layer has a tag that says it",
            "scheme bits group_size symmetric zero_mode activations modules_to_not_convert "
            "weight_only float8 ragged fuse embeddings heads source",
        ),
    },
    # These keys are made from the header of a file.
    "gguf": {
        **METHOD,
        "types": applied("the type of each layer"),
        **inert(ORIGIN, "file"),
    },
}
