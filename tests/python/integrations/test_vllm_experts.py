"""Experts for vLLM where there is no vLLM: what is served and what is refused, and the tensors of a
file as stacked weights. What needs vLLM is in tests/vllm/test_experts.py.
"""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mixed_gemm import Scheme, StackedWeight, _library
from mixed_gemm.formats.bitfields import pack_dense
from mixed_gemm.integrations.vllm import experts_asked
from mixed_gemm.integrations.vllm.experts_asked import Asked, activation_of, why_not_experts
from mixed_gemm.integrations.vllm.experts_stored import (
    CompressedTensorsLayout,
    compressed_tensors,
)
from mixed_gemm.integrations.vllm.measured import scheme_of, why_not_ahead
from mixed_gemm.weights.exchange import QuantizedWeight
from mixed_gemm.weights.floats import FloatWeight
from mixed_gemm.weights.integer import IntegerWeight
from mixed_gemm.weights.packed import PackedWeight

WEIGHTS = {
    "num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True,
    "dynamic": False, "actorder": None,
}  # fmt: skip
FILE: dict[str, Any] = {"input_activations": None, "format": "pack-quantized"}
PARALLEL = {"tp_size": 1, "dp_size": 1, "pcp_size": 1, "sp_size": 1, "enable_eplb": False}
MOE = {
    "hidden_dim": 256, "intermediate_size_per_partition": 128, "in_dtype": torch.bfloat16,
    "activation": SimpleNamespace(value="silu"), "experts_per_token": 2, "moe_backend": "auto",
    "has_bias": False, "is_lora_enabled": False, "intermediate_pad": None, "swiglu_limit": None,
    "swiglu_alpha": None, "swiglu_beta": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_dataclass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The description here has the fields that are read, and no others."""
    monkeypatch.setattr(experts_asked, "unknown_fields", lambda *_: "")


def asked(**changes: Any) -> Asked:
    """What vLLM asks, with some fields changed, whichever part they are of."""
    own = {x.name for x in fields(Asked)}
    weights, file, parallel, moe = ({k: changes.get(k, v) for k, v in given.items()}
                                    for given in (WEIGHTS, FILE, PARALLEL, MOE))  # fmt: skip
    more = {k: v for k, v in changes.items() if k not in {*weights, *file, *parallel, *moe, *own}}
    plain = Asked(
        layout=compressed_tensors(SimpleNamespace(**weights), **file),
        moe=SimpleNamespace(**moe, **more, moe_parallel_config=SimpleNamespace(**parallel)),
        on_input=False,
        on_cpu=True,
    )
    return replace(plain, **{k: v for k, v in changes.items() if k in own})


FLOATS = {"type": "float", "format": "mxfp4-pack-quantized"}
NVFP4 = {**FLOATS, "strategy": "tensor_group", "group_size": 16}
TAKEN: dict[str, dict[str, Any]] = {
    "int4, group 32": {},
    "int4, per channel": {"strategy": "channel", "group_size": None},
    "int4, zero points": {"symmetric": False},
    "int8, group 64": {"num_bits": 8, "group_size": 64},
    "act-order of whole groups": {"actorder": SimpleNamespace(value="static")},
    "mxfp4": FLOATS,
    "nvfp4": NVFP4,
    "float32 on a CPU": {"in_dtype": torch.float32},
    "float16 on a GPU": {"in_dtype": torch.float16, "on_cpu": False},
    "gelu": {"activation": "gelu"},
    "a limit": {"swiglu_limit": 7.0},
    "gpt-oss's activation in halves": {
        "activation": "swigluoai_uninterleave", "swiglu_limit": 7.0, "swiglu_alpha": 1.702,
        "swiglu_beta": 1.0,
    },
    "Llama 4": {"on_input": True, "experts_per_token": 1},
    "192 x 96": {"hidden_dim": 192, "intermediate_size_per_partition": 96},
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "3 bits": ({"num_bits": 3}, "bits must be 4 or 8, got 3"),
    "rounded as they come": ({"dynamic": True}, "weights must be rounded ahead"),
    "one scale": ({"strategy": "tensor"}, "must be for a group or for a channel, got tensor"),
    "act-order": ({"actorder": "group"}, "act-order must leave groups side by side, got group"),
    "group 24": ({"group_size": 24}, "positive multiple of 16, got 24"),
    "float8": ({"type": "float", "num_bits": 8}, "MXFP4 or NVFP4, got 8 bits by group"),
    "a group of 64 of floats": ({**FLOATS, "group_size": 64}, "must be MXFP4 or NVFP4"),
    "rounded activations": (
        {"input_activations": SimpleNamespace()},
        "activations of experts must stay in their dtype",
    ),
    "another format": ({"format": "int-quantized"}, "stored as pack-quantized, got int-quantized"),
    "float64": ({"in_dtype": torch.float64}, "must be float16, bfloat16 or float32"),
    "float32 on a GPU": ({"in_dtype": torch.float32, "on_cpu": False}, "a GPU multiplies experts"),
    "no gate": ({"activation": "relu2_no_mul"}, "silu, gelu, .*, got relu2_no_mul"),
    "gate and up in turns": ({"activation": "swigluoai"}, "got swigluoai"),
    "no limit": (
        {"activation": "swigluoai_uninterleave", "swiglu_beta": 1.0},
        "must have a limit and add 1 to up, got None and 1.0",
    ),
    "a limit of gelu": ({"activation": "gelu", "swiglu_limit": 7.0}, "gelu must be plain"),
    "silu with an alpha": ({"swiglu_alpha": 1.7}, "silu must be plain, .* alpha 1.7"),
    "a backend of vLLM": ({"moe_backend": "marlin"}, "moe_backend=marlin asks for one of vLLM's"),
    "biases": ({"has_bias": True}, "experts must have no biases"),
    "LoRA": ({"is_lora_enabled": True}, "adapters"),
    "EPLB": ({"enable_eplb": True}, "experts must stay on their ranks"),
    "data parallelism": ({"dp_size": 2}, "each rank must have all tokens"),
    "sequence parallelism": ({"sp_size": 2}, "each rank must have all tokens"),
    "padded weights": ({"intermediate_pad": 64}, "weights must not be padded"),
    "padded ranks": ({"tp_shard_with_padding": True}, "weights must not be padded"),
    "weights on two inputs": ({"on_input": True}, "one expert for each token, got 2"),
    "a group over two ranks": (
        {"intermediate_size_per_partition": 80},
        "80 input features of w2 on a rank are not divisible by group_size 32",
    ),
    "half a word": (
        {"hidden_dim": 100, "strategy": "channel"},
        "w13 must have a multiple of 8 input features, got 100",
    ),
    "zero points over two words": (
        {"symmetric": False, "num_bits": 4, "strategy": "channel", "hidden_dim": 128,
         "intermediate_size_per_partition": 100},
        "must fill words of 32 bits, got 100 in w13",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_served(name: str) -> None:
    assert why_not_experts(asked(**TAKEN[name])) is None


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_why(name: str) -> None:
    changes, reason = REFUSED[name]
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(why_not_experts(asked(**changes)))


def test_a_field_of_a_later_release_is_refused_when_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experts_asked, "unknown_fields", lambda *_: "rotation='hadamard'")
    assert why_not_experts(asked()) == (
        "vLLM asks for rotation='hadamard', which is not known here"
    )


def test_without_a_library_the_answer_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library, "available", False)
    monkeypatch.setattr(_library, "error", "no library")
    assert why_not_experts(asked()) == "no library"


def test_arguments_of_the_activation() -> None:
    for name, expected in {
        "a limit": ("silu", 7.0, 1.0),
        "gelu": ("gelu", None, 1.0),
        "gpt-oss's activation in halves": ("swiglu_oai", 7.0, 1.702),
    }.items():
        given = activation_of(asked(**TAKEN[name]).moe)
        assert given == dict(zip(("activation", "limit", "alpha"), expected, strict=True))


def test_experts_are_not_first_on_a_gpu_before_they_are_measured() -> None:
    names = {scheme_of("experts", asked(**TAKEN[name])) for name in TAKEN}
    assert names == {
        "experts, 4 bits", "experts, 4 bits, zero points", "experts, 8 bits",
        "experts, mxfp4", "experts, nvfp4",
    }  # fmt: skip
    said = why_not_ahead("experts", asked(), "NVIDIA H100 80GB HBM3")
    assert said == (
        "experts, 4 bits is not measured on NVIDIA H100 80GB HBM3, so vLLM's own kernels are "
        "asked before"
    )


# --- tensors -------------------------------------------------------------------------------------

E, N, K = 3, 64, 128  # of gate and of up
SCHEMES = {
    "int4, group 32": Scheme.weight_only(4, 32),
    "int4, per channel, zero points": Scheme.weight_only(4, -1, "sub"),
    "int8, group 64, zero points": Scheme.weight_only(8, 64, "sub"),
    "int8, per channel": Scheme.weight_only(8, -1),
    "mxfp4": Scheme.float4("e8m0", 32),
    "nvfp4": Scheme.float4("e4m3", 16),
}


def one(scheme: Scheme, dtype: torch.dtype) -> tuple[PackedWeight, dict[str, Tensor]]:
    """A random matrix ``[N, K]``, and its tensors in a file of compressed-tensors."""
    groups = 1 if scheme.group_size == -1 else K // scheme.group_size
    if scheme.weights.type == "int":
        bits = scheme.weights.num_bits
        middle = 1 << (bits - 1)
        codes = torch.randint(0, 2 * middle, (N, K), dtype=torch.uint8)
        scales = ((0.5 + torch.rand(groups, N)) / middle).to(dtype)
        points = torch.randint(0, 2 * middle, (groups, N), dtype=torch.uint8)
        tensors = {"weight_packed": pack_dense(codes, bits), "weight_scale": scales.t()}
        zeros = None
        if scheme.has_zeros:
            zeros = (points.int() - middle).to(dtype)
            tensors["weight_zero_point"] = pack_dense(points, bits).t()
        q = (codes.int() - middle).to(torch.int8)
        return IntegerWeight.from_quantized(q, scales, zeros, **scheme.gemm_options), tensors
    codes = torch.randint(0, 16, (N, K), dtype=torch.int8)
    pairs = (codes[:, 0::2] | codes[:, 1::2] << 4).view(torch.uint8)
    if scheme.weights.scale_dtype == "e8m0":
        stored = torch.randint(120, 132, (N, groups), dtype=torch.uint8)
        numbers, divisor, more = torch.exp2(stored.float() - 127), None, {}
    else:
        stored = (0.25 + torch.rand(N, groups)).to(torch.float8_e4m3fn)
        whole = 1 + torch.rand(1)
        numbers, divisor = stored.float(), whole.expand(N).contiguous()
        more = {"weight_global_scale": whole}
    found = QuantizedWeight.of_codes(
        "w", codes, numbers.t().contiguous(), scheme=scheme, global_scale=divisor
    )
    return FloatWeight.store(found, dtype), {
        "weight_packed": pairs, "weight_scale": stored, **more
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SCHEMES)
def test_tensors_of_a_file_become_a_stacked_weight(name: str, dtype: torch.dtype) -> None:
    scheme = SCHEMES[name]
    rows = [[one(scheme, dtype) for _ in range(2)] for _ in range(E)]
    layout = CompressedTensorsLayout(scheme)
    parts = layout.parts(E, 2 * N, K, dtype, "w13")
    for number, row in enumerate(rows):  # as vLLM's loader: gate before up
        for side, (_, tensors) in enumerate(row):
            for key, values in tensors.items():
                place = parts[key].values[number]
                half = place.shape[0] // 2
                place[side * half : (side + 1) * half] = values
    found = {key: part.values for key, part in parts.items()}
    made = layout.packed(found, 2 * N, dtype, "w13")
    wanted = StackedWeight.of([[weight for weight, _ in row] for row in rows])
    assert made.scheme == wanted.scheme and made.tensors["scales"].dtype == dtype
    for key in layout.names:
        part = getattr(wanted, key)
        assert (key in made.tensors) == (part is not None)
        assert part is None or torch.equal(made.tensors[key], part)


@pytest.mark.parametrize("name", SCHEMES)
def test_the_loader_is_told_what_shares_a_scale(name: str) -> None:
    scheme = SCHEMES[name]
    for stem in ("w13", "w2"):
        parts = CompressedTensorsLayout(scheme).parts(E, N, K, torch.float16, stem)
        kinds = {key: part.shares for key, part in parts.items()}
        shared = "channel" if scheme.group_size == -1 else "group"
        assert kinds["weight_scale"] == shared
        assert kinds.get("weight_global_scale", "tensor") == "tensor"
        if "weight_global_scale" in parts:
            assert parts["weight_global_scale"].values.shape == ((E, 2) if stem == "w13" else (E,))
