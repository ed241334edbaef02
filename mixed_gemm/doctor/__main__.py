"""``python -m mixed_gemm.doctor``: the command without the extra ``cli``."""

from __future__ import annotations

import argparse
import json
import sys

from .diagnosis import diagnose
from .text import text


def main() -> int:
    """Run the command. Exit status: 0 all that can run here is right, 1 a fault, 2 wrong usage."""
    parser = argparse.ArgumentParser("python -m mixed_gemm.doctor", description=main.__doc__)
    parser.add_argument("--device", default="", help="cpu, cuda or cuda:1 alone, which must run")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    arguments = parser.parse_args()
    try:
        found = diagnose(arguments.device)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found.as_dict(), indent=2) if arguments.json else text(found))
    return int(not found.ok)


if __name__ == "__main__":
    sys.exit(main())
