"""examples/several_gpus.py over gloo: two processes say what one says, and hold half of it each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from support import ranks

pytest.importorskip("transformers", minversion="5.24", reason="optional: hf extra")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)

import mixed_gemm


def test_two_processes_say_what_one_says(repository: Path) -> None:
    folder = repository / "tests" / "data" / "ct_pack_4bit"
    model = mixed_gemm.from_pretrained(folder, dtype="auto")
    wanted = model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=4, do_sample=False)
    example = [str(repository / "examples/several_gpus.py"), str(folder), "--tokens=4"]
    printed = ranks.torchrun(example, repository)
    assert str(wanted[0].tolist()) in printed, printed
    (sizes,) = re.findall(r"on each rank: ([\d.]+), ([\d.]+)", printed)
    whole = sum(x.nbytes for x in model.parameters() if not hasattr(x, "stored_bytes"))
    whole += sum(x.stored_bytes for x in model.parameters() if hasattr(x, "stored_bytes"))
    assert max(map(float, sizes)) * 1e6 < 0.75 * whole
