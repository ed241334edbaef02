"""Scales that are a byte in files, and those beside them: powers of two (MXFP4), numbers of
float8_e4m3fn over a scale of the whole weight (NVFP4).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...weights.rounding_float4 import SCALES

# Every scale above 0 that a byte is, in rising order, float32.
_NUMBERS = {
    "e8m0": torch.ldexp(torch.ones(255, device="cpu"), torch.arange(-127, 128, device="cpu")),
    "e4m3": torch.arange(1, 127, dtype=torch.uint8, device="cpu").view(torch.float8_e4m3fn).float(),
}
# How many scales below and above the usual one are tried: factors from 0.5 to 2.
_BESIDE = {"e8m0": (1, 1), "e4m3": (6, 6)}


class ByteScales:
    """The scales of one weight.

    Args:
        scale_dtype: "e8m0" or "e4m3".
        whole: float32 ``[]``, by which the scales of files are divided, or None.
    """

    def __init__(self, scale_dtype: str, whole: Tensor | None) -> None:
        self._name, self.whole = scale_dtype, whole

    @classmethod
    def usual(cls, largest: Tensor, scale_dtype: str) -> tuple[ByteScales, Tensor]:
        """Return the scales of a weight, and the one that the format chooses for each group.

        Args:
            largest: float32 ``[...]``, the largest magnitude of each group.
            scale_dtype: as of the class.

        Returns:
            The scales, and what codes of each group are multiplied by, float32 ``[...]``.
        """
        scale, whole = SCALES[scale_dtype](largest)
        scales = cls(scale_dtype, whole)
        return scales, scales._real(scale)

    def _real(self, numbers: Tensor) -> Tensor:
        return numbers if self.whole is None else numbers / self.whole

    def _index(self, scale: Tensor) -> Tensor:
        numbers = _NUMBERS[self._name].to(scale.device)
        of_file = scale if self.whole is None else scale * self.whole
        return torch.bucketize(of_file.contiguous(), (numbers[1:] + numbers[:-1]) / 2)

    def of_file(self, scale: Tensor) -> Tensor:
        """Return the nearest scale that files have, float32.

        Args:
            scale: what codes are multiplied by, float32 ``[...]``.
        """
        return _NUMBERS[self._name].to(scale.device)[self._index(scale)]

    def nearest(self, scale: Tensor) -> Tensor:
        """Return the nearest that codes can be multiplied by.

        Args:
            scale: float32 ``[...]``.
        """
        return self._real(self.of_file(scale))

    def beside(self, scale: Tensor, most: int) -> Iterator[Tensor]:
        """Yield other scales, the nearest first.

        Args:
            scale: float32 ``[...]``, of this weight. most: how many.
        """
        numbers = _NUMBERS[self._name].to(scale.device)
        below, above = _BESIDE[self._name]
        steps = sorted((x for x in range(-below, above + 1) if x), key=lambda x: (abs(x), -x))
        at = self._index(scale)
        for step in steps[:most]:
            yield self._real(numbers[(at + step).clamp(0, len(numbers) - 1)])
