"""Linear layers of classes of their own: taken where they compute what ``nn.Linear`` does, by every
way to quantize; named where they do not."""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mixed_gemm
from mixed_gemm.quantization import DenseCheckpoint
from mixed_gemm.quantization.plain import why_not_plain


class Inherited(nn.Linear):
    """With attributes of its own, as those that only initialise otherwise."""

    def __init__(self, k: int, n: int, bias: bool = True) -> None:
        super().__init__(k, n, bias)
        self.init = "final"


class Written(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x @ self.weight.T
        return out if self.bias is None else out + self.bias


class Scaled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 1.0001


class InFloat32(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.float()).to(x.dtype)


class WideResult(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight, self.bias).float()


class NoisyInTraining(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + 0.1 if self.training else x)


class WithoutBias(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight)


class Switched(nn.Linear):
    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return super().forward(x) * scale


class WithScale(nn.Linear):
    def __init__(self, k: int, n: int) -> None:
        super().__init__(k, n)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scale


class Merging(nn.Linear):
    def merge(self) -> None:
        pass


class Pair(nn.Linear):
    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x), None


class Failing(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(2, 3, 5, 7)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("kind", [Inherited, Written])
@pytest.mark.parametrize("bias", [True, False])
def test_plain_layers_are_known(kind: Any, bias: bool, device: str) -> None:
    layer = kind(48, 32, bias=bias).to(device)
    with torch.device(device):  # as models are built by transformers
        assert why_not_plain(layer) == ""


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Scaled, "computes otherwise"),
        (InFloat32, "computes otherwise"),
        (WideResult, "computes otherwise"),
        (NoisyInTraining, "computes otherwise"),
        (WithoutBias, "computes otherwise"),
        (Pair, "computes otherwise"),
        (Failing, "computes otherwise"),
        (Switched, "does not take one input"),
        (WithScale, "more than a weight and a bias: scale"),
        (Merging, "methods that nn.Linear has not: merge"),
        (nn.modules.linear.NonDynamicallyQuantizableLinear, "not exactly nn.Linear"),
    ],
)
def test_other_layers_stay_dense_with_a_reason(kind: Any, reason: str) -> None:
    model = nn.Sequential(kind(48, 32), nn.Linear(32, 32))
    report = mixed_gemm.quantize_(model, group_size=16, progress=False)
    assert report.quantized == ("1",)
    assert reason in report.skipped["0"] and kind.__name__ in report.skipped["0"]


def test_a_quantized_layer_takes_the_place_of_a_plain_one() -> None:
    torch.manual_seed(0)
    layer = Written(48, 32)
    plain = nn.Linear(48, 32)
    plain.load_state_dict(layer.state_dict())
    models = [nn.Sequential(layer), nn.Sequential(plain)]
    for model in models:
        mixed_gemm.quantize_(model, group_size=16, progress=False)
    x = torch.randn(3, 48)
    assert type(models[0][0]) is mixed_gemm.Linear
    assert torch.equal(models[0](x), models[1](x))


def test_a_model_that_stays_dense_is_warned_of() -> None:
    model = nn.Sequential(Scaled(48, 32), nn.Linear(32, 16, bias=False))
    with pytest.warns(UserWarning, match="no layer of Sequential is quantized:\n  0: is a Scaled"):
        report = mixed_gemm.quantize_(model, group_size=16, skip="1", progress=False)
    assert report.quantized == ()
    with pytest.warns(UserWarning, match="no layer of Sequential is quantized: it has no linear"):
        mixed_gemm.quantize_(nn.Sequential(nn.ReLU()), progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixed_gemm.quantize_(model, group_size=16, progress=False)


# --- those of transformers -----------------------------------------------------------------------

PLAIN = {"FalconLinear", "EsmFoldLinear", "IdeficsDecoupledLinear"}


def linear_classes() -> dict[str, Any]:
    """Subclasses of nn.Linear in the models of transformers, by name."""
    models = Path(importlib.import_module("transformers.models").__path__[0])
    found = {}
    for file in sorted(models.glob("*/modeling_*.py")):
        for name in re.findall(
            r"^class (\w+)\((?:nn\.|torch\.nn\.)?Linear\)", file.read_text(), re.M
        ):
            owner = importlib.import_module(f"transformers.models.{file.parent.name}.{file.stem}")
            found[name] = getattr(owner, name)
    return found


def test_classes_of_transformers_are_plain_or_known_not_to_be() -> None:
    """Another class of theirs fails here until somebody has looked at its forward."""
    pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
    found = linear_classes()
    assert found.keys() >= PLAIN
    for name, kind in found.items():
        try:
            layer = kind(64, 32)
        except Exception:  # it takes a configuration, as routers do
            layer = kind.__new__(kind)
            nn.Linear.__init__(layer, 64, 32)
        assert (why_not_plain(layer) == "") == (name in PLAIN), name


@pytest.fixture
def falcon() -> Any:
    transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf")
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    config = transformers.FalconConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=1, num_attention_heads=4, bias=False,
        alibi=False,
    )  # fmt: skip
    return transformers.FalconForCausalLM(config).eval()


def test_every_way_takes_the_layers_of_falcon(falcon: Any, tmp_path: Path) -> None:
    falcon.save_pretrained(tmp_path / "dense")
    config = mixed_gemm.MixedGemmConfig("w4a16", group_size=32)
    on_the_way = mixed_gemm.from_pretrained(
        tmp_path / "dense", dtype=torch.float32, quantization_config=config
    )
    command = DenseCheckpoint(tmp_path / "dense", group_size=32)
    mixed_gemm.save_checkpoint(command, tmp_path / "command")
    by_command = mixed_gemm.from_pretrained(tmp_path / "command", dtype=torch.float32)
    report = mixed_gemm.quantize_(falcon, group_size=32, progress=False)
    assert len(report.quantized) == 4
    tokens = torch.tensor([[1, 5, 7]])
    for model in (on_the_way, by_command):
        taken = {name for name, x in model.named_modules() if isinstance(x, mixed_gemm.Linear)}
        assert taken == set(report.quantized) == set(command.layers)
        with torch.no_grad():
            assert torch.equal(model(tokens).logits, falcon(tokens).logits)


def test_a_file_with_codes_for_a_layer_that_is_not_plain_is_refused(
    falcon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.falcon import modeling_falcon

    mixed_gemm.quantize_(falcon, group_size=32, progress=False)
    falcon.save_pretrained(tmp_path)
    monkeypatch.setattr(modeling_falcon.FalconLinear, "forward", WideResult.forward)
    with pytest.raises(mixed_gemm.formats.CheckpointError, match="FalconLinear, which computes"):
        mixed_gemm.from_pretrained(tmp_path)
