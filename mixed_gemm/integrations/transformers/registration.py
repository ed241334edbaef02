"""Make transformers know our quantizer, without importing transformers for those who do not use it.

transformers has no entry points for quantizers, and loads a model whose quant_method it does not
know with random weights and a warning. So ``import mixed_gemm`` must be enough to register: at once
when transformers is imported already, else right after it imports its table of quantizers.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from typing import Any

from packaging.version import Version

from ..._after_import import after_import

METHOD = "mixed_gemm"
OUR_FILES = ("compressed-tensors", "bitsandbytes_4bit", "mxfp4")  # as save_pretrained writes them
MINIMUM = Version("5.17")
# The choices for float8 weights of quantized files.
FLOAT8 = ("keep", "int8")
# quant_method of files that enable_transformers may take over
FOREIGN = ("awq", "gptq", "compressed-tensors", "fp8", "auto-round")
# and of files that transformers has no quantizer for
UNKNOWN_TO_TRANSFORMERS = ("modelopt",)
_TABLE = "transformers.quantizers.auto"


def _installed() -> Version | None:
    try:
        return Version(importlib.metadata.version("transformers"))
    except importlib.metadata.PackageNotFoundError:
        return None


def require_transformers() -> None:
    """Raise ImportError unless transformers is new enough; register our quantizer."""
    found = _installed()
    if found is None or found < MINIMUM:
        have = "is not installed" if found is None else f"is {found}"
        raise ImportError(
            f"mixed_gemm needs transformers >= {MINIMUM} for this, which {have}. Hint: pip install "
            "'mixed-gemm[hf]'"
        )
    register()


def register() -> None:
    """Add "mixed_gemm" to transformers' tables of quantizers; again is fine."""
    from transformers.quantizers import auto

    if METHOD in auto.AUTO_QUANTIZER_MAPPING:
        return
    from .config import MixedGemmConfig
    from .quantizer import MixedGemmQuantizer

    auto.register_quantization_config(METHOD)(MixedGemmConfig)
    auto.register_quantizer(METHOD)(MixedGemmQuantizer)
    table = auto.AUTO_QUANTIZATION_CONFIG_MAPPING
    for method in OUR_FILES:
        table[method] = _with_our_files(table[method])


def _with_our_files(stock: Any) -> Any:
    """Return the class that transformers makes of a config, but ours for files that this library
    wrote: they have a key of that name."""

    class Config(stock):
        @classmethod
        def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
            if METHOD in config_dict:
                from .config import ForeignConfig

                return ForeignConfig.from_dict(config_dict, **kwargs)
            return stock.from_dict(config_dict, **kwargs)

    Config.__name__ = stock.__name__  # transformers compares the names
    return Config


def not_quantized(path: object) -> str:
    """Return the complaint about files that are not quantized, where nothing says how to."""
    return (
        f"mixed_gemm.from_pretrained: {path} is not quantized. Hint: quantization_config="
        "mixed_gemm.MixedGemmConfig(bits=4) quantizes it while it loads"
    )


def enable_transformers(methods: str | Iterable[str] = FOREIGN) -> None:
    """Let ``AutoModel*.from_pretrained`` load files of these quantization methods with mixed_gemm.

    Args:
        methods: of "awq", "gptq", "compressed-tensors", "fp8" and "auto-round", all by default; and
            "modelopt", which transformers has no quantizer of its own for.

    Raises:
        ValueError: another method.
        ImportError: transformers is missing or too old.
    """
    chosen = (methods,) if isinstance(methods, str) else tuple(methods)
    known = (*FOREIGN, *UNKNOWN_TO_TRANSFORMERS)
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        raise ValueError(
            f"enable_transformers: methods must be among {known}, got {', '.join(unknown)}"
        )
    require_transformers()
    from transformers.quantizers import auto

    from .config import ForeignConfig

    for method in chosen:
        auto.AUTO_QUANTIZATION_CONFIG_MAPPING[method] = ForeignConfig


def register_when_imported() -> None:
    """Register now or when transformers is imported; nothing when it is missing or too old."""
    found = _installed()
    if found is None or found < MINIMUM:
        return
    after_import(_TABLE, register)
