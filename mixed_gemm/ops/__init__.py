"""The ops, typed. Each is one call of ``torch.ops.mixed_gemm.<name>``; what is added here is the
exception of the right type (``errors``) and the ImportError when the library did not load.

Importing this package registers fake kernels, gradients, autocast, vmap, FLOP formulas and, once
somebody imports torch.distributed.tensor, what DTensors need (``registry``), so direct calls of
``torch.ops.mixed_gemm.*`` have them too.
"""

from .. import _library

if _library.available:
    from . import registry

    registry.register()

from . import families
from .block import block_sums
from .conv_int8 import weight_sums
from .families import *  # noqa: F403  # what mixed_gemm has, too
from .repack import awq_repack, gptq_repack
from .scaled import azp_adjustment

__all__ = ["awq_repack", "azp_adjustment", "block_sums", "gptq_repack", "weight_sums"]
__all__ += families.__all__
