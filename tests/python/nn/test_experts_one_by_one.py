"""Experts that are multiplied one by one: since somebody hears of a linear, or since their weights
are not alike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from support.stacked_experts import INNER, check, experts_of, given, linear, set_weight
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import mixed_gemm
from mixed_gemm.nn.experts import MOST_RENEWALS, Experts


def test_hooks_hear_of_every_linear() -> None:
    experts = experts_of()
    wanted, seen = check(experts), list[Tensor]()
    before = experts._stacked
    handles = [
        linear(experts).register_forward_hook(lambda *x: seen.append(x[2])),
        experts.expert(2).register_forward_pre_hook(lambda *x: seen.append(x[1][0])),
        linear(experts, 0).register_full_backward_hook(lambda *x: seen.append(x[2][0])),
    ]
    x, index, weights = given()
    assert torch.allclose(experts(x.requires_grad_(), index, weights), wanted, atol=1e-3)
    assert len(seen) == 2
    for handle in handles:
        handle.remove()
    check(experts)
    assert experts._stacked is before and len(seen) == 2
    doubling = linear(experts).register_forward_hook(lambda *x: x[2] * 2)
    assert not torch.allclose(experts(*given()), wanted, atol=1e-3)
    doubling.remove()
    heard = []
    everywhere = nn.modules.module.register_module_forward_hook(lambda *x: heard.append(x[0]))
    experts(*given())
    everywhere.remove()
    assert linear(experts) in heard


def test_another_forward_is_called() -> None:
    experts = experts_of()
    wanted = check(experts)
    own = linear(experts).forward
    linear(experts).forward = lambda x: own(x) * 2
    assert not torch.allclose(check(experts, False), wanted, atol=1e-3)
    assert experts.why_one_by_one == "1.up_proj has hooks"
    linear(experts).forward = own
    assert torch.equal(check(experts), wanted)


def test_hooks_of_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate", reason="optional: hf extra")
    experts = experts_of("gpt-oss")
    wanted = check(experts)
    accelerate.cpu_offload(experts, execution_device="cpu")
    assert experts._stacked is None
    assert torch.allclose(experts(*given()), wanted, atol=1e-3)
    assert experts.why_one_by_one
    accelerate.hooks.remove_hook_from_submodules(experts)


@pytest.mark.parametrize("targets", ["1.up_proj", "up_proj"])
def test_adapters_on_experts(targets: str) -> None:
    peft = pytest.importorskip("peft", reason="optional: hf extra")
    experts = experts_of()
    wanted = check(experts)
    asked = peft.LoraConfig(r=2, target_modules=[targets], init_lora_weights=False)
    adapted = peft.inject_adapter_in_model(asked, experts)
    assert not torch.allclose(check(adapted, False), wanted, atol=1e-3)
    assert adapted.why_one_by_one.endswith(".up_proj is a Linear")
    loss = adapted(*given()).square().sum()
    loss.backward()
    assert linear(experts).lora_B["default"].weight.grad.any()


def test_biases_that_train_get_gradients() -> None:
    experts, wanted = experts_of("gpt-oss"), experts_of("gpt-oss")
    for each in (experts, wanted):
        for x in each.modules():
            if isinstance(x, mixed_gemm.Linear):
                x.bias.requires_grad_()
    experts(*given()).square().sum().backward()
    wanted._one_by_one(*given()).square().sum().backward()
    for mine, other in zip(experts.parameters(), wanted.parameters(), strict=True):
        if mine.requires_grad:
            assert mine.grad is not None and torch.allclose(mine.grad, other.grad, atol=1e-4)
    before = experts(*given()).detach()
    torch.optim.SGD([x for x in experts.parameters() if x.requires_grad], lr=0.1).step()
    with torch.no_grad():
        assert not torch.equal(check(experts), before)


def test_gradients_of_activations_and_of_the_router() -> None:
    experts = experts_of("gpt-oss")
    for x in experts.parameters():
        x.requires_grad_(False)
    grads = []
    for way in (experts, experts._one_by_one):
        x, index, weights = given()
        way(x.requires_grad_(), index, weights.requires_grad_()).square().sum().backward()
        grads.append((x.grad, weights.grad))
    for found, wanted in zip(*grads, strict=True):
        assert found is not None and torch.allclose(found, wanted, rtol=1e-3, atol=1e-2)


def test_autocast_and_float32_activations() -> None:
    experts = experts_of("mixtral", "w8a16", torch.bfloat16)
    x, index, weights = given(torch.bfloat16)
    wanted = check(experts, True, x, index, weights)
    found = experts(x.float(), index, weights.float())
    assert found.dtype == torch.float32 and torch.allclose(found, wanted.float(), rtol=0.1, atol=1)
    with torch.autocast("cpu", torch.bfloat16):
        found = experts(x.float(), index, weights.float())
    assert found.dtype == torch.float32 and torch.allclose(found, wanted.float(), rtol=0.1, atol=1)
    assert torch.equal(experts(x, index, weights), wanted)


def test_numbers_of_no_expert_add_nothing() -> None:
    experts = experts_of()
    x, _, weights = given(tokens=3)
    found = check(experts, True, x, torch.tensor([[0, 4], [-1, 2], [9, -5]]), weights)
    assert not found[2].any() and found[0].any()


def test_a_stack_of_inference_mode_trains() -> None:
    experts = experts_of("gpt-oss")
    with torch.inference_mode():
        experts(*given())
    assert experts._stacked is not None and not experts._stacked.first.scales.is_inference()
    x, index, weights = given()
    experts(x.requires_grad_(), index, weights).sum().backward()
    assert x.grad is not None and x.grad.any()
    with torch.inference_mode():
        made_there = experts_of()
        made_there(*given())
    assert made_there.why_one_by_one == "0.gate_proj was made under torch.inference_mode"


def test_nothing_is_stacked_while_somebody_records() -> None:
    experts = experts_of()
    wanted = experts._one_by_one(*given())
    with FlopCounterMode(display=False) as counter:
        found = experts(*given())
    assert experts._stacked is None and counter.get_total_flops() > 0
    assert torch.equal(found, wanted)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with contextlib.suppress(Exception), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        experts(*(mode.from_tensor(x) for x in given()))
    check(experts)


def test_functions_of_other_parameters() -> None:
    experts = experts_of()
    wanted = check(experts)
    other = {"1.up_proj.weight": linear(experts, 2).weight.cut(0, 0, INNER)}
    found = torch.func.functional_call(experts, other, given())
    set_weight(experts)
    assert torch.allclose(found, check(experts), atol=1e-3)
    assert not torch.allclose(found, wanted, atol=1e-3)


def test_weights_that_are_replaced_again_and_again_are_not_copied_each_time() -> None:
    experts = experts_of()
    for _ in range(MOST_RENEWALS + 2):
        set_weight(experts)
        experts(*given())
    assert experts.why_one_by_one == "weights are replaced again and again"
    check(experts, False)
    assert experts.stack() and not experts.why_one_by_one


def test_the_reason_is_looked_for_once() -> None:
    experts = experts_of()
    experts.expert(1).up_proj = linear(experts).to_float()
    looks = 0

    def why(of: Experts) -> str:
        nonlocal looks
        looks += 1
        return "they are not alike"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mixed_gemm.nn.experts.why_apart", why)
        for _ in range(3):
            check(experts, False)
        assert looks == 1
        experts.expert(1).down_proj = linear(experts, 2, "down_proj")
        experts(*given())
        assert looks == 2


def other_scheme(experts: Experts) -> None:
    dense = linear(experts).to_float()
    experts.expert(1).up_proj = mixed_gemm.Linear.from_float(dense, "w8a16")


def nf4(experts: Experts) -> None:
    for expert in experts.experts:
        for name in ("gate_proj", "up_proj"):
            dense = expert._modules[name].to_float()  # type: ignore[union-attr,operator]
            setattr(expert, name, mixed_gemm.Linear.from_float(dense, "nf4"))


def dense(experts: Experts) -> None:
    experts.expert(1).up_proj = linear(experts).to_float()


def shared(experts: Experts) -> None:
    experts.expert(1).up_proj = linear(experts, 2)


def without_bias(experts: Experts) -> None:
    linear(experts).bias = None


def joined(experts: Experts) -> None:
    both = linear(experts, 1, "gate_proj"), linear(experts)
    from mixed_gemm.nn.joint import Joint

    Joint(both)


REASONS: list[tuple[Callable[[Experts], None], str]] = [
    (other_scheme, "weights must have one scheme, shape, dtype and device, got "),
    (nf4, "weights must be packed integers, MXFP4 or NVFP4, got BookWeight"),
    (dense, "1.up_proj is a Linear"),
    (shared, "two linears have one weight"),
    (without_bias, "some have no bias, or biases are in another dtype or on another device"),
    (joined, "1.gate_proj is joined with others by fuse_"),
]


@pytest.mark.parametrize(("change", "reason"), REASONS)
def test_experts_that_are_not_alike_go_one_by_one(
    change: Callable[[Experts], None], reason: str
) -> None:
    experts = experts_of("gpt-oss")
    change(experts)
    check(experts, False)
    assert experts.why_one_by_one.startswith(reason)
