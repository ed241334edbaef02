"""``fuse_``: which layers get one product is found by running, and what stays apart is told with
its reason."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm
from benchmarks.counting import counting
from mixed_gemm.quantization import Options

K = 64


class Block(nn.Module):
    """Four layers that read the input, by names that say nothing, and one that reads their sum."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("a", "b", "c", "d"):
            setattr(self, name, nn.Linear(K, 64))
        self.out = nn.Linear(64, K, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.a(x) + self.b(x) * self.c(x) - self.d(x)) + x


class Model(nn.Module):
    def __init__(self, block: type[nn.Module] = Block, count: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(block() for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x * 0.5)
        return x


def quantized(block: type[nn.Module] = Block, **options: Any) -> nn.Module:
    model = Model(block).eval()
    mixed_gemm.quantize_(model, **{"scheme": "w4a16", "group_size": 32, **options})
    return model


X = torch.linspace(-1, 1, 3 * K).view(3, K)


def test_what_reads_the_same_is_one_product() -> None:
    model = quantized()
    apart = copy.deepcopy(model)
    report = mixed_gemm.fuse_(model, example_inputs=X)
    assert [x.names for x in report.sets] == [
        tuple(f"blocks.{i}.{name}" for name in "abcd") for i in range(2)
    ]
    assert report.apart == {f"blocks.{i}.out": "no other layer reads what it reads" for i in (0, 1)}
    assert report.difference == 0 and not report.training
    assert str(report).splitlines() == [
        "8 layers fused: 2 products in their place",
        "  blocks.*.a + b + c + d (2): 256 output channels",
        "outputs of the example are equal to the bit, before and after",
        "2 layers with a product of their own:",
        "  blocks.*.out (2): no other layer reads what it reads",
    ]
    with torch.no_grad(), counting() as count:
        found = model(X)
    assert count.calls == 4
    assert torch.equal(found, apart(X))
    mixed_gemm.unfuse_(model)
    with torch.no_grad(), counting() as count:
        assert torch.equal(model(X), found)
    assert count.calls == 10


class Writes(Block):
    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x) + self.b(x)
        x += 1
        return self.out(y * self.c(x) - self.d(x)) + x


class Cross(Block):
    """Layers that read what another block made, too."""

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.a(x) + self.b(x.clone()) * self.c(x * 2) - self.d(x))


class Never(Block):
    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.a(x) + self.b(x))


class Flat(Block):
    """Takes the first result as one piece of memory."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x).view(-1).view(3, 64)
        return self.out(y + self.b(x)) + self.c(x * 2) * self.d(x * 2)


def _other_scheme(name: str, module: nn.Module) -> mixed_gemm.Scheme:
    return mixed_gemm.Scheme.named("w8a16" if name.endswith(".b") else "w4a16", group_size=32)


def reasons(model: nn.Module) -> dict[str, str]:
    """Of the first block."""
    found = mixed_gemm.fuse_(model, example_inputs=X).apart
    return {k.removeprefix("blocks.0."): v for k, v in found.items() if k.startswith("blocks.0.")}


def test_a_write_in_between_keeps_apart() -> None:
    model = quantized(Writes)
    apart = copy.deepcopy(model)
    report = mixed_gemm.fuse_(model, example_inputs=X)
    assert [x.text for x in report.sets][:2] == ["blocks.0.a + b", "blocks.0.c + d"]
    with torch.no_grad():
        assert torch.equal(model(X.clone()), apart(X.clone()))


def test_other_tensors_keep_apart() -> None:
    alone = "no other layer reads what it reads"
    assert reasons(quantized(Cross)) == {"b": alone, "c": alone, "out": alone}


def test_what_was_not_called_is_told() -> None:
    found = reasons(quantized(Never))
    assert found["c"] == found["d"] == "it was not called with the example"


def test_other_schemes_keep_apart() -> None:
    model = quantized(scheme=_other_scheme, group_size=None)
    found = reasons(model)
    assert found["b"].startswith("blocks.0.a reads the same tensor, but its scheme is int8")
    assert model.blocks[0].a.piece is not None and model.blocks[0].b.piece is None


def test_hooks_other_places_and_dense_layers_keep_apart() -> None:
    model = quantized(skip=["c"])
    block: Any = model.blocks[0]
    block.b.register_forward_hook(lambda module, args, output: None)
    block.again = block.d
    found = reasons(model)
    assert found["b"] == "it has hooks" and found["c"] == "its weight is not quantized"
    assert found["d"] == "it is blocks.0.again, too"
    assert found["a"] == (
        "blocks.0.b, which reads the same tensor, is in another block or stays apart"
    )


class Gated(nn.Module):
    """Three layers of one input, two of them with an activation behind them."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("a", "b"):
            setattr(self, name, nn.Sequential(nn.Linear(K, K), nn.ReLU()))
        self.c = nn.Linear(K, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) * self.b(x) + self.c(x)


def test_activations_in_the_kernel_keep_apart() -> None:
    """Those pairs do not call the layer, so that no result would be taken."""
    model = quantized(Gated, fuse_activations=True)
    found = reasons(model)
    assert found["a.0"] == found["b.0"] == "the relu behind it runs in its kernel"
    with torch.no_grad(), counting() as count:
        model(X)
    assert count.calls == 6
    report = mixed_gemm.fuse_(quantized(Gated), example_inputs=X)
    assert [x.text for x in report.sets] == [f"blocks.{i}.a.0 + b.0 + c" for i in range(2)]


class Lists(nn.Module):
    """Two lists of layers that read one tensor: blocks of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = nn.ModuleList(
            nn.ModuleDict({x: nn.Linear(K, 64) for x in "ab"}) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        return sum((each["a"](x) * each["b"](x) for each in self.lists), start=x)


def test_layers_of_one_block_are_joined() -> None:
    """What several blocks read (an encoder's output, say) makes no product across them."""
    report = mixed_gemm.fuse_(quantized(Lists), example_inputs=X)
    assert [x.text for x in report.sets][:2] == [
        "blocks.0.lists.0.a + b",
        "blocks.0.lists.1.a + b",
    ]


def test_tied_weights_keep_apart() -> None:
    model = quantized()
    model.blocks[0].b.weight = model.blocks[0].a.weight
    found = reasons(model)
    assert found["a"] == found["b"] == "another module has its weight or its bias, too"


def test_weights_without_storage_keep_apart() -> None:
    model = quantized().to("meta")
    report = mixed_gemm.fuse_(model, example_inputs=X.to("meta"))
    assert not report.sets
    assert report.apart["blocks.0.a"] == (
        "its weight has no storage. Hint: fuse_ when it is loaded"
    )


def test_inference_mode_fuses_and_tells_of_weights_that_were_made_in_it() -> None:
    model = quantized()
    with torch.inference_mode():
        report = mixed_gemm.fuse_(model, example_inputs=X.clone())
    assert [len(x.names) for x in report.sets] == [4, 4] and report.difference == 0
    with torch.no_grad(), counting() as count:
        model(X)
    assert count.calls == 4
    with torch.inference_mode():
        made_there = quantized()
        report = mixed_gemm.fuse_(made_there, example_inputs=X)
    assert not report.sets
    assert "made under torch.inference_mode. Hint: torch.no_grad" in report.apart["blocks.0.a"]
    with torch.no_grad():
        assert torch.equal(made_there(X), model(X))


def test_models_that_want_whole_memory_keep_those_layers_apart() -> None:
    report = mixed_gemm.fuse_(model := quantized(Flat), example_inputs=X)
    assert [x.text for x in report.sets] == []
    reason = report.apart["blocks.0.a"]
    assert re.match(r"the model does not take its output as columns of a wider .*view", reason)
    assert all(x.joint is None for x in model.modules() if isinstance(x, mixed_gemm.Linear))


def test_static_activations_are_joined_where_they_are_the_same() -> None:
    """Layers that read one tensor were calibrated by one range."""
    options = {"scheme": "w8a8", "activations": "static_azp", "group_size": None}
    model = quantized(calibration=[X], **options)
    apart = copy.deepcopy(model)
    assert [len(x.names) for x in mixed_gemm.fuse_(model, example_inputs=X).sets] == [4, 4]
    with torch.no_grad():
        assert torch.equal(model(X), apart(X))
    mixed_gemm.unfuse_(model)
    model.blocks[0].c.weight.input_scale.mul_(2)
    assert reasons(model)["c"] == (
        "blocks.0.a reads the same tensor, but its input_scale has other values"
    )


@pytest.mark.parametrize("scheme", ("w4a16_asym", "w8a16", "w8a8", "w8a8_block", "fp8", "mxfp4"))
def test_every_scheme(scheme: str) -> None:
    size = 32 if scheme in ("w4a16_asym", "w8a8_block") else None
    model = quantized(scheme=scheme, group_size=size)
    apart = copy.deepcopy(model)
    report = mixed_gemm.fuse_(model, example_inputs=X)
    assert len(report.fused) == 8 and report.difference == 0
    with torch.no_grad():
        assert torch.equal(model(X), apart(X))


# --- the call ------------------------------------------------------------------------------------


def test_again_is_fine_and_makes_up_for_what_changed() -> None:
    model = quantized()
    first = mixed_gemm.fuse_(model, example_inputs=X)
    block: Any = model.blocks[0]
    block.b = mixed_gemm.Linear.from_float(nn.Linear(K, 64), group_size=32).eval()
    assert block.a.piece is not None
    apart = copy.deepcopy(model)
    mixed_gemm.unfuse_(apart)
    assert str(mixed_gemm.fuse_(model, example_inputs=X)) == str(first)
    assert block.b.joint is block.a.joint
    with torch.no_grad():
        assert torch.equal(model(X), apart(X))


def test_batches_are_those_of_calibration() -> None:
    for batch in (X, [X], (X,), {"x": X}):
        assert len(mixed_gemm.fuse_(quantized(), example_inputs=batch).sets) == 2


def test_train_mode_is_told_and_kept() -> None:
    model = quantized().train()
    report = mixed_gemm.fuse_(model, example_inputs=X)
    assert report.training and "model.eval()" in str(report)
    assert all(module.training for module in model.modules())


def test_refusals_say_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"fuse_: no layer .* Hint: mixed_gemm.quantize_ first"):
        mixed_gemm.fuse_(Model(), example_inputs=X)
    with pytest.raises(
        ValueError, match=r"fuse_: example_inputs=None must go with .*, got Model. Hint: exam"
    ):
        mixed_gemm.fuse_(quantized())
    with pytest.raises(ValueError, match=r"quantize_: fuse must go with .* Hint: without it"):
        mixed_gemm.quantize_(Model(), group_size=32, fuse=True)
    model = quantized()
    with pytest.raises(RuntimeError):  # of the model
        mixed_gemm.fuse_(model, example_inputs=torch.ones(2, K + 1))
    assert all(x.joint is None for x in model.modules() if isinstance(x, mixed_gemm.Linear))


HOW: dict[str, Callable[[nn.Module], Any]] = {
    "keyword": lambda model: mixed_gemm.quantize_(
        model, "w8a8", activations="static", calibration=[X], fuse=True
    ),
    "options": lambda model: mixed_gemm.quantize_(
        model, mixed_gemm.Scheme.w8a8("static"), calibration=[X], options=Options(fuse=True)
    ),
}


@pytest.mark.parametrize("how", HOW)
def test_quantize_fuses_when_asked(how: str) -> None:
    model = Model().eval()
    report = HOW[how](model)
    assert len(report.products.fused) == 8
    assert str(report).endswith(str(report.products))


def test_the_model_may_be_calibrated_again() -> None:
    """Runs of calibration leave a model that is fused as it was."""
    model = quantized()
    apart = copy.deepcopy(model)
    mixed_gemm.fuse_(model, example_inputs=X)
    for each in (model, apart):
        torch.manual_seed(1)
        each.blocks.append(nn.Linear(K, 32))
        mixed_gemm.quantize_(each, "w8a8", activations="static", calibration=[X], skip=None)
    with torch.no_grad():
        assert torch.equal(model(X), apart(X))
    assert model.blocks[0].a.piece is not None
