"""The configuration of gpt-oss's files in the words of compressed-tensors, whose reader reads the
experts that ``gpt_oss_files`` shows it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .compressed_tensors import CompressedTensors
from .layer import Config

# In words of compressed-tensors. Keys of the file's configuration say which layers stay dense.
_CONFIG: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "mxfp4-pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": 4, "type": "float", "strategy": "group", "group_size": 32,
                "symmetric": True, "dynamic": False, "scale_dtype": "torch.uint8",
            },
            "input_activations": None,
        }
    },
}  # fmt: skip


class GptOss(CompressedTensors):
    """The codec of these files."""

    def __init__(self, config: Config, where: Path) -> None:
        super().__init__(_CONFIG, where)
        self.title = "MXFP4 of gpt-oss"
