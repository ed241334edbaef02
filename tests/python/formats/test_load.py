"""Layers whose words an op repacks: the weight is that of unpacking and packing, to the bit, and no
code is unpacked on the way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support import packed
from torch import Tensor

from mixed_gemm.formats import awq, gptq, open_checkpoint
from mixed_gemm.formats.errors import CheckpointError
from mixed_gemm.formats.layer import LayerTensors
from mixed_gemm.formats.load import Wanted, stored
from mixed_gemm.formats.loaded import LoadedTensors

DATA = Path(__file__).resolve().parents[2] / "data"
FOLDERS = sorted(x.name for x in DATA.iterdir() if (x / "config.json").exists())
DTYPES = (torch.float16, torch.bfloat16, torch.float32, None)
Parts = dict[str, Tensor]
GPTQ_V1 = {"quant_method": "gptq", "sym": False}


@pytest.fixture(autouse=True)
def all_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that a CPU would rather unpack."""
    monkeypatch.setattr(gptq, "REPACKED_ON_CPU", gptq.BITS)


@pytest.fixture
def repacked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which ops were called, in their order."""
    calls: list[str] = []

    def counted(name: str, op: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Tensor:
            calls.append(name)
            return op(*args, **kwargs)

        return call

    for module, name in ((awq, "awq_repack"), (gptq, "gptq_repack")):
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return calls


def same(codec: Any, layer: LayerTensors, dtype: torch.dtype | None) -> None:
    info, wanted = codec.describe(layer), Wanted(dtype)
    expected, found = stored(codec.decode(layer, info), wanted), codec.load(layer, info, wanted)
    assert found.module == expected.module
    assert (
        found.weight.stored_alike(expected.weight) and found.weight.dtype is expected.weight.dtype
    )
    for name, part in expected.weight.tensors().items():
        mine = found.weight.tensors()[name]
        as_bytes = [x.contiguous().view(torch.uint8) for x in (mine, part)]
        assert mine.dtype == part.dtype and torch.equal(*as_bytes), name
    assert (found.bias is None) == (expected.bias is None)
    if found.bias is not None:
        assert torch.equal(found.bias, expected.bias)


@pytest.mark.filterwarnings("ignore::mixed_gemm.CheckpointWarning")
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_loading_is_decoding_and_packing(
    folder: str, dtype: torch.dtype | None, repacked: list[str]
) -> None:
    checkpoint = open_checkpoint(DATA / folder)
    for name in checkpoint.layers:
        same(checkpoint.codec, LayerTensors(checkpoint.index, name), dtype)
    op = {"AWQ gemm": "awq_repack", "GPTQ v1": "gptq_repack", "GPTQ v2": "gptq_repack"}
    wanted = [op[checkpoint.format]] * len(checkpoint) if checkpoint.format in op else []
    assert repacked == wanted


def layer_of(parts: Parts) -> LayerTensors:
    return LayerTensors(LoadedTensors("x", parts), "x")


def codec_of(kind: str, bits: int, size: int) -> Any:
    config = {**GPTQ_V1, "bits": bits, "group_size": size}
    return awq.AwqGemm(config, Path("x")) if kind == "awq" else gptq.Gptq(config, Path("x"))


@pytest.mark.parametrize(("n", "k"), [(64, 128), (72, 144), (8, 80), (200, 1008)])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("act_order", [False, True])
def test_gptq_of_ragged_shapes(
    n: int, k: int, bits: int, act_order: bool, repacked: list[str]
) -> None:
    n, k = (-(-x // 32) * 32 if bits == 3 else x for x in (n, k))
    layer = packed.random_layer(n, k, 48, bits, symmetric=False)
    parts = packed.gptq(layer)
    if act_order:
        order = torch.randperm(k, generator=torch.Generator().manual_seed(1))
        parts["g_idx"] = layer.groups[order].int()
    same(codec_of("gptq", bits, 48), layer_of(parts), torch.bfloat16)
    assert repacked == ["gptq_repack"]


@pytest.mark.parametrize(("n", "k", "size"), [(64, 128, 32), (72, 144, 48), (8, 80, -1)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_awq_of_ragged_shapes(
    n: int, k: int, size: int, symmetric: bool, repacked: list[str]
) -> None:
    parts = packed.awq(packed.random_layer(n, k, size, symmetric=symmetric))
    parts["bias"] = torch.randn(n)
    same(codec_of("awq", 4, size), layer_of(parts), torch.float16)
    assert repacked == ["awq_repack"]


@pytest.mark.parametrize("kind", ["awq", "gptq"])
def test_a_scale_that_the_dtype_has_not_is_left_to_decoding(kind: str, repacked: list[str]) -> None:
    """Codes of its group are rounded to a larger scale, which moves no words."""
    layer = packed.random_layer(64, 128, 32, symmetric=False)
    parts = packed.awq(layer) if kind == "awq" else packed.gptq(layer)
    parts["scales"] = layer.scales.float()
    parts["scales"][1, 3] = 1.7e-7
    same(codec_of(kind, 4, 32), layer_of(parts), torch.float16)
    assert repacked == []
    same(codec_of(kind, 4, 32), layer_of(parts), torch.float32)
    assert repacked == [f"{kind}_repack"]


def broken(kind: str, change: str) -> tuple[Any, LayerTensors]:
    layer = packed.random_layer(64, 96, 24 if change == "groups" else 32, symmetric=False)
    parts = packed.awq(layer) if kind == "awq" else packed.gptq(layer)
    parts["scales"] = layer.scales.float()
    if change != "groups":
        parts["scales"][0, 5] = {"nan": float("nan"), "large": 1e9}[change]
    return codec_of(kind, 4, 24 if change == "groups" else 32), layer_of(parts)


@pytest.mark.parametrize("kind", ["awq", "gptq"])
@pytest.mark.parametrize("change", ["groups", "nan", "large"])
def test_refusals_are_those_of_decoding(kind: str, change: str) -> None:
    codec, layer = broken(kind, change)
    info, wanted = codec.describe(layer), Wanted(torch.float16)
    with pytest.raises((ValueError, CheckpointError)) as expected:
        stored(codec.decode(layer, info), wanted)
    with pytest.raises((ValueError, CheckpointError)) as found:
        codec.load(layer, info, wanted)
    assert str(found.value) == str(expected.value)
    assert type(found.value) is type(expected.value)


def test_no_code_is_unpacked_to_a_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = layer_of(packed.awq(packed.random_layer(128, 256, 32, symmetric=False)))
    codec = codec_of("awq", 4, 32)
    info, shapes = codec.describe(layer), []

    def watched(words: Tensor) -> Tensor:
        shapes.append(tuple(words.shape))
        return unpack(words)

    unpack = awq.unpack_columns
    monkeypatch.setattr(awq, "unpack_columns", watched)
    codec.load(layer, info, Wanted())
    assert shapes == [(8, 16)]  # of the zero points
