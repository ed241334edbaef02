"""How the make_*.py scripts write a checkpoint folder, and how they reach a packer in a package
that does not import as a whole.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import MagicMock

from safetensors.torch import save_file
from support import tiny_llama
from torch import Tensor, nn

DATA = Path(__file__).parent


def write(folder: str, tensors: dict[str, Tensor], quantization: dict, made_by: str) -> None:
    """tests/data/<folder>: config.json and model.safetensors, the plain tensors included."""
    out = DATA / folder
    out.mkdir(exist_ok=True)
    whole = {k: v.contiguous() for k, v in {**tiny_llama.plain_tensors(), **tensors}.items()}
    save_file(whole, out / "model.safetensors", {"format": "pt", "made_by": made_by})
    config = {**tiny_llama.CONFIG, "quantization_config": quantization}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def linear(name: str, weight: Tensor, with_bias: bool) -> nn.Linear:
    """float32, with a bias on down_proj only."""
    n, k = weight.shape
    layer = nn.Linear(k, n, bias=with_bias and name.endswith("down_proj"))
    layer.weight.data = weight
    if layer.bias is not None:
        layer.bias.data = tiny_llama.bias(name, n).float()
    return layer


class _MockedRest(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Everything of a package but the listed modules becomes a mock."""

    def __init__(self, package: str, real: Sequence[str]) -> None:
        self.package, self.real = package, real

    def find_spec(self, name, path=None, target=None):
        if name.startswith(self.package + ".") and name not in self.real:
            return importlib.util.spec_from_loader(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return MagicMock(name=spec.name, __path__=[], __spec__=spec)

    def exec_module(self, module) -> None:
        pass


def import_parts(source: Path, package: str, folders: Sequence[str], real: Sequence[str]) -> None:
    """Make ``real`` modules of ``package`` importable from ``source``: the ``folders`` on their way
    exist without their __init__ being run, and all else of the package is mocked."""
    for name in folders:
        module = types.ModuleType(name)
        module.__path__ = [str(source / name.replace(".", "/"))]
        sys.modules[name] = module
    sys.meta_path.insert(0, _MockedRest(package, real))
