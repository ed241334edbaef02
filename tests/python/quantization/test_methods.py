"""Methods on small decoders of transformers: better than rounding to nearest on data that did not
calibrate, the same every time, and nothing of the model is lost where they fail.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from support import decoders
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.quantization import methods
from mixed_gemm.quantization.block import CalibrationBlock
from mixed_gemm.quantization.block_layer import BlockLayer
from mixed_gemm.quantization.methods import awq
from mixed_gemm.quantization.names import DEFAULT_SKIP
from mixed_gemm.quantization.own import Finished, Own
from mixed_gemm.quantization.proof import units_of
from mixed_gemm.quantization.select import select
from mixed_gemm.quantization.state import Runs
from mixed_gemm.quantization.streams import Stream
from mixed_gemm.weights.scheme import Scheme

pytest.importorskip("transformers")


def quantized(kind: str, method: Any, **options: Any) -> Any:
    model = decoders.decoder(kind)
    data = None if method in (None, "rtn", "hqq") else decoders.batches()
    options = {"group_size": 32, "symmetric": False, "skip": (), **options}
    mixed_gemm.quantize_(model, method=method, calibration=data, **options)
    return model


@pytest.mark.parametrize(
    ("kind", "symmetric"), [("Llama", False), ("Qwen2", False), ("Qwen3", True)]
)
def test_methods_beat_rounding(kind: str, symmetric: bool) -> None:
    dense = decoders.logits(decoders.decoder(kind))
    errors = [
        decoders.error(quantized(kind, method, symmetric=symmetric), dense)
        for method in (None, "awq", "gptq", "awq+gptq", methods.AutoRound(steps=40))
    ]
    nearest, scaled, gptq, both, learned = errors
    assert max(scaled, learned) < nearest
    assert max(gptq, both) < 0.8 * nearest


@pytest.mark.parametrize("method", ["rtn", "hqq"])
@pytest.mark.parametrize("shift", [0.0, 0.5, -3.0])  # of all weights: all of one sign at last
def test_methods_without_data_clip_no_weight(method: str, shift: float) -> None:
    """With zero points; the largest weights of a group are those that clipping would change."""
    torch.manual_seed(0)
    layer = nn.Linear(96, 40)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(40, 96).pow(3) + shift)
        layer.weight[:4] = 0
        layer.weight[4:8, :32] = 1.5
    model = nn.Sequential(layer)
    report = mixed_gemm.quantize_(
        model, bits=4, group_size=32, symmetric=False, method=method, skip=()
    )
    assert report.quantized == ("0",)
    found = model[0].to_quantized_weight()
    steps = found.scales.float().t().repeat_interleave(32, 1)
    off = (model[0].dequantize(torch.float32) - layer.weight).abs()
    assert bool((off <= 0.5001 * steps.abs()).all())


@pytest.mark.parametrize("method", ["rtn", "hqq"])
def test_methods_without_data_round_filters_to_nearest(method: str) -> None:
    found = []
    for name in (None, method):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(32, 32, 3), nn.Flatten(), nn.Linear(32, 16))
        report = mixed_gemm.quantize_(model, group_size=32, method=name)
        assert report.quantized == ("0", "2")
        found.append(model[0].weight.dequantize())
    assert torch.equal(*found)


def test_without_zero_points_rtn_is_rounding_to_nearest() -> None:
    plain, searched = (quantized("Llama", method, symmetric=True) for method in (None, "rtn"))
    assert torch.equal(decoders.logits(plain), decoders.logits(searched))


@pytest.mark.parametrize("method", ["gptq", "awq+gptq", methods.AutoRound(steps=20)], ids=str)
def test_the_same_every_time(method: Any) -> None:
    first, second = (decoders.logits(quantized("Llama", method)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("bits", [2, 3])
@pytest.mark.parametrize("method", ["rtn", "hqq", "gptq", "awq+gptq"])
def test_fewer_bits_are_stored_in_four(bits: int, method: str) -> None:
    model = quantized("Llama", method, bits=bits)
    for module in model.modules():
        if isinstance(module, mixed_gemm.Linear):
            weight = module.to_quantized_weight()
            assert weight.bits == 4
            assert int(weight.q.min()) >= -(2 ** (bits - 1))
            assert int(weight.q.max()) < 2 ** (bits - 1)


def test_scales_are_learned_for_fewer_bits_too() -> None:
    model = quantized("Llama", "gptq+distill", bits=3)
    for layer in model.modules():
        if isinstance(layer, mixed_gemm.Linear):
            assert layer.to_quantized_weight().q.unique().numel() <= 8


def test_fewer_bits_need_a_method() -> None:
    with pytest.raises(ValueError, match="bits"):
        mixed_gemm.quantize_(decoders.decoder(), bits=3)


def test_real_zero_points_of_hqq_are_no_codes() -> None:
    model = quantized("Llama", "hqq", zero_mode="add", symmetric=None)
    weight = model.model.layers[0].mlp.up_proj.to_quantized_weight()
    ratio = -weight.zeros / weight.scales
    assert bool((ratio != ratio.round()).any())


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_half_models(method: str) -> None:
    dense = decoders.decoder(dtype=torch.bfloat16)
    wanted = decoders.logits(dense).float()
    errors = []
    for way in (None, method):
        model = decoders.decoder(dtype=torch.bfloat16)
        data = decoders.batches() if way else None
        mixed_gemm.quantize_(model, group_size=32, method=way, calibration=data)
        errors.append(decoders.error(model, wanted))
    assert errors[1] < errors[0]


# --- what a method must not change --------------------------------------------------------------


def state_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("method", ["gptq", "awq", "awq+gptq"])
def test_a_failure_leaves_the_model_as_it_was(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoders.decoder("Qwen2")
    before, modules = state_of(model), dict(model.named_modules())
    finish = BlockLayer.finish

    def finish_fails(self: BlockLayer, *args: Any) -> None:
        if self.name.startswith("model.layers.2.mlp.down"):
            raise KeyboardInterrupt
        finish(self, *args)

    monkeypatch.setattr(BlockLayer, "finish", finish_fails)
    with pytest.raises(KeyboardInterrupt):
        mixed_gemm.quantize_(model, group_size=32, method=method, calibration=decoders.batches(2))
    after = state_of(model)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert dict(model.named_modules()) == modules
    assert model.config.use_cache


def test_a_failure_while_scales_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoders.decoder("Qwen2")
    before = state_of(model)

    def fails(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(methods.Distilled, "_learn", fails)
    method = methods.Distilled(methods.AWQ(then=methods.GPTQ()))
    with pytest.raises(KeyboardInterrupt):
        mixed_gemm.quantize_(model, group_size=32, method=method, calibration=decoders.batches(2))
    after = state_of(model)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_report_counts_factors() -> None:
    report = mixed_gemm.quantize_(
        Blocks(Shared), method="awq", group_size=32, calibration=[torch.randn(8, 64)]
    )
    assert report.smoothed == {}
    assert "smoothed" not in str(report)


def test_a_layer_that_is_never_reached_is_named() -> None:
    model = decoders.decoder()
    model.model.layers[1].extra = nn.Linear(64, 64)
    with pytest.raises(ValueError, match=r"never reached model\.layers\.1\.extra.*skip"):
        mixed_gemm.quantize_(model, method="gptq", group_size=32, calibration=decoders.batches(1))
    assert type(model.model.layers[0].mlp.up_proj) is nn.Linear


def test_data_that_is_missing_or_too_much_is_refused() -> None:
    model = decoders.decoder()
    for method in ("awq", "gptq", "autoround"):
        with pytest.raises(ValueError, match="needs calibration"):
            mixed_gemm.quantize_(model, method=method, group_size=32)
    for method in ("rtn", "hqq"):
        with pytest.raises(ValueError, match="calibration must be None"):
            mixed_gemm.quantize_(
                model, method=method, group_size=32, calibration=decoders.batches(1)
            )
    with pytest.raises(ValueError, match="no batch"):
        mixed_gemm.quantize_(model, method="gptq", group_size=32, calibration=[])
    with pytest.raises(ValueError, match=r"method must be one of rtn.*'gtpq'"):
        mixed_gemm.quantize_(model, method="gtpq", calibration=decoders.batches(1))
    for scheme in ("w8a8", "fp8"):
        with pytest.raises(ValueError, match="round activations"):
            mixed_gemm.quantize_(model, scheme, method="awq", calibration=decoders.batches(1))
        with pytest.raises(ValueError, match="needs calibration"):
            mixed_gemm.quantize_(model, scheme, method="gptq")
    with pytest.raises(ValueError, match=r"weights of 'w8a8' and 'fp8'"):
        mixed_gemm.quantize_(
            model, Scheme.w8a8_block(32), method="gptq", calibration=decoders.batches(1)
        )
    assert type(model.model.layers[0].mlp.up_proj) is nn.Linear


@pytest.mark.parametrize("method", ["rtn", "hqq", "gptq", "awq", "autoround"])
def test_nan_in_a_weight_is_named(method: str) -> None:
    model = decoders.decoder(layers=2)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[3, 5] = torch.nan
    data = None if method in ("rtn", "hqq") else decoders.batches(1)
    with pytest.raises(ValueError, match=r"down_proj.*finite.*\(3, 5\)"):
        mixed_gemm.quantize_(model, method=method, group_size=32, calibration=data)


def test_nan_in_the_data_is_named() -> None:
    model = decoders.decoder()
    with torch.no_grad():
        model.model.embed_tokens.weight[100:] = torch.nan
    with pytest.raises(ValueError, match=r"input of model\.layers\.0.*NaN"):
        mixed_gemm.quantize_(model, method="gptq", group_size=32, calibration=decoders.batches(2))


# --- folding ------------------------------------------------------------------------------------


def calibration_block(model: Any) -> CalibrationBlock:
    """Of the first block."""
    targets, _ = select(model, lambda name, layer: Scheme.weight_only(4, 32), DEFAULT_SKIP)
    layers, data = {name: target.module for name, target in targets.items()}, decoders.batches(1)
    with Runs(model) as runs:
        unit, *_ = units = units_of(model, layers, data, runs)
        given = Stream(Own(runs, data, Finished()), units, dense=True).given(unit)
    layers = [BlockLayer(x, targets[x]) for x in unit.layers]
    return CalibrationBlock(unit.name, unit.block, layers, [x for _, x in given])


@pytest.mark.parametrize("kind", decoders.KINDS)
def test_where_factors_can_be_folded(kind: str) -> None:
    block = calibration_block(decoders.decoder(kind))
    with block.stand_ins(), torch.no_grad():
        folds = [awq.find_fold(block, group) for group in block.groups()]
        assert [fold and fold.name for fold in folds] == [
            "input_layernorm",
            "self_attn.v_proj",
            "post_attention_layernorm",
            "mlp.up_proj",
        ]
        assert folds[1] is not None
        assert (folds[1].repeat, folds[1].head) == (2, 16)  # two heads read each of the values


@pytest.mark.parametrize("kind", decoders.KINDS)
def test_folding_changes_nothing_but_rounding(kind: str) -> None:
    dense = decoders.logits(decoders.decoder(kind))
    model = quantized(kind, "awq", bits=8, skip=("lm_head",))
    assert decoders.error(model, dense) < 0.02


def test_biases_take_their_factors() -> None:
    """Qwen2's values have one."""
    model, dense = quantized("Qwen2", "awq"), decoders.decoder("Qwen2")
    pairs = [
        (mine.self_attn.v_proj.bias, theirs.self_attn.v_proj.bias)
        for mine, theirs in zip(model.model.layers, dense.model.layers, strict=True)
    ]
    assert not all(torch.equal(mine, theirs) for mine, theirs in pairs)


class Shared(nn.Module):
    """A norm whose output something else reads too, so that nothing can be folded into it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return self.linear(y) + y


class Blocks(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(kind() for _ in range(3))
        self.head = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_a_norm_that_others_read_is_left_alone() -> None:
    model = Blocks(Shared)
    data = [torch.randn(8, 64) for _ in range(4)]
    report = mixed_gemm.quantize_(model, method="awq", group_size=32, calibration=data)
    notes = {name: layer.note for name, layer in report.layers.items()}
    assert notes["blocks.1.linear"].startswith("not scaled")
    assert torch.equal(model.blocks[1].norm.weight, torch.ones(64))  # type: ignore[union-attr]


class Sharing(nn.Module):
    """Blocks with one norm between them."""

    norm = nn.LayerNorm(64)

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = Sharing.norm, nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(self.norm(x))


class Gated(nn.Module):
    """What a few huge channels pass by: the layers are a thousandth of the output. Something that
    is not quantized reads the norm too, as the router of experts does."""

    def __init__(self, router: bool = False) -> None:
        super().__init__()
        self.norm, self.up, self.gate = nn.LayerNorm(64), nn.Linear(64, 96), nn.Linear(64, 96)
        self.down, self.router = nn.Linear(96, 64), nn.Linear(64, 1) if router else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        out = self.down(self.up(y) * torch.sigmoid(self.gate(y)))
        return 1000 * x + (out if self.router is None else out * self.router(y))


class Routed(Gated):
    def __init__(self) -> None:
        super().__init__(router=True)


class Experts(nn.Module):
    """The second half of the batches goes to the second expert."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = nn.ModuleList(nn.Linear(64, 96) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(96, 64) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        expert = int(x[0, 0] > 0)
        return x + self.down[expert](torch.relu(self.up[expert](self.norm(x))))


@pytest.mark.parametrize(
    ("kind", "folds"),
    [
        (Sharing, {"linear": None}),
        (Gated, {"up": "norm", "gate": "norm", "down": "up"}),
        (Routed, {"up": None, "gate": None, "down": "up"}),
        (Experts, {"up.0": "norm", "down.0": "up.0", "up.1": None, "down.1": None}),
    ],
)
def test_folds_are_where_they_change_nothing(kind: Any, folds: dict[str, str | None]) -> None:
    torch.manual_seed(0)
    model = Blocks(kind)
    generator = torch.Generator().manual_seed(1)
    data = [torch.randn(8, 64, generator=generator) for _ in range(2)]
    data[0][0, 0], data[1][0, 0] = -1e4, 1e4
    with torch.no_grad():
        dense = [model(x) for x in data]
    report = mixed_gemm.quantize_(
        model, bits=8, group_size=32, method="awq", calibration=data,
        skip=("router", "head") if kind is Routed else ("head",), symmetric=False,
    )  # fmt: skip
    for name, into in folds.items():
        note = report.layers[f"blocks.0.{name}"].note
        assert note.startswith(f"folded into {into}:" if into else "not scaled"), name
    with torch.no_grad():
        for x, wanted in zip(data, dense, strict=True):
            assert float((model(x) - wanted).norm() / wanted.norm()) < 0.01


# --- chains -------------------------------------------------------------------------------------


def test_models_that_are_no_chain_are_one_block() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        OrderedDict(a=nn.Linear(64, 64), b=nn.ReLU(), c=nn.Linear(64, 64), d=nn.Linear(64, 4))
    )
    data = [torch.randn(32, 64) @ torch.randn(64, 64) for _ in range(4)]
    with torch.no_grad():
        dense = model(data[0])
    errors = []
    for method in ("rtn", "gptq"):
        other = nn.Sequential(OrderedDict((n, x) for n, x in model.named_children()))
        mixed_gemm.quantize_(
            other, method=method, group_size=32,
            calibration=data[1:] if method == "gptq" else None,
        )  # fmt: skip
        with torch.no_grad():
            errors.append(float((other(data[0]) - dense).norm()))
    assert errors[1] < errors[0]


class Reversed(Blocks):
    """Blocks that run in another order than they hang."""

    def forward(self, x: Tensor) -> Tensor:
        for i in (2, 0, 1):
            x = self.blocks[i](x)
        return self.head(x)


def test_blocks_in_another_order() -> None:
    model = Reversed(Shared)
    mixed_gemm.quantize_(model, method="gptq", group_size=32, calibration=[torch.randn(40, 64)])
    assert isinstance(model.blocks[1].linear, mixed_gemm.Linear)  # type: ignore[union-attr]


# --- bits, reports, recipes ---------------------------------------------------------------------


def bits_of(report: Any) -> dict[str, int]:
    return {name: x.scheme.bits for name, x in report.layers.items() if x.scheme is not None}


@pytest.mark.parametrize("average", [4, 4.5, 6.1, 8])
@pytest.mark.parametrize("method", [None, "rtn", "gptq"])
def test_an_average_of_bits(average: float, method: str | None) -> None:
    model, data = decoders.decoder(), decoders.batches(2)
    report = mixed_gemm.quantize_(
        model, group_size=32, method=method, calibration=data, average_bits=average
    )
    sizes = {name: model.get_submodule(name).weight.numel() for name in report.quantized}
    spent = sum(bits * sizes[name] for name, bits in bits_of(report).items())
    smallest = 4 * min(sizes.values()) / sum(sizes.values())
    assert average - 4 * max(sizes.values()) / sum(sizes.values()) < spent / sum(sizes.values())
    assert spent / sum(sizes.values()) <= average
    assert smallest > 0


def test_bits_go_where_outputs_change_most() -> None:
    """Groups of one layer have a channel that is ten times larger than the others, so that 4 bits
    leave little of these, and 8 bits enough. Layers that are a fifth of its size come first: a bit
    of each of their weights costs a fifth."""
    model = decoders.decoder()
    with torch.no_grad():
        for i, layer in enumerate(model.model.layers):
            layer.mlp.up_proj.weight.copy_(torch.randn(160, 64))
            if i == 1:
                layer.mlp.up_proj.weight[:, ::32] *= 10
                layer.post_attention_layernorm.weight[::32] /= 10
    report = mixed_gemm.quantize_(
        model, group_size=32, calibration=decoders.batches(2), average_bits=5
    )
    bits = {name: n for name, n in bits_of(report).items() if name.endswith("up_proj")}
    assert [bits[f"model.layers.{i}.mlp.up_proj"] for i in range(3)] == [4, 8, 4]


def test_averages_that_cannot_be_are_refused() -> None:
    for average in (3.9, 8.1):
        with pytest.raises(ValueError, match=r"average_bits must be in 4\.\.8"):
            mixed_gemm.quantize_(decoders.decoder(), group_size=32, average_bits=average)
    with pytest.raises(ValueError, match="needs layers of 4 bits"):
        mixed_gemm.quantize_(decoders.decoder(), "w8a16", average_bits=4.5)


def test_distilled_scales_follow_the_dense_model() -> None:
    """Learned from a batch, the model is closer to the dense one there."""
    data = decoders.batches(1)
    with torch.no_grad():
        wanted = decoders.decoder()(data[0]).logits.log_softmax(-1)
    found = []
    for method in (methods.GPTQ(), methods.Distilled(steps=30, rate=5e-3)):
        model = decoders.decoder()
        mixed_gemm.quantize_(model, group_size=32, method=method, calibration=data)
        with torch.no_grad():
            mine = model(data[0]).logits.log_softmax(-1)
        found.append(float((wanted.exp() * (wanted - mine)).sum(-1).mean()))
        assert all(p.requires_grad for p in model.model.norm.parameters())
    assert found[1] < 0.9 * found[0]


def test_smoothquant_is_a_method_by_name() -> None:
    options = {"calibration": decoders.batches(), "skip": ()}
    named, asked = decoders.decoder(), decoders.decoder()
    mixed_gemm.quantize_(named, "w8a8", method="smoothquant", **options)
    mixed_gemm.quantize_(asked, "w8a8", smooth="search", **options)
    assert torch.equal(decoders.logits(named), decoders.logits(asked))
    with pytest.raises(ValueError, match="is for schemes that round activations"):
        mixed_gemm.quantize_(decoders.decoder(), group_size=32, method="smoothquant", **options)
    with pytest.raises(ValueError, match="smooth must be None with a method"):
        mixed_gemm.quantize_(
            decoders.decoder(), "w8a8", method="smoothquant", smooth=0.5, **options
        )
    with pytest.raises(ValueError, match="method must be None, 'gptq', 'smoothquant' or"):
        mixed_gemm.quantize_(decoders.decoder(), "w8a8", method="awq", **options)


def test_a_report_has_the_perplexity_that_was_asked_for() -> None:
    tokens = torch.cat([x.flatten() for x in decoders.batches(2, seed=9)])
    model = decoders.decoder().train()
    before = mixed_gemm.quantization.perplexity(
        decoders.decoder(), tokens, progress=False
    ).perplexity
    report = mixed_gemm.quantize_(model, group_size=32, evaluate=tokens)
    assert model.training
    after = mixed_gemm.quantization.perplexity(model.eval(), tokens, progress=False).perplexity
    assert (report.before.perplexity, report.after.perplexity) == (before, after)
    assert after != before and f"perplexity {before:.4f} -> {after:.4f}" in str(report)
    untouched = decoders.decoder()
    with pytest.raises(ValueError, match="tokens must be"):
        mixed_gemm.quantize_(untouched, group_size=32, evaluate=tokens[:1])
    assert not any(isinstance(x, mixed_gemm.Linear) for x in untouched.modules())


def test_reports_tell_errors_and_draw_them(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    report = mixed_gemm.quantize_(
        decoders.decoder(), group_size=32, method="gptq", calibration=decoders.batches(2)
    )
    errors = [report.layers[name].output_error for name in report.quantized]
    assert all(error is not None and 0 < error < 0.5 for error in errors)
    report.plot(tmp_path / "errors.png")
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("save", ["save_pretrained", "save_checkpoint"])
def test_the_recipe_is_in_the_config(save: str, tmp_path: Any) -> None:
    import json

    model = quantized("Llama", methods.GPTQ(damp=0.02, passes=0))
    if save == "save_pretrained":
        model.save_pretrained(tmp_path / "out")
    else:
        mixed_gemm.save_checkpoint(model, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    recipe = config["quantization_config"]["mixed_gemm"]["recipe"]
    assert recipe["method"] == "GPTQ(damp=0.02, correct=0.5, passes=0, bits=None)"
    assert recipe["schemes"] == ["int4, group 32, zeros 'sub'"]
    again = mixed_gemm.from_pretrained(tmp_path / "out")
    assert torch.equal(decoders.logits(again), decoders.logits(model))
