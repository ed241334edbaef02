"""``MixedGemmConfig``: the quantization_config of transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from transformers.utils.quantization_config import QuantizationConfigMixin

from ...ops.errors import wrong_value
from ...quantization.stream import fitting_group
from ...weights.scheme import Scheme, refined
from .registration import FLOAT8, METHOD

_WHERE = "MixedGemmConfig"


class MixedGemmConfig(QuantizationConfigMixin):
    """Quantize an unquantized model while transformers loads it, layer by layer::

        config = MixedGemmConfig("w4a16", group_size=64)
        AutoModelForCausalLM.from_pretrained(path, quantization_config=config)

    Args:
        scheme: a name ("w4a16", "w8a16", "w8a8", "fp8", ...) or a ``mixed_gemm.Scheme``, as of
            ``mixed_gemm.quantize_``. Static activations need calibration: use ``quantize_``.
        bits, group_size, symmetric, zero_mode, activations: what of it is another way.
        modules_to_not_convert: names or patterns of linears to leave in their dtype, on top of the
            output heads, routers and tied weights that ``mixed_gemm.quantize_`` leaves by default.
        weight_only: of quantized files: leave activations in their dtype where the files ask for
            rounding them (W8A8, float8).
        ragged: where a K is no multiple of the group size: True leaves a smaller last group, and
            refuses a K that is smaller than it; False takes the largest multiple of 16 that divides
            K and is not larger, else one group, as ``mixed-gemm quantize`` does.
        float8: of quantized files: "keep" float8 weights as they are, or round them to "int8" in
            groups of 128, with activations left in their dtype.
        source: the quantization_config of the format that the files have, when they are not ours
            (``mixed_gemm.from_pretrained`` and ``enable_transformers`` fill it in); the rest is
            then read from the files.
        quant_method: "mixed_gemm", as config.json has it.
        fuse: whether linears that read the same tensor run as one product, as
            ``mixed_gemm.fuse_(model)`` makes them, with the example that it makes. Files keep the
            layers apart, and say nothing of it: ``mixed_gemm.from_pretrained(path, fuse=True)``
            fuses what is loaded from them.
        unknown: refused, by name.

    Attributes:
        weight_scheme: the ``Scheme`` that all of this comes to.

    Raises:
        ValueError: a field is out of range or unknown.
    """

    def __init__(
        self,
        scheme: str | Scheme | Mapping[str, Any] = "w4a16",
        bits: int | None = None,
        group_size: int | None = None,
        symmetric: bool | None = None,
        zero_mode: str | None = None,
        activations: str | None = None,
        modules_to_not_convert: Iterable[str] | None = None,
        weight_only: bool = False,
        float8: str = "keep",
        ragged: bool = True,
        source: dict[str, Any] | None = None,
        quant_method: str = METHOD,
        fuse: bool = False,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise ValueError(f"{_WHERE} has no {', '.join(sorted(unknown))}")
        if quant_method != METHOD:
            raise ValueError(f"{_WHERE}: quant_method must be {METHOD}, got {quant_method}")
        if float8 not in FLOAT8:
            wrong_value(_WHERE, "float8", f"be one of {FLOAT8}", repr(float8))
        asked = Scheme.from_dict(scheme) if isinstance(scheme, Mapping) else scheme
        found = refined(
            _WHERE, asked, bits=bits, group_size=group_size, symmetric=symmetric,
            zero_mode=zero_mode, activations=activations,
        )  # fmt: skip
        side = found.input_activations
        if side is not None and not side.dynamic:
            raise ValueError(
                f"{_WHERE}: activations must be dynamic, got {found.activations!r}, which needs "
                "calibration. Hint: load the model, then mixed_gemm.quantize_(model, "
                f"'w8a8', activations={found.activations!r}, calibration=batches)"
            )
        self.quant_method: Any = METHOD
        self.scheme = found.as_dict()  # as JSON: transformers writes attributes into config.json
        skip = modules_to_not_convert
        self.modules_to_not_convert = None if skip is None else list(skip)
        self.weight_only = weight_only
        self.float8 = float8
        self.ragged = ragged
        self.fuse = fuse
        self.source = source

    def to_dict(self) -> dict[str, Any]:
        """Return the config as config.json has it; for quantized files, what the files say."""
        found: dict[str, Any] = super().to_dict() if self.source is None else dict(self.source)
        return found

    @property
    def weight_scheme(self) -> Scheme:
        """The ``Scheme`` that the arguments come to."""
        return Scheme.from_dict(self.scheme)

    def scheme_for(self, k: int) -> Scheme:
        """Return the scheme of a layer.

        Args:
            k: its input channels.

        Raises:
            ValueError: the scheme has no groups of the size that ``k`` asks for.
        """
        found = self.weight_scheme
        if self.ragged or found.group_size == -1 or k % found.group_size == 0:
            return found
        return refined(_WHERE, found, group_size=fitting_group(k, found.group_size))


class ForeignConfig(MixedGemmConfig):
    """The config that ``enable_transformers`` puts in the place of AwqConfig, GPTQConfig, ...: it
    keeps all that the file says as ``source``."""

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        return MixedGemmConfig.from_dict({"source": dict(config_dict)}, **kwargs)
