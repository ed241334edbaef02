"""docs/serving.md: its commands, one after the other, end with an answer of an OpenAI server; and
what a wrong installation does to a server.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.serving import engine, processes, served
from benchmarks.serving.models import prompts, write
from benchmarks.serving.rows import ROWS
from benchmarks.serving.served import START_SECONDS, free_port, server

WEIGHTS = {row.name: row for row in ROWS}


SHORT = ("--max-model-len", "128", "--enforce-eager")


def environment(installed: str, **more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return served.environment(engine.ENVIRONMENT, PATH=path, PYTHONPATH=installed, **more)


def test_the_server_gives_the_tokens_of_transformers(
    smollm2: Path, tmp_path: Path, installed: str
) -> None:
    folder = write(WEIGHTS["W4A16 g64"], smollm2, tmp_path / "model")
    prompt, wanted, _ = engine.expected(folder, "float16", prompts(smollm2), 12)
    log = tmp_path / "log"
    env = environment(installed, MIXED_GEMM_VLLM="first")
    with server(folder, log, env, *SHORT, "--dtype", "float16") as found:
        (choice,) = found.complete(
            model=str(folder), prompt=prompt, max_tokens=12, temperature=0, ignore_eos=True,
            return_token_ids=True,
        )["choices"]  # fmt: skip
    assert choice["token_ids"] == wanted
    assert "Using MixedGemmLinearKernel for mixed-precision linear" in log.read_text()


def test_without_a_library_the_server_runs_and_says_why(
    small: Path, tmp_path: Path, installed: str
) -> None:
    """vLLM's own kernels take over."""
    folder = write(WEIGHTS["W4A16 g64"], small, tmp_path / "model", "bfloat16")
    log = tmp_path / "log"
    missing = str(tmp_path / "absent" / "libmixed_gemm.so")
    env = environment(installed, MIXED_GEMM_VLLM="first", MIXED_GEMM_LIBRARY=missing)
    options = (*SHORT, "--dtype", "bfloat16", "--skip-tokenizer-init")
    with server(folder, log, env, *options) as found:
        models = f"{found.address}/v1/models"
        assert urllib.request.urlopen(models, timeout=START_SECONDS).status == 200
    text = log.read_text()
    assert f"libmixed_gemm.so was not found in {missing}" in text
    assert "Using CPUWNA16LinearKernel for mixed-precision linear" in text


# --- the page ------------------------------------------------------------------------------------


def commands(page: str) -> list[str]:
    """Those of the first block of the page, without comments; a line may go on."""
    (block, *_) = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    joined = block.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def test_the_commands_of_the_page(
    smollm2: Path, repository: Path, tmp_path: Path, installed: str
) -> None:
    page = (repository / "docs" / "serving.md").read_text()
    five = commands(page)
    assert len(five) == 5
    setup, *rest = five
    # Its own test is that this one runs: `make test-vllm` has run it.
    assert setup.startswith("tools/setup_vllm.sh") and (repository / setup.split()[0]).is_file()
    (tmp_path / "SmolLM2").symlink_to(smollm2)
    port = free_port()
    env = environment(installed)
    log = tmp_path / "log"
    with ExitStack() as servers:
        for command in rest:
            command = command.replace(".venv-vllm/bin/", f"{Path(sys.executable).parent}/")
            command = command.replace("8000", str(port))
            if command.rstrip().endswith("&"):
                process = subprocess.Popen(
                    ["bash", "-c", "exec env " + command.rstrip().rstrip("&")],
                    cwd=tmp_path, env=env, stdout=servers.enter_context(log.open("w")),
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
                servers.callback(processes.end, process)
                continue
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True,
                check=False, timeout=START_SECONDS,
            )  # fmt: skip
            told = log.read_text()[-3000:] if log.is_file() else ""
            assert done.returncode == 0, (command, done.stdout, done.stderr, told)
        assert " Paris" in json.loads(done.stdout)["choices"][0]["text"]
        assert "Using MixedGemmLinearKernel" in log.read_text()


@pytest.mark.parametrize("place", ["sometimes", "off"])
def test_a_wrong_or_absent_place_keeps_nobody_from_starting(
    small: Path, tmp_path: Path, installed: str, place: str
) -> None:
    """In a process of its own, through vLLM's loader of plug-ins."""
    code = (
        "from vllm.plugins import load_general_plugins; load_general_plugins()\n"
        "from vllm.model_executor.kernels import linear\n"
        "from vllm.platforms import PlatformEnum\n"
        "import vllm.envs\n"
        "names = [x.__name__ for x in linear._POSSIBLE_KERNELS[PlatformEnum.CPU]]\n"
        "print('FOUND', names[-1], vllm.envs.environment_variables['MIXED_GEMM_VLLM']())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(installed, MIXED_GEMM_VLLM=place),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = {"sometimes": "MixedGemmLinearKernel auto", "off": "CPUWNA16LinearKernel off"}
    assert f"FOUND {expected[place]}" in done.stdout
    warned = "MIXED_GEMM_VLLM must be one of auto, last, first, off, got 'sometimes'"
    assert (warned in done.stdout + done.stderr) == (place == "sometimes")
