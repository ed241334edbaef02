"""The pages that are written from the code, the library and the results of runs, a module each.

    python -m tools.pages           writes all that take seconds
    python -m tools.pages --check   writes nothing; exit status 1 where one would change
    python -m tools.pages ops api   these alone; those that take minutes are written when named

A module here has a ``PAGE``: its files, and the function that makes the text of each (page.py).
Tables and lists are made by table.py, pictures by svg.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
# Modules of tools/ name each other without a package, since most of them run as scripts.
sys.path.append(str(ROOT / "tools"))

# Every page, by its module.
NAMES = (
    "api", "checkpoint_keys", "decode", "drawings", "fusing", "gains", "imports", "ops", "parallel",
    "quality", "reliability", "schemes", "serving", "support", "round_trips", "architectures",
    "whole_path",
)  # fmt: skip
# Pages that run what they tell, and how long that takes on two cores: written when they are named.
SLOW = {"round_trips": "three minutes", "architectures": "half an hour"}
