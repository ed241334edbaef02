"""torch's first FSDP, DistributedDataParallel and an optimizer whose state is spread, around
quantized layers in two processes: what they train is what one process trains, and what the first
FSDP cannot flatten is refused by a sentence that names FSDP2 and ``ignored_states``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import ranks

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)


def test_wrappers_of_whole_models(tmp_path: Path) -> None:
    for output in ranks.run(["-m", "support.parallel_wrappers"], tmp_path, world=2):
        assert [x for x in output.splitlines() if "Traceback" in x] == []
        assert output.count(": ok") == 18
