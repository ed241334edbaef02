"""Keep what compilers say of each object, and check that it is nothing, or named with a reason.

    python tools/compiler_messages.py keep COMMAND...   runs it; what it says is in OBJECT.said too
    python tools/compiler_messages.py check OBJECT...

A warning between a thousand lines of a build is read by nobody: ptxas said for weeks that it lets
every wgmma of two kernels wait for the one before it. `keep` is the compiler launcher of a build
with tests, in front of ccache, which repeats on a hit what the compiler said when it missed. ctest
runs `check` on all objects as `messages`. A compiler that has nothing to say is silent here, since
no build asks for -v: so whatever was said is a fault, be it of g++, nvcc, or ptxas ("Potential
Performance Loss"). Spills are found in the machine code (tests/sass/check_sass.py).
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SHOWN = 20  # lines of an object


@dataclass(frozen=True)
class Known:
    """A message that is no fault: a pattern that matches all of its line, demangled, and why."""

    line: str
    reason: str


# None: every compiler of `make build` is content.
KNOWN: tuple[Known, ...] = ()


def said(target: str) -> Path:
    """Return the file with the messages about an object."""
    return Path(f"{target}.said")


def keep(command: list[str]) -> int:
    """Run the compiler; return its exit status. Both streams are kept: nvcc writes to either."""
    done = subprocess.run(command, capture_output=True, check=False)
    sys.stdout.buffer.write(done.stdout)
    sys.stderr.buffer.write(done.stderr)
    if "-o" in command[:-1]:
        said(command[command.index("-o") + 1]).write_bytes(done.stdout + done.stderr)
    return done.returncode


def demangled(text: str) -> str:
    done = subprocess.run(["c++filt"], input=text, text=True, stdout=subprocess.PIPE, check=True)
    return done.stdout


def check(objects: list[str], known: tuple[Known, ...]) -> int:
    faults: list[str] = []
    for path in objects:
        if not said(path).is_file():
            faults.append(f"{path}: its messages were not kept; compile it again")
            continue
        lines = []
        for line in demangled(said(path).read_text(errors="replace")).splitlines():
            named = any(re.fullmatch(row.line, line.strip()) for row in known)
            lines += [f"    {line}"] if line.strip() and not named else []
        if lines:
            more = [f"    and {len(lines) - SHOWN} more lines"] if len(lines) > SHOWN else []
            faults.append("\n".join([f"{path}:", *lines[:SHOWN], *more]))
    print(*faults, sep="\n")
    print(f"{len(objects)} objects, {len(faults)} faults")
    return 1 if faults or not objects else 0


def main(arguments: list[str]) -> int:
    if len(arguments) > 1 and arguments[0] == "keep":
        return keep(arguments[1:])
    if arguments and arguments[0] == "check":
        return check(arguments[1:], KNOWN)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
