"""A dense linear around a weight that is there already: the constructor of ``nn.Linear`` draws one
at random, on the meta device, too, which takes longer than all else that is done for an expert.
"""

from __future__ import annotations

from torch import Tensor, nn


def linear_around(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A linear whose weight does not train.

    Args:
        weight: ``[N, K]``, shared.
        bias: ``[N]``, shared, or None; a parameter stays that parameter, and what is none becomes
            one that does not train.
    """
    made = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(made)
    made.out_features, made.in_features = weight.shape
    made.register_parameter("weight", nn.Parameter(weight, requires_grad=False))
    if bias is not None and not isinstance(bias, nn.Parameter):
        bias = nn.Parameter(bias, requires_grad=False)
    made.register_parameter("bias", bias)
    return made
