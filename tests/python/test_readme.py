"""The README's examples of checkpoints run as they stand, in a folder with the models they name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support import tiny_llama

import mixed_gemm

README = Path(__file__).resolve().parents[2] / "README.md"


def part(title: str) -> str:
    """From a heading to the next one."""
    (found,) = re.findall(
        rf"^#+ {title}\n(.*?)(?=^#)", README.read_text(), re.DOTALL | re.MULTILINE
    )
    return str(found)


def code(title: str) -> str:
    """The one Python block under a heading."""
    # comments in blocks start with "# ", as headings do
    text = README.read_text().split(f" {title}\n", 1)[1]
    return text.split("```python\n", 1)[1].split("```", 1)[0]


@pytest.fixture
def models(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model-AWQ").symlink_to(repository / "tests" / "data" / "awq_gemm")
    dense = tmp_path / "model-dense"
    dense.mkdir()
    tensors = tiny_llama.plain_tensors()
    for name, (n, k) in tiny_llama.LINEARS.items():
        tensors[f"{name}.weight"] = tiny_llama.grid(name, n, k, 4, 32, False).weight().half()
    save_file(tensors, dense / "model.safetensors", {"format": "pt"})
    (dense / "config.json").write_text(json.dumps(tiny_llama.CONFIG))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_checkpoints_example(models: Path) -> None:
    names: dict[str, Any] = {}
    exec(code("Checkpoints"), names)
    assert isinstance(names["layer"], mixed_gemm.Linear)
    assert set(mixed_gemm.open_checkpoint("model-ct").layers) == set(tiny_llama.LINEARS)


def test_transformers_example(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
    from transformers.quantizers import auto

    mapping = auto.AUTO_QUANTIZATION_CONFIG_MAPPING
    monkeypatch.setattr(auto, "AUTO_QUANTIZATION_CONFIG_MAPPING", dict(mapping))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    names: dict[str, Any] = {}
    exec(code("transformers"), names)
    assert names["tokens"].shape == (1, 3 + 8)
    layers = [m for m in names["model"].modules() if isinstance(m, mixed_gemm.Linear)]
    assert {(x.bits, x.group_size) for x in layers} == {(4, 32)} and len(layers) == 7
    found = mixed_gemm.open_checkpoint("model-packed").format
    assert found == "compressed-tensors pack-quantized"


def test_tensor_parallelism_example(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.tensor", reason="this torch has no torch.distributed")
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh

    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        block = torch.nn.ModuleDict(
            {
                "up": mixed_gemm.Linear(64, 128, group_size=32),
                "down": mixed_gemm.Linear(128, 64, group_size=32),
            }
        )
        exec(code("Tensor parallelism"), {"block": block, "mesh": init_device_mesh("cpu", (1,))})
        assert isinstance(block.up.weight.to_local(), mixed_gemm.QuantizedTensor)
        assert block.down(block.up(torch.ones(2, 64))).shape == (2, 64)
    finally:
        distributed.destroy_process_group()


def test_commands_and_their_options_exist() -> None:
    pytest.importorskip("typer", reason="the extra cli is not installed: pip install typer rich")
    from typer.testing import CliRunner

    from mixed_gemm.cli.app import COMMANDS, app

    text = part("Command line")
    lines = re.findall(r"mixed-gemm (\w+)([^\n;#]*)", text)
    assert {name for name, _ in lines} == set(COMMANDS)
    for name, arguments in lines:
        known = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).stdout
        for option in re.findall(r"--[\w-]+", arguments):
            assert option in known, (name, option)


def test_convolutions_example() -> None:
    names: dict[str, Any] = {}
    exec(code("Convolutions"), names)
    assert names["y"].shape == (1, 64, 32, 32)
    assert isinstance(names["model"][0], mixed_gemm.Conv2d)
