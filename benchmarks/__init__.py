"""Benchmarks of the ops, and what is read off their results.

    python -m benchmarks --help               # the ops: gemm, scaled_mm, ...
    python -m benchmarks gemm --out FILE.json
    python -m benchmarks.targets FILE.json    # how the times compare with the targets

``ops/`` holds a file for each op with what is particular of it, ``runner.py`` what is the same for
all: the options, the timing in turns, the rows that it writes (``row.py``). ``results.py`` and what
reads it (targets, report, plot, missed_points) need neither a GPU nor torch.
"""
