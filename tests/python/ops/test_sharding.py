"""The ops on DTensors: two processes with gloo, and the choice of a cut on larger meshes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)
from support import ranks, sharded_calls

from mixed_gemm.ops.registry import OPS
from mixed_gemm.ops.sharding import WHOLE, Along, Cut, Rows, Sharding

SHARDED = {op.name: op.sharding for op in OPS if not isinstance(op.sharding, str)}


def test_every_op_with_a_rule_has_a_case() -> None:
    assert {make().op for make in sharded_calls.CALLS.values()} == set(SHARDED)


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="no gloo")
def test_two_ranks_agree_with_one(tmp_path: Path) -> None:
    for output in ranks.run(["-m", "support.sharded_calls"], tmp_path):
        lines = set(output.splitlines())
        wrong = [name for name in sharded_calls.CALLS if f"{name}: ok" not in lines]
        assert not wrong, output.replace("\\n", "\n")


# --- the cuts of a call --------------------------------------------------------------------------


def test_rows_take_along_what_has_an_element_for_each() -> None:
    way = Rows("rows", "a", per_row=("scale",))

    def dims(**sizes: tuple[int, ...]) -> list[dict[str, int]]:
        return [dict(cut.dims) for cut in way.cuts(sizes, 2)]

    assert dims(a=(4, 6, 8)) == [{"a": 0}, {"a": 1}]
    assert dims(a=(4, 6, 8), scale=(1,)) == [{"a": 0}, {"a": 1}]
    assert dims(a=(4, 6, 8), scale=(4, 6, 1)) == [{"a": 0, "scale": 0}, {"a": 1, "scale": 1}]
    assert dims(a=(4, 6, 8), scale=(24,)) == [{"a": 0, "scale": 0}]
    assert dims(a=(3, 6, 8), scale=(18,)) == []  # 9 scales a rank are no whole rows
    assert dims(a=(1, 8)) == dims(a=(8,)) == dims(a=(0, 8)) == []


def test_a_dimension_is_cut_into_equal_shares_of_whole_units() -> None:
    way = Along("channels", {"scales": 1, "packed": 0, "bias": 0, "n": 0}, -1, unit=64)
    sizes = {"scales": (2, 256), "packed": (256, 32), "bias": (256,)}
    assert way.cuts(sizes, 2) == [Cut({"scales": 1, "packed": 0, "bias": 0}, -1)]
    assert way.cuts(sizes, 4) and not way.cuts(sizes, 8)
    for n in (100, 128 + 64, 0):
        assert not way.cuts({"scales": (2, n), "packed": (256, 32)}, 2)


def test_one_scale_for_all_channels_is_whole_on_every_rank() -> None:
    way = Along("channels", {"b": 1, "scale": -1}, -1)
    assert way.cuts({"b": (8, 6), "scale": (1,)}, 2) == [Cut({"b": 1}, -1)]
    assert way.cuts({"b": (8, 6), "scale": (1, 6)}, 2) == [Cut({"b": 1, "scale": 1}, -1)]


def test_doing_all_of_it_on_every_rank_is_always_possible() -> None:
    assert Sharding((Rows("rows", "a"),)).cuts({"a": (8,)}, 2) == [WHOLE]


# --- registration --------------------------------------------------------------------------------

MESH_OF_FOUR = """
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
import mixed_gemm
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
N, K = 256, 64
linear = mixed_gemm.Linear.from_float(torch.nn.Linear(K, N), group_size=32)


def at(x, *placements):
    return DTensor.from_local(x, mesh, placements, run_check=False)


packed = at(linear.b_packed[: N // 2], Replicate(), Shard(0))
scales = at(linear.scales[:, : N // 2], Replicate(), Shard(1))
a = at(torch.randn(3, K), Shard(0), Replicate())
out = torch.ops.mixed_gemm.fpA_intB_gemm(a, packed, scales, bits=4, group_size=32)
assert out.placements == (Shard(0), Shard(1)) and out.shape == (6, N), out
assert out.to_local().shape == (3, N // 2)
want = mixed_gemm.fpA_intB_gemm(a.to_local(), linear.b_packed, linear.scales, bits=4, group_size=32)
torch.testing.assert_close(out.to_local(), want[:, : N // 2])
# Rows over both dimensions of the mesh
a = at(torch.randn(2, K), Shard(0), Shard(0))
whole = [at(x, Replicate(), Replicate()) for x in (linear.b_packed, linear.scales)]
out = torch.ops.mixed_gemm.fpA_intB_gemm(a, *whole, bits=4, group_size=32)
assert out.placements == (Shard(0), Shard(0)) and out.to_local().shape == (2, N), out
for others, text in (
    ([linear.b_packed, scales], "b_packed must be a DTensor as other arguments are, got a plain"),
    ([packed, at(linear.scales.half(), Replicate(), Shard(1))], "must be float32 (the dtype of a)"),
):
    try:
        mixed_gemm.fpA_intB_gemm(a, *others, bits=4, group_size=32)
    except TypeError as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
print("done")
"""


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_a_mesh_of_two_dimensions_cuts_rows_and_channels() -> None:
    assert python(MESH_OF_FOUR).endswith("done\n")


@pytest.mark.parametrize("first", ["mixed_gemm", "torch.distributed.tensor"])
def test_rules_are_there_whatever_was_imported_first(first: str) -> None:
    second = {"mixed_gemm": "torch.distributed.tensor"}.get(first, "mixed_gemm")
    code = f"""
import sys, {first}
assert ("mixed_gemm.distributed.op_rules" in sys.modules) is False
import {second}
from torch._library.simple_registry import find_torch_dispatch_rule
import torch
op = torch.ops.mixed_gemm.fpA_intB_gemm.default
assert find_torch_dispatch_rule(op, torch.distributed.tensor.DTensor) is not None
module = sys.modules["torch.distributed.tensor"]
assert module.__spec__.loader is module.__loader__ and module.__loader__.get_source(module.__name__)
"""
    python(code)


def test_import_does_not_pay_for_torch_distributed_tensor(tmp_path: Path) -> None:
    assert python("import sys, mixed_gemm; print('torch.distributed.tensor' in sys.modules)") == (
        "False\n"
    )
