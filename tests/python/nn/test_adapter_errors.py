"""What rounding costs peft's adapters, at their start and when they are merged, as docs/adapters.md
has it; twice that is allowed here."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import mixed_gemm

peft = pytest.importorskip("peft", reason="optional: pip install peft")

# options of quantize_, largest relative error of the start and of a merge
SCHEMES: dict[str, tuple[dict[str, Any], float, float]] = {
    "w8a16": ({"scheme": "w8a16"}, 0.022, 0.03),
    "w8a8": ({"scheme": "w8a8"}, 0.022, 0.03),
    "w4a16": ({"scheme": "w4a16", "group_size": 32}, 0.18, 0.24),
    "w4a16_asym": ({"scheme": "w4a16_asym", "group_size": 32}, 0.18, 0.24),
}
KINDS: dict[str, dict[str, Any]] = {
    "LoRA": {},
    "DoRA": {"use_dora": True},
    "PiSSA": {"init_lora_weights": "pissa"},
    "OLoRA": {"init_lora_weights": "olora"},
}


def apart(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_starts_trains_merges_and_unmerges(scheme: str, kind: str) -> None:
    options, start, merge = SCHEMES[scheme]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
    mixed_gemm.quantize_(model, progress=False, **options)
    x, wanted = torch.randn(16, 64), torch.randn(16, 64)
    before = model(x).detach()
    config = peft.LoraConfig(r=8, target_modules=["0", "2"], **KINDS[kind])
    adapted = peft.get_peft_model(model, config)
    # LoRA and DoRA start as zero; the others move a part of the weight, which is rounded again.
    assert apart(adapted(x), before) <= (1e-4 if kind in ("LoRA", "DoRA") else start)

    trained = [p for p in adapted.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, 1e-2)
    losses = []
    for _ in range(40):
        loss = (adapted(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < 0.3 * losses[0]

    after = adapted(x).detach()
    assert apart(after, before) > 0.5
    merged = copy.deepcopy(adapted).merge_and_unload()
    assert [type(merged[i]) for i in (0, 2)] == [mixed_gemm.Linear] * 2
    assert isinstance(merged[0].weight, mixed_gemm.QuantizedTensor)
    assert apart(merged(x), after) <= merge
    adapted.merge_adapter()
    adapted.unmerge_adapter()
    assert apart(adapted(x), after) <= 1.5 * merge
