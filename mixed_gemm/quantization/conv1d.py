"""Conv1D of transformers (GPT-2 and its relatives): a linear that holds its weight ``[K, N]``.

It is known by its name and not by its class, so that transformers need not be imported.
"""

from __future__ import annotations

from typing import Any

from torch import nn

# Types of models whose linears are Conv1D, and the names of these layers: files of dense tensors do
# not tell a Conv1D from a linear.
MODEL_TYPES = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
NAMES = ("c_attn", "c_proj", "c_fc", "q_attn")


def is_conv1d(module: nn.Module) -> bool:
    """Whether a module is exactly that class."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def as_linear(conv: Any) -> nn.Linear:
    """Return the linear that computes the same; weight and bias are views of those of ``conv``."""
    linear = nn.Linear(conv.nx, conv.nf, bias=False, device="meta", dtype=conv.weight.dtype)
    linear.weight = nn.Parameter(conv.weight.detach().t(), requires_grad=False)
    linear.register_parameter("bias", conv.bias)
    return linear.train(conv.training)


def as_conv1d(linear: nn.Linear) -> nn.Module:
    """Return the Conv1D that computes the same; the bias is shared."""
    from transformers.pytorch_utils import Conv1D

    conv: Any = Conv1D(linear.out_features, 0).to(linear.weight.dtype)
    conv.weight = nn.Parameter(linear.weight.detach().t().contiguous())
    conv.nx = linear.in_features
    if linear.bias is not None:
        conv.bias = linear.bias
    return conv.train(linear.training)  # type: ignore[no-any-return]
