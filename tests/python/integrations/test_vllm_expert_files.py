"""Experts of GPTQ, AWQ and gpt-oss files for vLLM where there is no vLLM: the tensors of a file,
filled as vLLM's loader fills them, against sums in float64 of the weights that they stand for; what
is refused and why. What needs vLLM is in tests/vllm/test_expert_files.py.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from integrations import test_vllm_experts as plain
from problems.awq import awq_words, gptq_words
from problems.fused_moe import Problem
from torch import Tensor

from mixed_gemm import StackedWeight
from mixed_gemm.integrations.vllm.experts_asked import activation_of, why_not_experts
from mixed_gemm.integrations.vllm.experts_gpt_oss import GptOssLayout
from mixed_gemm.integrations.vllm.experts_integers import integers, order_loader
from mixed_gemm.integrations.vllm.experts_layout import Part
from mixed_gemm.integrations.vllm.measured import scheme_of

E, H, I = 3, 128, 64  # noqa: E741 (hidden size, and of gate and of up)
GROUP = 32
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True}
FILES: dict[str, dict[str, Any]] = {
    "GPTQ": GPTQ,
    "GPTQ, 8 bits": {**GPTQ, "bits": 8},
    "GPTQ, sym=False": {**GPTQ, "sym": False},
    "GPTQ, version 2": {**GPTQ, "sym": False, "checkpoint_format": "gptq_v2"},
    "GPTQ, per channel": {**GPTQ, "bits": 8, "sym": False, "group_size": -1},
    "GPTQ, act-order": {**GPTQ, "desc_act": True},
    "GPTQ, act-order, sym=False, 8 bits": {**GPTQ, "bits": 8, "sym": False, "desc_act": True},
    "AWQ": AWQ,
    "AWQ, per channel": {**AWQ, "group_size": -1},
    "AWQ without zero points": {**AWQ, "zero_point": False},
}
SIDES = {"w13": ((I, H), (I, H)), "w2": ((H, I),)}  # shapes of the matrices beside each other


def layout_of(config: dict[str, Any]) -> Any:
    found = integers(config, config["quant_method"])
    assert not isinstance(found, str), found
    return found


def integer_matrix(config: dict[str, Any], n: int, k: int, order: Tensor) -> Any:
    """(role -> tensor of the file, the weight in float64) of a random matrix."""
    bits, size = config["bits"], config["group_size"]
    size = k if size == -1 else size
    codes = torch.randint(0, 1 << bits, (k, n))
    scales = ((0.5 + torch.rand(k // size, n)) / (1 << bits)).half()
    zeros = torch.full((k // size, n), 1 << (bits - 1))
    if not config.get("sym", False) and config.get("zero_point", True):
        zeros = torch.randint(1, 1 << bits, zeros.shape)
    groups = (order.argsort() // size).int()
    weight = (codes - zeros[groups]).double() * scales[groups].double()
    if config["quant_method"] == "awq":
        tensors = {"qweight": awq_words(codes), "scales": scales}
        if config["zero_point"]:
            tensors["qzeros"] = awq_words(zeros)
        return tensors, weight.t()
    stored = zeros if config.get("checkpoint_format") == "gptq_v2" else zeros - 1
    tensors = {
        "qweight": gptq_words(codes, bits), "scales": scales, "g_idx": groups,
        "qzeros": gptq_words(stored.t().contiguous(), bits).t().contiguous(),
    }  # fmt: skip
    return tensors, weight.t()


def load(parts: dict[str, Part], expert: int, side: int, own: dict[str, Tensor]) -> None:
    """Fill as vLLM does: gate before up, along the dimension of output channels."""
    for name, values in own.items():
        part = parts[name]
        if part.is_order:
            whole: Any = SimpleNamespace(expert_map=None)
            parameter: Any = SimpleNamespace(data=part.values)
            assert order_loader(whole)(parameter, values, name, "w1", expert, True)
            continue
        place, dim = part.values[expert], int(part.is_transposed)
        start = side * values.shape[dim]
        place.narrow(dim, start, values.shape[dim]).copy_(values)


def integer_problem(config: dict[str, Any], dtype: torch.dtype) -> tuple[Problem, Any]:
    torch.manual_seed(1)
    layout, made, dense, biases = layout_of(config), {}, {}, {}
    for stem, shapes in SIDES.items():
        (_, k), n = shapes[0], sum(n for n, _ in shapes)
        parts = layout.parts(E, n, k, torch.float16, stem)
        rows = []
        for expert in range(E):
            order = torch.randperm(k) if config.get("desc_act") else torch.arange(k)
            own = [integer_matrix(config, *shape, order) for shape in shapes]
            for side, (tensors, _) in enumerate(own):
                load(parts, expert, side, tensors)
            rows.append(torch.cat([weight for _, weight in own]))
        parts["bias"].values.copy_(torch.randn(E, n))
        biases[stem] = parts["bias"].values.clone()
        found = {name: part.values for name, part in parts.items()}
        packed = layout.packed(found, n, dtype, stem)
        made[stem] = StackedWeight(scheme=packed.scheme, **packed.tensors)
        dense[stem] = torch.stack(rows)
    return problem(made, dense, biases, dtype), made


def problem(made: Any, dense: Any, biases: Any, dtype: torch.dtype) -> Problem:
    return Problem(
        torch.randn(9, H).to(dtype), made["w13"], made["w2"], torch.rand(9, 2),
        torch.randint(0, E, (9, 2)), (dense["w13"], dense["w2"]), (biases["w13"], biases["w2"]),
    )  # fmt: skip


def check(found: Problem, **options: Any) -> None:
    wanted = found.wanted(**options)
    far = (found.run(**options).double() - wanted).abs().max() / wanted.abs().max()
    assert far < {torch.float32: 1e-5, torch.bfloat16: 3e-2}[found.x.dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FILES)
def test_integers_are_those_of_the_definition(name: str, dtype: torch.dtype) -> None:
    found, made = integer_problem(FILES[name], dtype)
    check(found)
    has_order = bool(FILES[name].get("desc_act"))
    for weight in made.values():
        assert (weight.permutation is not None) == has_order
        has_zeros = not FILES[name].get("sym", False) and FILES[name].get("zero_point", True)
        assert (weight.zeros is not None) == weight.scheme.has_zeros == has_zeros


def test_biases_of_zeros_are_none() -> None:
    layout = layout_of(AWQ)
    found = {name: part.values for name, part in layout.parts(E, H, I, torch.half, "w2").items()}
    found["qweight"].zero_()
    found["scales"].fill_(1)
    assert "bias" not in layout.packed(found, H, torch.half, "w2").tensors


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gpt_oss_is_as_its_definition(dtype: torch.dtype) -> None:
    """Rows of gate and up alternate, of weights, scales and biases."""
    torch.manual_seed(2)
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    values = torch.cat([numbers, -numbers])
    made, dense, biases = {}, {}, {}
    for stem, (n, k) in {"w13": (2 * I, H), "w2": (H, I)}.items():
        found = {name: p.values for name, p in GptOssLayout().parts(E, n, k, dtype, stem).items()}
        codes = torch.randint(0, 16, (E, n, k))
        found["weight"].copy_(codes[..., 0::2] | codes[..., 1::2] << 4)
        found["weight_scale"].copy_(torch.randint(118, 124, (E, n, k // 32)))
        found["bias"].copy_(torch.randn(E, n))
        scales = torch.exp2(found["weight_scale"].double() - 127).repeat_interleave(32, -1)
        rows = torch.cat([torch.arange(n)[0::2], torch.arange(n)[1::2]])
        rows = rows if stem == "w13" else torch.arange(n)
        dense[stem], biases[stem] = (values[codes] * scales)[:, rows], found["bias"][:, rows]
        packed = GptOssLayout().packed(found, n, dtype, stem)
        made[stem] = StackedWeight(scheme=packed.scheme, **packed.tensors)
    options = activation_of(plain.asked(activation="swigluoai").moe, in_turns=True)
    assert options == {"activation": "swiglu_oai", "limit": 7.0, "alpha": 1.702}
    check(problem(made, dense, biases, dtype), **options)


# --- what is asked -------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "3 bits": ({**GPTQ, "bits": 3}, {}, "bits must be 4 or 8, got 3"),
    "8 bits of AWQ": ({**AWQ, "bits": 8}, {}, "bits must be 4, got 8"),
    "group 24": ({**GPTQ, "group_size": 24}, {}, "positive multiple of 16, got 24"),
    "rules": ({**GPTQ, "dynamic": {"+:x": {"bits": 8}}}, {}, "rules for single layers"),
    "rules of AutoRound": ({**GPTQ, "extra_config": {"x": {"bits": 8}}}, {}, "extra_config"),
    "Marlin": ({**GPTQ, "is_marlin_format": True}, {}, "is_marlin_format"),
    "gemv": ({**AWQ, "version": "gemv"}, {}, "in the layout of gemm, got awq gemv"),
    "act-order over ranks": (
        {**GPTQ, "desc_act": True}, {"tp_size": 2}, "act-order .* cut over ranks",
    ),
    "half a word": (AWQ, {"intermediate_size_per_partition": 36}, "fill words .* got 36 in w13"),
    "gate and up in turns": (GPTQ, {"activation": "swigluoai"}, "got swigluoai"),
}  # fmt: skip


@pytest.fixture
def no_dataclass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain.experts_asked, "unknown_fields", lambda *_: "")


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_and_why(name: str, no_dataclass: None) -> None:
    config, changes, reason = REFUSED[name]
    asked = plain.asked(layout=integers(config, config["quant_method"]), **changes)
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(why_not_experts(asked))


def test_what_is_served(no_dataclass: None) -> None:
    names = set()
    for config in FILES.values():
        asked = plain.asked(layout=layout_of(config), has_bias=True)
        assert why_not_experts(asked) is None
        names.add(scheme_of("experts", asked).removeprefix("experts, "))
    assert names == {
        "4 bits", "8 bits", "4 bits, zero points", "8 bits, zero points", "4 bits, act-order",
        "8 bits, zero points, act-order",
    }  # fmt: skip


def test_what_is_served_of_gpt_oss(no_dataclass: None) -> None:
    gpt_oss = {"layout": GptOssLayout(), "activation": "swigluoai", "has_bias": True}
    assert why_not_experts(plain.asked(**gpt_oss)) is None
    for changes, reason in (
        ({"activation": "silu"}, "must be one of swigluoai, got silu"),
        ({"swiglu_beta": 0.5}, "swigluoai must add 1 to up, got 0.5"),
        ({"intermediate_size_per_partition": 48}, "48 input features of w2 on a rank are not"),
    ):
        assert reason in str(why_not_experts(plain.asked(**{**gpt_oss, **changes})))
    told = plain.asked(**gpt_oss, swiglu_limit=5.0, swiglu_alpha=1.5).moe
    assert activation_of(told, in_turns=True) == {
        "activation": "swiglu_oai", "limit": 5.0, "alpha": 1.5
    }  # fmt: skip


# --- act-order -----------------------------------------------------------------------------------


def test_gate_and_up_in_two_orders_are_refused() -> None:
    parameter: Any = SimpleNamespace(data=torch.full((E, H), -1, dtype=torch.int32))
    mine: Any = SimpleNamespace(expert_map=torch.tensor([-1, 1, -1, 0]))
    load = order_loader(mine)
    order = (torch.randperm(H) // GROUP).int()
    assert load(parameter, order, "w13_g_idx", "w1", 0, True) is False  # of another rank
    assert load(parameter, order, "w13_g_idx", "w1", 3, True) is True
    assert load(parameter, order, "w13_g_idx", "w3", 3) is None
    assert torch.equal(parameter.data[0], order) and bool((parameter.data[1:] == -1).all())
    with pytest.raises(ValueError, match="gate and up of expert 3 are ordered differently"):
        load(parameter, order.flip(0), "w13_g_idx", "w3", 3)
    load(parameter, torch.zeros(2 * H), "w2_g_idx", "w2", 3)  # numbers of the whole matrix
    assert torch.equal(parameter.data[0], order)


def test_an_order_that_was_not_loaded_is_refused_or_plain() -> None:
    for config in (GPTQ, {**GPTQ, "desc_act": True}):
        layout = layout_of(config)
        parts = layout.parts(E, H, I, torch.half, "w2")
        found = {name: part.values.zero_() for name, part in parts.items() if name != "g_idx"}
        found["g_idx"] = parts["g_idx"].values
        found["qzeros"].fill_(0x77777777)  # 8 less one
        if config["desc_act"]:
            with pytest.raises(ValueError, match="vLLM loaded no g_idx"):
                layout.packed(found, H, torch.half, "w2")
        else:
            assert "permutation" not in layout.packed(found, H, torch.half, "w2").tensors
