"""Compares a loaded model with the dense one that its checkpoint was made from."""

from __future__ import annotations

import torch
from support import tiny_llama
from support.checkpoints import INTEGERS

import mixed_gemm
from mixed_gemm import reference

PROMPT = torch.tensor([[1, 5, 7, 40, 2], [3, 3, 9, 21, 60]])


def dense_model(weights: dict[str, torch.Tensor], biases: bool) -> torch.nn.Module:
    """transformers' Llama in float32 with these weights for its linears."""
    import transformers

    config = transformers.LlamaConfig(**{**tiny_llama.CONFIG, "dtype": "float32"})
    model = transformers.LlamaForCausalLM(config).eval()
    state = {name: x.float() for name, x in tiny_llama.plain_tensors().items()}
    state |= {f"{name}.weight": weight for name, weight in weights.items()}
    if biases:  # on down_proj, where this Llama has none
        down = model.model.layers[0].mlp.down_proj
        down.bias = torch.nn.Parameter(torch.zeros(down.out_features))
        state[f"{tiny_llama.BLOCK}.mlp.down_proj.bias"] = tiny_llama.bias(
            f"{tiny_llama.BLOCK}.mlp.down_proj", down.out_features
        ).float()
    model.load_state_dict(state)
    return model


def truth(folder: str) -> torch.nn.Module:
    _, bits, group_size, symmetric, act_order, least_zero = INTEGERS[folder]
    weights = {
        name: tiny_llama.grid(
            name, n, k, bits, group_size, symmetric, act_order, least_zero
        ).weight()
        for name, (n, k) in tiny_llama.LINEARS.items()
    }
    return dense_model(weights, biases=folder != "awq_gemm_channel")


def generated(model) -> torch.Tensor:
    return model.generate(PROMPT, max_new_tokens=16, do_sample=False, pad_token_id=0)


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(PROMPT).logits


def worst_ratio(model, run=logits) -> float:
    """Over the quantized layers of one forward, or of another ``run(model)``: max |out - exact| /
    bound (docs/numerics.md)."""
    ratios, layers = [], quantized_layers(model)
    seen = set()

    def check(layer, inputs, out) -> None:
        seen.add(layer)
        weight = layer.to_quantized_weight().to(out.dtype)
        a = inputs[0] if weight.permutation is None else inputs[0][..., weight.permutation]
        q = weight.q.float() if weight.is_fp8 else weight.q
        arguments = (a, q, weight.scales, weight.zeros, weight.bias)
        scheme = {"group_size": weight.group_size, "zero_mode": layer.scheme.op_zero_mode}
        exact = reference.fpA_intB_gemm(*arguments, **scheme)
        bound = reference.error_bound(*arguments, **scheme)
        ratios.append(reference.error_ratio(out, exact, bound))

    hooks = [layer.register_forward_hook(check) for layer in layers.values()]
    assert run(model).isfinite().all()
    for hook in hooks:
        hook.remove()
    assert seen == set(layers.values()) != set()
    return max(ratios)


def assert_equals_dense(model, dense) -> None:
    """Weights equal to the bit, layers within the bound, the same tokens."""
    for name, layer in quantized_layers(model).items():
        assert torch.equal(layer.dequantize(), dense.get_submodule(name).weight), name
    assert worst_ratio(model) <= 1.0
    assert torch.equal(generated(model), generated(dense))


def quantized_layers(model) -> dict[str, mixed_gemm.Linear]:
    return {n: m for n, m in model.named_modules() if isinstance(m, mixed_gemm.Linear)}
