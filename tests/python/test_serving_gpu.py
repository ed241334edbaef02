"""What docs/serving.md tells of vLLM's engine on a GPU, from a small results file; and the table
that MIXED_GEMM_VLLM=auto goes by, against the results that are in the repository."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.serving.gpu.ratios import rounded
from mixed_gemm.integrations.vllm.measured import MEASURED, Measured
from tools.pages import serving_gpu

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
RESULTS = {gpu: FOLDER / f"vllm_engine_{gpu.lower()}.json" for gpu in ("H100", "H200")}
META = {
    "gpu": "NVIDIA H100 80GB HBM3", "driver": "580.1", "date": "2026-11-27", "tensor_parallel": 1,
    "clocks": {"clocks.max.sm": "1980 MHz"}, "versions": {"vllm": "0.26.0", "torch": "2.11.0"},
    "samples": 5, "shape": "Llama-3.1-8B, 32 layers", "prompt": 128, "steps": 128,
    "long_prompt": 2048,
}  # fmt: skip


def checked(place: str, mean: float, **more: Any) -> dict[str, Any]:
    held = {"MixedGemmLinearKernel" if place == "first" else "MacheteLinearKernel": 8}
    return {
        "row": "AWQ g128", "dtype": "bfloat16", "mode": "eager", "place": place,
        "prompt": {"mean": mean}, "decode": {"mean": mean}, "kernels": held, **more,
    }  # fmt: skip


def step(weights: str, kernels: str, ms: float, scheme: str, **more: Any) -> dict[str, Any]:
    batch = {"step_ms": ms, "spread_ms": 0.05}
    return {
        "weights": weights, "kernels": kernels, "scheme": scheme, "dtype": "bfloat16",
        "batches": {"1": {**batch, "gpu_us": 2750, "idle_us": 650}, "8": batch},
        "long_prompt": {"ms": 60.0}, **more,
    }  # fmt: skip


STEPS = [
    step("W4A16 g128", "vllm", 4.0, "4 bits"),
    step("W4A16 g128", "ours", 3.0, "4 bits"),
    step("W4A16 g128", "Marlin", 3.75, "4 bits", note="on another day"),
    {**step("AWQ g128", "ours", 3.0, ""), "error": "the process ended with status 1"},
]
SPREAD = {"requests_per_second": 1.26, "first_token_ms_p50": 3.0, "first_token_ms_p99": 33.3}
FOUND = {
    "check": {
        "meta": META,
        "rows": [checked("off", 0.02), checked("first", 0.021)],
        "verdicts": [{"row": "AWQ g128", "ratio": 1.05, "beside": "", "wrong": ""}],
    },
    "step": {"meta": META, "rows": STEPS},
    "step on 2 GPUs": {"meta": {**META, "tensor_parallel": 2}, "rows": STEPS[:1]},
    "step of Qwen3-30B-A3B": {
        "meta": {**META, "shape": "Qwen3-30B-A3B, 48 layers"}, "rows": [],
    },
    "load": {
        "meta": {**META, "clients": 64, "requests": 384, "rounds": 3, "prompt": [256, 768],
                 "new": [64, 192]},
        "rows": [{"weights": "FP8 dynamic", "kernels": "ours", "requests_per_second": 51.26,
                  "tokens_per_second": 6543.2, "first_token_ms_p50": 41.0,
                  "first_token_ms_p99": 333.3, "spread": SPREAD},
                 {"weights": "FP8 dynamic", "kernels": "vllm", "requests_per_second": 50.0,
                  "tokens_per_second": 6000.0, "first_token_ms_p50": 42.0,
                  "first_token_ms_p99": 340.0, "spread": {**SPREAD, "requests_per_second": 2.0},
                  "note": "an hour later"}],
    },
}  # fmt: skip


def test_before_it_is_measured_the_page_says_so() -> None:
    assert serving_gpu.told({}) == serving_gpu.ABSENT


def test_every_section_becomes_a_table() -> None:
    lines = serving_gpu.told(FOUND).splitlines()
    for row in (
        "| AWQ g128 | `MixedGemmLinearKernel` | 0.0200; 0.0210 |",
        "| W4A16 g128 | vLLM's own | 4.00 +- 0.05 | 4.00 +- 0.05 | 60.0 |",
        "| W4A16 g128 | ours | 3.00 +- 0.05 (0.80) | 3.00 +- 0.05 (0.80) | 60.0 |",
        "| W4A16 g128 | ours | 2.75 (1.00) + 0.65 |  |",
        "| FP8 dynamic | ours | 51.3 +- 1.3 (1.03) | 6543 | 41 +- 3 | 333 +- 33 |",
        "| FP8 dynamic | vLLM's own | 50.0 +- 2.0 | 6000 | 42 +- 3 | 340 +- 33 |",
        "FP8 dynamic: an hour later.",
        "W4A16 g128: on another day.",
    ):
        assert row in lines
    text = " ".join(lines)
    assert "1 of 1 lines of ours" in text and "the worst at 1.05" in text
    assert "(NVIDIA H100 80GB HBM3 (at most 1980 MHz), driver 580.1, vllm 0.26.0" in text
    assert "(2 x NVIDIA H100 80GB HBM3" in text
    assert max(map(len, (x for x in lines if not x.startswith("|")))) <= 120
    assert not any(x.startswith("| AWQ g128 | ours") for x in lines)


def test_what_vllms_own_do_not_run_is_told() -> None:
    found = copy.deepcopy(FOUND["check"])
    del found["rows"][0]["prompt"]
    found["rows"].append(checked("first", 0.03, row="FP8 dynamic"))
    told = {"dtype": "bfloat16", "mode": "eager"}
    found["verdicts"] = [
        {**told, "row": "AWQ g128", "ratio": 1.1, "beside": "FP8 dynamic (as)", "wrong": ""},
        {**told, "row": "FP8 dynamic", "ratio": None, "beside": "not measured", "wrong": "none"},
    ]
    said = serving_gpu.check(found)
    assert "| does not run; 0.0210 |" in said and "| not measured; 0.0300 |" in said
    text = " ".join(said.split())
    assert "1 of 1 lines of ours" in text
    assert "do not read AWQ g128: FP8 dynamic, with the same codes, stands in" in text
    assert "Not compared: FP8 dynamic, bfloat16, eager (not measured)." in text


def test_where_ours_are_behind_is_told() -> None:
    found = copy.deepcopy(FOUND)
    found["step"]["rows"][1] = step("W4A16 g128", "ours", 4.0, "4 bits", long_prompt={"ms": 66.0})
    found["load"]["rows"][1]["first_token_ms_p50"] = 40.0
    found["load"]["rows"][1]["requests_per_second"] = 55.0
    text = " ".join(serving_gpu.told(found).split())
    assert "**Behind vLLM's own**: W4A16 g128 at batch 1 (1.07), W4A16 g128 at batch 8" in text
    assert "W4A16 g128 in 2048 tokens read (1.10)." in text
    assert "FP8 dynamic in requests/s (0.93), FP8 dynamic in first token at the median (1.0" in text
    assert "Behind" not in serving_gpu.told(FOUND)


def test_distances_on_two_gpus_beside_one() -> None:
    one = [checked("first", 0.02), checked("first", 0.02, row="act-order")]
    two = [
        checked("first", 0.025, ranks=2),
        checked("first", 0.8, row="act-order", ranks=2),
        checked("first", 0.1, row="not on one", ranks=2),
    ]
    text = " ".join(serving_gpu.beside_one(two, one).split())
    assert "ours lie 1.25 to 1.25 times as far on 2." in text
    assert "**act-order is wrong there**, 40 times as far" in text and "not on one" not in text


# --- what auto goes by ---------------------------------------------------------------------------


def differences(table: tuple[Measured, ...], found: dict[str, Any], gpu: str = "H100") -> list[str]:
    """Rows of a GPU that the step in bfloat16 on one does not say, to two places."""
    wanted = rounded(found)
    named = {row.scheme: dict(row.ratios) for row in table if row.gpu == gpu}
    return [
        f"{scheme}: measured.py has {named.get(scheme)}, the results {wanted.get(scheme)}"
        for scheme in {**named, **wanted}
        if named.get(scheme) != wanted.get(scheme)
    ]


def test_the_check_of_the_table_sees_what_differs() -> None:
    right = Measured("weight_only", "4 bits", "H100", {1: 0.80, 8: 0.80})
    assert differences((right,), FOUND) == []
    for wrong in ({1: 0.80, 8: 0.81}, {1: 0.80}, {1: 0.80, 8: 0.80, 32: 0.80}):
        (told,) = differences((Measured("weight_only", "4 bits", "H100", wrong),), FOUND)
        assert told.startswith("4 bits: measured.py has {1: 0.8")
    other = Measured("fp8", "float8, dynamic", "H100", {1: 0.9})
    assert len(differences((right, other), FOUND)) == 1
    assert len(differences((), FOUND)) == 1


@pytest.mark.parametrize("gpu", RESULTS)
def test_the_table_is_what_was_measured(gpu: str) -> None:
    assert differences(MEASURED, json.loads(RESULTS[gpu].read_text()), gpu) == []
    assert {row.gpu for row in MEASURED} == set(RESULTS)
