"""Thin driver: CMake builds libmixed_gemm.so, setuptools packs it beside the Python files.

The library holds no Python and uses LibTorch's stable ABI, so the wheel is py3-none: one for every
Python and every torch >= 2.10. Environment: MIXED_GEMM_CUDA (AUTO, ON, OFF), TORCH_CUDA_ARCH_LIST,
CUTLASS_DIR, TORCH_ROOT, CMAKE_ARGS, MAX_JOBS. Everything else is in pyproject.toml.
"""

import os
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


def torch_is_here() -> bool:
    """True if CMake will find torch: the same search as cmake/FindTorchStable.cmake."""
    if os.environ.get("TORCH_ROOT"):
        return True
    finder = str(ROOT / "cmake/find_in_python.py")
    tries = ([sys.executable, finder, "torch"], [sys.executable, "-I", finder, "torch"])
    return any(subprocess.run(t, capture_output=True, check=False).stdout for t in tries)


class EarlyTorchCheck(dist_info):
    """Metadata comes first: stop before pip downloads a torch of several GB for a failing build."""

    def run(self) -> None:
        if not torch_is_here():
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
        cuda = os.environ.get("MIXED_GEMM_CUDA", "AUTO")
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
