"""GEMMs whose weights are stored in 4 or 8 bits. The main names::

    print(mixed_gemm.quantize_(model))             # every nn.Linear and nn.Conv2d, in place
    y = mixed_gemm.fpA_intB_gemm(a, b_packed, scales, bits=4, group_size=128)
    print(mixed_gemm.plan(1, 4096, 4096), mixed_gemm.env())
    mixed_gemm.tune(model)                         # measure the candidates on this GPU

Everything works on CPU and CUDA tensors, and says how in its docstring.
"""

import typing as _typing

from . import _library
from . import distributed as _shards_models  # noqa: F401
from . import ops as ops  # so that type checkers know these
from . import quantization as quantization
from . import selection as selection
from .doctor.environment import env
from .formats import CheckpointError, CheckpointWarning, open_checkpoint, save_checkpoint
from .integrations.peft import keep_names_of_experts as _keep_names_of_experts
from .integrations.transformers import enable_transformers, from_pretrained
from .integrations.transformers.registration import register_when_imported as _register
from .nn.conv import Conv2d
from .nn.conv_int8 import Int8Conv2d
from .nn.embedding import Embedding
from .nn.fused_moe import fused_moe
from .nn.gated_mlp import GatedMLP
from .nn.linear import Linear
from .ops import families as _ops
from .ops.families import *  # noqa: F403  # every public op
from .quantization.fuse import fuse_, unfuse_
from .quantization.fuse_report import FuseReport
from .quantization.model import quantize_
from .quantization.report import Report
from .selection.planning import plan, why_not
from .selection.tables import install_at_import as _install_tables
from .selection.tuning import tune
from .weights.rounding import quantize_weight
from .weights.rounding_conv import quantize_conv_weight
from .weights.scheme import Scheme
from .weights.stacked import StackedWeight
from .weights.tensor import QuantizedTensor

if _typing.TYPE_CHECKING:
    from .integrations.transformers.config import MixedGemmConfig as MixedGemmConfig

__version__ = _library.package_version()
_install_tables()
_register()
_keep_names_of_experts()

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "Conv2d",
    "Embedding",
    "FuseReport",
    "GatedMLP",
    "Int8Conv2d",
    "Linear",
    "MixedGemmConfig",
    "QuantizedTensor",
    "Report",
    "Scheme",
    "StackedWeight",
    "__version__",
    "enable_transformers",
    "env",
    "from_pretrained",
    "fuse_",
    "fused_moe",
    "open_checkpoint",
    "plan",
    "quantize_",
    "quantize_conv_weight",
    "quantize_weight",
    "save_checkpoint",
    "tune",
    "unfuse_",
    "why_not",
]
__all__ += _ops.__all__


def __getattr__(name: str) -> object:
    if name == "MixedGemmConfig":  # importing it imports transformers
        from .integrations.transformers import MixedGemmConfig

        return MixedGemmConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
