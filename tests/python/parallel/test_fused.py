"""Layers and MLPs that are fused and then spread over ranks: by rows, by FSDP2, by DDP."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import ranks

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)


@pytest.mark.skipif(2 not in ranks.worlds(), reason="this machine has one GPU")
def test_fused_layers_that_are_spread(tmp_path: Path) -> None:
    for output in ranks.run(["-m", "support.parallel_fused"], tmp_path):
        assert [x for x in output.splitlines() if "Traceback" in x] == []
        assert output.count(": ok") == 6
