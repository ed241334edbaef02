"""The libraries of an older glibc to link against, as a folder for `-L`.

    python tools/glibc_stubs.py FOLDER        (needs ziglang, of the group `wheel`)

A program that is linked on this machine asks for the symbol versions of its glibc, and does not
start where that is older. Zig brings a table of which symbols and versions every glibc has, and
makes empty libraries of it; linked against those, the wheel asks for what the oldest glibc that it
is for has. The compiler, its headers and libstdc++ stay those of the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

GLIBC = "2.28"  # the version of manylinux_2_28, as torch's own wheels
LINKED = {  # by -lm and so on; -lc is a script, as glibc's own is
    "libm.so": "libm.so.6",
    "libpthread.so": "libpthread.so.0",
    "libdl.so": "libdl.so.2",
    "librt.so": "librt.so.1",
}
C_LIBRARY = ("libc.so.6", "libc_nonshared.a", "libld.so.2")  # the last is the loader


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "empty.c"
        source.write_text("")
        subprocess.run(
            [sys.executable, "-m", "ziglang", "cc", "-target", f"x86_64-linux-gnu.{GLIBC}",
             "-shared", str(source), "-o", str(source.with_suffix(".so"))],
            check=True,
            env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch},
        )  # fmt: skip
        made = {path.name: path for path in Path(scratch).glob("o/*/lib*")}
        for name in C_LIBRARY:
            shutil.copyfile(made[name], folder / name)
        for name, of_zig in LINKED.items():
            shutil.copyfile(made[of_zig], folder / name)
    shared, static, loader = (folder / name for name in C_LIBRARY)
    (folder / "libc.so").write_text(f"GROUP ( {shared} {static} AS_NEEDED ( {loader} ) )\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
