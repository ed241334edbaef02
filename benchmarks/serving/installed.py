"""A source tree as an installed package, which vLLM's loader of plug-ins looks for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = "vllm.general_plugins"


def write_metadata(target: Path) -> Path:
    """The metadata that an installation would have, with the entry point that pyproject.toml
    declares; return ``target``, which belongs on the path of Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = target / f"mixed_gemm-{project['version']}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: mixed-gemm\nVersion: {project['version']}\n"
    )
    points = "".join(f"{k} = {v}\n" for k, v in project["entry-points"][PLUGINS].items())
    scripts = "".join(f"{k} = {v}\n" for k, v in project["scripts"].items())
    (info / "entry_points.txt").write_text(f"[{PLUGINS}]\n{points}[console_scripts]\n{scripts}")
    return target


def install(venv: Path) -> None:
    """Put this tree into a virtual environment: the modules as they are here, the command, and the
    library that was built, where $MIXED_GEMM_LIBRARY or build/ has it."""
    (packages,) = venv.glob("lib/python3*/site-packages")
    write_metadata(packages)
    (packages / "mixed_gemm.pth").write_text(f"{ROOT}\n")
    command = venv / "bin" / "mixed-gemm"
    command.write_text(
        f"#!{venv / 'bin' / 'python'}\nimport sys\nfrom mixed_gemm.cli import main\n"
        "sys.exit(main())\n"
    )
    command.chmod(0o755)
    built = Path(os.environ.get("MIXED_GEMM_LIBRARY", ROOT / "build" / "libmixed_gemm.so"))
    library = packages / "mixed_gemm" / "libmixed_gemm.so"
    library.parent.mkdir(exist_ok=True)
    library.unlink(missing_ok=True)
    library.symlink_to(built.resolve())


if __name__ == "__main__":
    install(Path(sys.argv[1]).resolve())
