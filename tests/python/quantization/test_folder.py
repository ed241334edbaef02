"""A folder that is calibrated a block at a time: bit for bit what the model in memory gives, and
what a run that was killed goes on to.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from support import decoders

import mixed_gemm
from mixed_gemm.quantization import CalibratedCheckpoint
from mixed_gemm.quantization.block_layer import BlockLayer

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

OPTIONS: dict[str, Any] = {"group_size": 32, "symmetric": False}
# Ends itself without a warning once two of the blocks are on the disk.
KILLED = """
import os, signal, sys
import torch
from mixed_gemm.quantization import CalibratedCheckpoint

kept = CalibratedCheckpoint._keep

def keep(self, number, tensors):
    kept(self, number, tensors)
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)

CalibratedCheckpoint._keep = keep
CalibratedCheckpoint(
    sys.argv[1], method="awq+gptq", calibration=torch.load(sys.argv[2]), work=sys.argv[3],
    group_size=32, symmetric=False, progress=False,
)
"""


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    decoders.decoder("Qwen2").save_pretrained(tmp_path / "dense")
    return tmp_path / "dense"


def calibrated(dense: Path, work: Path, method: Any = "awq+gptq", **more: Any) -> Any:
    options = {**OPTIONS, "calibration": decoders.batches(), "progress": False, **more}
    return CalibratedCheckpoint(dense, method=method, work=work, **options)


def written(checkpoint: Any, target: Path) -> Any:
    mixed_gemm.save_checkpoint(checkpoint, target)
    return mixed_gemm.from_pretrained(target)


@pytest.mark.parametrize("method", ["gptq", "awq", "awq+gptq"])
def test_as_the_model_in_memory(dense: Path, tmp_path: Path, method: str) -> None:
    model = decoders.decoder("Qwen2")
    mixed_gemm.quantize_(model, method=method, calibration=decoders.batches(), skip=(), **OPTIONS)
    found = written(calibrated(dense, tmp_path / "work", method, skip=()), tmp_path / "out")
    assert torch.equal(decoders.logits(found), decoders.logits(model))


@pytest.mark.parametrize("head", ["w8a16", True])
def test_a_head_and_a_table_as_in_memory(dense: Path, tmp_path: Path, head: Any) -> None:
    words = {"heads": head, "embeddings": "w8a16"}
    model = decoders.decoder("Qwen2")
    mixed_gemm.quantize_(model, method="gptq", calibration=decoders.batches(), **words, **OPTIONS)
    found = written(calibrated(dense, tmp_path / "work", "gptq", **words), tmp_path / "out")
    assert torch.equal(decoders.logits(found), decoders.logits(model))
    for wrong, text in (("w8a8", "by blocks is for packed codes"), ("w9", "scheme must be one of")):
        with pytest.raises(ValueError, match=text):
            calibrated(dense, tmp_path / "wrong", "gptq", heads=wrong)
    with pytest.raises(ValueError, match="heads must be a scheme of 4 bits with codes of 3"):
        calibrated(dense, tmp_path / "wrong", "awq+gptq", heads="w8a16", bits=3)


def test_after_a_kill_it_goes_on(dense: Path, tmp_path: Path) -> None:
    torch.save(decoders.batches(), tmp_path / "data.pt")
    work = tmp_path / "work"
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, dense, tmp_path / "data.pt", work],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert sorted(x.name for x in work.glob("*.pt")) == ["00000.pt", "00001.pt"]
    times = {x.name: x.stat().st_mtime_ns for x in work.glob("*.pt")}
    resumed = decoders.logits(written(calibrated(dense, work), tmp_path / "resumed"))
    assert {x: (work / x).stat().st_mtime_ns for x in times} == times
    whole = decoders.logits(written(calibrated(dense, tmp_path / "other"), tmp_path / "whole"))
    assert torch.equal(resumed, whole)


def test_blocks_of_another_run_are_not_taken(dense: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    calibrated(dense, work, "gptq")
    for what, change in (
        ("calibration", {"calibration": decoders.batches(seed=2)}),
        ("scheme", {"group_size": 16}),
        ("method", {"method": mixed_gemm.quantization.methods.GPTQ(damp=0.02)}),
    ):
        with pytest.raises(ValueError, match=f"another .*{what}.*remove that folder"):
            calibrated(dense, work, **{"method": "gptq", **change})
    assert json.loads((work / "recipe.json").read_text())["method"].startswith("GPTQ(damp=0.01")


def test_a_torn_file_is_not_there(dense: Path, tmp_path: Path) -> None:
    """A file has its name once it is whole."""
    work = tmp_path / "work"
    calibrated(dense, work, "gptq")
    (work / "00001.pt").rename(work / "00001.pt.part")
    (work / "00001.pt.part").write_bytes(b"torn")
    calibrated(dense, work, "gptq")
    assert (work / "00001.pt").stat().st_size > 1000


def test_weights_are_in_memory_a_block_at_a_time(dense: Path, tmp_path: Path) -> None:
    model: Any = None
    loaded: list[set[str]] = []
    finish = BlockLayer.finish

    def watch(self: Any, *args: Any) -> None:
        there = [n for n, p in model.named_parameters() if not p.is_meta and ".layers." in n]
        loaded.append({name.split(".")[2] for name in there})
        finish(self, *args)

    build = CalibratedCheckpoint._empty_model

    def kept(self: Any) -> Any:
        nonlocal model
        model = build(self)
        return model

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CalibratedCheckpoint, "_empty_model", kept)
        patch.setattr(BlockLayer, "finish", watch)
        calibrated(dense, tmp_path / "work", "gptq")
    assert loaded
    assert all(len(blocks) == 1 for blocks in loaded)


def test_results_of_blocks_that_are_done_leave_memory(dense: Path, tmp_path: Path) -> None:
    """Else all quantized layers together would be in memory, though they are on the disk."""
    alive: list[weakref.ref[Any]] = []
    most = 0
    finish = BlockLayer.finish

    def watch(self: Any, weight: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal most
        finish(self, weight, *args, **kwargs)
        alive.append(weakref.ref(weight))
        gc.collect()
        most = max(most, sum(found() is not None for found in alive))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockLayer, "finish", watch)
        calibrated(dense, tmp_path / "work", "gptq")
    blocks = len(list((tmp_path / "work").glob("*.pt")))
    assert blocks > 1
    assert most <= len(alive) // blocks + 1


def test_a_folder_of_the_user_is_not_touched(dense: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="work must be a new or empty folder"):
        calibrated(dense, work, "gptq")
    assert [x.name for x in work.iterdir()] == ["mine.txt"]
    found = calibrated(dense, tmp_path / "other", "gptq")
    (tmp_path / "other" / "mine.txt").write_text("mine")
    found.discard()
    assert [x.name for x in (tmp_path / "other").iterdir()] == ["mine.txt"]


def test_methods_without_data_are_refused(dense: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs no calibration"):
        calibrated(dense, tmp_path / "work", "hqq")
    for scheme in ("fp8", "w8a8"):
        with pytest.raises(ValueError, match=r"is for packed codes.*mixed_gemm\.quantize_"):
            CalibratedCheckpoint(
                dense, scheme, method="gptq", calibration=decoders.batches(), work=tmp_path / "w",
                progress=False,
            )  # fmt: skip
    shutil.rmtree(tmp_path / "work", ignore_errors=True)
    with pytest.raises(ValueError, match="needs the whole model in memory"):
        calibrated(dense, tmp_path / "work", "gptq+distill")
    for method in ("gptq", "gptq+distill"):
        with pytest.raises(ValueError, match=r"one that needs no data \(rtn, hqq\)"):
            mixed_gemm.quantization.DenseCheckpoint(dense, group_size=32, method=method)
