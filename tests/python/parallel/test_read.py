"""Layers that each of 2 and 4 processes reads a shard of, and that loading changes: float8 rounded
to int8, and zero points that only some shards have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import parallel_read, ranks

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)


@pytest.mark.parametrize("world", [x for x in ranks.worlds() if x > 1])
def test_shards_are_those_of_the_layer_that_one_process_loads(world: int, tmp_path: Path) -> None:
    (folder := tmp_path / "files").mkdir()
    parallel_read.write(folder)
    command = ["-m", "support.parallel_read"]
    for output in ranks.run(command, tmp_path, world, after=[str(folder)]):
        assert [x for x in output.splitlines() if "Traceback" in x] == []
        cases = len(parallel_read.FLOAT8) * len(parallel_read.SHAPES) + len(
            parallel_read.ZERO_MODES
        )
        assert output.count(": ok") == 2 * cases
