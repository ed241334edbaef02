"""Weights are rounded some rows at a time, to the same bits, and in little memory."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import mixed_gemm
from mixed_gemm.ops.problem import WEIGHTS
from mixed_gemm.weights import row_blocks
from mixed_gemm.weights.kinds import kind_of
from mixed_gemm.weights.nearest import numbers_of
from mixed_gemm.weights.rounding import extremes
from mixed_gemm.weights.scheme import SCHEMES


def rounded(weight: torch.Tensor, name: str) -> mixed_gemm.QuantizedTensor:
    scheme = SCHEMES[name]
    return kind_of("test", scheme, tuple(weight.shape)).from_float(weight, scheme)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", SCHEMES)
def test_blocks_give_the_bits_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype
) -> None:
    n, k = 300, 640 if name == "w8a8_block" else 544  # the rows are no multiple of a block
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(n, k, generator=generator) * torch.rand(n, 1, generator=generator)
    weight[7] = 0
    weight[100, :3] = torch.tensor([-4.0, 4.0, -4.0])  # the first of equal magnitudes counts
    found = []
    for elements in (1 << 30, 1, 7 * k, 129 * k):
        monkeypatch.setattr(row_blocks, "_ON_CPU", elements)
        found.append(rounded(weight.to(dtype), name))
    for part in found[0].__tensor_flatten__()[0]:
        whole = getattr(found[0], part).contiguous().view(torch.uint8)
        for other in found[1:]:
            assert torch.equal(getattr(other, part).contiguous().view(torch.uint8), whole), part


@pytest.mark.parametrize("name", ["w4a16", "w4a16_asym", "mxfp4", "nvfp4", "nf4"])
def test_a_search_by_blocks_finds_the_bits_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(70, 160, generator=generator)
    found = []
    for elements in (1 << 30, 9 * 160):
        monkeypatch.setattr(row_blocks, "_ON_CPU", elements)
        model = torch.nn.Sequential(torch.nn.Linear(160, 70, bias=False))
        model[0].weight.data.copy_(weight)
        mixed_gemm.quantize_(model, name, method="rtn")
        found.append(model[0].weight.detach().dequantize())
    assert torch.equal(*found)


class LargestTensor(TorchDispatchMode):
    """Remember the bytes of the largest result of any function of torch."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        found = func(*args, **(kwargs or {}))
        for x in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(x, torch.Tensor):
                self.bytes = max(self.bytes, x.numel() * x.itemsize)
        return found


@pytest.mark.parametrize("name", SCHEMES)
def test_nothing_in_float32_is_as_large_as_the_weight(name: str) -> None:
    weight = torch.randn(2048, 1024).to(torch.bfloat16)
    with LargestTensor() as largest:
        rounded(weight, name)
    assert largest.bytes <= weight.nbytes


def test_the_first_of_equal_magnitudes_is_the_extreme() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-3, 4, (50, 20, 16), generator=generator).float()
    wanted = x.gather(-1, x.abs().argmax(-1, keepdim=True))
    assert torch.equal(extremes(x), wanted)
    assert bool(((x.amax(-1) == -x.amin(-1)) & (x.amax(-1) > 0)).any())


def test_tensors_without_numbers_of_their_own_have_extremes() -> None:
    assert extremes(torch.randn(2, 3, 4, device="meta")).shape == (2, 3, 1)
    with FakeTensorMode():
        assert extremes(torch.randn(2, 3, 4)).shape == (2, 3, 1)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="no torch.distributed")
def test_a_shard_is_rounded_as_the_whole() -> None:
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    wanted = mixed_gemm.quantize_weight(weight, 4, 32)[:2]
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        found = mixed_gemm.quantize_weight(distribute_tensor(weight, mesh, [Shard(0)]), 4, 32)[:2]
        for x, y in zip(found, wanted, strict=True):
            assert torch.equal(x.to_local(), y)  # type: ignore[attr-defined]
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", [name for name, known in WEIGHTS.items() if not known.is_integer])
def test_the_nearest_of_every_upper_half_and_around_every_end(name: str) -> None:
    numbers = numbers_of(name, torch.device("cpu"))
    halves = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32) << 16
    x = torch.cat([halves, halves | 0xFFFF, halves | 0x7FFF]).view(torch.float32)
    up, down = torch.full_like(numbers.ends, torch.inf), torch.full_like(numbers.ends, -torch.inf)
    around = [numbers.ends.nextafter(up), numbers.ends, numbers.ends.nextafter(down)]
    x = torch.cat([x[x.isfinite()], *around, numbers.values])
    assert torch.equal(numbers.index(x), torch.bucketize(x, numbers.ends, out_int32=True))
    assert torch.equal(numbers.nearest(x), numbers.values[torch.bucketize(x, numbers.ends)])
