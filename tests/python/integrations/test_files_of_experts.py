"""Files of mixtures whose experts are packed one by one, each with a weight of its own: what they
stand for by the definition of the format, and by stock transformers where it reads them. Of GPTQ
it leaves experts random, with gptqmodel 7.7 too (transformers 5.24)."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from integrations.test_experts import IDS, MODELS
from problems.awq import awq_words, gptq_words
from support import packed
from torch import Tensor

import mixed_gemm
from mixed_gemm.nn.experts import Experts

GROUP = 32
NAMES = ("Qwen3-MoE", "Mixtral")
# Changes a dense weight to (role -> tensor of the file, the weight that they stand for).
Pack = Callable[[Tensor, int], tuple[dict[str, Tensor], Tensor]]


def rounded(dense: Tensor, bits: int, symmetric: bool) -> packed.Layer:
    """Codes, scales and zero points of groups of a row, each group from its own range."""
    n, k = dense.shape
    groups, top = dense.reshape(n, k // GROUP, GROUP), 2**bits - 1
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    if symmetric:
        high = torch.maximum(-low, high)
        low = -high
    scales = ((high - low) / top).clamp(min=1e-6).half()
    zeros = torch.full_like(scales, (top + 1) // 2) if symmetric else (-low / scales).round()
    codes = (groups / scales.float()[..., None] + zeros[..., None]).round().clamp(0, top)
    return packed.Layer(
        codes.reshape(n, k).to(torch.uint8), zeros.t().to(torch.uint8), scales.t().contiguous(),
        torch.arange(k) // GROUP, bits,
    )  # fmt: skip


def awq(dense: Tensor, bits: int) -> tuple[dict[str, Tensor], Tensor]:
    layer = rounded(dense, bits, symmetric=False)
    words = {"qweight": awq_words(layer.codes.t().long()), "qzeros": awq_words(layer.zeros.long())}
    return {**words, "scales": layer.scales}, layer.weight()


def gptq(dense: Tensor, bits: int) -> tuple[dict[str, Tensor], Tensor]:
    """Symmetric, with zero points less one, as version 1 has them."""
    layer = rounded(dense, bits, symmetric=True)
    zeros = gptq_words(layer.zeros.t().long() - 1, bits).t().contiguous()
    tensors = {"qweight": gptq_words(layer.codes.t().long(), bits), "qzeros": zeros}
    return {**tensors, "scales": layer.scales, "g_idx": layer.groups.int()}, layer.weight()


def by_the_package(form: str, **arguments: Any) -> Pack:
    """Compressed by the package compressed-tensors."""

    def pack(dense: Tensor, bits: int) -> tuple[dict[str, Tensor], Tensor]:
        asked = QuantizationArgs(num_bits=bits, **arguments)
        given: dict[str, Tensor] = {}
        if form == "pack-quantized":
            layer = rounded(dense, bits, arguments["symmetric"])
            given["weight_scale"], wanted = layer.scales.t().float().contiguous(), layer.weight()
            if not arguments["symmetric"]:
                middle = 2 ** (bits - 1)
                zeros = layer.zeros.t().contiguous().to(torch.int16) - middle
                given["weight_zero_point"] = zeros.to(torch.int8)
        else:
            shape = (1,) if arguments["strategy"] == "tensor" else (len(dense), 1)
            most = dense.abs().amax() if len(shape) == 1 else dense.abs().amax(1)
            scale = (most / 448).reshape(shape)
            given["weight_scale"] = scale
            wanted = (dense / scale).to(torch.float8_e4m3fn).float() * scale
        given["weight"] = wanted  # so that nothing is left to round
        compressor: Any = BaseCompressor.get_value_from_registry(form)
        scheme = QuantizationScheme(targets=["Linear"], weights=asked)
        return compressor.compress(given, scheme), wanted

    return pack


@dataclass(frozen=True)
class Form:
    """A format.

    config: its quantization_config. pack: a weight into it. bits: of a code. is_stock: whether
        transformers reads such files without the packages of others.
    """

    config: dict[str, Any]
    pack: Pack
    bits: int = 4
    is_stock: bool = False


def _compressed(form: str, bits: int, dynamic: bool = False, **arguments: Any) -> Form:
    weights = {"num_bits": bits, "dynamic": False, **arguments}
    inputs = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True}
    config = {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "ignore": ["lm_head", "re:.*gate$", "re:.*self_attn.*"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights,
                "input_activations": {**inputs, "dynamic": True} if dynamic else None,
            }
        },
    }
    is_stock = arguments["symmetric"] and not dynamic
    return Form(config, by_the_package(form, **arguments), bits, is_stock)


_GROUPS = {"type": "int", "strategy": "group", "group_size": GROUP}
_FLOAT = {"type": "float", "symmetric": True}
FORMS = {
    "awq": Form({"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True}, awq),
    "gptq": Form({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True}, gptq),
    "gptq, 8 bits": Form(
        {"quant_method": "gptq", "bits": 8, "group_size": GROUP, "sym": True}, gptq, 8
    ),
    "pack-quantized": _compressed("pack-quantized", 4, symmetric=True, **_GROUPS),
    "pack-quantized, zeros": _compressed("pack-quantized", 4, symmetric=False, **_GROUPS),
    "pack-quantized, 8 bits": _compressed("pack-quantized", 8, symmetric=True, **_GROUPS),
    "float-quantized": _compressed("float-quantized", 8, strategy="channel", **_FLOAT),
    "float-quantized, tensor": _compressed("float-quantized", 8, strategy="tensor", **_FLOAT),
    "float-quantized, activations": _compressed(
        "float-quantized", 8, dynamic=True, strategy="channel", **_FLOAT
    ),
}


def written(folder: Path, name: str, form: Form) -> Any:
    """Write a folder, and return the dense model that its packed experts stand for.

    Args:
        name: of MODELS.
    """
    torch.manual_seed(7)
    config = copy.deepcopy(MODELS[name])
    truth = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():  # weights of one expert are no likely ones of another
        for number, parameter in zip(count(), truth.parameters(), strict=False):
            parameter.mul_(1 + number / 8)
    truth.save_pretrained(folder)
    wanted: dict[str, Tensor] = {}

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for key, x in tensors.items():
            if ".experts." not in key:
                found[key] = wanted[key] = x
                continue
            owner = key.removesuffix(".weight")
            parts, wanted[key] = form.pack(x, form.bits)
            found |= {f"{owner}.{role}": part for role, part in parts.items()}
        return found

    dense = folder.with_name(f"{folder.name}-dense")
    truth.save_pretrained(dense)
    packed.rewrite(folder, change, form.config)
    packed.rewrite(dense, lambda tensors: wanted, None)
    return transformers.AutoModelForCausalLM.from_pretrained(dense, dtype=torch.float32).eval()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_experts_are_those_of_the_definition(tmp_path: Path, name: str, form: str) -> None:
    truth = written(tmp_path / "m", name, FORMS[form])
    model = mixed_gemm.from_pretrained(tmp_path / "m", dtype=torch.float32, weight_only=True)
    experts = model.model.layers[0].mlp.experts
    wanted = truth.model.layers[0].mlp.experts
    assert isinstance(experts, Experts)
    for number, expert in enumerate(experts.experts):
        found = [x.weight.dequantize(torch.float32) for x in expert.linears]
        assert torch.equal(torch.cat(found[:2]), wanted.gate_up_proj[number])
        assert torch.equal(found[2], wanted.down_proj[number])
    assert torch.allclose(model(IDS).logits, truth(IDS).logits, atol=1e-5)
    # Activations of 8 bits change what a model computes, though not by much.
    rounds = mixed_gemm.from_pretrained(tmp_path / "m", dtype=torch.float32)
    near = (rounds(IDS).logits - truth(IDS).logits).norm() / truth(IDS).logits.norm()
    assert 0 < near < 0.1 if "activations" in form else near < 1e-5


STOCK = """
import sys, torch, transformers
for folder in sys.argv[1:]:
    kind = transformers.AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32)
    assert type(model.hf_quantizer).__module__.startswith("transformers.")
    torch.save(model(torch.arange(7).view(1, 7)).logits, folder + "/answer.pt")
assert "mixed_gemm" not in sys.modules
"""


def test_stock_transformers_reads_the_same(tmp_path: Path) -> None:
    """All in one process, which takes seconds to import transformers."""
    wanted: dict[Path, Tensor] = {}
    for name in NAMES:
        for number, form in enumerate(x for x in FORMS.values() if x.is_stock):
            folder = tmp_path / f"{name}-{number}"
            written(folder, name, form)
            model = mixed_gemm.from_pretrained(folder, dtype=torch.float32)
            wanted[folder] = model(IDS).logits
    assert len(wanted) == 2 * 4
    command = [sys.executable, "-c", STOCK, *map(str, wanted)]
    subprocess.run(command, check=True, capture_output=True)
    for folder, logits in wanted.items():
        assert torch.allclose(torch.load(folder / "answer.pt"), logits, atol=1e-5), folder


@pytest.mark.parametrize("name", NAMES)
def test_an_expert_of_another_weight_is_seen(tmp_path: Path, name: str) -> None:
    """Files whose experts are in another order give other logits."""
    truth = written(tmp_path / "m", name, FORMS["gptq"])

    def swap(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        numbers = {"experts.0.": "experts.1.", "experts.1.": "experts.0."}
        return {
            re.sub(r"experts\.[01]\.", lambda found: numbers[found[0]], key): x
            for key, x in tensors.items()
        }

    packed.rewrite(tmp_path / "m", swap, FORMS["gptq"].config)
    model = mixed_gemm.from_pretrained(tmp_path / "m", dtype=torch.float32)
    assert not torch.allclose(model(IDS).logits, truth(IDS).logits, atol=1e-3)
