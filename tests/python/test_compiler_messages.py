"""tools/compiler_messages.py: what a compiler says of an object is kept and is a fault, by g++ and
by ptxas, and when ccache says it again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import compiler_messages as messages

UNUSED = "int one() {\n  int planted = 1;\n  return 1;\n}\n"
CLEAN = "int one() { return 1; }\n"
# Sums that are read between two wgmma: ptxas lets each of these wait for the one before it.
SERIALIZED = """
__global__ void planted(float* out, unsigned long long a, unsigned long long b) {
  float sums[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;");
  for (int i = 0; i < 4; ++i) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
                 "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) : "l"(a), "l"(b));
    sums[0] += 1;
  }
  asm volatile("wgmma.commit_group.sync.aligned;");
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  out[threadIdx.x] = sums[0] + sums[1] + sums[2] + sums[3];
}
"""
GXX = shutil.which("g++")
CCACHE = shutil.which("ccache")
NVCC = shutil.which("nvcc")
NVCC_FLAGS = ("--generate-code=arch=compute_90a,code=[sm_90a]",)
KEEP = (sys.executable, messages.__file__, "keep")


def compiled(
    folder: Path, compiler: tuple[str, ...], source: str, suffix: str = ".cpp"
) -> tuple[str, str]:
    """(object, what the build showed) of a source that was compiled under the launcher."""
    path = folder / f"one{suffix}"
    path.write_text(source)
    target = str(folder / "one.o")
    done = subprocess.run(
        [*KEEP, *compiler, "-c", str(path), "-o", target],
        capture_output=True,
        text=True,
        env={**os.environ, "CCACHE_DIR": str(folder / "ccache")},
        check=True,
    )
    return target, done.stdout + done.stderr


@pytest.mark.skipif(not GXX, reason="no g++")
def test_a_warning_is_shown_kept_and_a_fault(tmp_path, capsys):
    target, shown = compiled(tmp_path, ("g++", "-Wall"), UNUSED)
    assert "unused variable" in shown
    assert messages.check([target], ()) == 1
    out = capsys.readouterr().out
    assert f"{target}:" in out and "unused variable" in out and "1 objects, 1 faults" in out


@pytest.mark.skipif(not GXX, reason="no g++")
def test_silence_is_no_fault_and_ends_what_was_said_before(tmp_path, capsys):
    compiled(tmp_path, ("g++", "-Wall"), UNUSED)
    target, shown = compiled(tmp_path, ("g++", "-Wall"), CLEAN)
    assert shown == ""
    assert messages.check([target], ()) == 0
    assert "1 objects, 0 faults" in capsys.readouterr().out


@pytest.mark.skipif(not GXX or not CCACHE, reason="no g++ or no ccache")
def test_ccache_says_again_what_the_compiler_said(tmp_path):
    for _ in range(2):
        target, shown = compiled(tmp_path, ("ccache", "g++", "-Wall"), UNUSED)
        assert "unused variable" in shown
        assert messages.check([target], ()) == 1
        messages.said(target).unlink()
    environment = {**os.environ, "CCACHE_DIR": str(tmp_path / "ccache")}
    counts = subprocess.run(
        ["ccache", "--print-stats"], capture_output=True, text=True, env=environment, check=True
    )
    assert "direct_cache_hit\t1" in counts.stdout


@pytest.mark.skipif(not NVCC, reason="no nvcc")
def test_ptxas_says_that_wgmma_is_serialized(tmp_path, capsys):
    target, _ = compiled(tmp_path, ("nvcc", *NVCC_FLAGS), SERIALIZED, ".cu")
    assert messages.check([target], ()) == 1
    out = capsys.readouterr().out
    assert "Potential Performance Loss" in out and "planted(float*" in out


def test_a_named_message_is_no_fault_and_another_one_is(tmp_path, capsys):
    target = str(tmp_path / "one.o")
    known = (messages.Known(r"ptxas info .*\bone\(int\)'", "for the test"),)
    messages.said(target).write_text("ptxas info : slow in '_Z3onei'\n\n")
    assert messages.check([target], known) == 0
    messages.said(target).write_text("ptxas info : slow in '_Z3onei'\nptxas info : '_Z3twoi'\n")
    assert messages.check([target], known) == 1
    assert "two(int)" in capsys.readouterr().out


def test_objects_without_messages_are_faults(tmp_path, capsys):
    assert messages.check([str(tmp_path / "one.o")], ()) == 1
    assert "were not kept" in capsys.readouterr().out
    assert messages.check([], ()) == 1


def test_a_compiler_that_fails_does_so_through_the_launcher():
    command = [*KEEP, sys.executable, "-c", "raise SystemExit(3)"]
    assert subprocess.run(command, check=False).returncode == 3
    assert subprocess.run(KEEP, capture_output=True, check=False).returncode == 2
