"""Times of vLLM's engine on a GPU, without either: medians, ratios, what a trace says, which
engines start together, and the shapes that they load."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.serving import gpu_load, gpu_step
from benchmarks.serving.gpu import random_weights, trace, variants
from benchmarks.serving.gpu.ratios import ratios
from benchmarks.serving.gpu.samples import Sampled, decode_step, percentile
from benchmarks.serving.gpu.timed import CACHE_TOKENS
from benchmarks.serving.gpu.variants import SHAPES, VARIANTS, Variant, groups, write_shape
from mixed_gemm.integrations.vllm import measured

# --- arithmetic ----------------------------------------------------------------------------------


def test_a_step_is_the_median_of_runs_without_their_prompts() -> None:
    found = decode_step([2.0, 1.8, 5.0], [0.9, 1.0, 4.0], 10)
    assert found.median == pytest.approx(0.1) and found.spread == pytest.approx(0.32)
    assert Sampled.of([3.0, 1.0, 2.0, 9.0, 4.0]) == Sampled(3.0, 8.0)


@pytest.mark.parametrize(("part", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentiles(part: float, value: float) -> None:
    assert percentile(list(range(100, 0, -1)), part) == value


def line(weights: str, kernels: str, **more: Any) -> dict[str, Any]:
    ms = more.pop("ms")
    batches = {str(batch): {"step_ms": x} for batch, x in ms.items()}
    return {"weights": weights, "kernels": kernels, "batches": batches, **more}


def test_ratios_are_to_the_faster_of_vllms_own_at_each_batch() -> None:
    lines = [
        line("bf16", "vllm", scheme="", ms={1: 6.0}),
        line("W4", "vllm", scheme="4 bits", ms={1: 4.0, 8: 4.0}),
        line("W4", "Marlin", scheme="4 bits", ms={1: 2.0, 8: 5.0}),
        line("W4", "ours", scheme="4 bits", ms={1: 3.0, 8: 3.0, 32: 3.0}),
        line("FP8", "ours", scheme="float8, dynamic", ms={1: 3.0}),
        {"weights": "FP8", "kernels": "vllm", "scheme": "float8, dynamic", "error": "died"},
    ]
    assert ratios(lines) == {"4 bits": {1: 1.5, 8: 0.75}}
    assert ratios(lines, "weights") == {"W4": {1: 1.5, 8: 0.75}}


# --- traces --------------------------------------------------------------------------------------


def events(steps: int, layers: int, step_us: float) -> list[dict[str, Any]]:
    made = []
    for i in range(steps * layers):
        at = i * step_us / layers
        made.append({"cat": "kernel", "name": "gemm", "ts": at, "dur": 30.0})
        made.append({"cat": "kernel", "name": "reshape_and_cache_flash", "ts": at + 40, "dur": 2.0})
    return made


def test_the_time_of_the_gpu_in_the_last_steps() -> None:
    prompt = [{"cat": "kernel", "name": "gemm of a prompt", "ts": -1e6, "dur": 1e5}]
    found = trace.gpu_time(prompt + events(10, 4, 1000.0), 4, 5000.0)
    assert found["gpu_us"] == 4 * 32
    assert found["longest"] == [["gemm", 4.0, 120.0], ["reshape_and_cache_flash", 4.0, 8.0]]


def test_a_kernel_that_waits_for_the_one_before_it_counts_once() -> None:
    """As programmatic dependent launch has it: the next kernel starts early and waits."""
    first = {"ts": 0.0, "dur": 10.0}
    inside, beyond = {"ts": 4.0, "dur": 5.0}, {"ts": 8.0, "dur": 6.0}
    behind_a_gap = {"ts": 20.0, "dur": 1.0}
    assert trace.covered_us([behind_a_gap, beyond, first, inside]) == 15.0


def test_a_trace_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match="no kernel of reshape_and_cache among 1"):
        trace.gpu_time([{"name": "gemm", "ts": 0.0, "dur": 1.0}], 4, 1000.0)


def test_the_newest_trace_is_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        trace.newest(tmp_path)
    text = json.dumps({"traceEvents": [{"cat": "cpu_op"}, *events(1, 1, 1000.0)]})
    (tmp_path / "rank-0.pt.trace.json.gz").write_bytes(gzip.compress(text.encode()))
    assert [x["name"] for x in trace.newest(tmp_path)] == ["gemm", "reshape_and_cache_flash"]


# --- variants ------------------------------------------------------------------------------------


def test_names_of_variants() -> None:
    names = [x.name for x in VARIANTS]
    assert len({(x.of, x.name) for x in VARIANTS}) == len(names) == 29
    for name in ("bf16, vllm", "W4A16 g128, Marlin", "GPTQ 4 bits, g128, ours", "AWQ g128, vllm"):
        assert name in names
    ours = [x for x in VARIANTS if x.kernels == "ours"]
    for variant in VARIANTS:
        assert (variant.place == "first") == (variant in ours)
        assert (variant.row is None) == (variant.weights == "bf16")
        assert variant.weights == "bf16" or variant.weights in {x.weights for x in ours}
    assert [x.name for x in variants.chosen(["FP8", "Marlin"])] == [
        "W4A16 g128, Marlin", "FP8 dynamic, vllm", "FP8 dynamic, ours",
    ]  # fmt: skip
    assert {x.of for x in variants.chosen([], "qwen3_moe")} == {"qwen3_moe"}


def test_what_is_measured_for_auto_has_variants_of_its_scheme() -> None:
    """Where a row of the table says of what its ratios are."""
    assert {x.scheme for x in VARIANTS} >= {row.scheme for row in measured.MEASURED}
    for scheme in {x.scheme for x in VARIANTS} - {""}:
        assert len({x.weights for x in VARIANTS if x.scheme == scheme}) == 1


def test_engines_that_start_together_fit_and_have_their_peers_beside_them() -> None:
    cache, every = SHAPES["llama"].cache_bytes(CACHE_TOKENS, 1, 32), variants.chosen([])
    made = groups(every, 1, cache, 32, gib=76, most=5)
    assert [x for group in made for x in group] == every
    for group in made:
        assert len(group) <= 5 and sum(x.gib(1, cache, 32) for x in group) <= 76
    for weights in {x.weights for x in every}:
        assert sum(any(x.weights == weights for x in group) for group in made) == 1
    assert len(groups(every, 1, cache, 32, gib=76, most=2)) > len(made)
    bf16 = every[0]
    assert 15 + 4 < bf16.gib(1, cache, 32) < 25
    assert bf16.gib(2, cache // 2, 32) < bf16.gib(1, cache, 32)


def test_a_mixture_is_as_large_as_its_experts() -> None:
    dense, int4, *_ = variants.chosen([], "qwen3_moe")
    assert 56 < dense.gib(1, 0, 48) - 2.5 < 58  # 30.5 G weights
    assert 14 < int4.gib(1, 0, 48) - 2.5 < 16


def _one_of_each() -> list[Variant]:
    return list({(x.of, x.weights): x for x in VARIANTS}.values())


@pytest.mark.parametrize("variant", _one_of_each(), ids=lambda x: f"{x.of} {x.weights}")
def test_a_shape_says_what_the_writer_of_its_file_says(variant: Variant, tmp_path: Path) -> None:
    folder = write_shape(variant, tmp_path, 2, "bfloat16")
    config = json.loads((folder / "config.json").read_text())
    assert (config["num_hidden_layers"], config["torch_dtype"]) == (2, "bfloat16")
    assert config["hidden_size"] == variant.shape.config["hidden_size"]
    assert list(folder.iterdir()) == [folder / "config.json"]
    if variant.row is None:
        assert "quantization_config" not in config
    else:
        assert config["quantization_config"]["quant_method"] == variant.row.file
        named = config["quantization_config"].get("modules_in_block_to_quantize", ())
        left = config["quantization_config"].get("ignore", ["lm_head"])
        assert left == list(variant.shape.ignored)
        assert ("mlp.down_proj" in named) == (variant.row.file == "gptq")


# --- random weights ------------------------------------------------------------------------------


def filled(data: torch.Tensor, name: str = "") -> tuple[torch.Tensor, bool]:
    """(what it holds then, whether vLLM's own function was asked)."""
    asked = []
    parameter = torch.nn.Parameter(data, requires_grad=False)
    random_weights.fill_bits(parameter, lambda: asked.append(1), name)
    return data, bool(asked)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.uint8])
def test_integers_are_filled_with_any_bits(dtype: torch.dtype) -> None:
    data, left = filled(torch.zeros(128, 64, dtype=dtype))
    assert not left and len(data.view(torch.uint8).unique()) == 256


def test_floats_are_filled_with_what_keeps_a_model_finite() -> None:
    data, left = filled(torch.zeros(700, 8).to(torch.float8_e4m3fn))
    assert not left and data.float().abs().max() <= 208
    assert all(data.float()[rows].std() > 50 for rows in (slice(64), slice(-64, None)))
    norm, left = filled(torch.zeros(8192))
    assert not left and norm.min() >= 0.5 and norm.max() <= 1.5
    assert filled(torch.zeros(128, 64))[1] and filled(torch.zeros(64, dtype=torch.int32))[1]
    order, left = filled(torch.full((8192,), -5, dtype=torch.int32))
    assert not left and not order.any()
    scales, left = filled(torch.zeros(700, 8).to(torch.float8_e4m3fn), "w13_weight_scale")
    assert not left and scales.float().min() >= 1
    shared, left = filled(torch.zeros(4), "w13_weight_global_scale")
    assert not left and shared.tolist() == [1e5] * 4
    exponents, left = filled(torch.zeros(128, 64, dtype=torch.uint8), "weight_scale")
    assert not left and exponents.min() >= 120 and exponents.max() <= 127


def test_each_module_fills_what_it_holds_itself() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    found: list[torch.Tensor] = []
    for module in model.modules():
        random_weights.each_once(module, lambda tensor, name: found.append(tensor))
    assert sorted(x.data_ptr() for x in found) == sorted(
        x.data_ptr() for x in model.state_dict().values()
    )


def test_vllm_finds_it_by_metadata(tmp_path: Path) -> None:
    (points,) = random_weights.write_metadata(tmp_path).glob("*.dist-info/entry_points.txt")
    assert points.read_text().splitlines() == [
        "[vllm.general_plugins]",
        "random_weights = benchmarks.serving.gpu.random_weights:register",
    ]


# --- command lines -------------------------------------------------------------------------------


def test_options_of_the_step(tmp_path: Path) -> None:
    parse = gpu_step.parsed
    out = ["--out", str(tmp_path / "engine.json")]
    assert parse(out).batches == [1, 8, 32, 128]
    assert [parse([*out, "--shape", x]).layers for x in SHAPES] == [32, 48]
    options = ("--batches", "1", "4", "--dtype", "float16", "--tensor-parallel", "2")
    given = parse([*out, *options, "--variants", "FP8", "--work", str(tmp_path), "--layers", "1"])
    jobs = gpu_step.jobs_of(variants.chosen(given.variants), 0, given)
    assert [x.name for x in jobs] == ["step FP8 dynamic, vllm", "step FP8 dynamic, ours"]
    assert [x.environment["MIXED_GEMM_VLLM"] for x in jobs] == ["off", "first"]
    for job in jobs:
        (point,) = job.points
        assert (point["batches"], point["dtype"], point["ranks"]) == ([1, 4], "float16", 2)
        assert point["group"] == ["FP8 dynamic, vllm", "FP8 dynamic, ours"]
        assert str(tmp_path / "random_weights") in job.environment["PYTHONPATH"]
        short = gpu_step.short({**point, "batches": {"1": {"step_ms": 1.0}}})
        assert short["batches"] == {"1": {"step_ms": 1.0}} and "group" not in short
        assert "batches" not in gpu_step.short({**point, "error": "died"})
        assert (point["traces"], point["behind"]) == (True, "")
    more = parse([*out, "--no-traces", "--behind", "x", "--work", str(tmp_path)])
    ((point,), *_) = (x.points for x in gpu_step.jobs_of(variants.chosen(["bf16"]), 0, more))
    assert (point["traces"], point["behind"]) == (False, "x")
    with pytest.raises(SystemExit):
        parse([*out, "--dtype", "float32"])


def test_marlin_is_asked_for_by_leaving_machete_out(tmp_path: Path) -> None:
    given = gpu_step.parsed(["--out", "x", "--work", str(tmp_path)])
    (job,) = gpu_step.jobs_of(variants.chosen(["Marlin"]), 0, given)
    assert job.environment["VLLM_DISABLED_KERNELS"] == "MacheteLinearKernel"


def test_kernels_that_a_server_names() -> None:
    log = (
        "INFO [a.py:1] Using MixedGemmLinearKernel for CompressedTensorsWNA16\n"
        "INFO [b.py:2] Selected CutlassFP8ScaledMMLinearKernel for CompressedTensorsW8A8Fp8\n"
        "INFO [a.py:1] Using MixedGemmLinearKernel for CompressedTensorsWNA16\n"
        "INFO [c.py:3] Using FLASH_ATTN backend\n"
    )
    assert gpu_load.held(log) == ["CutlassFP8ScaledMMLinearKernel", "MixedGemmLinearKernel"]


def test_options_of_the_load(tmp_path: Path) -> None:
    given = gpu_load.arguments().parse_args(["--out", "x", "--tensor-parallel", "2"])
    options = gpu_load.server_options(given)
    at = options.index("--kv-cache-memory-bytes")
    assert int(options[at + 1]) == gpu_load.CACHE_BYTES // 2
    assert json.loads(options[options.index("--attention-config") + 1]) == {"backend": "FLASH_ATTN"}
    names = [x.name for x in gpu_load.chosen([])]
    assert "W4A16 g128, ours" in names and "W4A16 g128, zero points, ours" not in names
    assert len(names) == 8
