"""``MixedGemmConfig``: the quantization_config of transformers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transformers.utils.quantization_config import QuantizationConfigMixin

from ...weights.scheme import QuantScheme
from .registration import METHOD


class MixedGemmConfig(QuantizationConfigMixin):
    """Quantize an unquantized model while transformers loads it, layer by layer::

        AutoModelForCausalLM.from_pretrained(path, quantization_config=MixedGemmConfig(bits=4))

    Args:
        bits: 4 or 8.
        group_size: elements of K that share a scale, a multiple of 16; -1 is all of them.
        symmetric: no zero points; ``zero_mode`` is then ignored.
        zero_mode: "sub" or "add", as in ``mixed_gemm.Linear.from_float``.
        modules_to_not_convert: names or patterns of linears to leave in their dtype, on top of the
            output head and tied weights.
        source: the quantization_config of the format that the files have, when they are not ours
            (``mixed_gemm.from_pretrained`` and ``enable_transformers`` fill it in); the rest is
            then read from the files.

    Raises:
        ValueError: a field is out of range or unknown.
    """

    def __init__(
        self,
        bits: int = 4,
        group_size: int = 128,
        symmetric: bool = True,
        zero_mode: str = "sub",
        modules_to_not_convert: Iterable[str] | None = None,
        source: dict[str, Any] | None = None,
        quant_method: str = METHOD,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise ValueError(f"MixedGemmConfig has no {', '.join(sorted(unknown))}")
        if quant_method != METHOD:
            raise ValueError(f"MixedGemmConfig: quant_method must be {METHOD}, got {quant_method}")
        QuantScheme(bits, group_size, "none" if symmetric else zero_mode)
        self.quant_method: Any = METHOD
        self.bits = bits
        self.group_size = group_size
        self.symmetric = symmetric
        self.zero_mode = zero_mode
        skip = modules_to_not_convert
        self.modules_to_not_convert = None if skip is None else list(skip)
        self.source = source


class ForeignConfig(MixedGemmConfig):
    """What ``enable_transformers`` puts in the place of AwqConfig, GPTQConfig, ...: keeps all that
    the file says as ``source``."""

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        return MixedGemmConfig.from_dict({"source": dict(config_dict)}, **kwargs)
