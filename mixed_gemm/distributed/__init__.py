"""Several processes, each with a shard of a model: how ops and quantized weights are sharded, how
the shards of a layer are read from files, and sums over ranks. ``mixed_gemm.parallel`` has the
public names.

Importing this leaves torch.distributed.tensor alone, which takes longer than all of
``mixed_gemm``; what DTensors need is registered once somebody else imports that.
"""

from __future__ import annotations

from .. import _library
from .._after_import import after_import
from . import collectives as _answers_collectives  # noqa: F401


def _register() -> None:
    from . import op_rules, plain_shard, weight  # noqa: F401

    if _library.available:
        from ..ops import registry

        op_rules.register(registry.shardings())


after_import("torch.distributed.tensor", _register)
