"""Shared set-up. The library must be there: a run that skips everything proves nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

# Before huggingface_hub is imported, which reads it once: a test that asks for a hub which no
# network reaches would wait for minutes.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import hypothesis
import pytest
import torch
from safetensors.torch import load_file, save_file

REPOSITORY = Path(__file__).resolve().parents[2]
# The packages problems and support; benchmarks lies beside mixed_gemm, which may be an installed
# one.
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "python")]
sys.path.append(str(REPOSITORY))
pytest.register_assert_rewrite("problems", "support")

from support import tiny_llama, tried  # noqa: E402

from mixed_gemm import _library  # noqa: E402

hypothesis.settings.register_profile("fast", deadline=None, derandomize=True)
hypothesis.settings.register_profile("long", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session", autouse=True)
def library() -> None:
    _library.require()


def pytest_sessionfinish() -> None:
    tried.write()


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(0)
    yield


@pytest.fixture
def repository() -> Path:
    return REPOSITORY


@pytest.fixture
def broken(repository, tmp_path):
    """Copy a fixture, with tensors replaced (None: removed) and options of its quantization_config
    changed; returns the folder."""

    def make(folder, tensors=None, **options):
        out = tmp_path / folder
        shutil.copytree(repository / "tests" / "data" / folder, out)
        file = out / "model.safetensors"
        found = {name: tensor.clone() for name, tensor in load_file(file).items()}
        for role, change in (tensors or {}).items():
            name = role if role in found else f"{tiny_llama.BLOCK}.self_attn.q_proj.{role}"
            tensor = found.pop(name, None)
            if change is not None:
                found[name] = change(tensor).contiguous()
        file.unlink()
        save_file(found, file)
        config = json.loads((out / "config.json").read_text())
        config["quantization_config"].update(options)
        (out / "config.json").write_text(json.dumps(config))
        return out

    return make
