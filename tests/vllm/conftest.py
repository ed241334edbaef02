"""vLLM itself, in an environment of its own (tools/setup_vllm.sh): nothing here skips."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
for folder in (REPOSITORY, REPOSITORY / "tests", REPOSITORY / "tools"):
    sys.path.insert(0, str(folder))

from benchmarks.serving import engine  # noqa: E402

# Files that vLLM writes beside a model go with the session, so no run finds what another compiled.
_WRITTEN = tempfile.TemporaryDirectory(prefix="vllm")
for variable in (
    *("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_RPC_BASE_PATH"),
    "TORCHINDUCTOR_CACHE_DIR",
):
    os.environ[variable] = _WRITTEN.name
engine.prepare()

from benchmarks.serving.installed import write_metadata  # noqa: E402
from benchmarks.serving.models import dense_folder  # noqa: E402
from mixed_gemm import _library  # noqa: E402
from mixed_gemm.integrations import vllm as plugin  # noqa: E402
from mixed_gemm.integrations.vllm import log, offers  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def library() -> None:
    _library.require()


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A value of PYTHONPATH with which vLLM's loader finds the plug-in of this tree."""
    folder = write_metadata(tmp_path_factory.mktemp("installed"))
    return os.pathsep.join([str(folder), str(REPOSITORY)])


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dense_folder(tmp_path_factory.mktemp("small"), small=True)


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dense_folder(tmp_path_factory.mktemp("smollm2"), small=False)


@pytest.fixture
def repository() -> Path:
    return REPOSITORY


class Said(logging.Filter):
    """Lets every line through, and has them as text: vLLM takes all handlers away from the loggers
    below its own when its first engine starts, and leaves filters."""

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.text += f"{record.getMessage()}\n"
        return True


@pytest.fixture
def said() -> Iterator[Said]:
    """What the plug-in logs, also before vLLM's first engine starts."""
    log.say_once.cache_clear()
    found = Said()
    log.logger.addFilter(found)
    yield found
    log.logger.removeFilter(found)


@pytest.fixture
def as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's lists without ours, whatever other tests have registered; what registers on top of
    them goes with the test."""
    from vllm import envs
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers import quantization

    for name in {row.listed for row in offers.KERNELS}:
        plain = {
            platform: [x for x in kernels if not x.__name__.startswith("MixedGemm")]
            for platform, kernels in getattr(linear, name).items()
        }
        monkeypatch.setattr(linear, name, plain)
    monkeypatch.setattr(quantization, "_CUSTOMIZED_METHOD_TO_QUANT_CONFIG", {})
    monkeypatch.setattr(envs, "environment_variables", dict(envs.environment_variables))
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
