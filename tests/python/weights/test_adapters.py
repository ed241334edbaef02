"""peft on quantized weights, by its own code: LoRA, DoRA, PiSSA and OLoRA train and merge."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import QuantizedTensor

peft = pytest.importorskip("peft", reason="optional: hf extra")

SCHEMES: dict[str, dict[str, Any]] = {
    "int8": {"scheme": "w8a16"},
    "int4 with zero points": {"bits": 4, "group_size": 32, "symmetric": False},
    "w8a8": {"scheme": "w8a8"},
    "w8a8 by block": {"scheme": "w8a8_block", "group_size": 32, "symmetric": False},
    "fp8": {"scheme": "fp8"},
}
KINDS: dict[str, dict[str, Any]] = {
    "lora": {},
    "dora": {"use_dora": True},
    "pissa": {"init_lora_weights": "pissa"},
    "olora": {"init_lora_weights": "olora"},
}


def net(scheme: str, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)).to(dtype)
    mixed_gemm.quantize_(dense, **SCHEMES[scheme], progress=False)
    return dense


def adapted(model: nn.Module, kind: str) -> Any:
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules=["0", "2"], **KINDS[kind])
    return peft.get_peft_model(model, config)


def step_of(found: QuantizedTensor) -> Tensor:
    """A bound of what rounding to the scheme changes, for each row: the largest step there is."""
    dense = found.dequantize(torch.float32)
    levels = 2 ** (found.scheme.bits - 1) - 1
    if found.scheme.weights.type == "float":
        levels = 448 // 32  # float8_e4m3fn has steps of 32 up to 448
    return dense.abs().amax(1, keepdim=True) * 2 / levels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_adapters_train_and_the_weights_do_not(scheme: str, kind: str) -> None:
    model = adapted(net(scheme), kind)
    layer = model.base_model.model[0].base_layer
    before = {name: part.clone() for name, part in layer.weight.tensors().items()}
    trained = [p for p in model.parameters() if p.requires_grad]
    assert trained and not any(isinstance(p, QuantizedTensor) for p in trained)
    x, y = torch.randn(64, 64), torch.randn(64, 32)
    optimizer = torch.optim.Adam(trained, lr=0.01)
    losses = []
    for _ in range(20):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0], losses
    assert all(torch.equal(part, before[name]) for name, part in layer.weight.tensors().items())


@pytest.mark.parametrize("kind", ["pissa", "olora"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_starts_from_the_weight_starts_right(scheme: str, kind: str) -> None:
    """They take their part out of the weight, which is rounded again."""
    plain, x = net(scheme), torch.eye(64)
    model = adapted(copy.deepcopy(plain), kind)
    first, want = model.base_model.model[0], plain[0].weight
    found = first.base_layer.dequantize() + first.get_delta_weight("default").detach()
    assert (found - want.dequantize()).abs().le(step_of(want)).all()
    out = first(x).detach() - plain[0](x).detach()
    assert out.abs().mean() < step_of(want).mean()


@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_merge_and_unmerge(scheme: str, kind: str) -> None:
    model, x = adapted(net(scheme), kind), torch.randn(16, 64)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(std=0.02)
    before = model(x).detach()
    weight = model.base_model.model[0].base_layer.weight
    dense = weight.dequantize()
    model.merge_adapter()
    assert type(model.base_model.model[0].base_layer.weight) is type(weight)
    merged = model(x).detach()
    assert (merged - before).norm() < 0.2 * before.norm()
    model.unmerge_adapter()
    again = model.base_model.model[0].base_layer.dequantize()
    assert (again - dense).abs().le(2 * step_of(weight)).all()
    done = model.merge_and_unload()
    assert type(done[0]) is mixed_gemm.Linear and done[0].scheme == weight.scheme


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_checkpointing(dtype: torch.dtype) -> None:
    model = adapted(net("int4 with zero points", dtype), "lora")
    x = torch.randn(4, 64, dtype=dtype)

    def run(x: Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)

    run(x).float().square().mean().backward()
    grads = [p.grad for p in model.parameters() if p.requires_grad]
    assert all(g is not None and g.isfinite().all() for g in grads)
