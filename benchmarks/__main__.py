"""``python -m benchmarks OP``: see runner.py, and decode/__main__.py for ``decode``."""

import sys

if sys.argv[1:2] == ["decode"]:
    from .decode.__main__ import main as decode

    decode(sys.argv[2:])
else:
    from .runner import main

    main()
