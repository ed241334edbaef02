"""Change one value of a JSON text: what random bytes hardly ever do without breaking it."""

from __future__ import annotations

import json
import random
from typing import Any

VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 4, 5, 7, 8, 16, 64, 128, 2**31, 2**63 - 1, 2**63, 10**30, -(2**63)),
    *(0.5, 4.0, 1e308, float("inf"), float("nan"), True, False, None),
    *("", "4", "x", "awq", "gptq", "gptq_v2", "fp8", "compressed-tensors", "mixed_gemm"),
    *("pack-quantized", "int-quantized", "float-quantized", "group", "channel", "block"),
    *("F16", "F32", "I32", "U8", "F8_E4M3", "Linear", "re:[", "re:.*", "re:(a*)*$", "1x1"),
    *([], {}, [0], [0, 0], [1, 128], [[]], {"a": 1}, ["re:.*"], [None], ["Linear"]),
)
KEYS = (
    *("bits", "num_bits", "group_size", "quant_method", "format", "checkpoint_format", "version"),
    *("config_groups", "targets", "weights", "strategy", "block_structure", "weight_block_size"),
    *("sym", "meta", "dynamic", "packing_format", "backend", "w_bit", "damp_percent"),
    *("quantization_config", "compression_config", "text_config", "weight_map", "dtype", "shape"),
    *("data_offsets", "model_type", "input_activations", "permuted", "zero_mode", "desc_act"),
)
DEPTH = 3000  # of a nest: more than Python's parser goes down


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        found = [(value, key) for key in value]
    elif isinstance(value, list):
        found = [(value, index) for index in range(len(value))]
    return found + [place for box, key in list(found) for place in _places(box[key])]


def _rename(box: Any, key: Any, rng: random.Random) -> None:
    if isinstance(box, dict):
        box[rng.choice((*KEYS, str(key) + "x", str(key)[:-1]))] = box.pop(key)


def mutate_json(text: bytes, rng: random.Random) -> bytes | None:
    """None when it is no JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    places = _places(value)
    if not places:
        return None
    nest = False
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        box, key = rng.choice(places)
        if isinstance(box, dict) and key not in box:
            continue
        if isinstance(box, list) and key >= len(box):
            continue
        choice = rng.random()
        if choice < 0.55:
            box[key] = rng.choice(VALUES)
        elif choice < 0.65:
            del box[key]
        elif choice < 0.75:
            _rename(box, key, rng)
        elif choice < 0.85 and isinstance(box, dict):
            box[rng.choice(KEYS)] = rng.choice(VALUES)
        elif choice < 0.95:
            other, name = rng.choice(places)
            if not isinstance(other, dict) or name in other:
                box[key] = json.loads(json.dumps(other[name])) if _has(other, name) else 0
        else:
            box[key], nest = "@nest@", True
    found = json.dumps(value)
    if nest:
        found = found.replace('"@nest@"', "[" * DEPTH + "]" * DEPTH)
    if rng.random() < 0.03 and found.startswith("{") and len(found) > 2:
        found = found[:-1] + "," + found[1:]  # every name twice
    return found.encode()


def _has(box: Any, key: Any) -> bool:
    return key in box if isinstance(box, dict) else key < len(box)
