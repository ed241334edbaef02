"""torch's first FSDP, ``FullyShardedDataParallel``, on quantized weights: a refusal.

It copies parameters into one flat tensor and lets slices of that take their places, which a weight
of several packed tensors is none of. Without a word here it would end at whichever operator comes
first. ``fully_shard`` shards such weights, and parameters that FullyShardedDataParallel is told to
ignore stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from torch import nn

from .._after_import import after_import
from ..ops.errors import ArgumentTypeError
from .tensor import QuantizedTensor


def _refuse_quantized(parameters: Iterable[Any], module: nn.Module) -> None:
    names = {id(x): name for name, x in module.named_parameters()}
    found = [
        names.get(id(x), "a weight")
        for x in parameters
        if isinstance(getattr(x, "_local_tensor", x), QuantizedTensor)
    ]
    if not found:
        return
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    raise ArgumentTypeError(
        f"FullyShardedDataParallel: parameters of {type(module).__name__} must be plain tensors, "
        f"got a QuantizedTensor for {found[0]}{more}: FSDP1 copies parameters into one flat "
        "tensor, which has no place for packed weights. Hint: FSDP2 shards them, "
        "torch.distributed.fsdp.fully_shard(model) (fsdp_version: 2 in accelerate); or "
        "FullyShardedDataParallel(model, ignored_states=[p for p in model.parameters() if "
        "isinstance(p, mixed_gemm.QuantizedTensor)]) keeps them whole on every rank"
    )


def _refuse_to_flatten() -> None:
    from torch.distributed.fsdp import _flat_param

    handle: Any = _flat_param.FlatParamHandle
    init = handle.__init__

    @functools.wraps(init)
    def checked(
        self: Any, params: Any, fully_sharded_module: Any, *args: Any, **kwargs: Any
    ) -> Any:
        params = list(params)
        _refuse_quantized(params, fully_sharded_module)
        return init(self, params, fully_sharded_module, *args, **kwargs)

    handle.__init__ = checked


after_import("torch.distributed.fsdp._flat_param", _refuse_to_flatten)
