"""The table of the ops that take tensors, and their registration with torch."""

from __future__ import annotations

from . import autograd, awq, block, conv, conv_int8, fake, gemm, layout, rounding, scaled
from .op import Op

OPS: tuple[Op, ...] = (
    *gemm.OPS,
    *scaled.OPS,
    *rounding.OPS,
    *block.OPS,
    *conv.OPS,
    *conv_int8.OPS,
    *awq.OPS,
    *layout.OPS,
)


def register() -> None:
    """Tell torch all that the records say. Once, after the library was loaded."""
    fake.register({op.name: op.fake for op in OPS if not isinstance(op.fake, str)})
    autograd.register({op.name: op.derivatives for op in OPS})
