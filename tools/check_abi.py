"""Check what a built library leans on: torch's interface and an old enough glibc, no more.

    python tools/check_abi.py build/libmixed_gemm.so

For libmixed_gemm.so that is LibTorch's C shims, which lets one file load in every torch >= 2.10,
with and without CUDA, whoever built it. A library that is named for a release of torch
(libmixed_gemm_autograd-RELEASE.so) may take that release's C++ interface. ctest runs it as `abi`;
exit status 1 and a list of faults when something else got in.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

Versions = Mapping[str, tuple[int, ...]]
# Newest symbol versions that are allowed: what Debian 12 and Ubuntu 22.04 have (manylinux_2_34).
NEWEST: Versions = {
    "GLIBC": (2, 34),
    "GLIBCXX": (3, 4, 30),
    "CXXABI": (1, 3, 13),
    "GCC": (12, 0, 0),
}
FORBIDDEN_LIBRARIES = r"cuda|cudart|c10|libtorch_python|libpython"
TORCH_SHIM = r"(aoti_)?torch_\w+"
# CUDA shims live in libtorch_cuda, which a CPU torch lacks: all but this one must be weak.
CUDA_SHIMS_OF_LIBTORCH_CPU = {"aoti_torch_device_type_cuda"}
# Symbols of a torch newer than the oldest that is served: weak too, and asked for before they are
# called.
OPTIONAL_SHIMS = {"torch_exception_get_what_without_backtrace"}
COMPILER_RUNTIME = r"_ITM_\w+|__gmon_start__|__cxa_finalize|_Unwind_\w+"

OF_A_RELEASE = r"libmixed_gemm_autograd-.+\.so"
TORCH_CPP = r"_Z\w*(2at|3c10|5torch|6caffe2)\w+"  # a mangled name of one of its namespaces


def output_of(*command: str) -> str:
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True).stdout


def needed_libraries(library: str) -> list[str]:
    return re.findall(r"NEEDED.*\[(.+?)\]", output_of("readelf", "-d", library))


def undefined_symbols(library: str) -> Iterator[tuple[bool, str, str]]:
    """Yields (weak, name, version); the version is empty when the symbol has none."""
    for line in output_of("nm", "-D", "--undefined-only", library).splitlines():
        kind, symbol = line.split()[-2:]
        name, _, version = symbol.partition("@")
        yield kind in "wv", name, version.lstrip("@")


def is_of_a_release(library: str) -> bool:
    return re.fullmatch(OF_A_RELEASE, Path(library).name) is not None


def faults_of_libraries(library: str) -> Iterator[str]:
    needed = needed_libraries(library)
    if is_of_a_release(library):
        forbidden = r"cuda|cudart|libtorch_python|libpython"
        for name in {"libtorch_cpu.so", "libc10.so"} - {*needed}:
            yield f"{name} is not in DT_NEEDED: its symbols would not be found"
    else:
        forbidden = FORBIDDEN_LIBRARIES
        if "libtorch.so" not in needed:
            yield "libtorch.so is not in DT_NEEDED (--as-needed?): the CUDA shims would be null"
    for name in needed:
        if re.search(forbidden, name):
            yield f"needs {name}"


def faults_of_symbols(library: str, newest: Versions) -> Iterator[str]:
    for weak, name, version in undefined_symbols(library):
        known = re.match(r"([A-Z]+)_([\d.]+)$", version)
        if known:
            if tuple(map(int, known[2].split("."))) > newest.get(known[1], ()):
                yield f"{name} needs {version}, newer than {newest.get(known[1])}"
        elif is_of_a_release(library):
            if not re.fullmatch(f"{TORCH_CPP}|{COMPILER_RUNTIME}", name):
                yield f"undefined {name}: not of torch's C++ interface"
        elif re.fullmatch(TORCH_SHIM, name):
            of_cuda = "cuda" in name and name not in CUDA_SHIMS_OF_LIBTORCH_CPU
            if weak != (of_cuda or name in OPTIONAL_SHIMS):
                yield (
                    f"{name} is {'weak' if weak else 'strong'}: weak is for libtorch_cuda's shims "
                    "and for those of newer versions of torch"
                )
        elif not re.fullmatch(COMPILER_RUNTIME, name):
            yield f"undefined {name}: not one of LibTorch's stable C shims"


def faults(library: str, newest: Versions = NEWEST) -> Iterator[str]:
    yield from faults_of_libraries(library)
    yield from faults_of_symbols(library, newest)


def main(library: str) -> int:
    found = list(faults(library))
    shims = [name for _, name, _ in undefined_symbols(library) if re.fullmatch(TORCH_SHIM, name)]
    print(
        f"needs {' '.join(needed_libraries(library))}; {len(shims)} torch shims; "
        f"{len(found)} faults"
    )
    print(*found, sep="\n")
    return 1 if found or not (shims or is_of_a_release(library)) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
