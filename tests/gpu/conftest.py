"""GPU tests share the case generator of tests/python. The worst error ratio of every configuration
is collected and, with $MIXED_GEMM_GPU_REPORT set, written there as JSON: what benchmarks/results
holds.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"
# The packages problems and support, and the modules beside this file.
sys.path[:0] = [str(TESTS), str(TESTS / "python"), str(TESTS / "gpu")]
pytest.register_assert_rewrite("problems", "support")

from run_info import commit  # noqa: E402

from mixed_gemm import _library  # noqa: E402

RATIOS: dict[str, float] = {}


@pytest.fixture(scope="session", autouse=True)
def library() -> None:
    _library.require()
    assert torch.cuda.is_available(), "the GPU tests need a CUDA device"


@pytest.fixture(autouse=True)
def poison() -> Iterator[None]:
    """Fills freed blocks of the caching allocator with NaN patterns (0xFF is also a wrong lock
    value), so that unwritten outputs and unzeroed workspace show."""
    torch.manual_seed(0)
    for size in (1 << 12, 1 << 16, 1 << 20, 1 << 24):
        blocks = [torch.full((size,), 0xFF, dtype=torch.uint8, device="cuda") for _ in range(4)]
        del blocks
    yield


@pytest.fixture
def record():
    """record(name, ratio): fails above 1 and keeps the worst ratio for the report."""

    def keep(name: str, ratio: float) -> None:
        RATIOS[name] = max(RATIOS.get(name, 0.0), ratio)
        assert ratio <= 1, f"{name}: error is {ratio:.3f} of the bound"

    return keep


def pytest_sessionfinish(session) -> None:
    """A worker of pytest-xdist hands its ratios to the process that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["ratios"] = RATIOS


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error) -> None:
    for name, ratio in getattr(node, "workeroutput", {}).get("ratios", {}).items():
        RATIOS[name] = max(RATIOS.get(name, 0.0), ratio)


def pytest_terminal_summary(terminalreporter) -> None:
    outcomes = ("passed", "failed", "error", "skipped")
    stats = {k: len(v) for k, v in terminalreporter.stats.items() if k in outcomes}
    if RATIOS:
        worst = max(RATIOS, key=lambda name: RATIOS[name])
        terminalreporter.write_line(
            f"worst error / bound over {len(RATIOS)} configurations: {RATIOS[worst]:.3f} ({worst})"
        )
    path = os.environ.get("MIXED_GEMM_GPU_REPORT")
    if path and torch.cuda.is_available():
        meta = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "commit": commit(),
            "tests": stats,
        }
        ratios = {name: round(ratio, 4) for name, ratio in sorted(RATIOS.items())}
        Path(path).write_text(
            json.dumps({"meta": meta, "worst_error_over_bound": ratios}, indent=1)
        )
