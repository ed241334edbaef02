"""``MixedGemmConfig``: the quantization_config of transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from transformers.utils.quantization_config import QuantizationConfigMixin

from ...ops.errors import wrong_value
from ...quantization.options import rows_scheme
from ...quantization.stream import fitting_group
from ...weights.scheme import Scheme, refined
from .registration import FLOAT8, METHOD

WHERE = "MixedGemmConfig"


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
        embeddings, heads: whether embeddings and output heads are quantized, too, and by which
            scheme, as in ``mixed_gemm.quantization.Options``: "w8a16" for both is
            ``MixedGemmConfig(embeddings="w8a16", heads="w8a16")``. ``modules_to_not_convert``
            counts. ``ragged`` is for their groups as well.
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
        embeddings: bool | str | Scheme | Mapping[str, Any] = False,
        heads: bool | str | Scheme | Mapping[str, Any] = False,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise ValueError(f"{WHERE} has no {', '.join(sorted(unknown))}")
        if quant_method != METHOD:
            raise ValueError(f"{WHERE}: quant_method must be {METHOD}, got {quant_method}")
        if float8 not in FLOAT8:
            wrong_value(WHERE, "float8", f"be one of {FLOAT8}", repr(float8))
        asked = Scheme.from_dict(scheme) if isinstance(scheme, Mapping) else scheme
        found = refined(
            WHERE, asked, bits=bits, group_size=group_size, symmetric=symmetric,
            zero_mode=zero_mode, activations=activations,
        )  # fmt: skip
        rows, ends = _as_asked(embeddings), _as_asked(heads)
        rows = rows if isinstance(rows, bool) else rows_scheme(WHERE, rows)
        ends = ends if isinstance(ends, bool) else refined(WHERE, ends)
        _refuse_static(found)
        if not isinstance(ends, bool):
            _refuse_static(ends)
        self.quant_method: Any = METHOD
        self.scheme = found.as_dict()  # as JSON: transformers writes attributes into config.json
        skip = modules_to_not_convert
        self.modules_to_not_convert = None if skip is None else list(skip)
        self.weight_only = weight_only
        self.float8 = float8
        self.ragged = ragged
        self.fuse = fuse
        self.embeddings = rows if isinstance(rows, bool) else rows.as_dict()
        self.heads = ends if isinstance(ends, bool) else ends.as_dict()
        self.source = source

    def to_dict(self) -> dict[str, Any]:
        """Return the config as config.json has it; for quantized files, what the files say."""
        found: dict[str, Any] = super().to_dict() if self.source is None else dict(self.source)
        return found

    @property
    def weight_scheme(self) -> Scheme:
        """The ``Scheme`` that the arguments come to."""
        return Scheme.from_dict(self.scheme)

    @property
    def rows_scheme(self) -> bool | Scheme:
        """``embeddings``: a ``Scheme`` where one was given."""
        asked = self.embeddings
        return asked if isinstance(asked, bool) else Scheme.from_dict(asked)

    @property
    def heads_scheme(self) -> bool | Scheme:
        """``heads``: a ``Scheme`` where one was given."""
        return self.heads if isinstance(self.heads, bool) else Scheme.from_dict(self.heads)

    def scheme_for(self, k: int) -> Scheme:
        """Return the scheme of a layer that has none of its own.

        Args:
            k: its input channels.

        Raises:
            ValueError: the scheme has no groups of the size that ``k`` asks for.
        """
        return self.fitted(self.weight_scheme, k)

    def fitted(self, scheme: Scheme, k: int) -> Scheme:
        """Return the scheme of a layer.

        Args:
            scheme: that was asked for. k: its input channels.

        Raises:
            ValueError: the scheme has no groups of the size that ``k`` asks for.
        """
        if self.ragged or scheme.group_size == -1 or k % scheme.group_size == 0:
            return scheme
        return refined(WHERE, scheme, group_size=fitting_group(k, scheme.group_size))


def _as_asked(asked: bool | str | Scheme | Mapping[str, Any]) -> bool | str | Scheme:
    """Return a scheme for what config.json has of one."""
    return Scheme.from_dict(asked) if isinstance(asked, Mapping) else asked


def _refuse_static(scheme: Scheme) -> None:
    side = scheme.input_activations
    if side is not None and not side.dynamic:
        raise ValueError(
            f"{WHERE}: activations must be dynamic, got {scheme.activations!r}, which needs "
            "calibration. Hint: load the model, then mixed_gemm.quantize_(model, "
            f"'w8a8', activations={scheme.activations!r}, calibration=batches)"
        )


class ForeignConfig(MixedGemmConfig):
    """The config that ``enable_transformers`` puts in the place of AwqConfig, GPTQConfig, ...: it
    keeps all that the file says as ``source``."""

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        return MixedGemmConfig.from_dict({"source": dict(config_dict)}, **kwargs)
