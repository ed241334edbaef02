"""Check what the built library leans on: LibTorch's C shims and an old enough glibc, no more.

    python tools/check_abi.py build/libmixed_gemm.so

This is what lets one file load in every torch >= 2.10, with and without CUDA, whoever built it.
ctest runs it as `abi`; exit status 1 and a list of faults when something else got in.
"""

import re
import subprocess
import sys
from collections.abc import Iterator

# Newest symbol versions that are allowed: what Debian 12 and Ubuntu 22.04 have (manylinux_2_34).
NEWEST = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}
FORBIDDEN_LIBRARIES = r"cuda|cudart|c10|libtorch_python|libpython"
TORCH_SHIM = r"(aoti_)?torch_\w+"
# CUDA shims live in libtorch_cuda, which a CPU torch lacks: all but this one must be weak.
CUDA_SHIMS_OF_LIBTORCH_CPU = {"aoti_torch_device_type_cuda"}
# Of a torch newer than the oldest that is served: weak too, and asked for before it is called.
OPTIONAL_SHIMS = {"torch_exception_get_what_without_backtrace"}
COMPILER_RUNTIME = r"_ITM_\w+|__gmon_start__|__cxa_finalize|_Unwind_\w+"


def output_of(*command: str) -> str:
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True).stdout


def undefined_symbols(library: str) -> Iterator[tuple[bool, str, str]]:
    """Yields (weak, name, version); the version is empty when the symbol has none."""
    for line in output_of("nm", "-D", "--undefined-only", library).splitlines():
        kind, symbol = line.split()[-2:]
        name, _, version = symbol.partition("@")
        yield kind in "wv", name, version.lstrip("@")


def faults_of_libraries(needed: list[str]) -> Iterator[str]:
    if "libtorch.so" not in needed:
        yield "libtorch.so is not in DT_NEEDED (linked --as-needed?): the CUDA shims would be null"
    for name in needed:
        if re.search(FORBIDDEN_LIBRARIES, name):
            yield f"needs {name}"


def faults_of_symbols(library: str) -> Iterator[str]:
    for weak, name, version in undefined_symbols(library):
        known = re.match(r"([A-Z]+)_([\d.]+)$", version)
        if known:
            if tuple(map(int, known[2].split("."))) > NEWEST.get(known[1], ()):
                yield f"{name} needs {version}, newer than {NEWEST.get(known[1])}"
        elif re.fullmatch(TORCH_SHIM, name):
            of_cuda = "cuda" in name and name not in CUDA_SHIMS_OF_LIBTORCH_CPU
            if weak != (of_cuda or name in OPTIONAL_SHIMS):
                yield (
                    f"{name} is {'weak' if weak else 'strong'}: weak is for libtorch_cuda's shims "
                    "and for those of newer versions of torch"
                )
        elif not re.fullmatch(COMPILER_RUNTIME, name):
            yield f"undefined {name}: not one of LibTorch's stable C shims"


def main(library: str) -> int:
    needed = re.findall(r"NEEDED.*\[(.+?)\]", output_of("readelf", "-d", library))
    faults = [*faults_of_libraries(needed), *faults_of_symbols(library)]
    shims = [name for _, name, _ in undefined_symbols(library) if re.fullmatch(TORCH_SHIM, name)]
    print(f"needs {' '.join(needed)}; {len(shims)} torch shims; {len(faults)} faults")
    print(*faults, sep="\n")
    return 1 if faults or not shims else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
