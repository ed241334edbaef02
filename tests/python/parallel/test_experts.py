"""Experts of a mixture that 1, 2 and 3 processes share, each a shard of every one or some of them
as a whole, with the tokens of all or its own: results, gradients and state are those of one
process. Three divide neither the experts, nor groups, nor intermediate sizes that are tried."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import ranks

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_form_and_scheme(world: int, tmp_path: Path) -> None:
    if world not in ranks.worlds() and ranks.DEVICE == "cuda":
        pytest.skip(f"needs {world} GPUs")
    for output in ranks.run(["-m", "support.parallel_experts"], tmp_path, world):
        assert [x for x in output.splitlines() if "Traceback" in x] == []
        assert output.count(": ok") == 44
