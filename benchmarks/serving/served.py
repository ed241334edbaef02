"""Asks vLLM's OpenAI server, in processes of its own, to continue a prompt."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import engine, processes

# Seconds for the start of a server that takes 20 on a machine without other jobs.
START_SECONDS = 600


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Server:
    """vLLM's OpenAI server on a free port. Starts at once; :meth:`wait` says when it answers.

    Args:
        environment: of its processes. options: of the command.
    """

    def __init__(self, model: Path, log: Path, environment: dict[str, str], *options: str) -> None:
        self.model, self.port, self.log = str(model), free_port(), log
        self.address = f"http://127.0.0.1:{self.port}"
        command = [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model,
            "--port", str(self.port), *options,
        ]  # fmt: skip
        with log.open("w") as out:
            self.process = subprocess.Popen(
                command, env=environment, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Raises:
        RuntimeError: it ended, or does not answer in time; with the end of the log.
        """
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            try:
                urllib.request.urlopen(f"{self.address}/health", timeout=10)
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        raise RuntimeError(self.log.read_text()[-3000:])

    def complete(self, **asked: Any) -> dict[str, Any]:
        """Send a request for completions, and return the answer."""
        request = urllib.request.Request(
            f"{self.address}/v1/completions",
            json.dumps(asked).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found


@contextmanager
def server(model: Path, log: Path, environment: dict[str, str], *options: str) -> Iterator[Server]:
    """One that answers, gone afterwards."""
    started = Server(model, log, environment, *options)
    try:
        started.wait()
        yield started
    finally:
        processes.end(started.process)


def environment(own: Mapping[str, str], **more: str) -> dict[str, str]:
    """The environment of a server, which has processes of its own.

    Args:
        own: as an engine in a process has it. more: what stands above it.
    """
    return {
        k: v for k, v in {**os.environ, **own, **more}.items()
        if k != "VLLM_ENABLE_V1_MULTIPROCESSING"
    }  # fmt: skip


def in_server(
    folder: Path, dtype: str, prompt: list[int], count: int, path: str
) -> tuple[list[int], list[str]]:
    """(the most probable tokens after a prompt, the lines of the log that name kernels).

    Args:
        path: of Python, with which vLLM's loader finds the plug-in.
    """
    options = [
        text for name in engine.SETTINGS
        if not isinstance(engine.SETTINGS[name], bool)
        for text in (f"--{name.replace('_', '-')}", str(engine.SETTINGS[name]))
    ]  # fmt: skip
    if not (folder / "tokenizer.json").is_file():
        options.append("--skip-tokenizer-init")
    own = environment(engine.ENVIRONMENT, PYTHONPATH=path, MIXED_GEMM_VLLM="first")
    with tempfile.TemporaryDirectory() as work:
        log = Path(work) / "log"
        with server(folder, log, own, "--dtype", dtype, "--enforce-eager", *options) as found:
            (choice,) = found.complete(
                model=str(folder), prompt=prompt, max_tokens=count, temperature=0,
                ignore_eos=True, return_token_ids=True, detokenize=False,
            )["choices"]  # fmt: skip
        lines = log.read_text().splitlines()
    named = [x.split("] ", 1)[-1] for x in lines if "Using MixedGemm" in x or "Selected Mixed" in x]
    named += [x.split("] ", 1)[-1] for x in lines if "mixed_gemm_gptq reads" in x]
    tokens: list[int] = choice["token_ids"]
    return tokens, sorted(set(named))
