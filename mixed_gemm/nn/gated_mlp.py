"""``GatedMLP``: gate and up of an MLP in one product, the activation and the product with up in one
kernel behind it, then down.

``fuse_`` makes an MLP of a model one, in place: its class becomes a subclass of the one it had, and
its children, their names and its code stay. A call that is not exactly what was looked at when it
was made goes through that code: with gradients, in train mode, under autocast, in a transform or a
trace, with hooks or adapters on gate or up, with other weights, or with another activation.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from ..ops.errors import ArgumentTypeError, ArgumentValueError
from .gated_call import GatedCall, is_ordinary, side_by_side, why_no_pair
from .gates import Gate
from .joint import Joint
from .linear import Linear
from .plain_mlp import ACTIVATIONS, PlainMLP

# Attributes that may be replaced at will; `training` is looked at in each call.
_OF_CALLS = ("training", "forward", "call", "_hf_hook")


class GatedMLP(nn.Module):
    """An MLP ``down(activation(gate(x)) * up(x))`` in three ops: one product for gate and up,
    ``gated_activation``, the product of down.

    ``mixed_gemm.fuse_`` makes one of every MLP of a model for which it finds that this is what it
    computes; :meth:`from_modules` makes one of three layers. Children keep their names, so that
    state_dicts and files are those of the layers. With gradients, in train mode, and wherever gate
    or up are no longer two plain layers of this library (adapters, hooks, offloading, weights
    spread over ranks), the layers run one by one, as they did before.

    The activation is computed in fp32 and rounded once, behind the product with up; layers one by
    one round it before that, too.

    Attributes:
        own: the class that a module had before it became one; None of ``GatedMLP`` itself.
        gated_call: what runs; None where an attribute was replaced since it was found, or after
            ``unfuse_``, so that the code of ``own`` runs.
    """

    own: ClassVar[type[nn.Module] | None] = None
    gated_call: GatedCall | None = None

    @classmethod
    def from_modules(
        cls, gate: Linear, up: Linear, down: nn.Module, *, activation: str = "silu"
    ) -> GatedMLP:
        """An MLP with children ``gate_proj``, ``up_proj`` and ``down_proj``. The weights of gate
        and up become slices of one.

        Args:
            gate, up: ``[I, K]``, of one scheme, dtype and device. down: ``[N, I]``, of any kind.
            activation: silu, gelu, gelu_tanh or relu.

        Raises:
            TypeError: gate or up is no ``mixed_gemm.Linear``.
            ValueError: no activation has that name, gate and up have another number of rows, or
                their weights cannot be one.
        """
        where = "GatedMLP.from_modules"
        if activation not in ACTIVATIONS:
            raise ArgumentValueError(
                f"{where}: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}"
            )
        for name, layer in (("gate", gate), ("up", up)):
            if type(layer) is not Linear:
                raise ArgumentTypeError(
                    f"{where}: {name} must be a mixed_gemm.Linear, got {type(layer).__name__}. "
                    "Hint: mixed_gemm.Linear.from_float(linear)"
                )
        if reason := why_no_pair(gate, up):
            raise ArgumentValueError(f"{where}: gate and up must have one product, but {reason}")
        made = PlainMLP(gate, up, down, activation)
        Joint([gate, up])
        names = tuple(made._modules)
        make_gated(made, GatedCall(names[:2], names[2], Gate(activation)))
        assert isinstance(made, GatedMLP)
        return made

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As the MLP that it stands for.

        Args:
            args, kwargs: of that; one tensor ``[..., K]``.

        Returns:
            ``[..., N]``, in the dtype of the tensor.
        """
        found = None
        if self.gated_call is not None and len(args) == 1 and not kwargs:
            found = self._in_three(self.gated_call, args[0])
        if found is not None:
            return found
        if self.own is None:
            raise NotImplementedError(
                "GatedMLP: there are no layers. Hint: GatedMLP.from_modules(gate, up, down)"
            )
        return self.own.forward(self, *args, **kwargs)

    def _in_three(self, call: GatedCall, x: Any) -> Tensor | None:
        """The result in three ops; None where the layers are to run one by one."""
        if torch.is_grad_enabled() or self.training or not is_ordinary(x):
            return None
        modules: Any = self._modules
        layers = call.layers(modules)
        if layers is None:
            return None
        plain = layers[0].plain_weight
        if plain is None or plain.dtype != x.dtype:  # the code of the MLP may cast it
            return None
        if len(layers) == 1:
            whole: Tensor | None = layers[0](x)
        else:
            whole = side_by_side(layers, x)
        if whole is None:
            return None
        out: Tensor = modules[call.down](call.gate(whole))
        return out

    def __setattr__(self, name: str, value: Any) -> None:
        here = self.__dict__
        if name in here and here[name] is not value and name not in _OF_CALLS:
            here["gated_call"] = None  # a limit, say: the code of the MLP knows what it means
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Name the class that it was made of: no module has this one by a name."""
        found: Any = super().__reduce_ex__(protocol)
        return _empty, (self.own,), *found[2:]


@functools.cache
def _gated_class(own: Any) -> type[GatedMLP]:
    """The class of MLPs that were of class ``own``."""

    @functools.wraps(own.forward)  # whose signature torch.fx and torch.export go by
    def forward(self: GatedMLP, *args: Any, **kwargs: Any) -> Any:
        return GatedMLP.forward(self, *args, **kwargs)

    found = {"own": own, "forward": forward, "__module__": __name__, "__doc__": own.__doc__}
    return cast("type[GatedMLP]", type(f"Gated{own.__name__}", (GatedMLP, own), found))


def _empty(own: Any) -> GatedMLP:
    cls = _gated_class(own)
    return cls.__new__(cls)


def make_gated(module: nn.Module, call: GatedCall) -> None:
    """Let an MLP run in three ops, in place.

    Args:
        module: that computes what ``call`` says.
    """
    own: Any = type(module)
    module.__class__ = _gated_class(own)
    module.__dict__["gated_call"] = call


def unmake_gated(module: nn.Module) -> None:
    """Give a module back the class that it had.

    Args:
        module: any; one that is no ``GatedMLP`` stays as it is.
    """
    own: Any = module.own if isinstance(module, GatedMLP) else None
    if own is not None:
        module.__dict__.pop("gated_call", None)
        if type(module) is _gated_class(own):  # FSDP2, say, makes a class of that
            module.__class__ = own
