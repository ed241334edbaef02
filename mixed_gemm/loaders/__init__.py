"""Read and write quantized checkpoints of others::

checkpoint = mixed_gemm.loaders.open_checkpoint("model-AWQ/")
for weight in checkpoint:                  # QuantizedWeight, one at a time
    layer = weight.to_linear(torch.bfloat16)
"""

from .checkpoint import Checkpoint, open_checkpoint
from .errors import CheckpointError, CheckpointWarning
from .layer import LayerInfo
from .weight import QuantizedWeight

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointWarning",
    "LayerInfo",
    "QuantizedWeight",
    "open_checkpoint",
]
