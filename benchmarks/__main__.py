"""``python -m benchmarks OP``: see runner.py."""

from .runner import main

main()
