"""Every op with a sharding rule on DTensors, in one of two processes: each way of its record, and
tensors that are cut in any other way, against the same call on plain tensors.

    python -m support.sharded_calls RANK STORE

prints "NAME: ok" or "NAME: " and what is wrong for every case, then "done".
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from problems.awq import awq_words
from support import ranks
from support.derivative_cases import integers, powers
from torch import Tensor

OPS = torch.ops.mixed_gemm
FP8 = torch.float8_e4m3fn
RANKS = 2
M, N, K, GROUP = 6, 256, 64, 32
IMAGES, CHANNELS = 4, 128


@dataclass(frozen=True)
class Call:
    """trains: arguments whose gradients are compared too."""

    op: str
    arguments: dict[str, Any]
    trains: tuple[str, ...] = ()


def int8(*shape: int) -> Tensor:
    return integers(*shape, low=-3, high=3, dtype=torch.int8)


def gemm(*rows: int, zeros: bool = True, activation: str = "identity") -> Call:
    return Call(
        "fpA_intB_gemm",
        {
            "a": integers(*rows, K),
            "b_packed": OPS.pack_weights(int8(N, K), 4),
            "scales": powers(K // GROUP, N),
            "zeros": integers(K // GROUP, N) if zeros else None,
            "bias": integers(N),
            "pre_scale": powers(K) * 16 if zeros else None,
            "bits": 4,
            "group_size": GROUP,
            "activation": activation,
        },
        ("a", "bias"),
    )


def scaled(*rows: int, scale_a: tuple[int, ...], scale_b: tuple[int, ...] = (N,)) -> Call:
    given = {
        "a": int8(*rows, K),
        "b": int8(N, K).t(),
        "scale_a": powers(*scale_a),
        "scale_b": powers(*scale_b),
        "bias": integers(N),
        "out_dtype": torch.float32,
    }
    return Call("scaled_mm", given, ("bias",))


def scaled_blocks(*rows: int, block: tuple[int, int] = (4, GROUP)) -> Call:
    given = scaled(
        *rows, scale_a=(*rows, K // block[1]), scale_b=(-(-N // block[0]), K // block[1])
    )
    for name in ("a", "b"):
        given.arguments[name] = given.arguments[name].to(FP8)
    return Call("scaled_mm", {**given.arguments, "block_size": list(block)}, ("bias",))


def scaled_azp() -> Call:
    given = scaled(M, scale_a=(M, 1)).arguments
    sums = given["b"].sum(0, dtype=torch.int32)
    azp = integers(M, 1, dtype=torch.int32)
    return Call("scaled_mm_azp", {**given, "azp_adj": sums, "azp": azp}, ("bias",))


def scaled_dynamic(*rows: int, azp: bool) -> Call:
    a = integers(*rows, K, low=-3, high=3)
    a[..., 0], a[..., 1] = (-128 if azp else -127), 127  # integers that rounding leaves alone
    b = int8(N, K).t()
    sums = {"azp_adj": b.sum(0, dtype=torch.int32)} if azp else {}
    given = {"a": a, "b": b, "scale_b": powers(N), "bias": integers(N), **sums}
    return Call("scaled_mm_dynamic", given, ("bias",))


def block_gemm() -> Call:
    a = integers(M, K, low=-3, high=3)
    a[:, ::GROUP], a[:, 1::GROUP] = -128, 127  # integers that rounding to int8 leaves alone
    b = int8(N, K).t()
    given = {
        "a": a,
        "b": b,
        "scale_b": powers(K // GROUP, N),
        "offset_b": integers(K // GROUP, N) / 16,
        "bias": integers(N),
        "b_sums": b.reshape(K // GROUP, GROUP, N).sum(1, dtype=torch.int32),
        "block_size": GROUP,
    }
    return Call("block_quant_gemm", given, ("a", "bias"))


def conv(stride: int) -> Call:
    given = {
        "input": integers(IMAGES, 20, 6, 7),
        "weight_packed": OPS.pack_conv_weights(int8(CHANNELS, 20, 3, 2), 4),
        "scales": powers(2, CHANNELS),
        "offsets": integers(2, CHANNELS) / 16,
        "bias": integers(CHANNELS),
        "bits": 4,
        "block_size": 16,
        "kernel_size": (3, 2),
        "stride": stride,
    }
    return Call("qconv2d", given, ("input", "bias"))


def conv_int8(scales: int) -> Call:
    weight = int8(6, 8, 3, 3)
    given = {
        "input": int8(IMAGES, 8, 5, 5),
        "weight": weight,
        "weight_sums": weight.sum((1, 2, 3), dtype=torch.int32),
        "weight_scale": torch.rand(scales) + 0.5,
        "bias": integers(6),
        "input_scale": 0.5,
        "input_zero_point": 1,
        "output_scale": 2.0,
        "output_zero_point": -1,
    }
    return Call("qconv2d_int8", given)


def awq(op: str) -> Call:
    weight = {
        "qweight": awq_words(torch.randint(0, 16, (K, N))),
        "scales": powers(K // GROUP, N),
        "qzeros": awq_words(torch.randint(0, 16, (K // GROUP, N))),
    }
    if op == "awq_dequantize":
        return Call(op, weight, ("scales",))
    return Call(op, {"input": integers(M, K), **weight, "split_k_iters": 1}, ("input",))


def packed(op: str, n: int = N, trains: tuple[str, ...] = (), **more: Any) -> Call:
    given = {"b_packed": OPS.pack_weights(int8(n, K), 4), "bits": 4, "n": n, "k": K}
    return Call(op, {**given, **more}, trains)


def dequantize() -> Call:
    scales = {"scales": powers(K // GROUP, N), "zeros": integers(K // GROUP, N)}
    options = {"group_size": GROUP, "zero_mode": "sub", "dtype": torch.float32}
    return packed("dequantize_weights", **scales, **options, trains=("scales",))


def gptq() -> Call:
    words = torch.randint(-(2**31), 2**31, (K // 8, N), dtype=torch.int32)
    order = torch.randperm(K).to(torch.int32)
    return Call("gptq_repack", {"qweight": words, "perm": order, "bits": 4})


def without_bias(call: Call, **more: Any) -> Call:
    given = {name: x for name, x in call.arguments.items() if name != "bias"}
    trains = tuple(x for x in call.trains if x != "bias")
    return Call(call.op, {**given, **more}, trains)


CALLS: dict[str, Callable[[], Call]] = {
    "gemm": lambda: gemm(M),
    "gemm, symmetric, 3-D": lambda: gemm(M, 2, zeros=False),
    # A vector times a matrix has a wrong shape on DTensors (torch 2.13), so without its gradient.
    "gemm, 1-D": lambda: replace(gemm(), trains=()),
    "gemm, odd rows": lambda: gemm(5),
    "gemm, one row": lambda: gemm(1),
    "gemm, relu": lambda: gemm(M, activation="relu"),
    "scaled_mm, scale per row": lambda: scaled(M, scale_a=(M, 1)),
    "scaled_mm, scales per tensor": lambda: scaled(M, scale_a=(1,), scale_b=(1,)),
    "scaled_mm, no bias": lambda: without_bias(scaled(M, scale_a=(M, 1))),
    "scaled_mm, 3-D": lambda: scaled(M, 2, scale_a=(M, 2, 1), scale_b=(1, N)),
    "scaled_mm, 3-D, rows in one dimension": lambda: scaled(M, 2, scale_a=(2 * M,)),
    "scaled_mm, odd rows": lambda: scaled(5, scale_a=(5,)),
    "scaled_mm, blocks": lambda: scaled_blocks(M),
    "scaled_mm, blocks, 3-D": lambda: scaled_blocks(M, 2),
    "scaled_mm, blocks, no bias": lambda: without_bias(scaled_blocks(3)),
    "scaled_mm, blocks that no cut fits": lambda: scaled_blocks(3, block=(N, GROUP)),
    "scaled_mm_azp": scaled_azp,
    "scaled_mm_dynamic": lambda: scaled_dynamic(M, azp=False),
    "scaled_mm_dynamic, azp, 3-D": lambda: scaled_dynamic(M, 2, azp=True),
    "scaled_mm_dynamic, no bias": lambda: without_bias(scaled_dynamic(5, azp=True)),
    "quantize_per_token": lambda: Call("quantize_per_token", {"a": torch.randn(M, K)}),
    "quantize_per_token, azp": lambda: Call(
        "quantize_per_token", {"a": torch.randn(M, 2, K), "symmetric": False}
    ),
    "quantize_fp8": lambda: Call("quantize_fp8", {"a": torch.randn(M, 2, K), "block_size": 16}),
    "quantize_per_tensor": lambda: Call(
        "quantize_per_tensor",
        {"a": torch.randn(M, K), "scale": torch.rand(()), "azp": torch.ones(1, dtype=torch.int32)},
    ),
    "block_quant_gemm": block_gemm,
    "block_quant_gemm, no bias": lambda: without_bias(block_gemm()),
    "block_quant_gemm, no bias, relu": lambda: without_bias(block_gemm(), activation="relu"),
    "qconv2d": lambda: conv(1),
    "qconv2d, stride 2": lambda: conv(2),
    "qconv2d_int8": lambda: conv_int8(6),
    "qconv2d_int8, one scale": lambda: conv_int8(1),
    "awq_gemm": lambda: awq("awq_gemm"),
    "awq_dequantize": lambda: awq("awq_dequantize"),
    "pack_weights": lambda: Call("pack_weights", {"q": int8(N, K), "bits": 4}),
    "unpack_weights": lambda: packed("unpack_weights"),
    "unpack_weights, padded": lambda: packed("unpack_weights", n=N - 28),
    "dequantize_weights": dequantize,
    "pack_conv_weights": lambda: Call(
        "pack_conv_weights", {"q": int8(CHANNELS, 8, 3, 3), "bits": 4}
    ),
    "awq_repack": lambda: Call("awq_repack", {"qweight": awq("awq_gemm").arguments["qweight"]}),
    "gptq_repack": gptq,
}


def check(call: Call, mesh: Any) -> None:
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
