"""Which modules ``fuse_`` lets run in three ops is found by running them; the others are told."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import mixed_gemm
from benchmarks.counting import counting

K, INNER = 64, 128
X = torch.linspace(-1, 1, 3 * K).view(3, K)


class MLP(nn.Module):
    """By names that say nothing."""

    inner = INNER

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(K, self.inner), nn.Linear(K, self.inner, bias=False)
        self.c = nn.Linear(self.inner, K)
        self.act = self.activation()

    @staticmethod
    def activation() -> nn.Module:
        return nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.act(self.a(x)) * self.b(x))


class Packed(nn.Module):
    """Gate and up in one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.out = nn.Linear(K, 2 * INNER), nn.Linear(INNER, K)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.both(x).chunk(2, -1)
        return self.out(up * functional.gelu(gate))


class Model(nn.Module):
    def __init__(self, mlp: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(mlp() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x * 0.5)
        return x


def quantized(mlp: type[nn.Module], dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    model = Model(mlp).eval().to(dtype)
    mixed_gemm.quantize_(model, **{"scheme": "w4a16", "group_size": 32, **options})
    return model


def other(mlp: type[nn.Module]) -> str:
    """Why it is not fused."""
    report = mixed_gemm.fuse_(quantized(mlp), example_inputs=X, mlps=True)
    assert not report.mlps
    assert len(set(report.other_mlps.values())) == 1
    return report.other_mlps["blocks.0"]


# --- what is found -------------------------------------------------------------------------------


class UpFirst(MLP):
    def forward(self, x: Tensor) -> Tensor:
        up = self.b(x)
        return self.c(up * functional.gelu(self.a(x), approximate="tanh"))


class Shared(MLP):
    """Something else reads the input, too: gate and up have a product of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(K, INNER), nn.Linear(K, INNER)


class Limited(MLP):
    """As DeepSeek-V4 does."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 0.5

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.a(x).clamp(max=self.limit), self.b(x).clamp(-self.limit, self.limit)
        return self.c(self.act(gate) * up)


class Oai(MLP):
    """As gpt-oss does."""

    def __init__(self) -> None:
        super().__init__()
        self.limit, self.alpha = 7.0, 1.702

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.a(x).clamp(max=self.limit), self.b(x).clamp(-self.limit, self.limit)
        return self.c((up + 1) * gate * torch.sigmoid(gate * self.alpha))


class Tanh(MLP):
    """By hand, which rounds in bfloat16 at each of many steps."""

    def forward(self, x: Tensor) -> Tensor:
        gate = self.a(x)
        inner = 0.7978845608028654 * (gate + 0.044715 * gate**3)
        return self.c(0.5 * gate * (1 + torch.tanh(inner)) * self.b(x))


class Dropped(MLP):
    """In eval mode a dropout returns what it is given."""

    @staticmethod
    def activation() -> nn.Module:
        return nn.Sequential(nn.ReLU(), nn.Dropout(0.5))


FOUND: dict[type[nn.Module], str] = {
    MLP: "silu", Packed: "gelu", UpFirst: "gelu_tanh", Limited: "silu, limit 0.5",
    Oai: "swiglu_oai, limit 7, alpha 1.702", Tanh: "gelu_tanh", Dropped: "relu",
}  # fmt: skip


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("mlp", FOUND)
def test_what_is_found(mlp: type[nn.Module], dtype: torch.dtype) -> None:
    model = quantized(mlp, dtype)
    apart = copy.deepcopy(model)
    report = mixed_gemm.fuse_(model, example_inputs=X.to(dtype), mlps=True)
    assert report.mlps == {f"blocks.{i}": FOUND[mlp] for i in range(2)}
    assert not report.other_mlps and report.difference is not None
    assert all(isinstance(x, mixed_gemm.GatedMLP) and isinstance(x, mlp) for x in model.blocks)
    assert f"2 MLPs with one op between their products:\n  blocks.* (2): {FOUND[mlp]}" in str(
        report
    )
    x = 2 * torch.randn(5, K, generator=torch.Generator().manual_seed(1)).to(dtype)
    with torch.no_grad(), counting() as count:
        found = model(x)
        wanted = apart(x)
    assert count.calls == 6 + 2 * (2 if mlp is Packed else 3)
    most = float(wanted.float().abs().max())
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    assert torch.allclose(found.float(), wanted.float(), rtol=0, atol=most * tolerance)
    if mlp is Dropped:
        assert report.difference == 0 and torch.equal(found, wanted)
    mixed_gemm.unfuse_(model)
    assert all(type(x) is mlp for x in model.blocks)
    with torch.no_grad():
        assert torch.equal(model(x), wanted)


def test_the_gate_is_the_first_half_whatever_is_called_first() -> None:
    report = mixed_gemm.fuse_(quantized(UpFirst), example_inputs=X, mlps=True)
    assert [x.names for x in report.sets] == [(f"blocks.{i}.a", f"blocks.{i}.b") for i in range(2)]


class Parallel(nn.Module):
    """Attention and MLP read one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.mlp = nn.Linear(K, K), nn.Linear(K, K), MLP()

    def forward(self, x: Tensor) -> Tensor:
        return self.q(x) * self.k(x) + self.mlp(x)


def test_gate_and_up_leave_a_larger_set() -> None:
    report = mixed_gemm.fuse_(model := quantized(Parallel), example_inputs=X, mlps=True)
    assert [x.text for x in report.sets][:2] == ["blocks.0.q + k", "blocks.0.mlp.a + b"]
    assert list(report.mlps) == ["blocks.0.mlp", "blocks.1.mlp"]
    report = mixed_gemm.fuse_(model, example_inputs=X, mlps=False)
    assert report.sets[0].text == "blocks.0.q + k + mlp.a + mlp.b"
    assert not report.mlps and report.difference == 0
    assert type(model.blocks[0].mlp) is MLP


def test_a_model_may_be_one_mlp() -> None:
    torch.manual_seed(0)
    model = MLP().eval()
    mixed_gemm.quantize_(model, "w4a16", group_size=32)
    assert mixed_gemm.fuse_(model, example_inputs=X, mlps=True).mlps == {"": "silu"}
    assert isinstance(model, mixed_gemm.GatedMLP)


def test_an_attribute_that_changes_ends_it() -> None:
    """The limit is in the call; another one is the business of the module's own code."""
    model = quantized(Limited)
    apart = copy.deepcopy(model)
    mixed_gemm.fuse_(model, example_inputs=X, mlps=True)
    for each in (model, apart):
        each.blocks[0].limit = 0.01
    assert model.blocks[0].gated_call is None
    mixed_gemm.unfuse_(model)
    with torch.no_grad():
        assert torch.equal(model(X), apart(X))
    report = mixed_gemm.fuse_(model, example_inputs=X, mlps=True)
    assert report.mlps["blocks.0"] == "silu, limit 0.01"


def test_another_activation_is_computed() -> None:
    model = quantized(MLP)
    mixed_gemm.fuse_(model, example_inputs=X, mlps=True)
    apart = copy.deepcopy(model)
    mixed_gemm.unfuse_(apart)
    for each in (model, apart):
        for block in each.blocks:
            block._modules["act"] = nn.Tanh()
    with torch.no_grad():
        assert torch.equal(model(X), apart(X))


# --- what is not, and why ------------------------------------------------------------------------


class Plain(MLP):
    def __init__(self) -> None:
        super().__init__()
        del self.b

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.act(self.a(x)))


class Added(MLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.act(self.a(x)) + self.b(x))


class Quick(MLP):
    def forward(self, x: Tensor) -> Tensor:
        gate = self.a(x)
        return self.c(gate * torch.sigmoid(1.702 * gate) * self.b(x))


class Huge(MLP):
    """Differs where numbers are large alone."""

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.act(self.a(x)).clamp(max=100) * self.b(x))


class Negative(MLP):
    """Differs below zero alone."""

    def forward(self, x: Tensor) -> Tensor:
        gate = self.a(x)
        return self.c(torch.where(gate < 0, gate * 0.1, self.act(gate)) * self.b(x))


class Normed(MLP):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(INNER)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.norm(self.act(self.a(x)) * self.b(x)))


class Scaled(MLP):
    """By 1, today."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.scale * self.act(self.a(x)) * self.b(x))


class OfInput(MLP):
    """Reads the input beside its layers."""

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.act(self.a(x)) * self.b(x) + x.mean())


class Twice(MLP):
    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.act(self.a(x)) * self.b(x) + 0 * self.a(x))


class Three(MLP):
    def __init__(self) -> None:
        super().__init__()
        self.d = nn.Linear(K, INNER)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.act(self.a(x)) * self.b(x) + 0 * self.d(x))


class Ends(MLP):
    def __init__(self) -> None:
        super().__init__()
        self.end = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.c(self.act(self.a(x)) * self.b(x)))


class Back(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(INNER, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.float())


class Casts(MLP):
    def __init__(self) -> None:
        super().__init__()
        self.c = Back()

    def forward(self, x: Tensor) -> Tensor:
        return self.c((self.act(self.a(x)) * self.b(x)).bfloat16())


class Narrow(MLP):
    inner = 96


class Reversed(Packed):
    def forward(self, x: Tensor) -> Tensor:
        up, gate = self.both(x).chunk(2, -1)
        return self.out(up * functional.gelu(gate))


class Alternating(Packed):
    def forward(self, x: Tensor) -> Tensor:
        both = self.both(x)
        return self.out(functional.silu(both[..., ::2]) * both[..., 1::2])


NONE = "what it computes between its products is no activation of gate, times up, that gated_"
REASONS: dict[type[nn.Module], str] = {
    Plain: "it has no gate: its last layer reads as many columns as its first returns",
    Added: NONE, Quick: NONE, Huge: NONE, Negative: NONE, OfInput: NONE, Alternating: NONE,
    Normed: "its norm has parameters or buffers",
    Scaled: "it has parameters or buffers of its own",
    Twice: "its a is called more than once",
    Three: "3 of its layers read its input: a, b, d",
    Ends: "its end comes behind its last layer",
    Casts: "it casts to torch.bfloat16 between its products",
    Narrow: "gate and up have no product of their own: their 96 output channels are no multiple of "
    "64, to which rows are padded",
    Reversed: "its both has the rows of up before those of the gate",
}  # fmt: skip


@pytest.mark.parametrize("mlp", REASONS)
def test_what_is_no_such_mlp(mlp: type[nn.Module]) -> None:
    assert other(mlp).startswith(REASONS[mlp])


class Residual(MLP):
    """Returns no output of a layer, so that it is none of those that are told."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(K, INNER), nn.Linear(K, INNER), nn.Linear(INNER, K)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(functional.silu(self.a(x)) * self.b(x.clone()))


@pytest.mark.parametrize("mlp", (Residual, TwoInputs))
def test_other_modules(mlp: type[nn.Module]) -> None:
    report = mixed_gemm.fuse_(quantized(mlp), example_inputs=X, mlps=True)
    assert not report.mlps


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a hook": (
        lambda mlp: mlp.b.register_forward_hook(lambda *_: None), "of b, it has hooks",
    ),
    "a hook on the activation": (
        lambda mlp: mlp.act.register_forward_hook(lambda *_: None), "its act has hooks",
    ),
    "a forward": (
        lambda mlp: setattr(mlp, "forward", mlp.forward), "its forward is not that of its class",
    ),
    "a tied weight": (
        lambda mlp: setattr(mlp.b, "weight", mlp.a.weight),
        "of a, another module has its weight or its bias, too",
    ),
    "a dense layer": (
        lambda mlp: setattr(mlp, "b", nn.Linear(K, INNER)), "its b is a Linear",
    ),
    "another scheme": (
        lambda mlp: setattr(mlp, "b", mixed_gemm.Linear.from_float(nn.Linear(K, INNER), "w8a16")),
        "gate and up have no product of their own: of up, its scheme is int8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_keeps_layers_apart(change: str) -> None:
    model = quantized(MLP)
    apply, reason = CHANGES[change]
    for block in model.blocks:
        apply(block)
    wanted = model(X).detach()
    report = mixed_gemm.fuse_(model, example_inputs=X, mlps=True)
    assert not report.mlps and report.other_mlps["blocks.0"].startswith(reason)
    assert f"  blocks.* (2): {reason}" in str(report)
    with torch.no_grad():
        assert torch.equal(model(X), wanted)


def test_probes_leave_no_trace() -> None:
    model = quantized(MLP)
    before = [list(vars(x)) for x in model.modules()]
    heard: list[Tensor] = []
    handle = model.blocks[0].c.register_forward_hook(lambda m, args, out: heard.append(out))
    mixed_gemm.fuse_(model, example_inputs=X, mlps=True)
    handle.remove()
    mixed_gemm.unfuse_(model)
    assert [
        [x for x in vars(m) if x != "joint" and x != "place"] for m in model.modules()
    ] == before
    assert [x.shape for x in heard if x.numel()] == [(3, K)] * 2


def test_on_a_cpu_they_are_told_unless_they_are_asked_for() -> None:
    model = quantized(MLP)
    apart = copy.deepcopy(model)
    report = mixed_gemm.fuse_(model, example_inputs=X)
    assert not report.mlps and report.difference == 0 and len(report.sets) == 2
    assert report.other_mlps["blocks.0"].startswith("on a CPU its results would round otherwise")
    with torch.no_grad():
        assert torch.equal(model(X), apart(X))
    assert mixed_gemm.fuse_(quantized(Plain), example_inputs=X).other_mlps == {
        f"blocks.{i}": REASONS[Plain] for i in range(2)
    }


def test_train_mode_is_told() -> None:
    model = quantized(Packed).train()
    report = mixed_gemm.fuse_(model, example_inputs=X, mlps=True)
    assert report.mlps and report.training and "model.eval()" in str(report)
    assert all(x.training for x in model.modules())
