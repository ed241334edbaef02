"""Properties of the torch-free C++ core, through the pybind11 module that the C++ tests build.

Skipped only where MIXED_GEMM_CORE_MODULE_DIR is not set; where it is, the module must be there.
"""

from __future__ import annotations

import importlib
import math
import os
import struct
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mixed_gemm
from mixed_gemm.ops import problem

FOLDER = os.environ.get("MIXED_GEMM_CORE_MODULE_DIR")
if FOLDER is None:
    pytest.skip("MIXED_GEMM_CORE_MODULE_DIR is not set", allow_module_level=True)
sys.path.insert(0, FOLDER)
core: Any = importlib.import_module("_mixed_gemm_core")

BITS = st.sampled_from(problem.BITS)
EXTENT = st.integers(1, 200)
WORD = st.integers(0, 2**32 - 1)
HALF = st.integers(0, 2**16 - 1)
FORMATS = {"float16": torch.float16, "bfloat16": torch.bfloat16}
FORMAT = st.sampled_from(tuple(FORMATS))


def weights(bits: int, n: int, k: int, seed: int) -> np.ndarray[Any, np.dtype[np.int8]]:
    low = -(2 ** (bits - 1))
    return np.random.default_rng(seed).integers(low, -low, (n, k), dtype=np.int8)


def as_float(format_: str, bits: int) -> float:
    raw = torch.tensor([bits if bits < 2**15 else bits - 2**16], dtype=torch.int16)
    return raw.view(FORMATS[format_]).double().item()


def as_bits(format_: str, value: torch.Tensor) -> int:
    return int(value.to(FORMATS[format_]).view(torch.int16)) & 0xFFFF


def test_constants_equal_those_of_the_package() -> None:
    assert core.LAYOUT_VERSION == problem.LAYOUT_VERSION
    assert (core.PAD_N, core.PAD_K) == (problem.PAD_N, problem.PAD_K)


@given(BITS, EXTENT, EXTENT)
def test_packed_bytes_equal_the_shape_of_the_package(bits: int, n: int, k: int) -> None:
    shape = problem.packed_shape(n, k, problem.integer_weight(bits))
    assert core.packed_bytes(bits, n, k) == math.prod(shape)


@given(BITS, st.integers(0, 500), st.integers(0, 2000))
def test_element_inverts_place(bits: int, n: int, k: int) -> None:
    k_pad = problem.round_up(k + 1, problem.PAD_K)
    word, slot = core.place(bits, n, k, k_pad)
    assert core.element(bits, word, slot, k_pad) == (n, k)
    assert 0 <= slot < 32 // bits
    rows = problem.round_up(n + 1, problem.PAD_N)
    assert 0 <= word < rows * k_pad * bits // 32


@pytest.mark.parametrize("bits", problem.BITS)
@pytest.mark.parametrize(("n", "k"), [(64, 64), (64, 192), (128, 128)])
def test_place_is_a_bijection_on_a_whole_weight(bits: int, n: int, k: int) -> None:
    places = {core.place(bits, i, j, k) for i in range(n) for j in range(k)}
    assert places == {(w, s) for w in range(n * k * bits // 32) for s in range(32 // bits)}


@given(BITS, st.integers(0, 63), st.integers(0, 127))
def test_one_weight_changes_one_field(bits: int, n: int, k: int) -> None:
    q = np.zeros((64, 128), np.int8)
    base = core.pack_weight(bits, q).view(np.uint32)
    q[n, k] = -1
    changed = core.pack_weight(bits, q).view(np.uint32) ^ base
    word, slot = core.place(bits, n, k, 128)
    field = ((1 << bits) - 1) << (bits * slot)
    assert np.flatnonzero(changed).tolist() == [word]
    assert int(changed[word]) & ~field == 0


@given(BITS, EXTENT, EXTENT, st.integers(0, 2**32 - 1))
def test_unpack_inverts_pack(bits: int, n: int, k: int, seed: int) -> None:
    q = weights(bits, n, k, seed)
    packed = core.pack_weight(bits, q)
    assert (core.unpack_weight(bits, packed, n, k) == q).all()


@given(BITS, st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_pack_inverts_unpack(bits: int, rows: int, columns: int, seed: int) -> None:
    n, k = 64 * rows, 64 * columns
    packed = np.random.default_rng(seed).integers(0, 256, n * k * bits // 8, dtype=np.uint8)
    assert (core.pack_weight(bits, core.unpack_weight(bits, packed, n, k)) == packed).all()


@given(BITS, EXTENT, EXTENT, st.integers(0, 2**32 - 1))
def test_op_packs_as_the_core_does(bits: int, n: int, k: int, seed: int) -> None:
    q = weights(bits, n, k, seed)
    packed = mixed_gemm.pack_weights(torch.from_numpy(q), bits)
    assert packed.flatten().tolist() == core.pack_weight(bits, q).tolist()
    assert (mixed_gemm.unpack_weights(packed, bits, n, k).numpy() == q).all()


@given(BITS, st.integers(1, 130), st.integers(1, 130), st.integers(0, 2**32 - 1))
def test_padding_holds_zero(bits: int, n: int, k: int, seed: int) -> None:
    packed = core.pack_weight(bits, weights(bits, n, k, seed))
    n_pad, k_pad = problem.round_up(n, problem.PAD_N), problem.round_up(k, problem.PAD_K)
    whole = core.unpack_weight(bits, packed, n_pad, k_pad)
    whole[:n, :k] = 0
    assert not whole.any()


@given(FORMAT, st.sampled_from(problem.BITS), WORD)
def test_converter_is_exact(format_: str, bits: int, word: int) -> None:
    pairs = core.convert(format_, bits, word)
    count = 32 // bits
    assert len(pairs) == count // 2
    for pair, value in enumerate(pairs):
        for member in (0, 1):
            slot = pair + member * (count // 2)
            stored = (word >> (bits * slot)) & ((1 << bits) - 1)
            assert as_float(format_, (value >> (16 * member)) & 0xFFFF) == stored - 2 ** (bits - 1)


@given(WORD, WORD, st.integers(0, 0xFFFF).map(lambda s: s & 0x7777))
def test_prmt_picks_bytes(a: int, b: int, selector: int) -> None:
    source = struct.pack("<II", a, b)
    picked = bytes(source[(selector >> (4 * i)) & 7] for i in range(4))
    assert core.prmt(a, b, selector) == struct.unpack("<I", picked)[0]


@given(WORD, WORD, WORD, st.integers(0, 255))
def test_lop3_is_its_table(a: int, b: int, c: int, table: int) -> None:
    expected = 0
    for i in range(32):
        index = ((a >> i) & 1) << 2 | ((b >> i) & 1) << 1 | ((c >> i) & 1)
        expected |= ((table >> index) & 1) << i
    assert core.lop3(a, b, c, table) == expected


@given(FORMAT, HALF)
def test_decode_then_encode_is_the_identity(format_: str, bits: int) -> None:
    value = core.decode(format_, bits)
    if math.isnan(value):
        return
    assert value == as_float(format_, bits)
    assert core.encode(format_, value) == bits


@given(FORMAT, st.floats(allow_nan=False))
def test_encode_rounds_to_nearest_even(format_: str, value: float) -> None:
    # Through float32 only where that is exact, so that torch does not round twice.
    if struct.unpack("<f", struct.pack("<f", _clamp(value)))[0] != value:
        value = struct.unpack("<f", struct.pack("<f", _clamp(value)))[0]
    expected = as_bits(format_, torch.tensor([value], dtype=torch.float32))
    assert core.encode(format_, value) == expected


def _clamp(value: float) -> float:
    return max(-3.4e38, min(3.4e38, value))


@given(FORMAT, st.lists(HALF, min_size=6, max_size=6))
def test_fma_rounds_once(format_: str, halves: list[int]) -> None:
    a, b, c = (halves[i] | halves[i + 1] << 16 for i in (0, 2, 4))
    got = core.fma_x2(format_, a, b, c)
    for lane in (0, 16):
        x, y, z = (as_float(format_, (v >> lane) & 0xFFFF) for v in (a, b, c))
        if not all(map(math.isfinite, (x, y, z))):
            continue
        from fractions import Fraction

        exact = Fraction(x) * Fraction(y) + Fraction(z)
        out = as_float(format_, (got >> lane) & 0xFFFF)
        if not math.isfinite(out):
            assert abs(exact) >= Fraction(65504 if format_ == "float16" else 3.38e38)
            continue
        u = Fraction(1, 2**11 if format_ == "float16" else 2**8)
        tiny = Fraction(1, 2**25) if format_ == "float16" else Fraction(1, 2**134)
        assert abs(Fraction(out) - exact) <= max(u * abs(exact), tiny)
