"""Shared set-up. The library must be there: a run that skips everything proves nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from mixed_gemm import _library

REPOSITORY = Path(__file__).resolve().parents[2]

hypothesis.settings.register_profile("fast", deadline=None, derandomize=True)
hypothesis.settings.register_profile("long", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session", autouse=True)
def library() -> None:
    _library.require()


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(0)
    yield


@pytest.fixture
def repository() -> Path:
    return REPOSITORY
