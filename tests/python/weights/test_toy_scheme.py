"""A scheme is one file and one row: with them it goes through everything that takes a scheme."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from support import tiny_llama
from support.toy_scheme import TOY, ToyWeight
from torch import nn

import mixed_gemm
from mixed_gemm.formats import open_checkpoint, save_checkpoint
from mixed_gemm.weights import kinds, scheme


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "KINDS", [ToyWeight, *kinds.KINDS])
    monkeypatch.setitem(scheme.SCHEMES, "toy", TOY)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 40))


def quantized() -> nn.Sequential:
    model = net()
    mixed_gemm.quantize_(model, "toy", progress=False)
    return model


def kinds_of(model: Any) -> set[str]:
    return {x.weight.kind for x in model.modules() if isinstance(x, mixed_gemm.Linear)}


def test_quantize_and_state_dict() -> None:
    model, x = quantized(), torch.randn(3, 48)
    report = mixed_gemm.quantize_(net(), "toy", progress=False)
    assert report.layers["0"].scheme == TOY and 0 < report.layers["0"].weight_error < 0.02
    assert set(model.state_dict()) == {
        f"{i}.{part}" for i in (0, 2) for part in ("codes", "scale", "bias", "_extra_state")
    }
    again = nn.Sequential(
        mixed_gemm.Linear(48, 64, scheme="toy"), nn.ReLU(), mixed_gemm.Linear(64, 40, scheme="toy")
    )
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(x), model(x))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))
    with pytest.raises(ValueError, match="in_features must be at most 4096, got 5000"):
        mixed_gemm.quantize_(nn.Sequential(nn.Linear(5000, 8)), "toy")
    convolution = mixed_gemm.quantize_(nn.Sequential(nn.Conv2d(3, 8, 3)), "toy")
    assert "is a convolution, which has no form of the scheme" in convolution.skipped["0"]


def test_plan() -> None:
    found = mixed_gemm.plan(quantized()[0], 3, device="cpu")
    assert found.problem == "F.linear M=3 N=64 K=48 float32, toy weight, on cpu"
    assert found.reason == "no kernel takes toys: the weight is made dense for each product"


def test_checkpoint(tmp_path: Path) -> None:
    model = quantized()
    save_checkpoint(model, tmp_path)
    found = open_checkpoint(tmp_path)
    for name in ("0", "2"):
        weight = found.layer(name)
        assert weight.scheme == TOY
        assert type(weight.to_linear().weight) is ToyWeight
        x = torch.eye(weight.shape[1])
        assert torch.equal(weight.to_linear()(x), model.get_submodule(name)(x))


def test_shards() -> None:
    weight = quantized()[0].weight
    assert torch.equal(
        type(weight).join([weight.cut(0, 0, 32), weight.cut(0, 32, 64)]).dequantize(),
        weight.dequantize(),
    )
    pieces = torch.split(weight.detach(), 24, dim=1)
    assert [type(x) for x in pieces] == [ToyWeight, ToyWeight]
    assert torch.equal(torch.cat([x.dequantize() for x in pieces], 1), weight.dequantize())


def test_transformers_config_save_and_reload(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="optional: hf extra")
    model = mixed_gemm.from_pretrained(
        tiny_llama.write_dense(tmp_path / "dense"),
        dtype=torch.float32,
        quantization_config=mixed_gemm.MixedGemmConfig("toy"),
    )
    assert kinds_of(model) == {"toy"}
    model.save_pretrained(tmp_path / "saved")
    again = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "saved", dtype=torch.float32
    )
    tokens = torch.tensor([[1, 5, 7]])
    assert kinds_of(again) == {"toy"}
    assert torch.equal(again(tokens).logits, model(tokens).logits)
    merged = copy.deepcopy(again)
    assert torch.equal(merged(tokens).logits, model(tokens).logits)


def test_command(tmp_path: Path) -> None:
    pytest.importorskip("typer", reason="the extra cli is not installed: pip install typer rich")
    from typer.testing import CliRunner

    from mixed_gemm.cli.app import app

    source, out = tiny_llama.write_dense(tmp_path / "dense"), tmp_path / "out"
    done = CliRunner().invoke(app, ["quantize", str(source), str(out), "--scheme", "toy"])
    assert done.exit_code == 0, done.output
    assert {w.scheme for w in open_checkpoint(tmp_path / "out")} == {TOY}
