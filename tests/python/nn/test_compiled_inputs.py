"""Compiled graphs have plain tensors for inputs and evaluate no Python of ours: every kind of
layer, adapters, training, models of transformers, torch.export and AOTInductor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import compiled_layers
import pytest
import torch
from compiled_layers import LAYERS, Spy, check_layer, evaluated, is_subclass, made
from torch import Tensor, nn

import mixed_gemm

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_that_never_ran(kind: str) -> None:
    check_layer(kind)


def decoder(**options: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    mixed_gemm.quantize_(model, "w4a16", group_size=32, progress=False, **options)
    return model


def test_a_decoder_is_one_graph_of_plain_tensors() -> None:
    model, spy = decoder(skip=(), embeddings=True), Spy()
    torch._dynamo.reset()
    ids = torch.randint(64, (1, 5))
    with torch.no_grad():
        call = torch.compile(lambda x: model(x, use_cache=False).logits, backend=spy)
        torch.testing.assert_close(call(ids), model(ids, use_cache=False).logits)
        python = evaluated(call, ids)
    assert spy.graphs == 1 and spy.subclasses == 0 and python == []


def test_adapters_train_compiled() -> None:
    """LoRA over quantized layers: gradients as eager ones, merging is seen."""
    options = {"r": 4, "target_modules": ["q_proj", "down_proj"], "init_lora_weights": False}
    model = peft.get_peft_model(decoder(), peft.LoraConfig(**options)).eval()
    trained = {name: x for name, x in model.named_parameters() if x.requires_grad}
    ids, spy = torch.randint(64, (2, 6)), Spy()
    torch._dynamo.reset()

    def loss(ids: Tensor) -> Any:
        return model(input_ids=ids, labels=ids, use_cache=False).loss

    call = torch.compile(loss, backend=spy)
    found = torch.autograd.grad(call(ids), list(trained.values()))
    want = torch.autograd.grad(loss(ids), list(trained.values()))
    for name, a, b in zip(trained, found, want, strict=True):
        torch.testing.assert_close(a, b, msg=name)
    assert spy.subclasses == 0
    with torch.no_grad():
        model.merge_adapter()
        torch.testing.assert_close(call(ids), loss(ids))
        model.unmerge_adapter()
        torch.testing.assert_close(call(ids), loss(ids))
    assert spy.subclasses == 0


class Several(nn.Module):
    """One layer of every kind, each with an input of its own."""

    def __init__(self) -> None:
        super().__init__()
        pairs = [made(name) for name in LAYERS]
        self.layers = nn.ModuleList(layer for layer, _ in pairs)
        self.inputs = tuple(x for _, x in pairs)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(layer(x) for layer, x in zip(self.layers, inputs, strict=True))


def test_inductor() -> None:
    model = Several()
    torch._dynamo.reset()
    with torch.no_grad():
        call = torch.compile(lambda *inputs: model(*inputs), fullgraph=True)
        for found, want in zip(call(*model.inputs), model(*model.inputs), strict=True):
            torch.testing.assert_close(found, want)
        assert evaluated(call, *model.inputs) == []


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict: bool, tmp_path: Path) -> None:
    model = Several()
    torch._dynamo.reset()
    with torch.no_grad():
        program = torch.export.export(model, model.inputs, strict=strict)
        torch.export.save(program, tmp_path / "model.pt2")
        again = torch.export.load(tmp_path / "model.pt2").module()
        for found, want in zip(again(*model.inputs), model(*model.inputs), strict=True):
            assert torch.equal(found, want)
        # The model itself goes on as before.
        call = torch.compile(lambda *inputs: model(*inputs), backend="eager", fullgraph=True)
        for found, want in zip(call(*model.inputs), model(*model.inputs), strict=True):
            assert torch.equal(found, want)


@pytest.mark.slow
def test_ahead_of_time(tmp_path: Path) -> None:
    model = Several()
    with torch.no_grad():
        program = torch.export.export(model, model.inputs)
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "model.pt2")
        )
        found = torch._inductor.aoti_load_package(path)(*model.inputs)
        for name, a, b in zip(LAYERS, found, model(*model.inputs), strict=True):
            torch.testing.assert_close(a, b, msg=name)


def test_an_attribute_that_is_missing_is_asked_for_in_a_graph() -> None:
    """As transformers does of layers of a model whose layers are spread over ranks."""
    layer, x = made(next(iter(LAYERS)))
    torch._dynamo.reset()
    call = torch.compile(
        lambda x: x if getattr(layer, "of_others", False) else layer(x),
        backend="eager",
        fullgraph=True,
    )
    assert torch.equal(call(x), layer(x))
    layer.of_others = True
    assert torch.equal(call(x), x)


def test_the_weight_is_still_the_tensor_that_others_know() -> None:
    for kind in LAYERS:
        layer, _ = made(kind)
        weights = [x for x in layer.parameters() if isinstance(x, mixed_gemm.QuantizedTensor)]
        assert weights and all(is_subclass(x) for x in weights)
        assert set(dict(layer.named_parameters())) >= {"weight"} or kind == "fused activation"
        assert not any(isinstance(x, compiled_layers.Tensor) for x in layer.buffers())
