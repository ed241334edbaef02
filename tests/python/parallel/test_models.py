"""transformers' own tensor parallelism (tp_plan="auto") of Llama, Qwen3 and Qwen2, quantized on the
way and from quantized files of every format, by 2 and 4 processes, against one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import ranks

pytest.importorskip("transformers", minversion="5.24", reason="optional: hf extra")
if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)

from support import parallel_models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("models")
    parallel_models.write(found)
    return found


@pytest.mark.parametrize("world", [x for x in ranks.worlds() if x > 1])
def test_a_plan_of_transformers_spreads_quantized_models(
    world: int, folder: Path, tmp_path: Path
) -> None:
    command = ["-m", "support.parallel_models"]
    for output in ranks.run(command, tmp_path, world, after=[str(folder)]):
        assert [x for x in output.splitlines() if "Traceback" in x] == []
        assert output.count(": ok") >= (55 if world == 2 else 15)
