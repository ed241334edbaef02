"""Thin driver: CMake builds libmixed_gemm.so, setuptools packs it beside the Python files.

The library holds no Python and uses LibTorch's stable ABI, so the wheel is py3-none: one for every
Python and every torch >= 2.10. Environment: MIXED_GEMM_CUDA (AUTO, ON, OFF; what the installed
torch can use when unset), TORCH_CUDA_ARCH_LIST, CUTLASS_DIR, TORCH_ROOT, CMAKE_ARGS, MAX_JOBS.
Everything else is in pyproject.toml.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.dist_info import dist_info

ROOT = Path(__file__).resolve().parent
TORCH_MISSING = """\
mixed_gemm: no torch >= 2.10 was found for {python}.
Install it first, then run the same command again. The CPU build is the small one:
    pip install torch --index-url https://download.pytorch.org/whl/cpu
With uv, or another builder whose isolation hides torch: --no-build-isolation. A torch elsewhere:
TORCH_ROOT=/path/to/site-packages/torch."""


def torch_folder() -> Path | None:
    """Where CMake will find torch: the same search as cmake/FindTorchStable.cmake."""
    if root := os.environ.get("TORCH_ROOT"):
        return Path(root)
    finder = str(ROOT / "cmake/find_in_python.py")
    for isolated in ([], ["-I"]):
        command = [sys.executable, *isolated, finder, "torch"]
        found = subprocess.run(command, capture_output=True, check=False, text=True).stdout.strip()
        if found:
            return Path(found)
    return None


def cuda_to_build(torch: Path | None) -> tuple[str, str]:
    """(MIXED_GEMM_CUDA, a line about it): a torch without CUDA cannot call the CUDA kernels, which
    take ten minutes to compile. torch is not imported: its version is read from its files."""
    if chosen := os.environ.get("MIXED_GEMM_CUDA"):
        return chosen, f"MIXED_GEMM_CUDA={chosen}, as the environment says"
    about = torch / "version.py" if torch else None
    text = about.read_text() if about and about.is_file() else ""
    name = (re.search(r"__version__ = '([^']+)'", text) or ["", "of an unknown version"])[1]
    if re.search(r"^cuda\b[^=]*= None", text, re.MULTILINE):
        return "OFF", (
            f"the CPU kernels only, since torch {name} has no CUDA (MIXED_GEMM_CUDA=ON builds the "
            "CUDA kernels too)"
        )
    return "AUTO", (
        f"for torch {name}: the CUDA kernels, if there is nvcc (10 minutes on 2 cores), and the "
        "CPU's (MIXED_GEMM_CUDA=OFF builds the CPU's only)"
    )


class EarlyTorchCheck(dist_info):
    """Metadata comes first: stop before pip downloads a torch of several GB for a failing build."""

    def run(self) -> None:
        if torch_folder() is None:
            sys.exit(TORCH_MISSING.format(python=sys.executable))
        super().run()


class CMakeBuild(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        return fullname.replace(".", os.sep) + ".so"

    def build_extension(self, ext: Extension) -> None:
        # pip's isolation puts its cmake and ninja on PATH; without it they may be in the venv only.
        path = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
        tools = {name: shutil.which(name, path=path) for name in ("cmake", "ninja")}
        if not all(tools.values()):
            sys.exit(f"mixed_gemm: cmake and ninja are needed, found {tools}: pip install both")
        cmake = str(tools["cmake"])
        build = Path(self.build_temp).resolve()
        prefix = Path(self.get_ext_fullpath(ext.name)).resolve().parent.parent
        cuda, line = cuda_to_build(torch_folder())
        print(f"mixed_gemm: building {line}", flush=True)
        jobs = os.environ.get("MAX_JOBS", str(os.cpu_count() or 1))
        configure = [cmake, "-S", str(ROOT), "-B", str(build), "-G", "Ninja"]
        # Always given: the build folder may remember the ninja of an isolation that is gone.
        configure += [f"-DCMAKE_MAKE_PROGRAM={tools['ninja']}", f"-DMIXED_GEMM_CUDA={cuda}"]
        configure += [f"-DPython_EXECUTABLE={sys.executable}"]
        configure += shlex.split(os.environ.get("CMAKE_ARGS", ""))
        subprocess.run(configure, check=True)
        subprocess.run(
            [cmake, "--build", str(build), "--target", "mixed_gemm", "-j", jobs], check=True
        )
        subprocess.run([cmake, "--install", str(build), "--prefix", str(prefix)], check=True)


class AnyPythonWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    # cli/ a second time, under a name whose parent is not mixed_gemm: that imports torch, and help
    # need not wait for it (mixed_gemm/cli/__init__.py).
    packages=[*find_packages(include=["mixed_gemm", "mixed_gemm.*"]), "mixed_gemm_cli"],
    package_dir={"mixed_gemm_cli": "mixed_gemm/cli"},
    ext_modules=[Extension("mixed_gemm.libmixed_gemm", sources=[])],
    cmdclass={
        "bdist_wheel": AnyPythonWheel,
        "build_ext": CMakeBuild,
        "dist_info": EarlyTorchCheck,
    },
)
