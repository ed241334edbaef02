"""Methods on weights of 4-bit numbers that are no integers: MXFP4, NVFP4, NF4, FP4. Scales that are
searched, GPTQ, files to the bit, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support import decoders
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.ops.problem import WEIGHTS
from mixed_gemm.quantization import CalibratedCheckpoint, DenseCheckpoint
from mixed_gemm.quantization.block_layer import BlockLayer
from mixed_gemm.quantization.methods.codes import as_weight
from mixed_gemm.quantization.methods.grid import Range, grouped
from mixed_gemm.quantization.methods.search import search, whole_range
from mixed_gemm.quantization.select import Target
from mixed_gemm.weights.kinds import kind_of
from mixed_gemm.weights.scheme import SCHEMES

pytest.importorskip("transformers")

FORMATS = ("mxfp4", "nvfp4", "nf4", "fp4")
OF_BYTES = ("mxfp4", "nvfp4")
WITH_DATA = ("awq", "gptq", "awq+gptq")
METHODS = (None, "rtn", *WITH_DATA)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def quantized(
    scheme: Any, method: Any, dtype: torch.dtype = torch.float32, layers: int = 1, **more: Any
) -> Any:
    model = decoders.decoder("Llama", layers, dtype)
    data = decoders.batches() if method in WITH_DATA else None
    report = mixed_gemm.quantize_(
        model, scheme, method=method, calibration=data, progress=False, **more
    )
    return model, report


def layers(model: nn.Module) -> dict[str, Any]:
    return {x: m for x, m in model.named_modules() if isinstance(m, mixed_gemm.Linear)}


def weights(seed: int = 0) -> Tensor:
    """``[24, 200]``: normal rows, rows with a few large weights, a row and a group of zeros, a row
    of tiny weights, and a ragged last group for every group size."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(24, 200, generator=generator)
    weight[8:16] *= torch.exp(2 * torch.randn(8, 200, generator=generator))
    weight[3], weight[5, :64], weight[7] = 0, 0, weight[7] * 1e-6
    return weight


def layer_of(weight: Tensor, name: str) -> BlockLayer:
    dense = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    dense.weight.data = weight
    return BlockLayer("layer", Target(dense, SCHEMES[name], dense))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("importance", ["alike", "of each column"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_searched_scale_is_never_worse_than_that_of_the_format(
    name: str, importance: str, seed: int
) -> None:
    """In every group, by the error that the search weighs. Both are added up in float64 here; a sum
    of n squares in float32, by which the search compares, is off by n 2^-24 of it at most."""
    weight, generator = weights(seed), torch.Generator().manual_seed(seed)
    cost = torch.ones(200)
    if importance == "of each column":
        cost = torch.exp(2 * torch.randn(200, generator=generator))
    of = Range.of(SCHEMES[name], 200, torch.float32)

    def error(grid: Any) -> Tensor:
        exact = grid.values(grid.codes(weight)).double() - weight.double()
        return grouped(exact.square() * cost, of.group).sum(-1)

    usual, found = error(whole_range(weight, of)), error(search(weight, of, cost))
    assert bool((found <= usual * (1 + 2 * of.group * 2.0**-24)).all())
    assert int((found < usual).sum()) > len(usual)  # one group of each row, or more


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
def test_the_scales_that_a_search_begins_with_are_those_of_rounding_to_nearest(
    name: str, dtype: torch.dtype
) -> None:
    """To the bit, but for what a group of zeros has; books choose codes before scales are rounded
    to the dtype, so that these are compared in float32."""
    weight = weights().clamp(-100, 100)
    weight[7] = 0  # float16 has no scales for it beside the others
    layer = layer_of(weight.to(dtype), name)
    grid = whole_range(layer.dense.float(), Range.of(SCHEMES[name], 200, dtype))
    found = as_weight(grid.codes(layer.dense.float()), grid, layer).unpacked()
    wanted = kind_of("", SCHEMES[name], (24, 200)).from_float(layer.dense, SCHEMES[name]).unpacked()
    zeros = wanted.scales == 0
    assert torch.equal(found.scales[~zeros], wanted.scales[~zeros])
    if name in OF_BYTES or dtype == torch.float32:
        assert torch.equal(found.q, wanted.q)
    if name == "nvfp4":
        assert found.global_scale is not None and wanted.global_scale is not None
        assert torch.equal(found.global_scale, wanted.global_scale)


@torch.no_grad()
@pytest.mark.parametrize("name", FORMATS)
def test_gptq_keeps_outputs_better_than_rounding_to_nearest(name: str) -> None:
    """The error of the outputs of the first layers on calibration, which GPTQ makes small, and that
    of the whole model on other data."""
    dense = decoders.decoder("Llama")
    wanted, inputs = decoders.logits(dense), []
    attention = dense.model.layers[0].self_attn
    hook = attention.q_proj.register_forward_pre_hook(
        lambda _, x: inputs.append(x[0].flatten(0, 1))
    )
    for batch in decoders.batches():
        dense(batch)
    hook.remove()
    x = torch.cat(inputs)
    errors: dict[str, dict[Any, float]] = {}
    for method in (None, "gptq"):
        model, report = quantized(name, method, layers=3)
        found = {"model": decoders.error(model, wanted)}
        for part in ("q_proj", "k_proj", "v_proj"):
            layer = model.model.layers[0].self_attn.get_submodule(part)
            exact = x @ attention.get_submodule(part).weight.t()
            found[part] = float((x @ layer.dequantize().t() - exact).norm() / exact.norm())
            said = report.layers[f"model.layers.0.self_attn.{part}"].output_error
            assert said is None if method is None else said == pytest.approx(found[part], rel=1e-3)
        for part, error in found.items():
            errors.setdefault(part, {})[method] = error
    assert errors["model"]["gptq"] < 0.8 * errors["model"][None], errors
    for part, error in errors.items():
        assert error["gptq"] < error[None], (part, error)


@pytest.mark.parametrize(
    ("method", "dtype"),
    [*((x, torch.float32) for x in METHODS), ("gptq", torch.bfloat16), ("gptq", torch.float16)],
    ids=str,
)
@pytest.mark.parametrize("name", FORMATS)
def test_what_a_method_made_is_of_the_format_and_comes_back_from_a_file_to_the_bit(
    tmp_path: Path, name: str, method: str | None, dtype: torch.dtype
) -> None:
    model, report = quantized(name, method, dtype)
    given = layers(model)
    assert report.quantized == tuple(given) and len(given) == 7
    for layer in given.values():
        of_the_format(layer.weight, name, dtype)
    said = model.mixed_gemm_recipe
    assert said["schemes"] == [str(SCHEMES[name])]
    started = {None: "RoundToNearest(", "rtn": "SearchedRounding(", "gptq": "GPTQ("}
    assert said["method"].startswith(started.get(method, "AWQ("))
    assert {x.scheme for x in report.layers.values() if x.scheme} == {SCHEMES[name]}
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert config["mixed_gemm"]["recipe"] == said
    back = layers(mixed_gemm.from_pretrained(tmp_path))
    assert back.keys() == given.keys()
    for layer, read in back.items():
        parts = given[layer].weight.tensors()
        assert read.weight.tensors().keys() == parts.keys()
        for part, tensor in parts.items():
            assert torch.equal(tensor, getattr(read.weight, part)), (layer, part)
    if name in OF_BYTES:
        of_files(load_file(tmp_path / "model.safetensors"), given, name)


def of_the_format(weight: Any, name: str, dtype: torch.dtype) -> None:
    """Check the codes and the scales of a weight."""
    found = weight.unpacked()
    found.check()  # codes, scales of a byte, a positive global scale
    assert found.scheme == SCHEMES[name] and weight.dtype == dtype
    if name == "mxfp4":
        assert bool((torch.frexp(found.scales.float()).mantissa == 0.5).all())
    elif name == "nvfp4":
        assert bool((found.scales > 0).all()) and len(found.global_scale.unique()) == 1
    else:
        assert found.scales.dtype == dtype and bool((found.scales >= 0).all())


def of_files(tensors: dict[str, Tensor], given: dict[str, Any], name: str) -> None:
    """Check the weights as the real compressed-tensors reads them."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme, quant_scheme

    form = f"{name}-pack-quantized"
    preset = {"mxfp4": quant_scheme.MXFP4A16, "nvfp4": quant_scheme.NVFP4A16}[name]
    reader: Any = BaseCompressor.get_value_from_registry(form)
    for layer, module in given.items():
        parts = {x: tensors[f"{layer}.{x}"] for x in ("weight_packed", "weight_scale")}
        byte = {"mxfp4": torch.uint8, "nvfp4": torch.float8_e4m3fn}[name]
        assert parts["weight_scale"].dtype == byte
        if name == "nvfp4":
            parts["weight_global_scale"] = tensors[f"{layer}.weight_global_scale"]
            assert parts["weight_global_scale"].shape == (1,)
        scheme = QuantizationScheme(targets=["Linear"], **preset)
        read = reader.decompress(parts, scheme)["weight"]
        mine = module.weight.unpacked().dequantize(torch.float32)
        assert torch.equal(read.to(torch.bfloat16), mine.to(torch.bfloat16))


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_gives_what_the_model_in_memory_does(tmp_path: Path, name: str) -> None:
    """And goes on from the blocks of a run before, which it reads from its own files."""
    decoders.decoder("Llama", 2).save_pretrained(tmp_path / "dense")
    scheme = SCHEMES[name].grouped(32)  # which K of 160 is a multiple of, too
    model, _ = quantized(scheme, "awq+gptq", layers=2)
    found: Any = None
    for _ in range(2):
        found = CalibratedCheckpoint(
            tmp_path / "dense", scheme, method="awq+gptq", calibration=decoders.batches(),
            work=tmp_path / "work", progress=False,
        )  # fmt: skip
    mixed_gemm.save_checkpoint(found, tmp_path / "out")
    back = mixed_gemm.from_pretrained(tmp_path / "out")
    assert len(layers(back)) == 14
    assert torch.equal(decoders.logits(back), decoders.logits(model))


@pytest.mark.parametrize("name", FORMATS)
def test_scales_are_searched_while_a_folder_is_read(tmp_path: Path, name: str) -> None:
    decoders.decoder("Llama", 1).save_pretrained(tmp_path)
    scheme = SCHEMES[name].grouped(32)
    model, _ = quantized(scheme, "rtn")
    found = DenseCheckpoint(tmp_path, scheme, method="rtn")
    for layer, module in layers(model).items():
        read, wanted = found.layer(layer), module.weight.unpacked()
        assert torch.equal(read.q, wanted.q) and torch.equal(read.scales, wanted.scales)
    assert found.recipe["method"] == model.mixed_gemm_recipe["method"]


@pytest.mark.parametrize("name", FORMATS)
def test_an_average_of_bits_gives_int8_to_some_layers(tmp_path: Path, name: str) -> None:
    model, report = quantized(name, "gptq", layers=2, average_bits=5)
    schemes = {x.scheme for x in report.layers.values() if x.scheme is not None}
    assert schemes == {SCHEMES[name], SCHEMES["w8a16"]}
    sizes = {x: m.weight.numel() for x, m in layers(model).items()}
    spent = sum(m.weight.scheme.bits * sizes[x] for x, m in layers(model).items())
    assert 5 - 4 * max(sizes.values()) / sum(sizes.values()) < spent / sum(sizes.values()) <= 5
    wanted = decoders.logits(decoders.decoder("Llama", 2))
    four = quantized(name, "gptq", layers=2)[0]
    assert decoders.error(model, wanted) < decoders.error(four, wanted)
    model.save_pretrained(tmp_path)
    back = mixed_gemm.from_pretrained(tmp_path)
    assert torch.equal(decoders.logits(back), decoders.logits(model))


@pytest.mark.parametrize("name", FORMATS)
def test_what_does_not_fit_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    def refused(what: str, **given: Any) -> None:
        model = decoders.decoder("Llama", layers=1)
        with pytest.raises(ValueError, match=what):
            mixed_gemm.quantize_(model, name, progress=False, **given)
        assert not layers(model)

    data = decoders.batches(1)
    for method in ("hqq", "autoround", "gptq+distill"):
        refused(r"codes that are no integers, got .*Hint: method='gptq'", method=method)
    for method in ("smoothquant", "smoothquant+gptq"):
        refused("is for schemes that round activations.*Hint: scheme='w8a8'", method=method,
                calibration=data)  # fmt: skip
    refused("smooth must be None for schemes whose activations stay.*w8a8", smooth=0.5)
    refused("needs calibration, an iterable of batches. Hint", method="gptq")
    refused(r"calibration must be None.*Hint: method='gptq'", calibration=data)
    refused(f"bits must be None for {SCHEMES[name].weight_type}, got 3", calibration=data,
            method=mixed_gemm.quantization.methods.GPTQ(bits=3))  # fmt: skip
    refused("bits.*not be given with the scheme", method="gptq", bits=3, calibration=data)
    decoders.decoder("Llama", layers=1).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"quantize: .*no integers, got HQQ.*Hint: method='gptq'"):
        DenseCheckpoint(tmp_path, name, method="hqq")
    with pytest.raises(ValueError, match=r"quantize: .*no integers, got AutoRound"):
        CalibratedCheckpoint(
            tmp_path, name, method="autoround", calibration=data, work=tmp_path / "w",
            progress=False,
        )  # fmt: skip


def test_every_format_is_a_row_of_the_table() -> None:
    others = {x for x, known in WEIGHTS.items() if not known.is_integer}
    assert {SCHEMES[x].weight_type for x in FORMATS} == others
