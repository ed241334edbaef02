"""The keys of ModelOpt, in config.json and in hf_quant_config.json: rows of ``key_table.TABLE``."""

from __future__ import annotations

from .key_rows import Row, Values, applied, inert, one_of, refused, told
from .key_texts import CACHE, LAYERS, METHOD, ORIGIN
from .kv_cache import is_float8
from .modelopt_config import ALGOS, MIXED

_SAID = "quant_algo says it"
_GROUPS, _LAYER = "modelopt config_groups.*", "modelopt quantized_layers.*"
_SIZE = {"group_size": applied("elements of K that share a scale; the shapes of scales say it too")}
_CACHE = told(CACHE, kept=Values(is_float8, "FP8"))
_SMOOTHED: dict[str, Row] = {
    "has_zero_point": refused("floats have no zero points"),
    "pre_quant_scale": applied("activations are multiplied by the tensors of that name"),
    "lora_rank": refused("a product of two small matrices is added to layers, which is not done"),
}

MODELOPT: dict[str, dict[str, Row]] = {
    "modelopt": {
        **METHOD,
        "quant_library": applied("names the format, where quant_method is missing"),
        "quant_algo": applied("what weights and activations are", one_of(*ALGOS, MIXED)),
        "quantization": refused("its keys belong one step up, but in hf_quant_config.json"),
        "quantized_layers": applied("by name", inside=_LAYER, each=True),
        "config_groups": applied("by name", inside=_GROUPS, each=True),
        **_SIZE,
        **_SMOOTHED,
        "kv_cache_quant_algo": _CACHE,
        "kv_cache_scheme": _CACHE,
        **inert(LAYERS, "ignore exclude_modules ignored_layers"),
        **inert(ORIGIN, "producer"),
    },
    _LAYER: {
        "quant_algo": applied("as of all layers", one_of(*ALGOS)),
        **_SIZE,
        **_SMOOTHED,
    },
    _GROUPS: {
        "weights": applied("by name", inside=f"{_GROUPS}.weights"),
        **inert(_SAID, "input_activations quant_algo"),
        **inert(LAYERS, "targets"),
        **_SMOOTHED,
    },
    f"{_GROUPS}.weights": {
        **_SIZE,
        **inert(_SAID, "num_bits type dynamic strategy"),
    },
}
