"""Our readers and writer of files against the packages that define them: safetensors and torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mixed_gemm.formats.safetensors_file import DTYPES, SafetensorsFile
from mixed_gemm.formats.shards import ShardWriter
from mixed_gemm.formats.torch_file import TorchFile

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
names = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20).filter(
    lambda name: name != "__metadata__"
)


def filled(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """Any bits; booleans are 0 and 1."""
    g = torch.Generator().manual_seed(seed)
    count = torch.Size(shape).numel() * dtype.itemsize
    high = 2 if dtype == torch.bool else 256
    return torch.randint(0, high, (count,), generator=g, dtype=torch.uint8).view(dtype).view(shape)


tensors = st.builds(
    filled, shapes, st.sampled_from(sorted(DTYPES.values(), key=str)), st.integers(0, 99)
)


def same(found: Tensor, wanted: Tensor) -> bool:
    bits = [x.contiguous().reshape(-1).view(torch.uint8) for x in (found, wanted)]
    return found.dtype == wanted.dtype and found.shape == wanted.shape and torch.equal(*bits)


def read(file: SafetensorsFile | TorchFile) -> dict[str, Tensor]:
    found = {}
    for name in file.names():
        found[name] = file.load(name)
        assert file.shape(name) == tuple(found[name].shape)
        assert file.dtype(name) == found[name].dtype
    return found


@given(st.dictionaries(names, tensors, min_size=1, max_size=6))
def test_safetensors_reads_what_we_write_and_we_what_it_writes(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Tensor]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    writer = ShardWriter(folder, 10**9)
    for name, tensor in content.items():
        writer.add(name, tensor)
    writer.finish()
    save_file(content, folder / "theirs.safetensors", {"format": "pt", "more": "text"})
    for found in (
        load_file(folder / "model.safetensors") if _known(content) else content,
        read(SafetensorsFile(folder / "model.safetensors")),
        read(SafetensorsFile(folder / "theirs.safetensors")),
    ):
        assert found.keys() == content.keys()
        assert all(same(found[name], content[name]) for name in content)


def test_the_name_that_safetensors_keeps_for_itself_is_refused(tmp_path: Path) -> None:
    """As a tensor it would take the place of what the header says of the file."""
    with pytest.raises(ValueError, match=r"__metadata__: safetensors keeps this name for itself"):
        ShardWriter(tmp_path, 10**9).add("__metadata__", torch.zeros(2))


def _known(content: dict[str, Tensor]) -> bool:
    """load_file has no view of some dtypes that save_file writes."""
    from safetensors.torch import _TYPES

    return all(tensor.dtype in _TYPES.values() for tensor in content.values())


@given(st.dictionaries(names, tensors, min_size=1, max_size=6), st.booleans())
def test_torch_file_reads_what_torch_saves(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Tensor], inner: bool
) -> None:
    path = tmp_path_factory.mktemp("files") / "m.pt"
    torch.save({"state_dict": content, "epoch": 3} if inner else content, path)
    wanted = torch.load(path, weights_only=True)
    wanted = wanted["state_dict"] if inner else wanted
    found = read(TorchFile(path))
    assert found.keys() == wanted.keys()
    assert all(same(found[name], wanted[name]) for name in wanted)


def test_torch_file_reads_modules_views_and_shared_storages(tmp_path: Path) -> None:
    """A state dict has attributes, parameters hooks, and views offsets and strides."""
    base = torch.arange(60.0)
    state = {
        **nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).half().state_dict(),
        "parameter": nn.Parameter(torch.randn(3)),
        "offset": base[7:19].view(3, 4),
        "transposed": base.view(6, 10).t(),
        "steps": base[::7],
        "again": base,
        "scalar": torch.tensor(3.0),
        "empty": torch.empty(0, 5),
        "a text": "x",
        "a list": [1, (2.5, None), True],
    }
    modules = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).state_dict()
    for number, saved in enumerate((state, modules)):
        path = tmp_path / f"{number}.bin"
        torch.save(saved, path)
        wanted = {k: v for k, v in torch.load(path).items() if isinstance(v, Tensor)}
        found = read(TorchFile(path))
        assert found.keys() == wanted.keys()
        assert all(same(found[name], wanted[name].detach()) for name in wanted)


def test_torch_file_of_many_tensors_is_opened_in_time(tmp_path: Path) -> None:
    state = {f"model.layers.{i}.weight": torch.zeros(1) for i in range(5000)}
    torch.save(state, tmp_path / "many.bin")
    assert len(list(TorchFile(tmp_path / "many.bin").names())) == 5000
