"""The parts of a quantized weight as an ordinary object: what a module multiplies by.

A tensor subclass among the inputs of a compiled graph costs Python at every call: the guard of
torch.compile flattens it and AOTAutograd takes it apart. A ``PlainWeight`` is no tensor. Dynamo
looks through it and finds plain tensors, which become the inputs of the graph, and constants, which
are guarded in C++.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tensor import QuantizedTensor

# Names that a kind of weight defines for the tensor that it is.
_OF_THE_TENSOR = frozenset(
    ("adopt", "data", "plain", "requires_grad", "requires_grad_", "stored_alike", "with_parts")
)


class PlainWeight:
    """The parts, scheme, shape and dtype of a weight, with those methods of its kind that read no
    more than these (``product`` and what it calls).

    It is no copy: its tensors are the weight's own, so what writes into them in place needs no
    word. ``QuantizedTensor`` brings its one ``PlainWeight`` in line whenever a part is replaced,
    and tells the modules that hold it when the weight changes places with another tensor.
    """

    holders: weakref.WeakSet[Any] | None = None  # modules with a method ``follow_weight``
    is_stacked: bool = False  # whether the parts are views of those of all experts of a layer

    def hold(self, weight: QuantizedTensor) -> None:
        """Take the parts of ``weight``."""
        self.scheme, (self.shape, self.dtype) = weight.scheme, weight.dense_form
        self.scheme.work_out_options()
        for part in weight.parts:
            setattr(self, part.name, getattr(weight, part.name))

    def held_by(self, module: Any) -> None:
        """Tell ``module`` by its method ``follow_weight`` when the weight becomes another one."""
        if self.holders is None:
            self.holders = weakref.WeakSet()
        self.holders.add(module)

    def tell(self) -> None:
        """Have all who hold this look at their weight again."""
        for module in list(self.holders or ()):
            module.follow_weight()

    def part_replaced(self) -> None:
        """Tell those who hold a stack of which the old part was a view."""
        for module in self.holders or ():
            module.tell_watch()

    def __getstate__(self) -> dict[str, Any]:
        """Copies are held by nobody."""
        return {name: x for name, x in self.__dict__.items() if name != "holders"}


@functools.cache
def plain_kind(kind: type[QuantizedTensor], above: type) -> type[PlainWeight]:
    """The class of the ``PlainWeight`` of a kind of weight.

    Args:
        kind: ``IntegerWeight``, for example.
        above: a base of it; what classes below that one define are functions of the parts, and work
            without a tensor.
    """
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__[: kind.__mro__.index(above)]):
        defined = {k: v for k, v in vars(base).items() if not k.startswith("__")}
        found.update((k, v) for k, v in defined.items() if k not in _OF_THE_TENSOR)
    return type(f"Plain{kind.__name__}", (PlainWeight,), found)
