"""Parameters of vLLM's layers, as kernels need them."""

from __future__ import annotations

from torch import Tensor, nn


def replace(layer: nn.Module, name: str, values: Tensor | None) -> None:
    """Put a plain parameter in the place of vLLM's, which torch.compile would not trace; None is
    none.

    A tensor that keeps its address is what a captured graph reads, so weights that are loaded again
    are copied into it where the shapes are the same.
    """
    old = getattr(layer, name, None)
    if hasattr(layer, name) and name not in layer._parameters:
        delattr(layer, name)
    if values is None:
        layer.register_parameter(name, None)
        return
    if type(old) is nn.Parameter and (old.shape, old.dtype, old.device, old.stride()) == (
        values.shape,
        values.dtype,
        values.device,
        values.stride(),
    ):
        old.data.copy_(values)
        return
    layer.register_parameter(name, nn.Parameter(values, requires_grad=False))
