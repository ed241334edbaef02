"""The rows that are measured: a scheme, the method that fits it, and how far above the dense
model's its perplexity may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mixed_gemm import Scheme


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: of the line. options: of ``quantize_``, calibration aside.
        goal: percent above the perplexity of the dense model, on each text.
    """

    name: str
    goal: float | None = None
    options: dict[str, Any] = field(default_factory=dict)


def _weights(bits: int, group: int, symmetric: bool, method: str | None) -> dict[str, Any]:
    options = {"bits": bits, "group_size": group, "symmetric": symmetric, "method": method}
    return {"scheme": "w4a16", **options}


def _rounded(activations: str, method: str | None, **more: Any) -> dict[str, Any]:
    return {"scheme": "w8a8", "activations": activations, "method": method, **more}


# Types of a 4-bit number, and groups of as many elements as others have.
NUMBERS: dict[str, dict[str, Any]] = {
    "MXFP4": {"scheme": "mxfp4"},
    "NVFP4": {"scheme": "nvfp4"},
    "int4 g32": {"scheme": "w4a16", "group_size": 32},
    "NF4": {"scheme": "nf4"},
    "int4 g64": {"scheme": "w4a16", "group_size": 64},
    "FP4": {"scheme": "fp4"},
    "int4 g16": {"scheme": "w4a16", "group_size": 16},
    "float8 W8A16": {"scheme": Scheme.fp8(None)},
}
SEARCHED = ("MXFP4", "NVFP4", "NF4", "FP4")  # which "rtn" searches scales for
# The tied embedding and head beside linears in int4, both rounded to nearest.
LINEARS = {"scheme": "w4a16", "group_size": 64}
TABLE4 = Scheme.named("w4a16", group_size=64)
ENDS: dict[str, dict[str, Any]] = {
    "dense": {},
    "int8": {"embeddings": "w8a16"},
    "int4 g64": {"embeddings": TABLE4},
    "int4 g64 asymmetric": {"embeddings": Scheme.named("w4a16_asym", group_size=64)},
    "dense, average_bits=5": {"average_bits": 5},
    "chosen, average_bits=5": {"embeddings": TABLE4, "average_bits": 5},
}
BEST = "gptq+distill"
REAL_ZEROS = Scheme.weight_only(4, 64, "add")
ROWS = (
    Row("4 bits g128 symmetric", 14.0, _weights(4, 128, True, BEST)),
    Row("4 bits g128 asymmetric", 10.0, _weights(4, 128, False, BEST)),
    Row("4 bits g64 symmetric", 10.0, _weights(4, 64, True, BEST)),
    Row("4 bits g64 asymmetric", 8.0, _weights(4, 64, False, BEST)),
    Row("4 bits g32 asymmetric", 5.5, _weights(4, 32, False, BEST)),
    Row("3 bits g128 asymmetric", 50.0, _weights(3, 128, False, BEST)),
    Row("8 bits per channel, nearest", 0.8, {"scheme": "w8a16"}),
    Row("W8A8 zero points, SmoothQuant and GPTQ", 1.0, _rounded("dynamic_azp", "smoothquant+gptq")),
    *(
        Row(f"4 bits g64 {kind}, {method}", None, _weights(4, 64, symmetric, method))
        for symmetric, kind in ((True, "symmetric"), (False, "asymmetric"))
        for method in (None, "rtn", "hqq", "awq", "gptq", "awq+gptq", "autoround")
    ),
    *(
        Row(f"float8 {name}, {method or 'nearest'}", None, {"scheme": scheme, "method": method})
        for name, scheme in (
            ("per channel", Scheme.fp8()),
            ("128 x 128", Scheme.fp8(strategy="block", block=(128, 128))),
            ("weights only", Scheme.fp8(None)),
        )
        for method in (None, "gptq")
    ),
    Row("4 bits g64 real zero points, hqq", None, {"scheme": REAL_ZEROS, "method": "hqq"}),
    *(
        Row(f"W8A8 {kind}, {name}", None, _rounded(activations, method, **more))
        for activations, kind in (("dynamic", "dynamic"), ("dynamic_azp", "zero points"))
        for name, method, more in (
            ("nearest", None, {}),
            ("SmoothQuant 0.5", None, {"smooth": 0.5}),
            ("SmoothQuant", "smoothquant", {}),
            ("SmoothQuant and GPTQ", "smoothquant+gptq", {}),
        )
        if (kind, name) != ("zero points", "SmoothQuant and GPTQ")  # among those with a goal
    ),
    *(  # the quick ones first
        Row(f"numbers: {name}, {method or 'nearest'}", None, {**options, "method": method})
        for method in (None, "rtn", "gptq")
        for name, options in NUMBERS.items()
        if method != "rtn" or name in SEARCHED
    ),
    *(Row(f"ends: {name}", None, {**LINEARS, **more}) for name, more in ENDS.items()),
)
