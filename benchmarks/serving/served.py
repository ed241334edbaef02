"""What vLLM's OpenAI server, in processes of its own, answers to a prompt."""

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
from pathlib import Path

from . import engine

START_SECONDS = 600  # of a server that takes 20 on a machine without other jobs


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def in_server(
    folder: Path, dtype: str, prompt: list[int], count: int, path: str
) -> tuple[list[int], list[str]]:
    """(the most probable tokens after a prompt, the lines of the log that name kernels).

    Args:
        path: of Python, with which vLLM's loader finds the plug-in.
    """
    own = {k: v for k, v in engine.ENVIRONMENT.items() if "MULTIPROCESSING" not in k}
    inherited = {k: v for k, v in os.environ.items() if "MULTIPROCESSING" not in k}
    port = free_port()
    options = [
        text for name in engine.SETTINGS
        if not isinstance(engine.SETTINGS[name], bool)
        for text in (f"--{name.replace('_', '-')}", str(engine.SETTINGS[name]))
    ]  # fmt: skip
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder),
        "--dtype", dtype, "--port", str(port), "--enforce-eager", *options,
        *([] if (folder / "tokenizer.json").is_file() else ["--skip-tokenizer-init"]),
    ]  # fmt: skip
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            command, env={**inherited, **own, "PYTHONPATH": path, "MIXED_GEMM_VLLM": "first"},
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            found = _ask(server, port, str(folder), prompt, count)
        finally:
            server.terminate()
            server.wait(60)
        log.seek(0)
        lines = log.read().splitlines()
    named = [x.split("] ", 1)[-1] for x in lines if "Using MixedGemm" in x or "Selected Mixed" in x]
    named += [x.split("] ", 1)[-1] for x in lines if "mixed_gemm_gptq reads" in x]
    return found, sorted(set(named))


def _ask(
    server: subprocess.Popen[bytes], port: int, model: str, prompt: list[int], count: int
) -> list[int]:
    asked = {
        "model": model, "prompt": prompt, "max_tokens": count, "temperature": 0,
        "ignore_eos": True, "return_token_ids": True, "detokenize": False,
    }  # fmt: skip
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(asked).encode(),
        {"Content-Type": "application/json"},
    )
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
                found: list[int] = json.loads(answer.read())["choices"][0]["token_ids"]
                return found
        except urllib.error.HTTPError:
            raise
        except (urllib.error.URLError, OSError):
            if server.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.5)
