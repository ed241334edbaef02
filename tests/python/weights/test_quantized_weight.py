"""QuantizedWeight, the one type of all loaders."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, replace

import pytest
import torch

from mixed_gemm.formats import LayerInfo
from mixed_gemm.weights import SCHEMES, QuantizedWeight, Scheme, Side
from mixed_gemm.weights.kinds import storing

GOOD = {
    "name": "x",
    "q": torch.zeros(8, 32, dtype=torch.int8),
    "scales": torch.ones(2, 8),
    "group_size": 16,
}
BAD_FIELDS = {
    "q dtype": ({"q": torch.zeros(8, 32)}, r"q must be int8 or float8_e4m3fn"),
    "q rank": ({"q": torch.zeros(8, dtype=torch.int8)}, r"q must be int8 or float8_e4m3fn"),
    "q range": (
        {"q": torch.full((8, 32), 8, dtype=torch.int8)},
        r"q must be in -8\.\.7 for bits=4",
    ),
    "bits": ({"bits": 3}, r"bits must be 4 or 8"),
    "float8 bits": (
        {"q": torch.zeros(8, 32).to(torch.float8_e4m3fn)},
        r"bits must be 4 or 8 \(8 for float8\), got 4",
    ),
    "weight": (
        {"weight": "e3m2"},
        r"weight must be int4 or int8 or e2m1 or nf4 or fp4 where q is torch.int8, got 'e3m2'",
    ),
    "float8 as integers": (
        {"weight": "e4m3"},
        r"weight must be int4 or int8 or e2m1 or nf4 or fp4 where q is torch.int8, got 'e4m3'",
    ),
    "weight of no such integers": ({"weight": "int3"}, r"bits must be 4 or 8 .*, got 3"),
    "group_size": ({"group_size": 33}, r"group_size must be -1 or in 1\.\.K=32"),
    "scales": (
        {"scales": torch.ones(3, 8)},
        r"scales must be .* \(2, 8\), got torch.float32 \(3, 8\)",
    ),
    "scales NaN": ({"scales": torch.full((2, 8), float("nan"))}, r"scales must be finite, got nan"),
    "zeros alone": (
        {"zeros": torch.ones(2, 8)},
        r"zero_mode must be one of .* got 'none' with zeros",
    ),
    "zeros absent": ({"zero_mode": "sub"}, r"got 'sub' without zeros"),
    "zeros dtype": (
        {"zeros": torch.ones(2, 8).half(), "zero_mode": "sub"},
        r"zeros must be torch.float32 as scales, got torch.float16",
    ),
    "bias": ({"bias": torch.ones(9)}, r"bias must be .* \(8,\), got torch.float32 \(9,\)"),
    "permutation": ({"permutation": torch.arange(8)}, r"permutation must be int64 \(32,\)"),
    "repetition": (
        {"permutation": torch.zeros(32, dtype=torch.int64)},
        r"permutation must hold each of 0\.\.31 once",
    ),
}


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_quantized_weight_refuses_what_does_not_fit(case):
    change, text = BAD_FIELDS[case]
    with pytest.raises(ValueError, match=text):
        QuantizedWeight(**{**GOOD, **change})


@pytest.mark.parametrize(("bits", "weight"), [(4, "int4"), (8, "int8")])
def test_bits_are_another_way_to_say_the_weight_type(bits, weight):
    by_bits, by_name = QuantizedWeight(**GOOD, bits=bits), QuantizedWeight(**GOOD, weight=weight)
    for found in (
        by_bits,
        by_name,
        replace(QuantizedWeight(**GOOD, bits=12 - bits), bits=bits),
        replace(QuantizedWeight(**GOOD, bits=12 - bits), weight=weight),
        replace(by_bits, name="y"),
        QuantizedWeight(GOOD["name"], GOOD["q"], GOOD["scales"], None, bits, GOOD["group_size"]),
    ):
        assert (found.bits, found.weight) == (bits, weight)
        assert found.scheme == Scheme.weight_only(bits, 16)
        assert found.scheme.weight_type == weight
        assert found.scheme.gemm_options["bits"] == bits
    assert QuantizedWeight(**GOOD).weight == "int4"


ZEROS = {"zeros": torch.zeros(2, 8), "zero_mode": "sub"}
FLOAT8 = {**GOOD, "q": GOOD["q"].to(torch.float8_e4m3fn), "weight": "e4m3"}
BLOCK = {**FLOAT8, "block": (8, 16), "input_activations": Side("float", dynamic=True)}
STORED = {
    "plain": GOOD,
    "zeros": {**GOOD, **ZEROS},
    "tensor": {**FLOAT8, "scales": torch.ones(1, 8), "group_size": -1, "strategy": "tensor"},
    "block": BLOCK,
    "rounded": {**BLOCK, "block": None},
}


@pytest.mark.parametrize("case", STORED)
def test_a_scheme_says_what_the_words_say(case):
    given = STORED[case]
    by_words = QuantizedWeight(**given)
    words = "bits group_size zero_mode strategy block input_activations weight"
    tensors = {name: x for name, x in given.items() if name not in words.split()}
    for again in (
        QuantizedWeight.stored_as(**tensors, scheme=by_words.scheme),
        QuantizedWeight.of_codes(**tensors, scheme=by_words.scheme),
        replace(by_words, name="y"),
        by_words.with_fields(name="y"),
    ):
        assert again.scheme == by_words.scheme
        for word in set(given) - set(tensors):
            assert getattr(again, word) == given[word], word


def test_replacing_a_word_changes_the_scheme():
    weight = QuantizedWeight(**GOOD)
    finer = replace(weight, group_size=8, scales=torch.ones(4, 8))
    assert finer.scheme == Scheme.of_file("int4", 8) and finer.weight == "int4"
    whole = replace(finer, group_size=-1, scales=torch.ones(1, 8))
    assert whole.scheme == Scheme.weight_only(4, -1)
    with_zeros = replace(weight, **ZEROS)
    assert with_zeros.scheme == Scheme.weight_only(4, 16, "sub")
    assert replace(with_zeros, zeros=None, zero_mode="none").scheme == weight.scheme
    rounded = QuantizedWeight(**BLOCK)
    assert replace(rounded, input_activations=None).scheme == rounded.weight_only().scheme
    assert weight.with_fields(scheme=Scheme.of_file("int8", 16)).bits == 8
    with pytest.raises(ValueError, match=r"got 'sub' without zeros"):
        replace(with_zeros, zeros=None)


def test_what_a_weight_is_of():
    weight = QuantizedWeight(**GOOD, is_conv1d=True)
    assert (weight.module, weight.is_conv1d, weight.is_embedding) == ("conv1d", True, False)
    assert replace(weight, is_conv1d=False).module == "linear"
    assert replace(weight, is_embedding=False).module == "conv1d"
    assert QuantizedWeight(**GOOD, is_embedding=True).module == "embedding"
    made = QuantizedWeight.of_codes(
        "x", GOOD["q"], torch.ones(2, 8), scheme=weight.scheme, module="conv1d"
    )
    assert made.is_conv1d


def test_a_layer_by_its_words_is_one_by_its_scheme():
    by_words = LayerInfo("x", 64, 8, 3, 16, "int", True, 100)
    by_scheme = LayerInfo.stored_as(Scheme.of_file("int4", 16, "sub"), "x", (8, 64), 100, 3)
    assert by_words == by_scheme and by_words.scheme == by_scheme.scheme
    assert asdict(by_words) == asdict(by_scheme)
    assert (by_scheme.bits, by_scheme.scheme.bits, by_scheme.group_size) == (3, 4, 16)
    block = LayerInfo("x", 64, 8, 8, -1, "fp8", False, 1, "", None, (128, 128))
    assert block.scheme == Scheme.fp8(None, strategy="block", block=(128, 128))
    assert (block.kind, block.group_size, block.block) == ("fp8", -1, (128, 128))
    assert replace(block, name="y").scheme == block.scheme


def pickled(weight):
    return pickle.loads(pickle.dumps(weight))


@pytest.mark.parametrize("case", STORED)
def test_what_older_versions_pickled_loads(case):
    """They had the words of the scheme as attributes, and no scheme."""
    whole = QuantizedWeight(**STORED[case])
    words = "name q scales zeros group_size zero_mode bias pre_scale permutation strategy "
    words += "input_activations input_scale input_azp is_conv1d is_embedding block weight"
    old = object.__new__(QuantizedWeight)
    old.__dict__.update({word: getattr(whole, word) for word in words.split()})
    again = copy.deepcopy if whole.is_fp8 else pickled  # torch 2.13 cannot unpickle float8
    for loaded in (again(old), again(whole)):
        assert loaded.scheme == whole.scheme and torch.equal(loaded.q, whole.q)
        assert not {"group_size", "weight"} & loaded.__dict__.keys()


def test_codes_that_were_unpacked_are_not_looked_at_but_floats_are():
    q, scales = torch.full((8, 32), 8, dtype=torch.int8), torch.ones(2, 8)
    scheme = Scheme.of_file("int4", 16)
    weight = QuantizedWeight.of_codes("x", q, scales, scheme=scheme)
    with pytest.raises(ValueError, match=r"q must be in -8\.\.7 for bits=4"):
        weight.check()
    with pytest.raises(ValueError, match="scales must be finite"):
        QuantizedWeight.of_codes("x", q, scales / 0, scheme=scheme)
    with pytest.raises(ValueError, match=r"got 'none' with zeros"):
        QuantizedWeight.of_codes("x", q, scales, scales, scheme=scheme)


def test_float8_is_a_weight_type():
    float8 = {**GOOD, "q": GOOD["q"].to(torch.float8_e4m3fn)}
    for weight in (QuantizedWeight(**float8, bits=8), QuantizedWeight(**float8, weight="e4m3")):
        assert (weight.weight, weight.bits) == ("e4m3", 8)
        assert (weight.scheme.weight_type, weight.scheme.bits) == ("e4m3", 8)
        assert weight.requantize(4, 16).weight == "int4"


@pytest.mark.parametrize("dims", [2, 4])
@pytest.mark.parametrize(
    "scheme", [*(Scheme.weight_only(b) for b in (4, 8)), *SCHEMES.values()], ids=str
)
def test_no_weight_is_stored_with_scales_that_its_kind_has_not(scheme, dims):
    assert storing(scheme, 2) is not None
    for scale_dtype in {"e8m0", "e4m3", "float32"} - {scheme.weights.scale_dtype}:
        other = replace(scheme, weights=replace(scheme.weights, scale_dtype=scale_dtype))
        assert storing(other, dims) is None and f"with {scale_dtype} scales" in str(other)


@pytest.mark.parametrize(
    "side", [Side(num_bits=3, strategy="group", group_size=32), Side("float", 6)]
)
def test_codes_of_other_widths_are_no_weight(side):
    scheme = Scheme(side)
    assert scheme.weight_type == f"{side.type}{side.num_bits}"
    assert storing(scheme, 2) is None and storing(scheme, 4) is None


def test_quantized_weight_add_zeros_are_added():
    zeros = torch.arange(16.0).reshape(2, 8)
    weight = QuantizedWeight(**{**GOOD, "zeros": zeros, "zero_mode": "add"})
    assert torch.equal(weight.dequantize(), zeros.t().repeat_interleave(16, 1))
    assert torch.equal(weight.to_linear().dequantize(), weight.dequantize())


GROUPED = {
    "weight-only": (Scheme.weight_only(4, 128, "sub"), Scheme.weight_only(4, 32, "sub")),
    "int8 blocks": (Scheme.w8a8_block(128), Scheme.w8a8_block(32)),
    "float8 blocks": (
        Scheme.fp8(strategy="block", block=(64, 128)),
        replace(
            Scheme.fp8(strategy="block", block=(64, 128)),
            weights=Side("float", strategy="block", block=(64, 32)),
        ),
    ),
    "float8 groups": (
        Scheme(Side("float", strategy="group", group_size=128)),
        Scheme(Side("float", strategy="group", group_size=32)),
    ),
    "no groups": (Scheme.w8a8(), Scheme.w8a8()),
    "one scale": (Scheme.fp8(strategy="tensor"), Scheme.fp8(strategy="tensor")),
}


@pytest.mark.parametrize("case", GROUPED)
def test_a_scheme_with_other_groups(case):
    scheme, finer = GROUPED[case]
    assert scheme.with_group_size(32) == finer
    assert scheme.with_group_size(scheme.group_size) == scheme or "blocks" in case


def test_one_ragged_group_is_all_of_k():
    scheme = Scheme.weight_only(4, 128)
    assert scheme.with_group_size(128, 96) == Scheme.weight_only(4, -1)
    assert scheme.with_group_size(128, 128) is scheme
    with pytest.raises(ValueError, match="multiple of 16"):
        scheme.with_group_size(24)
