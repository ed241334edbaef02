"""Build the host code with sanitizers and run the tests that exercise it under them.

    python tools/sanitize_cpu.py address     ASan and UBSan: all of ctest, and pytest through torch
    python tools/sanitize_cpu.py thread      TSan: the tests of ctest that start threads

CPU ops only, in build folders of their own (build/asan, build/tsan), so that no CUDA is compiled. A
fault ends its test. pytest loads the library into a Python that knows no sanitizer: their runtimes
are preloaded, and leaks, of which CPython has its own, are looked for under ctest alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from reliability_parts import write_part

ROOT = Path(__file__).resolve().parent.parent
UBSAN_OPTIONS = "print_stacktrace=1"


@dataclass(frozen=True)
class Sanitizer:
    """One build. ``ctest`` selects tests by name, ``pytest`` by file; ``targets`` is what they
    need."""

    folder: str
    flags: str
    targets: tuple[str, ...]
    ctest: tuple[str, ...]
    pytest: tuple[str, ...]
    options: dict[str, str]


SANITIZERS = {
    "address": Sanitizer(
        "asan",
        "address,undefined",
        ("all",),
        # abi and isa look at the library that ships.
        ("-L", "host", "-E", "^(abi|isa)$"),
        (
            "ops/test_awq.py",
            "ops/test_bad_inputs.py",
            "ops/test_block_gemm.py",
            "ops/test_conv.py",
            "ops/test_conv_int8.py",
            "ops/test_extremes.py",
            "ops/test_gemm.py",
            "test_host_faults.py",
            "ops/test_layout_hypothesis.py",
            "selection/test_plan.py",
            "ops/test_problems.py",
            "ops/test_quantize_activations.py",
            "ops/test_refusals.py",
            "ops/test_scaled_mm.py",
        ),
        {
            "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
            "UBSAN_OPTIONS": UBSAN_OPTIONS,
        },
    ),
    "thread": Sanitizer(
        "tsan",
        "thread",
        ("host_tests", "cpu_tests"),
        ("-R", "FirstCalls|Inbox|ConvCpu|not_depend_on_the_threads|threads_give_the_same_bits"),
        (),
        {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"},
    ),
}


def run(command: list[str], **environment: str) -> str:
    """The output of a command, which is printed too; ends this program if the command fails."""
    print("+", *command, flush=True)
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode != 0:
        sys.exit(f"{command[0]} ended with {process.returncode}")
    return "".join(lines)


def fixed_addresses() -> list[str]:
    """The command that starts a program at the addresses that TSan's runtime expects: newer kernels
    scatter them more widely than it allows. Empty where a process may not ask for that."""
    command = ["setarch", os.uname().machine, "--addr-no-randomize"]
    try:
        permitted = subprocess.run([*command, "true"], capture_output=True, check=False)
    except OSError:
        return []
    return command if permitted.returncode == 0 else []


def build(sanitizer: Sanitizer, folder: Path, jobs: str) -> None:
    run(
        [
            *("cmake", "-S", ".", "-B", str(folder), "-G", "Ninja"),
            f"-DPython_EXECUTABLE={sys.executable}",
            *("-DMIXED_GEMM_CUDA=OFF", "-DMIXED_GEMM_BUILD_TESTS=ON"),
            f"-DMIXED_GEMM_SANITIZE={sanitizer.flags}",
        ]
    )
    # The build runs the test programs too, to list their tests.
    run(
        [
            *fixed_addresses(),
            *("cmake", "--build", str(folder), "-j", jobs, "--target", *sanitizer.targets),
        ]
    )


def run_ctest(sanitizer: Sanitizer, folder: Path, jobs: str) -> int:
    output = run(
        [
            *fixed_addresses(),
            *("ctest", "--test-dir", str(folder), "-j", jobs, "--output-on-failure"),
            *("--no-tests=error", *sanitizer.ctest),
        ],
        **sanitizer.options,
    )
    # "100% tests passed, 0 tests failed out of 23"; newer versions leave out the middle.
    found = re.search(r"tests passed.* out of (\d+)", output)
    return int(found[1]) if found else 0


def runtimes() -> str:
    """The files to preload: libstdc++ too, for ASan to find the throwing function in it."""
    compiler = os.environ.get("CXX", "c++")
    names = ("libasan.so", "libubsan.so", "libstdc++.so.6")
    paths = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in names
    ]
    return ":".join(paths)


def run_pytest(sanitizer: Sanitizer, folder: Path, jobs: str) -> int:
    output = run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", jobs, "-p", "no:cacheprovider"),
            *("-k", "not compile"),  # the compiler of Inductor would be preloaded as well
            *(f"tests/python/{name}" for name in sanitizer.pytest),
        ],
        LD_PRELOAD=runtimes(),
        ASAN_OPTIONS="detect_leaks=0:detect_odr_violation=0",
        UBSAN_OPTIONS=UBSAN_OPTIONS,
        OMP_WAIT_POLICY="PASSIVE",
        MIXED_GEMM_REAL_TENSORS_ALONE="1",
        PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        MIXED_GEMM_LIBRARY=str(folder / "libmixed_gemm.so"),
        MIXED_GEMM_CORE_MODULE_DIR=str(folder / "python"),
    )
    found = re.search(r"(\d+) passed", output)
    return int(found[1]) if found else 0


def main(name: str) -> None:
    sanitizer = SANITIZERS[name]
    folder = Path(os.environ.get("BUILD", ROOT / "build")).resolve() / sanitizer.folder
    jobs = os.environ.get("JOBS") or str(os.cpu_count() or 1)
    begun = time.monotonic()
    build(sanitizer, folder, jobs)
    built = time.monotonic()
    counts = {"ctest": run_ctest(sanitizer, folder, jobs)}
    if sanitizer.pytest:
        counts["pytest"] = run_pytest(sanitizer, folder, jobs)
    tested = time.monotonic()
    print(f"{sanitizer.folder}: built in {built - begun:.0f} s, {counts} in {tested - built:.0f} s")
    if not all(counts.values()):
        sys.exit(f"{sanitizer.folder}: nothing was run: {counts}")
    rows = [
        {"name": f"{sanitizer.folder} {kind}", "count": n, "failed": 0}
        for kind, n in counts.items()
    ]
    write_part("sanitizers", rows, part=sanitizer.folder, seconds=round(tested - begun, 1))


if __name__ == "__main__":
    if sys.argv[1:] not in ([name] for name in SANITIZERS):
        sys.exit(__doc__)
    main(sys.argv[1])
