"""transformers: load quantized checkpoints of others, quantize while loading, save and reload::

    model = mixed_gemm.from_pretrained("some/model-AWQ", dtype=torch.float16)
    mixed_gemm.enable_transformers(["awq", "gptq", "compressed-tensors"])    # then AutoModel does

Needs transformers >= 5.17 (``pip install mixed-gemm[hf]``), which is imported only when used; no
gptqmodel, autoawq, optimum or compressed-tensors.
"""

from ...quantization.experts import NAMES_IN_FILES
from ...quantization.model import AFTER_QUANTIZE
from .expert_names import names_in_files
from .pretrained import from_pretrained
from .registration import enable_transformers, require_transformers
from .saving import let_save_pretrained_write

AFTER_QUANTIZE.append(let_save_pretrained_write)
NAMES_IN_FILES.append(names_in_files)

__all__ = ["enable_transformers", "from_pretrained"]


def __getattr__(name: str) -> object:
    if name == "MixedGemmConfig":
        require_transformers()
        from .config import MixedGemmConfig

        return MixedGemmConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
