"""Random operands to time a GEMM on: enough copies of the weight that no cache serves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ..ops.layout import pack
from ..ops.problem import integer_range, num_groups
from ..weights.scheme import Scheme

# The copies of a weight are together this many times the L2 of the GPU: on an H200 300 MB, with
# which every committed result was measured.
COPIES_OF_CACHE = 6
# Bytes of all copies on the CPU: there is no portable way to ask for its caches.
CPU_BYTES = 256 << 20
MAX_COPIES = 64  # a weight may be so small that no number of copies would be read from memory


@dataclass(frozen=True)
class Weight:
    """The settings that the time of a product depends on besides M."""

    n: int
    k: int
    scheme: Scheme
    dtype: torch.dtype

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")


def copies_for(nbytes: int, device: torch.device) -> int:
    """Return how many copies of a weight of ``nbytes`` exceed the caches of ``device``: 2 to 64. A
    call that takes the next copy each time then finds its weight in memory, as a layer of a model
    does."""
    together = CPU_BYTES
    if device.type == "cuda":
        together = COPIES_OF_CACHE * int(torch.cuda.get_device_properties(device).L2_cache_size)
    return max(2, min(MAX_COPIES, together // max(1, nbytes) + 1))


class Operands:
    """Random copies of one weight."""

    def __init__(self, weight: Weight, device: torch.device) -> None:
        n, k, s = weight.n, weight.k, weight.scheme
        low, high = integer_range(s.weight_type)
        integers = torch.randint(low, high + 1, (n, k), dtype=torch.int8, device=device)
        first = pack(integers, s.weight_type)
        count = copies_for(first.numel(), device)
        groups = num_groups(k, s.group_size)
        make = partial(torch.rand, groups, n, device=device, dtype=weight.dtype)
        # Make other bytes in each copy, all valid: rolled rows of the packed weight.
        self.packed = [torch.roll(first, i, 0) for i in range(count)]
        self.scales = [make() * 0.02 + 0.001 for _ in range(count)]
        self.zeros = [make() if s.has_zeros else None for _ in range(count)]
        self.weight, self.device = weight, device

    @property
    def nbytes(self) -> int:
        """Bytes of one copy: a product must read them besides the activations."""
        parts = (self.packed[0], self.scales[0], self.zeros[0])
        return sum(part.nbytes for part in parts if part is not None)

    def activations(self, m: int) -> torch.Tensor:
        return torch.randn(m, self.weight.k, device=self.device, dtype=self.weight.dtype)

    def calls(self, a: torch.Tensor, config: str) -> Sequence[partial[torch.Tensor]]:
        """Return one product for each copy, with a configuration that plan() lists."""
        op, options = torch.ops.mixed_gemm.fpA_intB_gemm_config, self.weight.scheme.gemm_options
        return [
            partial(op, a, b, scales, zeros, config=config, **options)
            for b, scales, zeros in zip(self.packed, self.scales, self.zeros, strict=True)
        ]
