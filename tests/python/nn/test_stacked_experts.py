"""Experts in stacked weights: whatever becomes of a linear, its weight or its bias, the numbers are
those of experts that are computed one by one."""

from __future__ import annotations

import copy
import io
import threading
from typing import Any

import pytest
import torch
from support.stacked_experts import (
    ANY,
    CHANGES,
    address,
    check,
    experts_of,
    given,
    linear,
    replace,
    write,
    write_bias,
)
from torch import Tensor

import mixed_gemm


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scheme", ANY)
@pytest.mark.parametrize("kind", ["mixtral", "gpt-oss", "nemotron"])
def test_results_are_those_of_experts_one_by_one(
    kind: str, scheme: str, dtype: torch.dtype
) -> None:
    check(experts_of(kind, scheme, dtype), True, *given(dtype))


@pytest.mark.parametrize("scheme", ANY)
def test_weights_become_views_and_old_ones_are_freed(scheme: str) -> None:
    experts = experts_of("gpt-oss", scheme)
    old = [x.b_packed for x in experts.modules() if isinstance(x, mixed_gemm.Linear)]
    freed = [torch.multiprocessing.reductions.StorageWeakRef(x.untyped_storage()) for x in old]
    del old
    before = sum(x.nbytes for x in experts.parameters())
    assert experts.stack() and all(x.expired() for x in freed)
    stacked = experts._stacked
    assert stacked is not None
    for number, expert in enumerate(experts.experts):
        for name, x in expert.named_children():
            whole = stacked.second if name == "down_proj" else stacked.first
            for part, tensor in (*x.weight.tensors().items(), ("bias", x.bias)):
                if part != "global_scale":
                    assert address(tensor) == address(getattr(whole, part)), (number, part)
    assert sum(x.nbytes for x in experts.parameters()) == before


@pytest.mark.parametrize("scheme", ANY)
@pytest.mark.parametrize("kind", ["mixtral", "gpt-oss", "nemotron"])
def test_a_state_dict_is_the_same(kind: str, scheme: str) -> None:
    experts = experts_of(kind, scheme)
    before = {name: x.clone() for name, x in experts.state_dict().items()}
    assert experts.stack()
    after = experts.state_dict()
    assert list(after) == list(before)
    assert all(x.is_contiguous() and torch.equal(x, before[name]) for name, x in after.items())


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("kind", ["mixtral", "gpt-oss"])
def test_files_are_loaded_into_a_stack(kind: str, assign: bool) -> None:
    experts, other = experts_of(kind), experts_of(kind)
    with torch.no_grad():
        for x in other.modules():
            if isinstance(x, mixed_gemm.Linear):
                x.weight.copy_(torch.randn(x.weight.shape))
    first, wanted = check(experts), other(*given())
    file = io.BytesIO()
    torch.save(other.state_dict(), file)
    file.seek(0)
    before = experts._stacked
    experts.load_state_dict(torch.load(file), assign=assign)
    assert experts._stacked is not None and (experts._stacked is before) is not assign
    found = check(experts)
    assert torch.equal(found, wanted) and not torch.equal(found, first)


@pytest.mark.parametrize("grad", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_replaced_or_written_is_multiplied(change: Any, grad: Any) -> None:
    experts = experts_of("gpt-oss")
    with torch.no_grad():
        first = check(experts)
    change(experts)
    with grad():
        found = check(experts)
    assert not torch.equal(first, found)


def test_what_changes_nothing_leaves_the_stack() -> None:
    experts = experts_of("gpt-oss")
    check(experts)
    before = experts._stacked
    experts.to("cpu").eval().to(torch.float32)
    experts.share_memory()
    write(experts)
    assert experts._stacked is before and linear(experts).weight.is_shared()
    check(experts)
    assert experts._stacked is before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_another_dtype(dtype: torch.dtype) -> None:
    experts = experts_of("gpt-oss")
    check(experts)
    experts.to(dtype)
    assert experts._stacked is not None and experts._stacked.dtype == dtype
    check(experts, True, *given(dtype))
    linear(experts).to(torch.float32)
    x, index, weights = given(dtype)
    with pytest.raises(RuntimeError, match="float32"):
        experts(x, index, weights)
    assert "have one scheme, shape, dtype and device" in experts.why_one_by_one


def test_meta_and_back() -> None:
    experts = experts_of("gpt-oss")
    check(experts)
    state = {name: x.clone() for name, x in experts.state_dict().items()}
    wanted = experts(*given())
    experts.to("meta")
    assert experts._stacked is None and experts.why_one_by_one == "0.gate_proj has no storage"
    experts.load_state_dict(state, assign=True)
    assert torch.equal(check(experts), wanted)


@pytest.mark.parametrize("stacked", [False, True])
def test_copies_are_apart(stacked: bool) -> None:
    experts = experts_of("gpt-oss")
    if stacked:
        check(experts)
    wanted = experts(*given())
    file = io.BytesIO()
    torch.save(experts, file)
    file.seek(0)
    for other in (copy.deepcopy(experts), torch.load(file, weights_only=False)):
        assert torch.equal(check(other), wanted)
        replace(other)
        write_bias(other)
        assert not torch.equal(check(other), wanted)
        assert torch.equal(check(experts), wanted)


def test_a_copy_of_one_linear_has_no_more_than_its_own() -> None:
    experts = experts_of("gpt-oss")
    check(experts)
    copied = copy.deepcopy(linear(experts))
    for part in (*copied.weight.tensors().values(), copied.bias):
        assert part.untyped_storage().nbytes() == part.nbytes and part.is_contiguous()
    assert torch.equal(copied.dequantize(), linear(experts).dequantize())


def test_threads_that_call_first_get_one_stack() -> None:
    experts = experts_of("gpt-oss")
    wanted, found = experts._one_by_one(*given()), list[Tensor]()
    threads = [threading.Thread(target=lambda: found.append(experts(*given()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.allclose(x, wanted, atol=1e-2, rtol=1e-3) for x in found)
    write(experts)
    check(experts)
