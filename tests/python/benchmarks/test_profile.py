"""benchmarks/: the reading of ncu's output, and the request that starts it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import ncu_csv, profile_gemm
from benchmarks.schemes import MAIN

TIME, DRAM = "gpu__time_duration.sum", "dram__throughput.avg.pct_of_peak_sustained_elapsed"
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
WIDE_HEADER = ["ID", "Kernel Name", TIME, DRAM, "launch__registers_per_thread"] + [
    STALLED.format(reason) for reason in ("wait", "long_scoreboard", "selected", "wait_not_issued")
]
KERNEL = "void mixed_gemm::skinny_kernel<F16, 4>(mixed_gemm::Args)"
SPIN = "at::cuda::<unnamed>::spin_kernel(long)"


def wide(*launches: Sequence[object]) -> str:
    units = ["", "", "ns", "%", "register/thread", "inst", "inst", "inst", "inst"]
    lines = [WIDE_HEADER, units, *([str(i), *launch] for i, launch in enumerate(launches))]
    return "==PROF== Connected\n" + "\n".join(
        ",".join(f'"{cell}"' for cell in line) for line in lines
    )


def test_ncu_wide_table_is_condensed() -> None:
    text = wide((KERNEL, "12,345", "81.5", "64", "0.5", "3.25", "1", "9"))
    (profile,) = ncu_csv.parse(text + "\n==PROF== Disconnected")
    assert profile.kernel == "skinny_kernel"
    assert profile.numbers == {"us": pytest.approx(12.345), "dram_pct": 81.5, "registers": 64}
    assert list(profile.stalls.items()) == [("long_scoreboard", 3.25), ("wait", 0.5)]
    (cells,) = ncu_csv.table_rows("here", [profile])
    assert len(cells) == len(ncu_csv.title_cells())
    assert cells[:4] == ["here", "skinny_kernel", "12.3", "82"]
    assert cells[-1] == "long_scoreboard 3.2, wait 0.5"


def test_ncu_long_table_is_condensed() -> None:
    lines = [
        ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"),
        ("0", KERNEL, TIME, "usecond", "1.5"),
        ("0", KERNEL, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "", "1,000"),
        ("0", KERNEL, "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "", "4,000"),
        ("1", SPIN, TIME, "usecond", "2"),
    ]
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    first, second = ncu_csv.parse(text)
    assert (first.numbers["us"], second.kernel) == (1.5, "spin_kernel")
    assert "25%" in ncu_csv.table_rows("here", [first])[0]
    with pytest.raises(ValueError, match="no table of ncu"):
        ncu_csv.parse("==ERROR== nothing was profiled")


def test_profile_takes_the_faster_call_of_each_point() -> None:
    def launch(name: str, ns: int) -> tuple[str, ...]:
        return (name, str(ns), *"1111111")[:8]

    requests = [
        profile_gemm.Request.parse(text, MAIN)
        for text in ("dequantize_dense@4096:4096:64", "selected@4096:4096:1@w8_channel_bf16")
    ]
    assert requests[1].scheme.name == "w8_channel_bf16"
    launches = [
        launch(SPIN, 1),
        launch("dequantize<1>(int)", 900),
        launch("gemm(int)", 400),
        launch(SPIN, 1),
        launch("dequantize<1>(int)", 800),
        launch("gemm(int)", 400),
        launch(SPIN, 1),
        launch(KERNEL, 50),
        launch(SPIN, 1),
        launch(KERNEL, 60),
    ]
    found = profile_gemm.condensed(requests, wide(*launches))
    times = {text: [(p.kernel, p.numbers["us"]) for p in call] for text, call in found.items()}
    assert times == {
        "dequantize_dense@4096:4096:64": [("dequantize", 0.8), ("gemm", 0.4)],
        "selected@4096:4096:1@w8_channel_bf16": [("skinny_kernel", 0.05)],
    }
    with pytest.raises(ValueError, match="4 calls were made, ncu reports 3"):
        profile_gemm.condensed(requests, wide(*launches[:8]))


@pytest.mark.parametrize("text", ("a", "a@1:2", "a@1:2:x", "a@1:2:3@w4_g128_fp16@b"))
def test_profile_refuses_points_it_cannot_read(text: str) -> None:
    with pytest.raises(ValueError, match="configuration@N:K:M"):
        profile_gemm.Request.parse(text, MAIN)


def test_ncu_is_asked_only_for_counters_of_this_gpu() -> None:
    stall = STALLED.format("wait").removesuffix(".ratio")
    query = (
        f"Device test\n-----\ngpu__time_duration  Counter\n{stall}  Ratio  inst\n\nother__x  Ratio"
    )
    assert ncu_csv.counters_of(query) == [TIME, f"{stall}.ratio"]
    command = profile_gemm.ncu_command(Path("x.csv"), [TIME], "a@1:2:3", MAIN.name)
    assert command[command.index("--metrics") + 1] == TIME
    assert command[-5:] == ["--launch", "--points", "a@1:2:3", "--scheme", "w4_g128_fp16"]
