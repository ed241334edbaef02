"""``type(layer)(in, out, ...)`` makes the dense layer of torch.

Code that wants another layer of the same kind calls the class of the one it has, with torch's
arguments: peft builds the two halves of an adapter of a convolution this way, and trains them. A
quantized layer of zeros could not be trained.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from torch import nn

_OF_TORCH = {"device", "dtype"}  # keywords that torch's constructors have as well


class DenseUnlessAsked(nn.Module):
    """A base of modules that subclass a layer of torch: a class that is called without any of its
    keywords on how to quantize makes the layer of torch.

    This holds for classes that name their ``dense_class``. A subclass with a constructor of its own
    that names none is left alone, since only it knows what its arguments mean.
    """

    dense_class: ClassVar[type[nn.Module]]
    quantizing: ClassVar[frozenset[str]] = frozenset()  # keywords that ask for a quantized layer

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("__init__")
        if own is None:
            return
        found = inspect.signature(own).parameters.values() if "dense_class" in cls.__dict__ else ()
        named = {x.name for x in found if x.kind is x.KEYWORD_ONLY}
        cls.quantizing = frozenset(named - _OF_TORCH)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        is_bare = not (args or kwargs)  # as copy and pickle make an object that they fill
        if is_bare or not cls.quantizing or cls.quantizing & kwargs.keys():
            return super().__new__(cls)
        return cls.dense_class(*args, **kwargs)
