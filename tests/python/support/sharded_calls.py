"""Every op with a sharding rule on DTensors, in one of two processes: each way of its record, and
tensors that are cut in any other way, against the same call on plain tensors.

    python -m support.sharded_calls RANK STORE

prints "NAME: ok" or "NAME: " and what is wrong for every case, then "done".
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from problems import lattice
from problems.lattice import OPS, Sample
from support import ranks
from torch import Tensor

FP8 = torch.float8_e4m3fn
RANKS = 2
M, N, K, GROUP = 6, 256, 64, 32
IMAGES, CHANNELS = 4, 128


def gemm(*rows: int, zeros: bool = True, activation: str = "identity") -> Sample:
    options = {"zeros": zeros, "pre_scale": zeros, "activation": activation}
    return lattice.gemm((*rows, K), n=N, group_size=GROUP, **options)


def scaled(*rows: int, scale_a: tuple[int, ...], scale_b: tuple[int, ...] = (N,)) -> Sample:
    return lattice.scaled((*rows, K), N, scale_a=scale_a, scale_b=scale_b)


def scaled_blocks(*rows: int, block: tuple[int, int] = (4, GROUP)) -> Sample:
    blocks = K // block[1]
    scales = {"scale_a": (*rows, blocks), "scale_b": (-(-N // block[0]), blocks)}
    given = lattice.scaled((*rows, K), N, operand=FP8, **scales)
    return given.without(block_size=list(block))


def scaled_dynamic(*rows: int, azp: bool) -> Sample:
    return lattice.scaled_dynamic((*rows, K), N, azp=azp)


def block_gemm(activation: str = "identity") -> Sample:
    return lattice.block_gemm((M, K), N, GROUP, activation=activation, sums=True)


def conv(stride: int) -> Sample:
    return lattice.conv((6, 7), (3, 2), out_c=CHANNELS, images=IMAGES, stride=stride)


def conv_int8(scales: int) -> Sample:
    return lattice.conv_int8(IMAGES, 8, 6, scales, sums=True)


CALLS: dict[str, Callable[[], Sample]] = {
    "gemm": lambda: gemm(M),
    "gemm, symmetric, 3-D": lambda: gemm(M, 2, zeros=False),
    # A vector times a matrix has a wrong shape on DTensors (torch 2.13), so without its gradient.
    "gemm, 1-D": lambda: replace(gemm(), trains=()),
    "gemm, odd rows": lambda: gemm(5),
    "gemm, one row": lambda: gemm(1),
    "gemm, relu": lambda: gemm(M, activation="relu"),
    "scaled_mm, scale per row": lambda: scaled(M, scale_a=(M, 1)),
    "scaled_mm, scales per tensor": lambda: scaled(M, scale_a=(1,), scale_b=(1,)),
    "scaled_mm, no bias": lambda: scaled(M, scale_a=(M, 1)).without("bias"),
    "scaled_mm, 3-D": lambda: scaled(M, 2, scale_a=(M, 2, 1), scale_b=(1, N)),
    "scaled_mm, 3-D, rows in one dimension": lambda: scaled(M, 2, scale_a=(2 * M,)),
    "scaled_mm, odd rows": lambda: scaled(5, scale_a=(5,)),
    "scaled_mm, blocks": lambda: scaled_blocks(M),
    "scaled_mm, blocks, 3-D": lambda: scaled_blocks(M, 2),
    "scaled_mm, blocks, no bias": lambda: scaled_blocks(3).without("bias"),
    "scaled_mm, blocks that no cut fits": lambda: scaled_blocks(3, block=(N, GROUP)),
    "scaled_mm_azp": lambda: lattice.scaled_azp(shape=(M, K), n=N, scale_b=(N,)),
    "scaled_mm_dynamic": lambda: scaled_dynamic(M, azp=False),
    "scaled_mm_dynamic, azp, 3-D": lambda: scaled_dynamic(M, 2, azp=True),
    "scaled_mm_dynamic, no bias": lambda: scaled_dynamic(5, azp=True).without("bias"),
    "quantize_per_token": lambda: lattice.quantize_per_token((M, K)),
    "quantize_per_token, azp": lambda: lattice.quantize_per_token((M, 2, K), symmetric=False),
    "quantize_fp8": lambda: lattice.quantize_fp8((M, 2, K), 16),
    "quantize_per_tensor": lambda: lattice.quantize_per_tensor((M, K)),
    "block_quant_gemm": block_gemm,
    "block_quant_gemm, no bias": lambda: block_gemm().without("bias"),
    "block_quant_gemm, no bias, relu": lambda: block_gemm("relu").without("bias"),
    "qconv2d": lambda: conv(1),
    "qconv2d, stride 2": lambda: conv(2),
    "qconv2d_int8": lambda: conv_int8(6),
    "qconv2d_int8, one scale": lambda: conv_int8(1),
    "awq_gemm": lambda: lattice.awq_gemm(M, K, N),
    "awq_dequantize": lambda: lattice.awq_dequantize(K, N),
    "pack_weights": lambda: lattice.pack(N, K),
    "unpack_weights": lambda: lattice.unpack(N, K),
    "unpack_weights, padded": lambda: lattice.unpack(N - 28, K),
    "dequantize_weights": lambda: lattice.dequantize(group_size=GROUP, n=N, k=K),
    "pack_conv_weights": lambda: lattice.pack_conv(8, CHANNELS),
    "awq_repack": lambda: lattice.awq_repack(K, N),
    "gptq_repack": lambda: lattice.gptq_repack(K, N),
}


def check(call: Sample, mesh: Any) -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    from mixed_gemm.distributed.op_rules import of_type
    from mixed_gemm.ops.registry import OPS as RECORDS

    (sharding,) = (op.sharding for op in RECORDS if op.name == call.op)
    assert not isinstance(sharding, str)
    op = getattr(OPS, call.op)
    tensors = {name: x for name, x in call.arguments.items() if isinstance(x, Tensor)}
    whole = dict.fromkeys(tensors)

    def place(x: Tensor, dim: int | None) -> DTensor:
        # A column-major matrix is the view of a row-major one, on every rank too.
        flip = x.dim() == 2 and x.stride(0) == 1 < x.stride(1)
        placement = Replicate() if dim is None else Shard(1 - dim if flip else dim)
        given = x.t() if flip else x
        as_bytes = given.view(torch.uint8) if x.dtype == FP8 else given  # gloo knows no float8
        found = distribute_tensor(as_bytes, mesh, [placement])
        found = of_type(found, FP8) if x.dtype == FP8 else found
        return found.t() if flip else found

    def run(dims: dict[str, int | None], result: int | None = None, exact: bool = False,
            summed: bool = False) -> None:  # fmt: skip
        """dims: argument -> the dimension that is cut; result: that of the result, or summed."""
        training = bool(call.trains)
        given = {name: place(x, dims[name]) for name, x in tensors.items()}
        plain = {name: x.clone() for name, x in tensors.items()}
        for name in call.trains:
            given[name].requires_grad_()
            plain[name].requires_grad_()
        out = op(**{**call.arguments, **given})
        want = op(**{**call.arguments, **plain})
        outs, wants = ((x,) if isinstance(x, Tensor) else x for x in (out, want))
        for mine, theirs in zip(outs, wants, strict=True):
            assert (mine is None) == (theirs is None)
            if theirs is None:
                continue
            if exact:
                expected = Replicate() if result is None else Shard(result % theirs.dim())
                expected = Partial() if summed else expected
                assert mine.placements == (expected,), (dims, mine.placements)
            assert mine.shape == theirs.shape and mine.stride() == theirs.stride(), dims
            if theirs.dtype == FP8:
                mine, theirs = of_type(mine, torch.uint8), theirs.view(torch.uint8)
            assert torch.equal(mine.full_tensor(), theirs), dims
        if training:
            out.square().sum().backward()
            want.square().sum().backward()
            for name in call.trains:
                torch.testing.assert_close(given[name].grad.full_tensor(), plain[name].grad)

    sizes = {name: tuple(x.shape) for name, x in tensors.items()}
    sizes |= {name: (x,) for name, x in call.arguments.items() if type(x) is int}
    sizes |= {name: tuple(x) for name, x in call.arguments.items() if type(x) is list}
    if call.arguments.get("activation", "identity") != "identity":
        sizes["activation"] = ()
    for cut in sharding.cuts(sizes, RANKS):
        run({**whole, **{name: d for name, d in cut.dims.items() if name in tensors}},
            cut.result, exact=True, summed=cut.summed)  # fmt: skip
    for name, x in tensors.items():
        for dim in range(x.dim()):
            if x.shape[dim] % RANKS == 0:
                run({**whole, name: dim})
    run({name: 0 if x.dim() and x.shape[0] > 1 else None for name, x in tensors.items()})


def main(rank: int, store: str) -> None:
    import mixed_gemm

    assert mixed_gemm.__version__
    assert "torch.distributed.tensor" not in sys.modules
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, RANKS),
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=300),
    )
    mesh = init_device_mesh("cpu", (RANKS,))
    for name, make in CALLS.items():
        torch.manual_seed(0)
        try:
            check(make(), mesh)
            print(f"{name}: ok", flush=True)
        except Exception:
            print(f"{name}: {traceback.format_exc()!r}", flush=True)
    dist.destroy_process_group()
    ranks.leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
