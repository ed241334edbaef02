"""GPTQ for float8 and for weights whose activations are rounded, alone and beside other schemes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import decoders
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.quantization.methods import GPTQ
from mixed_gemm.weights.scheme import Scheme

pytest.importorskip("transformers")

FLOAT8 = {
    "channel": Scheme.fp8(),
    "tensor": Scheme.fp8(strategy="tensor"),
    "static": Scheme.fp8("static"),
    "no activations": Scheme.fp8(None),
    "128 x 128": Scheme.fp8(strategy="block", block=(128, 128)),
    "ragged blocks": Scheme.fp8(strategy="block", block=(48, 80)),
}


@pytest.mark.parametrize("scheme", [*FLOAT8.values(), Scheme.w8a8()], ids=[*FLOAT8, "int8"])
def test_gptq_rounds_weights_whose_activations_are_rounded(scheme: Scheme) -> None:
    """The weights alone are compared: what rounding activations changes, both have."""
    expected, made = decoders.logits(decoders.decoder("Llama")), {}
    for method in (None, "gptq"):
        model = decoders.decoder("Llama")
        needs = method is not None or scheme.activations == "static"
        mixed_gemm.quantize_(
            model, scheme, method=method, calibration=decoders.batches() if needs else None,
            progress=False,
        )  # fmt: skip
        for layer in (x for x in model.modules() if isinstance(x, mixed_gemm.Linear)):
            assert layer.weight.scheme == scheme
        weights = decoders.decoder("Llama")
        stored = dict(model.named_modules())
        for name, layer in weights.named_modules():
            if isinstance(layer, nn.Linear) and isinstance(stored[name], mixed_gemm.Linear):
                layer.weight.data.copy_(stored[name].dequantize())
        made[method] = decoders.error(weights, expected)
    assert made["gptq"] < 0.8 * made[None]


def test_every_layer_may_have_a_scheme_of_its_own() -> None:
    schemes: dict[str, Any] = {
        "q_proj": Scheme.weight_only(4, 32),
        "k_proj": Scheme.fp8("static"),
        "v_proj": Scheme.fp8(strategy="tensor"),
        "o_proj": Scheme.w8a8(),
        "gate_proj": None,
        "up_proj": Scheme.fp8(None),
        "down_proj": Scheme.fp8(),
    }
    model = decoders.decoder("Llama")
    dense = decoders.logits(model)
    mixed_gemm.quantize_(
        model, lambda name, module: schemes[name.rsplit(".", 1)[1]], method="gptq",
        calibration=decoders.batches(), progress=False,
    )  # fmt: skip
    for name, module in model.named_modules():
        if (asked := schemes.get(name.rsplit(".", 1)[-1], "")) is None:
            assert type(module) is nn.Linear
        elif asked:
            assert isinstance(module, mixed_gemm.Linear) and module.weight.scheme == asked
    assert decoders.error(model, dense) < 0.05


def test_convolutions_beside_linears_are_rounded_to_nearest() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.head = nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 8)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.conv(x).mean((2, 3)))
            return out

    batches = [torch.randn(4, 16, 8, 8)]
    made: dict[Any, Any] = {}
    for method in (None, "gptq"):
        made[method] = Net()
        mixed_gemm.quantize_(
            made[method], "w8a8", activations="static", method=method, calibration=batches,
            progress=False,
        )  # fmt: skip
        assert isinstance(made[method].conv, mixed_gemm.Int8Conv2d)
    assert torch.equal(made[None].conv(batches[0]), made["gptq"].conv(batches[0]))


@pytest.mark.parametrize("scheme", ["fp8", Scheme.fp8(None)], ids=str)
def test_float8_has_no_fewer_bits(scheme: Any) -> None:
    model = decoders.decoder("Llama")
    with pytest.raises(ValueError, match=r"bits must be None for float8.*got 3"):
        mixed_gemm.quantize_(
            model, scheme, method=GPTQ(bits=3), calibration=decoders.batches(1), progress=False
        )
    assert not any(isinstance(x, mixed_gemm.Linear) for x in model.modules())
