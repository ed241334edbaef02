"""How the ops take part in differentiation: one kernel at the Autograd key for all of them, driven
by the ``Derivatives`` in the record of each (``op.Op``).

``torch.library.register_autograd`` has no forward mode and refuses the transforms of torch.func, so
the kernel applies an ``autograd.Function`` of its own. torch.func peels its transforms off one by
one, and calls this kernel once for each of grad and jvp, with tensors of that transform: what
happens here happens at a single level, as in torch's own derivatives, and the call below the
Autograd key goes to the next transform.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from .library import LIBRARY

_aten = torch.ops.aten


def _silu_derivative(v: Tensor, x: Tensor) -> Tensor:
    # aten's formula has no derivative of its own; it is the faster one where none can be asked for.
    if not torch.is_grad_enabled() and not transforms_active():
        out: Tensor = _aten.silu_backward(v, x)
        return out
    x = x.float()
    # sigmoid(-x) is 1 - sigmoid(x) without its cancellation.
    return (v * (torch.sigmoid(x) * (1 + x * torch.sigmoid(-x)))).to(v.dtype)


# activation -> f(v, pre-activation): v times the derivative there. It acts on each element alone,
# so it is its own transpose and serves gradients and tangents alike.
ACTIVATION_DERIVATIVE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda v, x: _aten.threshold_backward(v, x, 0),
    "relu6": lambda v, x: _aten.hardtanh_backward(v, x, 0, 6),
    "gelu": lambda v, x: _aten.gelu_backward(v, x),
    "gelu_tanh": lambda v, x: _aten.gelu_backward(v, x, approximate="tanh"),
    "silu": _silu_derivative,
}


@dataclass(frozen=True)
class Saved:
    """The part of a call that a derivative may read: its arguments by name (without those that its
    rule does not read, so that no activations are kept alive), the shapes of the first argument
    that trains and of the first result, and the results that its rule keeps."""

    op: torch._ops.OpOverload[..., Any]
    arguments: dict[str, Any]
    x_shape: torch.Size
    output_shape: torch.Size
    kept: tuple[Tensor, ...] = ()

    def linear(self, **changes: Tensor | None) -> Tensor:
        """Call the op without its activation."""
        arguments = {**self.arguments, **changes}
        if "activation" in arguments:
            arguments["activation"] = "identity"
        out: Tensor = self.op(**arguments)
        return out

    def through_activation(self, v: Tensor) -> Tensor:
        """Multiply ``v`` by the derivative of the activation. The pre-activation is computed again,
        by the op, so that second derivatives go through it."""
        activation = self.arguments.get("activation", "identity")
        if activation == "identity":
            return v
        return ACTIVATION_DERIVATIVE[activation](v, self.linear())


@dataclass(frozen=True)
class Rule:
    """Derivatives of an op that computes activation(L(x) + bias) with a linear L.

    x: the argument that L is linear in; "" where only the bias trains.
    bias: the argument that is added; "" where there is none.
    forward: (saved, dx, dbias or None) -> L(dx) + dbias.
    backward: (saved, grad) -> the transpose of L, applied to ``grad``.
    channel: the dimension of the result that the bias runs along.
    spread: (saved, dbias) -> dbias as it is added to the result, where a row has one of several.
    collect: (saved, grad) -> the transpose of that.
    """

    x: str
    bias: str
    forward: Callable[[Saved, Tensor, Tensor | None], Tensor] | None = None
    backward: Callable[[Saved, Tensor], Tensor] | None = None
    channel: int = -1
    spread: Callable[[Saved, Tensor], Tensor] | None = None
    collect: Callable[[Saved, Tensor], Tensor] | None = None
    keeps: ClassVar[tuple[int, ...]] = ()

    @property
    def trained(self) -> tuple[str, ...]:
        return tuple(name for name in (self.x, self.bias) if name)

    def unread(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return self.trained if arguments.get("activation", "identity") == "identity" else ()

    def tangent(self, saved: Saved, tangents: Mapping[str, Tensor]) -> Tensor:
        dx, dbias = tangents.get(self.x), tangents.get(self.bias)
        if dx is not None:
            assert self.forward is not None
            return saved.through_activation(self.forward(saved, dx, dbias))
        assert dbias is not None  # torch asks for a tangent only where an argument has one
        if self.spread is not None:
            return saved.through_activation(self.spread(saved, dbias))
        for _ in range(-1 - self.channel):
            dbias = dbias.unsqueeze(-1)
        return saved.through_activation(dbias.expand(saved.output_shape))

    def bias_gradient(self, saved: Saved, grad: Tensor) -> Tensor:
        if self.collect is not None:
            return self.collect(saved, grad)
        others = [dim for dim in range(grad.dim()) if dim != grad.dim() + self.channel]
        return grad.sum(others) if others else grad

    def gradients(self, saved: Saved, grad: Tensor, names: list[str]) -> dict[str, Tensor]:
        grad = saved.through_activation(grad)
        found = {}
        if self.x in names:
            assert self.backward is not None
            found[self.x] = self.backward(saved, grad)
        if self.bias in names:
            found[self.bias] = self.bias_gradient(saved, grad)
        return found


@dataclass(frozen=True)
class Formulas:
    """Derivatives of an op that is another function of its arguments. They are those of its first
    result; the others have none.

    trained: the arguments that train.
    backward: (saved, gradient of the result, argument) -> its gradient.
    forward: (saved, tangents by argument) -> that of the result.
    drops: arguments that neither reads.
    keeps: places of results that they read.
    """

    trained: tuple[str, ...]
    backward: Callable[[Saved, Tensor, str], Tensor]
    forward: Callable[[Saved, Mapping[str, Tensor]], Tensor]
    drops: tuple[str, ...] = ()
    keeps: tuple[int, ...] = ()

    def unread(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return self.drops

    def tangent(self, saved: Saved, tangents: Mapping[str, Tensor]) -> Tensor:
        return self.forward(saved, tangents)

    def gradients(self, saved: Saved, grad: Tensor, names: list[str]) -> dict[str, Tensor]:
        return {name: self.backward(saved, grad, name) for name in names}


def through_op(x: str, bias: str = "") -> Callable[[Saved, Tensor, Tensor | None], Tensor]:
    """``Rule.forward`` of an op that is its own tangent map: it multiplies tangents as it does
    ``x``."""

    def forward(saved: Saved, dx: Tensor, dbias: Tensor | None) -> Tensor:
        return saved.linear(**{x: dx}, **({bias: dbias} if bias else {}))

    return forward


@dataclass(frozen=True)
class Derivatives:
    """How one op is differentiated.

    why: the reason and the hint for every argument that does not train, after "scales requires
        grad, but"; "{name}" stands for the argument.
    rule: of the arguments that train; None where there are none.
    whys: the reason for single arguments, by name, where it is another one.
    """

    why: str
    rule: Rule | Formulas | None = None
    whys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def trains(self, name: str) -> bool:
        return self.rule is not None and name in self.rule.trained


def transforms_active() -> bool:
    """Whether tensors may carry tangents, or are those of a transform of torch.func: then no call
    may go around the Autograd key. Not for code that torch.compile traces."""
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def has_tangent(x: Tensor) -> bool:
    # Not forward_ad.unpack_dual, which looks at a level that compiled code does not set.
    return x.is_floating_point() and torch._VF._unpack_dual(x, level=0)[1] is not None


def _primal(x: Tensor | None) -> Tensor | None:
    if x is None or not x.is_floating_point():
        return x
    primal: Tensor = torch._VF._unpack_dual(x, level=0)[0]
    return primal


def refusal(where: str, name: str, what: str, why: str) -> RuntimeError:
    return RuntimeError(f"{where}: {name} {what}, but {why.format(name=name)}")


@dataclass(frozen=True)
class _Op:
    """An op, how it is differentiated, and what its schema says."""

    name: str
    row: Derivatives
    overload: torch._ops.OpOverload[..., Any]
    positional: tuple[str, ...]
    defaults: dict[str, Any]

    @classmethod
    def of(cls, name: str, row: Derivatives) -> _Op:
        overload = getattr(torch.ops.mixed_gemm, name).default
        arguments = overload._schema.arguments
        return cls(
            name,
            row,
            overload,
            tuple(x.name for x in arguments if not x.kwarg_only),
            {x.name: x.default_value for x in arguments if x.has_default_value()},
        )

    def refuse_frozen(self, args: tuple[Any, ...], training: bool) -> None:
        """Raise for an argument without a derivative that asks for one."""
        for name, x in zip(self.positional, args, strict=False):
            if not isinstance(x, Tensor) or self.row.trains(name):
                continue
            if training and x.requires_grad:
                what = "requires grad"
            elif has_tangent(x):
                what = "has a tangent"
            else:
                continue
            why = self.row.whys.get(name, self.row.why)
            raise refusal(f"mixed_gemm::{self.name}", name, what, why)


class _Call:
    """One call of an op: its arguments that are no tensors, and the modes it was made in."""

    __slots__ = ("forward_mode", "grad_mode", "keyset", "op", "options", "transformed")

    def __init__(
        self, op: _Op, keyset: torch._C.DispatchKeySet, options: dict[str, Any], transformed: bool
    ) -> None:
        self.op = op
        self.keyset = keyset
        self.options = options
        self.transformed = transformed
        self.grad_mode = torch.is_grad_enabled()
        self.forward_mode = torch._C._is_fwd_grad_enabled()

    def below(self, args: tuple[Any, ...]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return self.op.overload.redispatch(
                self.keyset & torch._C._after_autograd_keyset, *args, **self.options
            )


class _Derivative(_SingleLevelFunction):
    """The Function behind every op that trains; its first argument is the ``_Call``.

    It is what torch.func makes of a Function for one transform: Function.apply itself would start
    over at the first one."""

    _compiled_autograd_key = torch.autograd.Function._compiled_autograd_key

    @classmethod
    def run(cls, call: _Call, *args: Any) -> Any:
        apply: Callable[..., Any] = cls.apply  # type: ignore[attr-defined]
        if not call.transformed:
            return apply(call, *args)
        with enable_single_level_autograd_function():
            return apply(call, *args)

    @staticmethod
    def forward(call: _Call, *args: Any) -> Any:
        if not call.transformed:
            return call.below(args)
        # A Function turns both modes off, and the next transform must find them as they were.
        with (
            torch.set_grad_enabled(call.grad_mode),
            forward_ad._set_fwd_grad_enabled(call.forward_mode),
        ):
            return call.below(args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        call, *args = inputs
        op, rule = call.op, call.op.row.rule
        # The dispatcher drops what equals a default.
        arguments = {**op.defaults, **dict(zip(op.positional, args, strict=False)), **call.options}
        results = output if isinstance(output, tuple) else (output,)
        ctx.results = len(results)
        ctx.mark_non_differentiable(*results[1:])
        ctx.x_shape = arguments[rule.trained[0]].shape
        ctx.output_shape = results[0].shape
        arguments.update({name: None for name in rule.unread(arguments)})
        tensors = {name: x for name, x in arguments.items() if isinstance(x, Tensor)}
        ctx.call, ctx.names, ctx.arguments = call, tuple(tensors), arguments
        for name in tensors:
            arguments[name] = None
        ctx.set_materialize_grads(False)
        kept = [results[i] for i in rule.keeps]
        ctx.save_for_backward(*tensors.values(), *kept)
        if call.transformed:
            ctx.save_for_forward(*tensors.values(), *kept)

    @staticmethod
    def saved(ctx: Any, tensors: tuple[Any, ...]) -> Saved:
        count = len(ctx.names)
        arguments = {**ctx.arguments, **dict(zip(ctx.names, tensors[:count], strict=True))}
        return Saved(
            ctx.call.op.overload, arguments, ctx.x_shape, ctx.output_shape, tensors[count:]
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        results: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        grad = grads[0]
        if grad is None:
            return tuple(results)
        op, rule = ctx.call.op, ctx.call.op.row.rule
        # The first argument is the call; the dispatcher drops trailing ones that are None.
        needed = {
            op.positional[i - 1]: i for i, needed in enumerate(ctx.needs_input_grad) if needed
        }
        found = rule.gradients(_Derivative.saved(ctx, ctx.saved_tensors), grad, list(needed))
        for name, i in needed.items():
            results[i] = found[name]
        return tuple(results)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor | tuple[Tensor | None, ...]:
        op, rule = ctx.call.op, ctx.call.op.row.rule
        given = dict(zip(op.positional, tangents[1:], strict=False))
        # The saved tensors are the dual ones. With their tangents taken off, the derivative can run
        # with forward mode on, for the transforms around this one.
        saved = _Derivative.saved(ctx, tuple(map(_primal, ctx.saved_tensors)))
        with forward_ad._set_fwd_grad_enabled(ctx.call.forward_mode):
            trained = {name: x for name, x in given.items() if x is not None}
            tangent: Tensor = rule.tangent(saved, trained)
        return tangent if ctx.results == 1 else (tangent, *[None] * (ctx.results - 1))


def _kernel(name: str, row: Derivatives) -> Callable[..., Any]:
    op = _Op.of(name, row)
    function: Any = type(name, (_Derivative,), {})  # grad_fn then has the name of the op
    redispatch, after = op.overload.redispatch, torch._C._after_autograd_keyset

    def kernel(keyset: torch._C.DispatchKeySet, *args: Any, **options: Any) -> Any:
        transformed = transforms_active()
        training = torch.is_grad_enabled() and torch._C._any_requires_grad(*args)
        if transformed or training:
            op.refuse_frozen(args, training)
            if row.rule is not None:
                return function.run(_Call(op, keyset, options, transformed), *args)
        with torch._C._AutoDispatchBelowAutograd():
            return redispatch(keyset & after, *args, **options)

    return kernel


# Registrations last as long as this object.
_TWINS = torch.library.Library("mixed_gemm", "FRAGMENT")  # type: ignore[no-untyped-call]


def _twin_of(op: str) -> str:
    """The op whose Autograd key has the kernel in Python, for the calls that the one in C++ passes
    on (csrc/ops/autograd/gate.cpp)."""
    schema = str(getattr(torch.ops.mixed_gemm, op).default._schema)
    twin = f"_autograd_{op}"
    _TWINS.define(schema.replace(f"mixed_gemm::{op}(", f"{twin}(", 1))  # type: ignore[no-untyped-call]
    return twin


def register(rows: Mapping[str, Derivatives]) -> None:
    """Put the kernel of every op, by name, on the Autograd key."""
    for name, row in rows.items():
        in_cpp = torch._C._dispatch_has_kernel_for_dispatch_key(f"mixed_gemm::{name}", "Autograd")
        target = _twin_of(name) if in_cpp else name
        LIBRARY.impl(target, _kernel(name, row), "Autograd", with_keyset=True)  # type: ignore[no-untyped-call]
