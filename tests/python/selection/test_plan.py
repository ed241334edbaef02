"""plan, why_not and env."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mixed_gemm
from mixed_gemm import Linear, plan, why_not
from mixed_gemm.selection.planning import device_string

H200 = "cuda:sm=90,sms=132,smem=232448"
A10 = "cuda:sm=86,sms=72,smem=101376"


def test_plan_on_the_cpu_names_one_configuration() -> None:
    p = plan(1, 4096, 4096, device="cpu")
    assert p.family == "cpu"
    assert p.selected in [c.config for c in p.candidates]
    assert p.reason
    assert "M=1 N=4096 K=4096 float16 int4 group_size=128 zero_mode=none on cpu" in str(p)
    assert p.selected in str(p)


def test_plan_on_the_cpu_says_which_way_the_rows_take() -> None:
    few, many = (plan(m, 4096, 4096, device="cpu").reason for m in (1, 1024))
    assert "decoded in vector registers" in few
    assert "dequantized to slabs in cache" in many or "multiplied in tile registers" in many


def test_plan_of_a_module_asks_the_same_question() -> None:
    layer = Linear.from_float(
        nn.Linear(128, 96, dtype=torch.bfloat16), bits=8, group_size=32, symmetric=False
    )
    direct = plan(
        7, 96, 128, dtype=torch.bfloat16, bits=8, group_size=32, zero_mode="sub", device="cpu"
    )
    assert plan(layer, 7) == direct


@pytest.mark.parametrize("device", [H200, A10])
@pytest.mark.parametrize("m", [1, 16, 256, 4096])
def test_plan_for_a_gpu_that_is_not_here(m: int, device: str) -> None:
    p = plan(m, 4096, 4096, device=device)
    times = [c.predicted_us for c in p.candidates]
    assert len(times) > 1
    assert all(t is not None and t > 0 for t in times)
    assert times == sorted(times)  # type: ignore[type-var]
    configs = [c.config for c in p.candidates]
    if "measured" in p.reason:  # the shipped table knows the H200
        assert device == H200
        assert p.selected in configs
    else:
        assert p.selected == configs[0]
    assert len({c.config for c in p.candidates}) == len(p.candidates)


def test_plan_float32_on_cuda_is_dequantize_and_dense() -> None:
    assert plan(16, 4096, 4096, dtype=torch.float32, device=H200).family == "dequantize_dense"


def test_plan_dtype_may_be_a_name() -> None:
    by_name = plan(1, 64, 64, dtype="bfloat16", group_size=64, device="cpu")
    assert by_name == plan(1, 64, 64, dtype=torch.bfloat16, group_size=64, device="cpu")


def test_why_not_is_none_where_plan_answers() -> None:
    assert why_not(1, 64, 64, group_size=64, device="cpu") is None
    assert why_not(Linear(64, 64, group_size=64), 3, device="cpu") is None


@pytest.mark.parametrize("device", ["cpu", H200])
@pytest.mark.parametrize(
    ("group_size", "reason"),
    [(24, r"multiple of 16.*24"), (0, r"multiple of 16.*0"), (512, r"larger than K.*512.*256")],
)
def test_why_not_nearest_form_is_accepted(group_size: int, reason: str, device: str) -> None:
    refusal = why_not(4, 128, 256, group_size=group_size, device=device)
    assert refusal is not None
    assert "is refused" in str(refusal)
    assert any(re.search(reason, r) for r in refusal.reasons), refusal.reasons
    assert refusal.nearest
    assert why_not(4, 128, 256, device=device, **refusal.nearest) is None
    with pytest.raises(ValueError, match="is refused"):
        plan(4, 128, 256, group_size=group_size, device=device)


def test_why_not_lists_every_broken_rule() -> None:
    refusal = why_not(1, 64, 64, bits=3, group_size=7, dtype="float64", device="cpu")
    assert refusal is not None
    text = " ".join(refusal.reasons)
    assert "bits" in text and "group_size" in text and "float64" in text


@pytest.mark.parametrize(
    "wrong", [{"bits": 3}, {"dtype": "float64"}, {"bits": 3, "group_size": 7}, {"bits": 2**32 + 4}]
)
def test_why_not_nearest_form_covers_every_argument(wrong: dict[str, Any]) -> None:
    refusal = why_not(1, 64, 64, device="cpu", **{"group_size": 64, **wrong})
    assert refusal is not None
    assert set(refusal.nearest) == set(wrong)
    assert why_not(1, 64, 64, device="cpu", **{"group_size": 64, **refusal.nearest}) is None


def test_why_not_names_an_old_gpu() -> None:
    refusal = why_not(1, 64, 64, group_size=64, device="cuda:sm=75,sms=40,smem=65536")
    assert refusal is not None
    assert "7.5" in refusal.reasons[0] and "8.0" in refusal.reasons[0]


def test_device_string_forms() -> None:
    assert device_string("cpu") == device_string(torch.device("cpu")) == "cpu"
    assert device_string(H200) == H200


def test_plan_without_k_raises() -> None:
    with pytest.raises(TypeError, match="plan needs"):
        plan(1, 64)  # type: ignore[call-overload]


def test_env_reports_versions_and_the_library() -> None:
    report = mixed_gemm.env()
    assert report.torch == torch.__version__
    assert report.error is None
    assert report.library
    text = str(report)
    for word in ("mixed_gemm", "torch", "threads", "gpus", "layout version", "built: cuda"):
        assert word in text
    assert report.build["layout_version"] == report.layout_version


def test_env_module_prints_without_a_warning(repository: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-m", "mixed_gemm.cli", "env"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.startswith("mixed_gemm ")
    assert run.stderr == ""
    assert torch.__version__ in run.stdout


def test_bandwidth_of_a_device_counts() -> None:
    """What _device() says of a GPU is what plans are made from."""
    predicted = [
        plan(1, 57344, 8192, device=f"{H200},gbs={gbs}").candidates[0].predicted_us
        for gbs in (4425.0, 1000.0)
    ]
    assert predicted[0] is not None and predicted[1] is not None
    assert predicted[1] > 2 * predicted[0]


@pytest.mark.parametrize(
    ("rows", "options", "family"),
    [
        (8, {}, "grouped_skinny"),
        (4096, {}, "grouped_wgmma"),
        (4096, {"device": A10}, "grouped_multistage"),
        (4096, {"weight": "e2m1", "group_size": 32}, "grouped_wgmma"),
        (64, {"weight": "nf4", "group_size": 64}, "grouped_plain"),
        (64, {"dtype": torch.float32}, "grouped_plain"),
        (64, {"device": "cpu"}, "cpu"),
    ],
)
def test_plans_of_experts(rows: int, options: dict[str, Any], family: str) -> None:
    plan = mixed_gemm.plan(rows, 1536, 2048, experts=16, **{"device": H200, **options})
    assert plan.family == family and "E=16" in plan.problem
    assert mixed_gemm.why_not(rows, 1536, 2048, experts=16, device=H200) is None


def test_experts_without_k_are_planned_as_they_run() -> None:
    plan = mixed_gemm.plan(8, 64, 0, experts=4, group_size=-1, device=H200)
    assert [x.config for x in plan.candidates] == [plan.selected] == ["grouped_plain"]


@pytest.mark.parametrize(
    ("options", "reason", "nearest"),
    [
        ({"experts": 0}, "experts must be at least 1, got 0", {"experts": 1}),
        ({"group_size": 7}, "group_size must be -1", {"group_size": 16}),
        ({"weight": "int3"}, "weight must be one of int4, int8, ", {"weight": "int4"}),
    ],
)
def test_plans_of_experts_are_refused(
    options: dict[str, Any], reason: str, nearest: dict[str, Any]
) -> None:
    refused = mixed_gemm.why_not(8, 1536, 2048, **{"experts": 4, "device": H200, **options})
    assert refused is not None and refused.nearest == nearest
    assert any(text.startswith(reason) for text in refused.reasons)
