"""Read and write quantized checkpoints of others::

    checkpoint = mixed_gemm.formats.open_checkpoint("model-AWQ/")
    for weight in checkpoint:                  # QuantizedWeight, one at a time
        layer = weight.to_linear(torch.bfloat16)
    mixed_gemm.formats.save_checkpoint(checkpoint, "model-compressed-tensors/")

Formats: AWQ (gemm, gemv, gemv_fast, llm-awq), GPTQ v1 and v2, compressed-tensors, float8 of
DeepSeek, bitsandbytes, ModelOpt, GGUF.
"""

from ..weights.exchange import QuantizedWeight
from .checkpoint import Checkpoint, open_checkpoint
from .errors import CheckpointError, CheckpointWarning
from .layer import LayerInfo
from .save import save_checkpoint

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointWarning",
    "LayerInfo",
    "QuantizedWeight",
    "open_checkpoint",
    "save_checkpoint",
]
