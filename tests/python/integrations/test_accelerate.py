"""What accelerate does with a model that ``quantize_`` made: hooks that move parameters between
devices, the memory of the CPU and a disk, empty models, files."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.random_llama import random_llama
from support.weight_kinds import MODULES, module, same_parts
from torch import Tensor, nn

import mixed_gemm

pytest.importorskip("transformers", reason="optional: hf extra")
accelerate = pytest.importorskip("accelerate", reason="optional: hf extra")
hooks = pytest.importorskip("accelerate.hooks")
CPU = torch.device("cpu")
IDS = torch.tensor([[1, 5, 7, 9], [2, 4, 8, 16]])


def quantized() -> Any:
    model = random_llama()
    mixed_gemm.quantize_(model, bits=4, group_size=32, skip=(), embeddings=True, progress=False)
    return model


@torch.no_grad()
def logits(model: Any) -> Tensor:
    found: Tensor = model(IDS).logits
    return found


def with_hook(model: Any, _: Path) -> Any:
    hooked, hook = accelerate.cpu_offload_with_hook(model, CPU)
    logits(hooked)
    hook.offload()
    return hooked


def taken_off_again(model: Any, folder: Path) -> Any:
    accelerate.disk_offload(model, str(folder), CPU)
    logits(model)
    hooks.remove_hook_from_submodules(model)
    assert not any(p.is_meta for p in model.parameters())
    assert "_hf_hook" not in model.lm_head.__dict__ and not hasattr(model.lm_head, "_hf_hook")
    return model


def dispatched(model: Any, folder: Path) -> Any:
    places = {"model": "disk", "lm_head": "cpu"}
    return accelerate.dispatch_model(
        model, places, main_device="cpu", offload_dir=str(folder), force_hooks=True
    )


def set_to_itself(model: Any, _: Path) -> Any:
    for name, parameter in list(model.named_parameters()):
        accelerate.utils.set_module_tensor_to_device(model, name, "cpu", value=parameter.data)
    return model


def one_after_another(model: Any, _: Path) -> Any:
    hooks.attach_align_device_hook(model, execution_device=CPU, offload=True)
    return model


OFFLOADS: dict[str, Callable[[Any, Path], Any]] = {
    "cpu_offload": lambda m, _: accelerate.cpu_offload(m, CPU),
    "cpu_offload, a copy": lambda m, _: copy.deepcopy(accelerate.cpu_offload(m, CPU)),
    "disk_offload": lambda m, at: accelerate.disk_offload(m, str(at), CPU),
    "disk_offload of buffers": lambda m, at: accelerate.disk_offload(
        m, str(at), CPU, offload_buffers=True
    ),
    "cpu_offload_with_hook": with_hook,
    "dispatch_model": dispatched,
    "set_module_tensor_to_device": set_to_itself,
    "attach_align_device_hook": one_after_another,
    "hooks taken off again": taken_off_again,
    "prepare": lambda m, _: accelerate.Accelerator(cpu=True).prepare(m),
}


@pytest.mark.parametrize("way", OFFLOADS)
def test_the_model_computes_the_same(way: str, tmp_path: Path) -> None:
    wanted = logits(quantized())
    model = OFFLOADS[way](quantized(), tmp_path)
    for _ in range(2):  # what was fetched is dropped, and fetched again
        assert torch.equal(logits(model), wanted)


@pytest.mark.parametrize("shared", ["cpu", "disk"])
def test_layers_that_share_a_weight_keep_their_own_apart_from_the_rest(
    shared: str, tmp_path: Path
) -> None:
    """accelerate knows tied weights by their addresses."""
    model = quantized()
    model.model.layers[1].mlp.up_proj = model.model.layers[0].mlp.up_proj
    wanted = logits(model)
    accelerate.dispatch_model(
        model, {"model": shared, "lm_head": shared}, main_device="cpu",
        offload_dir=str(tmp_path), force_hooks=True,
    )  # fmt: skip
    assert torch.equal(logits(model), wanted)


@pytest.mark.parametrize("kind", MODULES)
def test_a_layer_of_every_kind_waits_in_memory_and_on_disk(kind: str, tmp_path: Path) -> None:
    layer = module(kind)
    inputs = {mixed_gemm.Linear: (3, 96), mixed_gemm.Embedding: ()}.get(type(layer), (2, 24, 8, 8))
    x = torch.randn(inputs) if inputs else torch.tensor([1, 7, 2])
    wanted = layer(x)
    for offload in ("cpu_offload", "disk_offload"):
        found = OFFLOADS[offload](nn.Sequential(module(kind)), tmp_path)
        assert found[0].weight.is_meta and found[0].weight.scheme == layer.scheme
        assert torch.equal(found(x), wanted)
        with accelerate.utils.align_module_device(found[0], "cpu"):
            assert same_parts(found[0].weight, layer.weight)
        assert found[0].weight.is_meta and isinstance(found[0].weight, nn.Parameter)


@pytest.mark.parametrize("kind", MODULES)
def test_empty_models_have_weights_on_meta_and_load(kind: str) -> None:
    with accelerate.init_empty_weights():
        holder = nn.Sequential(module(kind))
        holder[0].weight = module(kind).weight
    weight = holder[0].weight
    assert weight.is_meta and isinstance(weight, nn.Parameter)
    holder.load_state_dict(nn.Sequential(module(kind)).state_dict(), assign=True)
    assert same_parts(holder[0].weight, module(kind).weight)


def test_what_is_offloaded_is_saved(tmp_path: Path) -> None:
    model, wanted = accelerate.cpu_offload(quantized(), CPU), logits(quantized())
    accelerate.Accelerator(cpu=True).save_model(model, str(tmp_path))
    fresh = quantized()
    for parameter in fresh.parameters():
        parameter.data = 0 * parameter.data
    assert not torch.equal(logits(fresh), wanted)
    accelerate.load_checkpoint_in_model(fresh, str(tmp_path))
    assert torch.equal(logits(fresh), wanted)


def test_a_dense_value_for_a_quantized_parameter_is_refused() -> None:
    layer = module("int8")
    with pytest.raises(TypeError, match=r"does not say how to round it.*Hint: weight\.data ="):
        accelerate.utils.set_module_tensor_to_device(
            layer, "weight", "cpu", value=layer.dequantize()
        )


def test_sizes_with_the_dtypes_that_accelerate_can_be_told() -> None:
    """It works out numel() times the size of the dtype, and knows of no other."""
    model = quantized()
    of_parameters = sum(p.nbytes for p in model.parameters())
    known = accelerate.utils.compute_module_sizes(model)[""]
    told = {
        name: accelerate.utils.CustomDtype.INT4 if p.scheme.bits == 4 else torch.int8
        for name, p in model.named_parameters()
        if isinstance(p, mixed_gemm.QuantizedTensor)
    }
    named = accelerate.utils.compute_module_sizes(model, special_dtypes=told)[""]
    assert 0.6 * of_parameters < named < of_parameters < known
    places = accelerate.infer_auto_device_map(
        model, max_memory={"cpu": 2 * of_parameters, "disk": 10**9}, special_dtypes=told
    )
    assert set(places.values()) == {"cpu"}
