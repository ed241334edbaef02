"""How a weight is stored: ``QuantScheme``."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ..ops.problem import ZERO_MODES, check_bits, check_group_size, check_zero_mode


@dataclass(frozen=True)
class QuantScheme:
    """How a weight ``[N, K]`` is stored and what its real value is.

    Args:
        bits: 4 (q in -8..7) or 8 (q in -128..127).
        group_size: elements of K that share a scale: -1 (all of K) or a multiple of 16. The last
            group may be ragged: there are ceil(K / group_size).
        zero_mode: "none" is w = q * scale, "sub" is w = (q - zero) * scale (AWQ, GPTQ, HQQ),
            "add" is w = q * scale + zero (TensorRT-LLM, MNN).

    Raises:
        ValueError: a field is out of range; the text names the field and what is allowed.
    """

    bits: int = 4
    group_size: int = 128
    zero_mode: str = "none"

    def __post_init__(self) -> None:
        check_bits("QuantScheme", self.bits)
        check_group_size("QuantScheme", self.group_size)
        check_zero_mode("QuantScheme", self.zero_mode, ZERO_MODES)

    @property
    def has_zeros(self) -> bool:
        return self.zero_mode != "none"

    @property
    def op_zero_mode(self) -> str:
        """What the ops take: they read "none" off ``zeros`` being None."""
        return self.zero_mode if self.has_zeros else "sub"

    def as_dict(self) -> dict[str, int | str]:
        return asdict(self)

    def __str__(self) -> str:
        group = "per channel" if self.group_size == -1 else f"group {self.group_size}"
        zero = "symmetric" if not self.has_zeros else f"zeros {self.zero_mode!r}"
        return f"int{self.bits}, {group}, {zero}"
