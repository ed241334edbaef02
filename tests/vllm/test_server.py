"""docs/serving.md: its commands, one after the other, end with an answer of an OpenAI server; and
what a wrong installation does to a server.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.serving import engine
from benchmarks.serving.models import prompts, write
from benchmarks.serving.rows import ROWS
from benchmarks.serving.served import START_SECONDS, free_port

WEIGHTS = {row.name: row for row in ROWS}


def environment(installed: str, **more: str) -> dict[str, str]:
    own = dict(engine.ENVIRONMENT)
    del own["VLLM_ENABLE_V1_MULTIPROCESSING"]  # a server has processes of its own
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    inherited = {k: v for k, v in os.environ.items() if k != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    return {**inherited, **own, "PATH": path, "PYTHONPATH": installed, **more}


@contextmanager
def server(folder: Path, log: Path, env: dict[str, str], *options: str) -> Iterator[str]:
    """The address of a server, once it answers."""
    port = free_port()
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder),
        "--port", str(port),
        "--max-model-len", "128", "--enforce-eager", *options,
    ]  # fmt: skip
    with log.open("w") as out:
        process = subprocess.Popen(
            command, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """With the processes that it started."""
    for how, seconds in ((signal.SIGTERM, 30), (signal.SIGKILL, 30)):
        with suppress(ProcessLookupError):  # all of them are gone
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            urllib.request.urlopen(address, timeout=10)
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


def complete(address: str, **asked: Any) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{address}/v1/completions",
        json.dumps(asked).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def test_the_server_gives_the_tokens_of_transformers(
    smollm2: Path, tmp_path: Path, installed: str
) -> None:
    folder = write(WEIGHTS["W4A16 g64"], smollm2, tmp_path / "model")
    prompt, wanted, _ = engine.expected(folder, "float16", prompts(smollm2), 12)
    log = tmp_path / "log"
    env = environment(installed, MIXED_GEMM_VLLM="first")
    with server(folder, log, env, "--dtype", "float16") as address:
        (choice,) = complete(
            address, model=str(folder), prompt=prompt, max_tokens=12, temperature=0,
            ignore_eos=True, return_token_ids=True,
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
    with server(folder, log, env, "--dtype", "bfloat16", "--skip-tokenizer-init") as address:
        assert urllib.request.urlopen(f"{address}/v1/models", timeout=START_SECONDS).status == 200
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
                servers.callback(end, process)
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
