"""What tests/python/parallel tries over gloo, over NCCL on two GPUs: every scheme under torch's
tensor parallelism, checkpoints, FSDP2 with adapters, plans of transformers. And our kernel that
sums over ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import parallel_state, ranks

NCCL = {"MIXED_GEMM_TEST_BACKEND": "nccl"}
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.device_count() < 2 or not torch.distributed.is_nccl_available(),
        reason="needs two GPUs and NCCL",
    ),
]


def run(module: str, folder: Path, *after: str) -> None:
    for output in ranks.run(["-m", module], folder, 2, NCCL, after):
        assert [x for x in output.splitlines() if "Traceback" in x] == []
        assert ": ok" in output


def test_every_scheme_under_parallelize_module(tmp_path: Path) -> None:
    run("support.parallel_layers", tmp_path)


def test_push_gives_the_sum_to_the_bit(tmp_path: Path) -> None:
    run("support.parallel_push", tmp_path)


def test_what_processes_save_any_number_of_them_loads(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    parallel_state.write(folder)
    run("support.parallel_state", tmp_path, str(folder))


def test_a_plan_of_transformers_spreads_quantized_models(tmp_path: Path) -> None:
    pytest.importorskip("transformers", minversion="5.24", reason="optional: hf extra")
    from support import parallel_models

    folder = tmp_path / "models"
    parallel_models.write(folder)
    run("support.parallel_models", tmp_path, str(folder))
