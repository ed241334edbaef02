"""Properties of the constraints and the cost model, through the pybind11 module of the C++ core."""

from __future__ import annotations

import importlib
import math
import os
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

FOLDER = os.environ.get("MIXED_GEMM_CORE_MODULE_DIR")
if FOLDER is None:
    pytest.skip("MIXED_GEMM_CORE_MODULE_DIR is not set", allow_module_level=True)
sys.path.insert(0, FOLDER)
core: Any = importlib.import_module("_mixed_gemm_core")

EXTENT = st.integers(1, 1 << 20)
BITS = st.sampled_from((4, 8))
GPU = st.sampled_from(((80, 108, 166912), (86, 72, 101376), (89, 142, 101376), (90, 132, 232448)))


@given(EXTENT, EXTENT, EXTENT, BITS, st.integers(-4, 1 << 21))
def test_why_not_accepts_exactly_the_documented_group_sizes(
    m: int, n: int, k: int, bits: int, group_size: int
) -> None:
    documented = group_size == -1 or (group_size > 0 and group_size % 16 == 0 and group_size <= k)
    assert (core.why_not(m, n, k, bits, group_size) == []) == documented


@given(EXTENT, st.integers(-4, 1 << 21))
def test_nearest_group_size_is_accepted_and_keeps_what_is(k: int, group_size: int) -> None:
    nearest = core.nearest_group_size(k, group_size)
    assert core.why_not(1, 1, k, 4, nearest) == []
    if core.why_not(1, 1, k, 4, group_size) == []:
        assert nearest == group_size


@given(EXTENT, EXTENT, EXTENT, BITS, st.integers(1, 300), st.integers(0, 2), GPU)
def test_candidates_are_distinct_finite_and_sorted(
    m: int, n: int, k: int, bits: int, units: int, zero_mode: int, gpu: tuple[int, int, int]
) -> None:
    group_size = min(16 * units, k) if k >= 16 else k
    found = core.candidates(m, n, k, bits, group_size, zero_mode, *gpu)
    names, times = zip(*found, strict=True)
    assert "dequantize_dense" in names
    assert len(set(names)) == len(names)
    assert all(math.isfinite(t) and t > 0 for t in times)
    assert list(times) == sorted(times)


@given(EXTENT, EXTENT, BITS, GPU)
def test_more_rows_are_never_predicted_faster(
    n: int, k: int, bits: int, gpu: tuple[int, int, int]
) -> None:
    best = [core.candidates(m, n, k, bits, k, 0, *gpu)[0][1] for m in (1, 8, 64, 512, 4096)]
    assert best == sorted(best)
