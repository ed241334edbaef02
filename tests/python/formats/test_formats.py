"""Every format, as the packers of others wrote it (tests/data/make_*.py): what is read must be, to
the bit, the weight that they were given.
"""

from __future__ import annotations

import pytest
import torch
from support import tiny_llama
from support.checkpoints import FLOATS, INTEGERS

from mixed_gemm import reference
from mixed_gemm.formats import open_checkpoint


@pytest.mark.parametrize("folder", INTEGERS)
def test_open_integers_finds_the_weight_that_was_packed(repository, folder):
    title, bits, group_size, symmetric, act_order, least_zero = INTEGERS[folder]
    checkpoint = open_checkpoint(repository / "tests" / "data" / folder)
    assert checkpoint.format == title
    assert set(checkpoint.layers) == set(tiny_llama.LINEARS)
    assert set(checkpoint.tensors) == set(tiny_llama.plain_tensors())
    for name, (n, k) in tiny_llama.LINEARS.items():
        truth = tiny_llama.grid(name, n, k, bits, group_size, symmetric, act_order, least_zero)
        info, weight = checkpoint.layers[name], checkpoint.layer(name)
        assert (info.out_features, info.in_features, info.bits) == (n, k, bits)
        assert weight.bits == max(bits, 4)
        columns = weight.permutation if act_order else torch.arange(k)
        half = 2 ** (bits - 1)
        assert torch.equal(weight.q.long() + half, truth.codes[:, columns])
        assert torch.equal(weight.scales, truth.scales)
        assert (weight.zeros is None) == symmetric == (weight.zero_mode == "none")
        if weight.zeros is not None:
            assert torch.equal(weight.zeros.long() + half, truth.zeros)
        assert torch.equal(weight.dequantize(), truth.weight())


@pytest.mark.parametrize("folder", FLOATS)
def test_open_floats_finds_the_weight_that_was_packed(repository, folder):
    checkpoint = open_checkpoint(repository / "tests" / "data" / folder)
    assert checkpoint.format == "compressed-tensors float-quantized"
    for name, (n, k) in tiny_llama.LINEARS.items():
        truth = tiny_llama.float_grid(name, n, k, *FLOATS[folder])
        weight = checkpoint.layer(name)
        assert weight.is_fp8 and checkpoint.layers[name].kind == "fp8"
        assert torch.equal(weight.q.view(torch.uint8), truth.values.view(torch.uint8))
        assert torch.equal(weight.dequantize(), truth.weight())


@pytest.mark.parametrize("folder", {**INTEGERS, **FLOATS})
def test_open_reads_bias_and_plain_tensors(repository, folder):
    checkpoint = open_checkpoint(repository / "tests" / "data" / folder)
    for name, tensor in tiny_llama.plain_tensors().items():
        assert torch.equal(checkpoint.tensor(name), tensor)
        assert checkpoint.tensor_shape(name) == tuple(tensor.shape)
    down = f"{tiny_llama.BLOCK}.mlp.down_proj"
    biased = {w.name for w in checkpoint if w.bias is not None and w.bias.any()}
    assert biased == (set() if folder == "awq_gemm_channel" else {down})
    if biased:
        assert torch.equal(checkpoint.layer(down).bias, tiny_llama.bias(down, 64))


@pytest.mark.parametrize("folder", INTEGERS)
def test_to_linear_computes_with_the_same_weight(repository, folder):
    _, bits, group_size, symmetric, act_order, least_zero = INTEGERS[folder]
    for weight in open_checkpoint(repository / "tests" / "data" / folder):
        n, k = weight.shape
        truth = tiny_llama.grid(
            weight.name, n, k, bits, group_size, symmetric, act_order, least_zero
        )
        rounded = weight.to_linear(torch.float32)
        assert torch.equal(rounded.dequantize(), truth.weight())
        again = rounded.to_quantized_weight(weight.name)
        assert again.input_activations == weight.input_activations
        linear = weight.weight_only().to_linear(torch.float32)
        assert torch.equal(again.q, weight.q) and again.bits == weight.bits
        a = tiny_llama.scatter("activations", 3, k).float() / 2**19 - 1
        w = weight.to(torch.float32)
        inputs = (a[:, w.permutation] if act_order else a, w.q, w.scales, w.zeros, w.bias)
        exact = reference.fpA_intB_gemm(*inputs, group_size=w.group_size)
        bound = reference.error_bound(*inputs, group_size=w.group_size)
        assert reference.error_ratio(linear(a).detach(), exact, bound) <= 1.0
