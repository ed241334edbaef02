"""torch's tensor parallelism around layers of every scheme, by 1, 2 and 4 processes: columns and
rows, with whatever layout of input and output, forward and backward, compiled as one graph."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import ranks

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)


@pytest.mark.parametrize("world", ranks.worlds())
def test_every_scheme_under_parallelize_module(world: int, tmp_path: Path) -> None:
    compiled = {"MIXED_GEMM_PARALLEL_COMPILED": "2" if world == 2 else "0"}
    outputs = ranks.run(["-m", "support.parallel_layers"], tmp_path, world, compiled)
    for output in outputs:
        wrong = [x for x in output.splitlines() if "Traceback" in x]
        assert wrong == []
        assert output.count(": ok") >= 40
