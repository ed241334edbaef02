"""docs/round_trips.md: what a quantized model survives, by scheme and by architecture. Every cell
is run, in processes of their own.

    python -m tools.pages round_trips        writes the page; three minutes on two cores
    python -m tools.pages.round_trips w8a8   prints the rows whose names hold that

It needs the library, transformers, peft, accelerate, compressed-tensors, bitsandbytes and typer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from trips.cells import REFUSED, SAME, WRONG

from . import ROOT, elsewhere
from .page import Page, whole
from .table import table, versions

PACKAGES = ("transformers", "peft", "accelerate", "compressed_tensors", "bitsandbytes", "typer")
TOLD = ("torch", "transformers", "compressed-tensors", "bitsandbytes", "peft")  # with versions
MINUTES = 10  # after which a process hangs
# Processes that run side by side; a stage reads what those before it left.
STAGES: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("make",), ("graphs",)),
    (("ours",), ("stock",)),
    (("sharded", "0"), ("sharded", "1")),
)
SCHEMES = (
    "save", "mixed_gemm", "transformers, mixed_gemm imported", "transformers alone", "CLI",
    "state_dict", "compile", "export", "LoRA", "adapter reloaded", "merge", "merged reloaded",
    "DTensor",
)  # fmt: skip
ARCHITECTURES = (
    "quantize_", "save", "mixed_gemm", "transformers, mixed_gemm imported", "transformers alone",
    "CLI",
)  # fmt: skip

Rows = dict[str, dict[str, str]]


def run_stage(folder: Path, stage: Iterable[tuple[str, ...]]) -> None:
    """Raises:
    RuntimeError: a process failed; the text is the end of what it wrote.
    """
    running = []
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"  # else the name of the host is looked up
    for name, *rest in stage:
        log = folder / f"{name}{''.join(rest)}.log"
        with log.open("w") as file:
            command = [sys.executable, "-m", f"trips.{name}", str(folder), *rest]
            process = subprocess.Popen(
                command, cwd=ROOT / "tools", env=environment, stdout=file, stderr=subprocess.STDOUT
            )
        running.append((process, log))
    try:
        for process, log in running:
            if process.wait(timeout=60 * MINUTES):
                raise RuntimeError(
                    f"{log}: exit status {process.returncode}\n{log.read_text()[-3000:]}"
                )
    finally:
        for process, _ in running:
            process.kill()
            process.wait()


def run() -> Rows:
    """Return row -> column -> cell."""
    folder = Path(tempfile.mkdtemp(prefix="round_trips."))
    found: Rows = {}
    for stage in STAGES:
        run_stage(folder, stage)
    for name in ("make", "graphs", "ours", "stock", "sharded0"):
        for row, cells in json.loads((folder / f"{name}.json").read_text()).items():
            found.setdefault(row, {}).update(cells)
    print(f"the stack of every refusal is in {folder}", file=sys.stderr)
    return found


class Refusals:
    """The sentences of refusals, by the numbers that stand for them in the tables."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def cell(self, text: str) -> str:
        if not text.startswith(REFUSED):
            return text.replace(SAME, "=")
        number = self._numbers.setdefault(text.removeprefix(REFUSED), len(self._numbers) + 1)
        return f"refused ({number})"

    def __str__(self) -> str:
        return "\n".join(f"{number}. {_escaped(text)}" for text, number in self._numbers.items())


def _escaped(text: str) -> str:
    """As Markdown has it: sentences of others hold names between underscores and stars."""
    return text if "`" in text else f"`{text}`"


def cells_of(first: str, columns: tuple[str, ...], rows: Rows, refusals: Refusals) -> str:
    """Every column must be there: a cell that nobody ran is an error."""
    lines = ([row, *(refusals.cell(cells[x]) for x in columns)] for row, cells in rows.items())
    return table([first, *columns], lines)


def page(rows: Rows) -> str:
    refusals = Refusals()
    models = {row: cells for row, cells in rows.items() if "quantize_" in cells}
    schemes = {row: cells for row, cells in rows.items() if row not in models}
    first = cells_of("scheme", SCHEMES, schemes, refusals)
    second = cells_of("model", ARCHITECTURES, models, refusals)
    packages = versions({name: ".".join(version(name).split(".")[:2]) for name in TOLD})
    cells = [text for row in rows.values() for text in row.values() if text]
    refused = sum(text.startswith(REFUSED) for text in cells)
    return f"""# Round trips

- **What is quantized survives saving, loading, compiling, exporting, training an adapter, merging
  it and cutting it over processes, bit for bit where nothing rounds.** Of {len(cells)} cells
  {refused} are refused, each with a sentence; none is silently something else.
- **Whatever the scheme, mixed_gemm reads it back**, from every way of saving, and so does
  transformers once mixed_gemm is imported.
- **Stock transformers reads all that compressed-tensors has a place for, and code books as
  bitsandbytes**, and refuses the rest: it raises at zero points, of its own files too.

`python -m tools.pages round_trips` runs every cell, each reload in a process that did not save, and
writes this page. {packages}, CPU, float32.

## Schemes

{first}

- `=`: the logits have the same bits as those of the model that was saved; "within": the norm of the
  difference over that of what is expected. Rows in quotes are names that `quantize_` knows.
- save: the format that `save_pretrained` and `save_checkpoint` write. `mixed-gemm-packed` is what
  other readers refuse.
- CLI: `mixed-gemm quantize` of the dense model, read again; where it has no such option, `convert`
  of what was saved.
- state_dict: `torch.save`, loaded into a model of other weights. compile: one graph, with the
  backend aot_eager. export: `torch.export.save`, loaded and run.
- LoRA: three steps of peft with packed weights that do not change; merge: each weight beside the
  exact sum of weight and adapter, which is rounded to the scheme again.
- DTensor: `parallelize_module` cuts the MLP over two processes. With dynamic activations each finds
  the scales of its own half of a row.
- Convolutions are written dense, and so differ in the last bits when they are read.

## Models

Random weights, `quantize_(model, group_size=32)`. Whatever holds a matrix is quantized or in
`report.skipped` with its reason; "left" are the last parts of those names.

{second}

- GPT-2: its Conv1D are quantized, too. Other readers expect their weights transposed, and so refuse
  the folder.
- Mixtral, Qwen3-MoE: each expert's linears are written by themselves, and other readers join them.
- gpt-oss: other readers look for all experts of a layer in one tensor, and so refuse the folder.
  With its experts alone quantized, in MXFP4, it is written [as it is published](mixtures.md#files).

{elsewhere.vllm()}

{elsewhere.installing()}

## Refusals

{refusals}
"""


def text() -> str:
    """The page of a new run.

    Raises:
        ValueError: something is silently wrong.
    """
    rows = run()
    wrong = [
        f"{row}, {column}: {text}"
        for row, cells in rows.items()
        for column, text in cells.items()
        if text.startswith(WRONG)
    ]
    if wrong:
        raise ValueError("\n".join(wrong))
    return page(rows)


def lacks() -> str:
    missing = [x for x in PACKAGES if find_spec(x) is None]
    return f"{', '.join(missing)} of the group test in pyproject.toml" if missing else ""


PAGE = Page({"docs/round_trips.md": whole(text)}, lacks)

if __name__ == "__main__":
    os.environ["ROUND_TRIPS_ONLY"] = sys.argv[1]
    print(json.dumps(run(), indent=1))
