"""Print where a Python package keeps the headers or the compiler that the build needs.

    python [-I] cmake/find_in_python.py torch|nvcc|cutlass|pybind11

CMake and setup.py run it twice, plainly and with -I: -I ignores PYTHONPATH, and so steps out of
pip's build isolation into the environment that is being installed into. Prints nothing when the
package is absent. torch is not imported (that takes seconds): its version is read from its files.
"""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

OLDEST_TORCH = (2, 10)  # first release whose stable ABI has everything we call


def package_folder(name: str) -> Path | None:
    spec = find_spec(name)
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None


def torch() -> Path | None:
    folder = package_folder("torch")
    if folder is None or not (folder / "version.py").is_file():
        return None
    found = re.search(r"__version__ = '(\d+)\.(\d+)", (folder / "version.py").read_text())
    return folder if found and (int(found[1]), int(found[2])) >= OLDEST_TORCH else None


def nvcc() -> Path | None:
    places = (Path(entry) / "nvidia/cu13/bin/nvcc" for entry in sys.path)
    return next((place for place in places if place.is_file()), None)


def cutlass() -> Path | None:
    folder = package_folder("cutlass_library")
    return folder / "source/include" if folder else None


def pybind11() -> Path | None:
    folder = package_folder("pybind11")
    return folder / "share/cmake/pybind11" if folder else None


FINDERS = {"torch": torch, "nvcc": nvcc, "cutlass": cutlass, "pybind11": pybind11}

if __name__ == "__main__":
    place = FINDERS[sys.argv[1]]()
    if place is not None and place.exists():
        print(place)
