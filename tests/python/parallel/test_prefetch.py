"""Which bytes of a weight are brought into L2 for the layer that follows a sum over ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import ranks
from torch import Tensor

import mixed_gemm
from mixed_gemm.parallel.prefetch import first_bytes
from mixed_gemm.weights import IntegerWeight

N, K = 100, 320  # padded to 128 columns of 320


def weight_of(bits: int, q: Tensor) -> IntegerWeight:
    return IntegerWeight.from_quantized(q, torch.ones(1, N), bits=bits)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("tiles", [1, 2, 3, 5])
def test_the_bytes_of_integers_hold_the_first_of_k_of_all_columns(bits: int, tiles: int) -> None:
    first = torch.zeros(N, K, dtype=torch.int8)
    first[:, : 64 * tiles] = 1  # other codes than the rest, in whole tiles of 64
    groups = 128 * bits // 16
    weight, rest = weight_of(bits, first), weight_of(bits, torch.zeros_like(first))
    found, other = (first_bytes(w, groups * 128 * tiles + 127) for w in (weight, rest))
    assert found is not None and other is not None
    assert found.shape == (groups, 128 * tiles)
    assert found.data_ptr() == weight.b_packed.data_ptr()
    changed = weight.b_packed != rest.b_packed
    assert int((found != other).sum()) == int(changed.sum()) > 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_bytes_of_a_dense_weight_are_the_first_of_each_row(dtype: torch.dtype) -> None:
    weight = torch.nn.Linear(K, N, dtype=dtype).weight
    found = first_bytes(weight, N * 300)
    assert found is not None and not found.requires_grad
    size = weight.element_size()
    assert torch.equal(found, weight.detach()[:, : 256 // size].contiguous().view(torch.uint8))
    whole = first_bytes(weight, 1 << 30)
    assert whole is not None and whole.shape == (N, K * size)


def test_there_may_be_none() -> None:
    dense = torch.nn.Linear(K, N).weight
    assert first_bytes(dense, N * 127) is None  # less than a line of each row
    assert first_bytes(dense.t(), 1 << 30) is None
    assert first_bytes(torch.empty(0, K), 1 << 30) is None
    assert first_bytes(None, 1 << 30) is None
    int8 = mixed_gemm.Linear.from_float(torch.nn.Linear(K, N), scheme="w8a8").weight
    assert first_bytes(int8, 1 << 30) is None


def test_a_layer_finds_the_sharded_weight_behind_it(tmp_path: Path) -> None:
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("this torch has no gloo")
    for output in ranks.run(["-m", "support.parallel_prefetch"], tmp_path, 2):
        assert [x for x in output.splitlines() if "Traceback" in x] == []
        assert output.count(": ok") == 3
