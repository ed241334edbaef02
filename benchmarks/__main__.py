"""``python -m benchmarks OP``: see runner.py; decode/__main__.py for ``decode``, moe.py and
moe_layer.py for ``moe`` and ``moe_layer``."""

import sys

if sys.argv[1:2] == ["decode"]:
    from .decode.__main__ import main as decode

    decode(sys.argv[2:])
elif sys.argv[1:2] == ["moe_layer"]:
    from .moe_layer import main as moe_layer

    moe_layer(sys.argv[2:])
elif sys.argv[1:2] == ["moe"]:
    from .moe import main as moe

    moe(sys.argv[2:])
else:
    from .runner import main

    main()
