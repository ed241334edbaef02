"""benchmarks/ops on the CPU: what is timed, the points, and that calls compute what they say."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
import torch
from support.bench_rows import H200, SMALL

import mixed_gemm
from benchmarks import timed
from benchmarks.benchmark import Benchmark, Case, Effort
from benchmarks.ops import BENCHMARKS, peer_libraries
from benchmarks.ops.awq_gemm import AwqGemm, AwqOperands
from benchmarks.ops.block_quant_gemm import BlockOperands, round_blocks
from benchmarks.ops.floats import FloatOperands
from benchmarks.ops.gemm import Gemm, GemmOperands, configs_of
from benchmarks.ops.gemm_peers import GemmPeers
from benchmarks.ops.qconv2d import RESNET_50, Layer, Qconv2d
from benchmarks.ops.scaled_mm import FP8_ON_HOPPER, ScaledMm, ScaledOperands
from benchmarks.row import Point
from benchmarks.schemes import MAIN, Scheme
from benchmarks.timed import Timed
from mixed_gemm.reference import conv as reference_conv

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def made(kind: type[Benchmark], *options: str, device: torch.device = CPU) -> Any:
    parser = argparse.ArgumentParser()
    kind.add_arguments(parser)
    return kind(device, parser.parse_args(options))


def cases(benchmark: Benchmark, point: Point) -> list[Case]:
    return list(benchmark.cases(benchmark.operands(point), point, benchmark.effort))


def tensors(case: Case, count: int = 2) -> list[torch.Tensor]:
    results: list[Any] = [call() for call in case.calls[:count]]
    return [x[0] if isinstance(x, tuple) else x for x in results]


@pytest.mark.parametrize(
    ("kind", "options", "count", "ms"),
    (
        (Gemm, "", 78, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}),
        (Gemm, "--suite w8a16", 36, {1, 4, 8, 16, 32, 64, 128, 256, 1024}),
        (ScaledMm, "--ours-only", 36, {1, 16, 32, 64, 128, 256, 512, 1024, 4096}),
        (GemmPeers, "", 18, {1, 16, 64, 256, 1024, 4096}),
        (AwqGemm, "", 54, {1, 2, 4, 8, 16, 32, 64, 128, 1024}),
        (AwqGemm, "--m 3 --shapes 64:128,128:64", 2, {3}),
    ),
)
def test_points_are_those_of_the_peers_or_those_asked_for(
    kind: type[Benchmark], options: str, count: int, ms: set[int]
) -> None:
    points = made(kind, *options.split(), device=CUDA).points()
    assert len(points) == count and {p.m for p in points} == ms
    assert points == sorted(points)


def test_quantizers_are_measured_once_for_each_size_of_activations() -> None:
    points = made(ScaledMm, device=CUDA).points()
    shapes = {(p.k, p.m) for p in points if p.n}
    assert {(p.k, p.m) for p in points if not p.n} == shapes
    assert len(points) == 36 + len(shapes)


def test_a_scheme_is_measured_where_it_is_compared() -> None:
    gemm = made(Gemm, device=CUDA)
    elsewhere = Point(6144, 4096, 1)  # no peer of W8A16 there
    assert {s.bits for s in gemm.schemes_at(SMALL)} == {4, 8}
    assert {s.bits for s in gemm.schemes_at(elsewhere)} == {4}
    asked = made(Gemm, "--m", "1", device=CUDA)
    assert {s.bits for s in asked.schemes_at(elsewhere)} == {4, 8}, "asked for"


def test_layers_are_read_from_their_text() -> None:
    layer = Layer.parse("8x3x224x224 -> 64, 7x7, stride 2")
    assert layer == Layer(images=8, in_c=3, side=224, out_c=64, kernel=7, stride=2)
    point = layer.point("text")
    assert point == Point(64, 147, 8 * 112 * 112, "text")
    assert (layer.block_size, Layer.parse("1x128x8x8 -> 8, 1x1, stride 1").block_size) == (-1, 64)
    for bad in ("3x224x224 -> 64, 7x7, stride 2", "8x3x224x112 -> 64, 7x7, stride 2", ""):
        with pytest.raises(ValueError, match="a layer must look like"):
            Layer.parse(bad)
    assert len(made(Qconv2d).points()) == 3 * len(RESNET_50) == 69
    assert len(set(made(Qconv2d).points())) == 69


def test_chosen_are_the_selected_one_and_the_best_predicted() -> None:
    predicted = {"a": 1.0, "b": 1.5, "c": 1.9, "d": 2.1, "e": 3.0}
    assert Effort(3, candidates=2).chosen("d", predicted) == ["d", "a", "b"]
    assert Effort(3, candidates=None).chosen("a", predicted) == ["a", "b", "c"]
    assert Effort(3, None, within=float("inf")).chosen("e", predicted)[0] == "e"
    assert Effort(3).chosen("cpu", {"cpu": None}) == ["cpu"], "the CPU predicts nothing"


def test_gemm_times_the_selected_one_and_every_tile_without_a_split() -> None:
    names = configs_of(MAIN, Point(4096, 4096, 16), Effort(3, candidates=2), H200)
    plan = mixed_gemm.plan(16, 4096, 4096, device=H200)
    predicted = {c.config: c.predicted_us or 0.0 for c in plan.candidates}
    within = {name for name, us in predicted.items() if us <= 2 * min(predicted.values())}
    assert names[0] == plan.selected
    assert {c.config for c in plan.candidates[:2]} <= set(names) <= within | {plan.selected}
    assert set(names) >= {name for name in within if "_serial" not in name and "_par" not in name}
    everything = Effort(3, candidates=None, within=float("inf"))
    assert set(configs_of(MAIN, Point(4096, 4096, 16), everything, H200)) == set(predicted)


@pytest.mark.parametrize("kind", BENCHMARKS, ids=lambda kind: kind.name)
def test_copies_of_a_weight_give_results_of_their_own(kind: type[Benchmark]) -> None:
    """Else a cache could serve them, and the time were that of another problem."""
    options = ("--layers", "16x6x6 -> 8, 3x3, stride 1", "--batches", "1")
    if kind is not Qconv2d:
        options = ("--shapes", "64:128", "--m", "3")
    benchmark = made(kind, *options)
    point = benchmark.points()[-1]
    found = cases(benchmark, point)
    assert sum(case.selected for case in found) >= 1
    for case in found:
        first, second = tensors(case)
        assert not torch.equal(first, second), case.op
        assert first.dtype == getattr(torch, case.scheme.out_dtype or case.scheme.dtype), case.op


def test_a_call_repeated_gives_the_same_bits_so_operands_are_made_once() -> None:
    operands = GemmOperands(64, 128, CPU)
    scheme = Scheme.parse("w4_g32_sub_bf16")
    config = configs_of(scheme, Point(64, 128, 2), Effort(1), CPU)[0]
    calls, again = (operands.ours(scheme, 2, config) for _ in range(2))
    assert len(calls) == len(operands.dense(scheme.dtype, 2)) == 64
    assert torch.equal(again[3](), calls[3]())


@pytest.mark.parametrize("name", ("e2m1_g32_fp32", "nf4_g64_bf16", "e4m3_channel_fp32"))
def test_calls_of_floats_compute_what_they_say(name: str) -> None:
    operands, scheme = FloatOperands(64, 128, CPU), Scheme.parse(name)
    assert scheme.name == name
    config = configs_of(scheme, Point(64, 128, 3), Effort(1), CPU)[0]
    weight, dtype = scheme.weight or "", getattr(torch, scheme.dtype)
    dense = mixed_gemm.dequantize_codes(
        operands.codes(weight)[2], operands.scales(scheme)[2], operands.factor(), weight=weight,
        group_size=scheme.group_size or 0, n=64, k=128, dtype=dtype,
    )  # fmt: skip
    assert dense.isfinite().all()
    expected = operands.activations(3, scheme.dtype).double() @ dense.double().t()
    out = operands.floats(scheme, 3, config)[2]()
    tolerance = 0.02 if dtype == torch.bfloat16 else 1e-5
    assert float((out.double() - expected).abs().max() / expected.abs().max()) < tolerance


@pytest.mark.parametrize("m", (1, 40))
def test_w8a8_calls_compute_what_they_say(m: int) -> None:
    n, k = 64, 128
    operands = ScaledOperands(n, k, CPU)
    names = (timed.INT_MM, timed.INT_MM_SCALED, *FP8_ON_HOPPER)
    outs: dict[Timed, Any] = {what: operands.calls(what, m)[0]() for what in names}
    assert outs[timed.INT_MM].shape == (max(m, 32), n), "padded"
    scaled = outs[timed.INT_MM_SCALED].float()
    assert scaled.shape == (m, n)
    if m >= 32:  # else the padded activations are others
        direct = operands.ours_int8(m, "")[0]().float()
        assert torch.allclose(direct, scaled, rtol=2e-3, atol=1e-6)
    a, b = outs[timed.FP8_BF16].float(), outs[timed.TORCH_FP8].float()
    assert torch.allclose(a, b, rtol=0.02, atol=0.02 * float(b.abs().max()))


def test_awq_has_the_same_weights_for_both_ops() -> None:
    operands = AwqOperands(64, 256, CPU)
    awq, native = operands.awq(3), operands.native(3)
    assert len(awq) == len(native) == 64
    for i in range(0, 64, 9):
        torch.testing.assert_close(awq[i](), native[i](), rtol=2e-3, atol=2e-2)


def test_bytes_of_awq_zero_points_are_those_of_four_bits() -> None:
    point = Point(4096, 4096, 16)
    benchmark = made(AwqGemm)
    awq, native = benchmark.cases(AwqOperands(64, 128, CPU), point, benchmark.effort)
    weights, scales, zeros = 4096 * 4096 / 2, 2 * 32 * 4096, 32 * 4096 / 2
    assert awq.nbytes == weights + scales + zeros + 4 * 16 * 4096
    assert native.scheme.traffic_bytes(point) == awq.nbytes + 3 * zeros


@pytest.mark.parametrize("m", (3, 40))
def test_the_loop_over_blocks_is_the_op(m: int) -> None:
    operands = BlockOperands(64, 256, CPU, 64)
    whole, products = operands.loops(m)
    ours: Any = operands.ours(m, "")[0]()
    for call in (whole[0], products[0]):
        loop: Any = call()
        assert loop.shape == ours.shape == (m, 64)
        assert torch.allclose(loop.float(), ours.float(), rtol=1e-2, atol=0.05)
    q, scale, offset, _ = round_blocks(operands.activations(m, "float16"), 64)
    wanted = reference_conv.block_quantize(operands.activations(m, "float16"), 64)
    assert (q.transpose(0, 1).reshape(m, -1).int() - wanted[0].int()).abs().max() <= 1
    torch.testing.assert_close((scale, offset), wanted[1:], rtol=1e-4, atol=1e-4, check_dtype=False)


def test_convolutions_move_their_pixels_once() -> None:
    benchmark = made(Qconv2d, "--layers", "64x56x56 -> 64, 3x3, stride 2", "--batches", "2")
    (point,) = benchmark.points()
    ours, dense = cases(benchmark, point)
    pixels = 2 * 2 * 64 * (56 * 56 + 28 * 28)
    assert dense.nbytes == pixels + 2 * 64 * 576
    assert ours.nbytes == pixels + 64 * 576 / 2 + 2 * 64, "one block of channels"


def test_peers_are_timed_beside_ours_where_they_are_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_libraries, "installed", lambda name: False)
    found = cases(made(GemmPeers), Point(64, 128, 2))
    assert [(case.op, case.scheme.dtype) for case in found] == [
        (timed.GEMM, "float32"), (timed.DENSE, "float32"),
        (timed.GEMM, "bfloat16"), (timed.DENSE, "bfloat16"), (timed.ATEN, "bfloat16"),
    ]  # fmt: skip
    assert len({len(case.calls) for case in found if case.scheme.bits == 4}) == 1


@pytest.mark.parametrize(("level", "most"), [(0, 1e-5), (4, 0.02)])
def test_onnx_runtime_multiplies_what_it_is_given(level: int, most: float) -> None:
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package, reason="optional: timed where it is installed")
    a, scales = torch.randn(5, 512), torch.rand(64, 4)
    codes = torch.randint(0, 16, (64, 512), dtype=torch.uint8)
    weight = ((codes.double() - 8).view(64, 4, 128) * scales[..., None]).view(64, 512)
    (call,) = peer_libraries.matmul_nbits(a, [codes], scales, level)
    exact = a.double() @ weight.t()
    assert (call().double() - exact).norm() / exact.norm() < most


def test_bitsandbytes_multiplies_what_it_is_given() -> None:
    pytest.importorskip("bitsandbytes", reason="optional: timed where it is installed")
    a, weight = torch.randn(5, 512).bfloat16(), torch.randn(64, 512).bfloat16()
    (call,) = peer_libraries.nf4(a, [weight])
    exact = a.double() @ weight.double().t()
    assert (call().double() - exact).norm() / exact.norm() < 0.15  # of NF4: about 0.09
