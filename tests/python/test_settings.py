"""Settings of torch are set, and set back, by assignment: no test depends on how a fixture of
pytest undoes them."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support.settings import assigned, without_tf32

PATCHERS = ("setattr", "delattr", "object")  # of monkeypatch, and of unittest.mock.patch


class Lazy:
    """As a module of torch.backends whose attributes are computed."""

    held = 1

    def __getattr__(self, name: str) -> int:
        if name == "setting":
            return type(self).held
        raise AttributeError(name)

    def __setattr__(self, name: str, value: int) -> None:
        if value < 0:
            raise ValueError(value)
        type(self).held = value


def test_settings_of_torch_are_set_and_set_back():
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (matmul.allow_tf32, cudnn.allow_tf32)
    try:
        for found in (False, True):
            matmul.allow_tf32 = cudnn.allow_tf32 = found
            with without_tf32():
                assert (matmul.allow_tf32, cudnn.allow_tf32) == (False, False)
            assert (matmul.allow_tf32, cudnn.allow_tf32) == (found, found)
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def test_settings_are_set_back_when_the_test_fails():
    owner = Lazy()
    with pytest.raises(KeyError), assigned(owner, setting=5):
        assert owner.setting == 5
        raise KeyError
    assert owner.setting == 1


def test_settings_are_set_back_when_one_is_refused():
    first, second = Lazy(), torch.backends.cuda.matmul
    before = second.allow_tf32
    with pytest.raises(AttributeError), assigned(second, allow_tf32=not before, nothing=1):
        pass
    assert second.allow_tf32 == before
    with pytest.raises(ValueError), assigned(first, setting=-1):
        pass
    assert first.setting == 1


def torch_names(tree: ast.AST) -> dict[str, str]:
    """What a file calls the things that it imports from torch -> what they are."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    names[alias.asname or "torch"] = alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return names


def owner_of(node: ast.expr, names: dict[str, str]) -> str | None:
    """What the expression names, if that is of torch."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Constant) and str(node.value).startswith("torch."):
        return str(node.value).rpartition(".")[0]
    if isinstance(node, ast.Attribute) and (owner := owner_of(node.value, names)) is not None:
        return f"{owner}.{node.attr}"
    return None


def computed_owners(source: str) -> Iterator[str]:
    """Calls that patch an attribute of something of torch which is neither a class nor a plain
    module, so that the attribute may not lie where a fixture looks for what it was."""
    tree = ast.parse(source)
    names = torch_names(tree)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in PATCHERS
            and node.args
        ):
            named = owner_of(node.args[0], names)
            owner = pkgutil.resolve_name(named) if named else None
            if owner is not None and type(owner) is not ModuleType and not isinstance(owner, type):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def test_no_fixture_undoes_what_torch_computes(repository: Path):
    files = [p for folder in ("tests", "benchmarks") for p in (repository / folder).rglob("*.py")]
    assert len(files) > 100
    found = {
        str(path.relative_to(repository)): calls
        for path in files
        if (calls := list(computed_owners(path.read_text(encoding="utf-8"))))
    }
    assert not found, f"use support.settings.assigned: {found}"


@pytest.mark.parametrize(
    "call",
    [
        'import torch\nmonkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)',
        'import torch\nmp.setattr("torch.backends.cuda.matmul.allow_tf32", False)',
        'from torch.backends import cudnn\nmonkeypatch.setattr(cudnn, "allow_tf32", False)',
        'import torch.backends.cudnn as c\nmock.patch.object(c, "allow_tf32", False)',
        "import torch\nmonkeypatch.delattr(torch.ops.aten, 'add')",
    ],
)
def test_the_rule_sees_each_way_to_patch(call: str):
    assert len(list(computed_owners(call))) == 1


@pytest.mark.parametrize(
    "call",
    [
        'import torch\nmonkeypatch.setattr(torch, "_scaled_mm", f)',
        'import torch\nmonkeypatch.setattr(torch.Tensor, "to", f)',
        'import torch\nmonkeypatch.setattr("torch.compile", f)',
        "import torch\nmonkeypatch.setattr(other, 'torch', f)",
    ],
)
def test_the_rule_lets_plain_modules_and_classes_be_patched(call: str):
    assert not list(computed_owners(call))
