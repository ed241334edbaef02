"""The benchmark of a block on several GPUs, by two processes over gloo with a small shape, and
arguments that our RowwiseParallel and AllReduce refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support import ranks

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)

from torch.distributed.tensor import Replicate, Shard

from benchmarks.row import Row
from mixed_gemm.parallel import AllReduce, RowwiseParallel


def test_two_processes_time_a_block(repository: Path, tmp_path: Path) -> None:
    out = tmp_path / "times.json"
    module = ["-m", "benchmarks.tensor_parallel", "--device=cpu", "--rounds=1", "--rows", "1", "3"]
    shape = ["--shape", "256", "512", "8", "2", "32"]
    printed = ranks.torchrun([*module, *shape, "--out", str(out)], repository)
    assert "| M | int4, 1 GPU |" in printed
    found = json.loads(out.read_text())
    assert "CUDA devices" in found["meta"]["symmetric_memory"]
    rows = [Row(**{"kernel": "", **row}) for row in found["rows"]]
    timed = {(row.bits, row.op, row.kernel, row.M) for row in rows}
    assert timed == {
        (bits, op, kernel, m)
        for bits in (4, 16)
        for m in (1, 3)
        for op, kernel in (
            ("block on 1 GPU", ""),
            ("block on 2 GPUs", "torch"),
            ("block on 2 GPUs", "auto"),
        )
    }
    assert all(row.us > 0 for row in rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"all_reduce": "one_shot"}, "all_reduce must be one of"),
        ({"input_layouts": Replicate()}, r"input_layouts must be Shard\(-1\).*Hint"),
        ({"output_layouts": Shard(0)}, r"output_layouts Replicate\(\).*Hint"),
    ],
)
def test_other_layouts_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RowwiseParallel(**options)  # type: ignore[arg-type]


def test_symmetric_memory_that_is_not_there_is_refused_or_said(tmp_path: Path) -> None:
    from torch import distributed

    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        group, device = distributed.group.WORLD, torch.device("cpu")
        reduce = AllReduce(group, device)
        assert reduce.why_not == "symmetric memory is of CUDA devices, got cpu"
        assert reduce.method_for(1024) == "group"
        assert torch.equal(reduce(torch.ones(3)), torch.ones(3))
        for method in ("push", "peer"):
            text = f"'{method}' cannot be had: symmetric memory is of"
            with pytest.raises(RuntimeError, match=text):
                AllReduce(group, device, method)
        with pytest.raises(ValueError, match="method must be one of"):
            AllReduce(group, device, "nccl")
    finally:
        distributed.destroy_process_group()
