"""Architectures of transformers by its own registry, cut down: quantized, saved and loaded again
they hold the same weights, whatever their parents do to their children as they initialise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny_models import reaches_into_children, registered, some, tiny_config
from torch import nn

import mixed_gemm

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def mapping() -> Any:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    return MODEL_MAPPING


def dense_state(model: nn.Module) -> dict[str, torch.Tensor]:
    found = {name: x for name, x in model.state_dict().items() if torch.is_tensor(x)}
    return {name: x.dequantize() if hasattr(x, "scheme") else x for name, x in found.items()}


def round_trip(model_class: Any, config: Any, folder: Path, scheme: str) -> int:
    """How many linears are quantized; convolutions stay dense, since no file has them quantized."""
    torch.manual_seed(0)
    model = model_class(config).eval()

    def scheme_of(name: str, module: nn.Module) -> str | None:
        return None if isinstance(module, nn.Conv2d) else scheme

    report = mixed_gemm.quantize_(model, scheme_of, skip=(), progress=False)
    if not report.quantized:
        return 0
    model.save_pretrained(folder)
    again = mixed_gemm.from_pretrained(folder, model_class=model_class, dtype=torch.float32)
    wanted, found = dense_state(model), dense_state(again)
    assert wanted.keys() == found.keys()
    different = [name for name, x in wanted.items() if not torch.equal(x, found[name])]
    assert not different
    return len(report.quantized)


@pytest.mark.filterwarnings("ignore")  # of what transformers says of odd configurations
@pytest.mark.parametrize("scheme", ["w8a16", "w8a8", "fp8"])  # qweight-like names, and "weight"
def test_models_load_again_with_what_was_saved(tmp_path: Path, scheme: str) -> None:
    step = {"w8a16": 25, "w8a8": 60, "fp8": 60}[scheme]
    rows = some(registered(mapping()), step)
    counts, failures = {}, {}
    for number, (_, config_class, model_class) in enumerate(rows):
        config, reason = tiny_config(model_class, config_class)
        if reason:
            continue
        try:
            folder = tmp_path / str(number)
            counts[model_class.__name__] = round_trip(model_class, config, folder, scheme)
        except Exception as error:
            failures[model_class.__name__] = f"{type(error).__name__}: {error}"
    assert not failures
    assert sum(count > 0 for count in counts.values()) >= len(rows) / 2


@pytest.mark.filterwarnings("ignore")
def test_parents_that_initialise_find_their_children(tmp_path: Path) -> None:
    """wav2vec reads ``in_features`` of a child, CLIP writes to its weight, SigLIP to its bias."""
    rows = [row for row in registered(mapping()) if reaches_into_children(row[2])]
    assert len(rows) > 40
    loaded = 0
    for number, (_, config_class, model_class) in enumerate(some(iter(rows), 6)):
        config, reason = tiny_config(model_class, config_class)
        if not reason:
            loaded += round_trip(model_class, config, tmp_path / str(number), "w8a16") > 0
    assert loaded >= 5
