"""Saving, loading and training over 1, 2 and 4 processes: state_dicts, torch.distributed.checkpoint
from any number of them to any other, files of which each process reads its share, FSDP2 with
adapters, and our RowwiseParallel beside torch's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import parallel_state, ranks

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("state")
    parallel_state.write(found)
    return found


@pytest.mark.parametrize("world", ranks.worlds())
def test_what_processes_save_any_number_of_them_loads(
    world: int, folder: Path, tmp_path: Path
) -> None:
    command = ["-m", "support.parallel_state"]
    for output in ranks.run(command, tmp_path, world, after=[str(folder)]):
        assert [x for x in output.splitlines() if "Traceback" in x] == []
        assert output.count(": ok") >= 27
    for scheme in parallel_state.SCHEMES:
        one_process_loads(folder / f"dcp-{world}-{scheme}", scheme)


def one_process_loads(path: Path, scheme: str) -> None:
    import torch.distributed.checkpoint as dcp

    model = parallel_state.net(scheme, seed=1)
    state = model.state_dict()
    dcp.load(state, checkpoint_id=path, no_dist=True)
    model.load_state_dict(state)
    parallel_state.same(model, parallel_state.net(scheme))
