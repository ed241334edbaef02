"""Which methods are for which packed codes."""

from __future__ import annotations

from ...ops.errors import ArgumentValueError
from ...weights.scheme import Scheme
from .autoround import AutoRound
from .distilled import Distilled
from .hqq import HQQ

# Methods of steps that are alike, or of scales that may be any number.
OF_INTEGERS = (HQQ, AutoRound, Distilled)


def refuse_unfit(where: str, method: object, name: str, scheme: Scheme) -> None:
    """Raise ValueError where a method does not know the codes of a layer.

    Args:
        where: who asks. method: an object. name: of the layer. scheme: of packed codes.
    """
    if scheme.is_weight_only or not isinstance(method, OF_INTEGERS):
        return
    raise ArgumentValueError(
        f"{where}: method must be None, 'rtn', 'awq', 'gptq' or 'awq+gptq' for codes that are no "
        f"integers, got {method} and {name} as {scheme}. Hint: method='gptq', or scheme='w4a16'"
    )
