"""Check that no code compiled for AVX2 or AVX-512 can replace the portable copy of a function.

    python tools/check_isa.py OBJECT...

An inline function of a shared header, or an instantiation of a standard template, is a weak symbol
in every object that uses it, and the linker keeps one of them: if that is the copy from a file
compiled with -mavx512f, an older processor dies of an illegal instruction in code that looks
portable. So an object named *_avx2 or *_avx512 may not share a weak function with any other object.
Way out: always inline it, or give it internal linkage in the file. ctest runs this as `isa`.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path


def weak_functions(path: str) -> set[str]:
    listing = subprocess.run(
        ["nm", "-C", "--defined-only", path], text=True, stdout=subprocess.PIPE, check=True
    ).stdout
    return set(re.findall(r"^[0-9a-f]+ W (.+)$", listing, flags=re.MULTILINE))


def main(objects: list[str]) -> int:
    owners: dict[str, list[str]] = defaultdict(list)
    for path in objects:
        for name in weak_functions(path):
            owners[name].append(Path(path).name)
    shared = {n: o for n, o in owners.items() if len(o) > 1 and any("_avx" in path for path in o)}
    for name, where in sorted(shared.items()):
        print(f"{name}\n    is in {', '.join(where)}")
    print(f"{len(objects)} objects, {len(shared)} functions shared with an AVX object")
    return 1 if shared or not objects else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
