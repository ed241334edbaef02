"""To torch.fx a quantized layer is a leaf of the graph, as the layer of torch is.

A leaf is called when the graph runs, with its hooks, and so computes the same bits. Tracers ask an
instance for its ``__module__``, and take what begins with "torch.nn" for leaves; torch.compile asks
for "torch.nn." with a dot, and so goes on looking into our layers. The class keeps a name of its
own, which pickle and documentation go by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.fx import Proxy

_AS_TORCH = "torch.nn"
Forward = TypeVar("Forward", bound=Callable[..., Any])


class LeafOfGraphs(nn.Module):
    """A base of modules that tracers of torch.fx take for leaves."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__new__(cls)
        made.__dict__["__module__"] = _AS_TORCH
        return made


def typed(forward: Forward) -> Forward:
    """Give a forward annotations that are types. Those that are text would be written into the code
    of a graph by torch.fx as they stand.

    Args:
        forward: f(self, input), from one tensor to another.
    """
    forward.__annotations__.update({"input": Tensor, "return": Tensor})
    return forward


def is_traced_through(input: Any) -> bool:
    """Whether torch.fx records what a forward does to ``input``: where the layer is the root of the
    graph, or a tracer takes nothing for a leaf.

    Args:
        input: what the forward was given.
    """
    return isinstance(input, Proxy)


def recorded(function: Callable[..., Any], input: Any, *rest: Any) -> Any:
    """Record a node of the graph that calls ``function`` when the graph runs.

    Args:
        function: defined at the top of a module, since a graph is pickled with its name.
        input: one that :func:`is_traced_through`. rest: other arguments; modules, too.
    """
    return input.tracer.create_proxy("call_function", function, (input, *rest), {})
