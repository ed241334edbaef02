"""Classes that older versions pickled under other paths."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

import pytest

PATHS = {
    "mixed_gemm.parallel.all_reduce": "AllReduce",
    "mixed_gemm.parallel.rowwise": "RowwiseParallel",
    "mixed_gemm.weights.act_order": "ActOrderColumns",
    "mixed_gemm.weights.exchange": "QuantizedWeight",
}


@pytest.mark.parametrize("module", PATHS)
def test_the_path_of_before_is_the_class_of_now(module: str) -> None:
    name = PATHS[module].encode()
    found = pickle.loads(b"c" + module.encode() + b"\n" + name + b"\n.")
    assert found is getattr(importlib.import_module(found.__module__), PATHS[module])


def test_importing_the_package_leaves_dtensors_alone() -> None:
    """They take longer to import than all of the package."""
    code = (
        "import sys, mixed_gemm\n"
        "assert 'torch.distributed.tensor' not in sys.modules\n"
        "assert 'mixed_gemm.distributed.weight' not in sys.modules\n"
        "import torch.distributed.tensor\n"
        "assert 'mixed_gemm.distributed.weight' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
