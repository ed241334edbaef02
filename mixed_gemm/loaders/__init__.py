"""Read and write quantized checkpoints of others::

    checkpoint = mixed_gemm.loaders.open_checkpoint("model-AWQ/")
    for weight in checkpoint:                  # QuantizedWeight, one at a time
        layer = weight.to_linear(torch.bfloat16)
    mixed_gemm.loaders.save_checkpoint(checkpoint, "model-compressed-tensors/")

Formats: AWQ (gemm, gemv, gemv_fast, llm-awq), GPTQ v1 and v2, compressed-tensors.
"""

from .checkpoint import Checkpoint, open_checkpoint
from .dense import DenseCheckpoint
from .errors import CheckpointError, CheckpointWarning
from .layer import LayerInfo
from .save import save_checkpoint
from .weight import QuantizedWeight

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointWarning",
    "DenseCheckpoint",
    "LayerInfo",
    "QuantizedWeight",
    "open_checkpoint",
    "save_checkpoint",
]
