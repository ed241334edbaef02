"""An output head that multiplies by the weight of a quantized embedding, of which no file has a
tensor: the two are one parameter once the embedding is loaded.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ...nn.linear import Linear
from .offload import Place
from .pending import stand_in


class PendingHead(nn.Linear):
    """The head until then, with its attributes, and without parameters, which transformers would
    miss in the files.

    Args:
        module: the head, without a bias.
    """

    def __init__(self, module: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(module.__dict__)
        self._parameters = {"bias": None}
        self.__dict__["weight"] = stand_in(module.weight)

    def finish(self, name: str, weight: Any, place: Place | None) -> Any:
        """Return the head.

        Args:
            name: of the head in the model. weight: the parameter of the embedding, with storage.
            place: where accelerate wants the embedding. On disk the head has tensors of its own.
        """
        made = Linear.from_weight(weight)
        made.weight = weight  # the very parameter, as whoever ties weights looks for
        made.eval()
        return made if place is None else place.put(name, made)
