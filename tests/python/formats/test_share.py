"""A share of a layer, read without the rest, against the same rows or columns of the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import mixed_gemm
from mixed_gemm.distributed.read import COLUMNS, ROWS, ShardOf, read_shard

DATA = Path(__file__).resolve().parents[2] / "data"
FOLDERS = sorted(x.name for x in DATA.iterdir() if (x / "config.json").exists())


@pytest.mark.filterwarnings("ignore::mixed_gemm.CheckpointWarning")
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("dim", [ROWS, COLUMNS])
def test_a_share_is_that_of_the_whole(folder: str, dim: int) -> None:
    checkpoint = mixed_gemm.open_checkpoint(DATA / folder)
    for name, info in checkpoint.layers.items():
        stored = checkpoint.layer(name)
        whole = stored.to_linear(torch.float32)
        extent = (info.out_features, info.in_features)[dim]
        for start, stop in ((0, extent // 2), (extent // 4 * 3, extent), (16, 48), (0, extent)):
            span = ShardOf(dim, start, stop)
            share, bias = read_shard(checkpoint.index, checkpoint.codec, name, span, torch.float32)
            expected = whole.weight.cut(dim, start, stop)
            assert torch.equal(share.dequantize(), expected.dequantize()), (name, span)
            assert (bias is None) == (whole.bias is None)
            if bias is not None:
                wanted = whole.bias[start:stop] if dim == ROWS else whole.bias
                assert torch.equal(bias, wanted)


@pytest.mark.parametrize("scheme", ["w4a16", "w8a16", "w8a8", "w8a8_block", "fp8"])
@pytest.mark.parametrize("dim", [ROWS, COLUMNS])
def test_no_more_bytes_are_read_than_the_share_has(scheme: str, dim: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = mixed_gemm.Linear.from_float(torch.nn.Linear(1024, 512), scheme)
    model = torch.nn.Sequential()
    model.add_module("layer", layer)
    mixed_gemm.save_checkpoint(model, tmp_path, config={})
    checkpoint = mixed_gemm.open_checkpoint(tmp_path)
    (info,) = checkpoint.layers.values()
    before, extent = checkpoint.index.bytes_read, layer.weight.shape[dim]
    for part in range(4):
        span = ShardOf(dim, part * extent // 4, (part + 1) * extent // 4)
        read_shard(checkpoint.index, checkpoint.codec, "layer", span)
        read = checkpoint.index.bytes_read - before
        before += read
        # To all that share columns go the bias and scales of channels; weight_shape to all.
        small = 16 + (512 * 8 if dim == COLUMNS else 0)
        assert read <= info.nbytes / 4 + small, (read, info.nbytes)


def test_a_truncated_share_is_refused(tmp_path: Path) -> None:
    model = torch.nn.Sequential(mixed_gemm.Linear.from_float(torch.nn.Linear(256, 64)))
    mixed_gemm.save_checkpoint(model, tmp_path, config={})
    checkpoint = mixed_gemm.open_checkpoint(tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-64])
    with pytest.raises(mixed_gemm.CheckpointError, match=r"ends at byte|was changed"):
        read_shard(checkpoint.index, checkpoint.codec, "0", ShardOf(COLUMNS, 128, 256))
