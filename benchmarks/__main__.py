"""``python -m benchmarks OP``: see runner.py; decode/__main__.py for ``decode``, moe.py for
``moe``."""

import sys

if sys.argv[1:2] == ["decode"]:
    from .decode.__main__ import main as decode

    decode(sys.argv[2:])
elif sys.argv[1:2] == ["moe"]:
    from .moe import main as moe

    moe(sys.argv[2:])
else:
    from .runner import main

    main()
