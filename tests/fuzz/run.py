"""Fuzz the loaders for a given time; exit status 1 when there is a finding.

    python tests/fuzz/run.py SECONDS [FOLDER]

Reads tests/fuzz/corpus/ (inputs that were findings once) first, then mutates them and those of
make_corpus.py. A finding is written to FOLDER, by default the current one. Needs atheris.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from inputs import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tools"))

from reliability_parts import write_part

HERE = Path(__file__).resolve().parent
MEGABYTES = 1000  # of the process with torch and the fuzzer's own tables
TIMEOUT = 20  # seconds for one input, on a machine that does much else


def main(seconds: int, findings: Path) -> int:
    if importlib.util.find_spec("atheris") is None:
        print("fuzzing needs atheris: pip install atheris", file=sys.stderr)
        return 2
    python, fuzzer = sys.executable, str(HERE / "fuzz_loaders.py")
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as room:
        paths = f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}"
        environment = {**os.environ, "TMPDIR": room, "PYTHONPATH": paths}
        corpus = f"{room}/corpus"
        make = [python, str(HERE / "make_corpus.py"), corpus]
        subprocess.run(make, env=environment, check=True)
        again = [python, fuzzer, "--once", *map(str, sorted((HERE / "corpus").glob("*")))]
        if subprocess.run(again, env=environment, check=False).returncode != 0:
            print("an input of tests/fuzz/corpus is a finding again", file=sys.stderr)
            return 1
        options = (
            *(f"-max_total_time={seconds}", f"-timeout={TIMEOUT}", f"-rss_limit_mb={MEGABYTES}"),
            *(f"-artifact_prefix={findings}/", f"-dict={HERE / 'words.dict'}", "-max_len=16384"),
            "-print_final_stats=1",
        )
        done = subprocess.run(
            [python, fuzzer, *options, corpus, str(HERE / "corpus")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    executed = re.search(r"number_of_executed_units: (\d+)", done.stdout)
    count = int(executed[1]) if executed else 0
    row = {"name": "loaders", "count": count, "failed": int(done.returncode != 0)}
    write_part("fuzz", [row], seconds=seconds)
    if done.returncode != 0 or count == 0:
        print(done.stdout[-6000:])
        return 1
    print(f"fuzzed the loaders for {seconds} s: {count} inputs, no finding")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else ".")))
