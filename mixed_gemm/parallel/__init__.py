"""Several GPUs, beyond what torch's own ``parallelize_module`` and ``fully_shard`` do with
quantized layers: loading straight to a sharded model, and sums over ranks that cost little.

``import mixed_gemm`` leaves this alone, since it imports torch.distributed.tensor.
"""

from ..distributed.all_reduce import AllReduce
from ..distributed.expert_styles import ExpertParallel, ExpertTensorParallel
from ..distributed.load import load_parallel
from ..distributed.rowwise import RowwiseParallel

__all__ = [
    "AllReduce", "ExpertParallel", "ExpertTensorParallel", "RowwiseParallel", "load_parallel",
]  # fmt: skip
