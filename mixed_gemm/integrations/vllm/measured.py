"""The kinds of weights and of GPUs for which our kernels were measured ahead of vLLM's own, in
vLLM's engine: ``MIXED_GEMM_VLLM=auto`` goes by them. A row is a kind of weights on a kind of GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AHEAD = 1.0


@dataclass(frozen=True)
class Measured:
    """A decode step of a model of Llama-3.1-8B's shape, of experts of Qwen3-30B-A3B's, with CUDA
    graphs, in bfloat16.

    Attributes:
        kernel: of ours, as ``offers.KERNELS`` names its module, or "experts".
        scheme: as :func:`scheme_of` names it.
        gpu: a word of the name that the driver gives the GPU.
        ratios: sequences of a step -> milliseconds of a step with our kernel, over those with the
            fastest of vLLM's.
    """

    kernel: str
    scheme: str
    gpu: str
    ratios: Mapping[int, float]

    @property
    def mean(self) -> float:
        """The geometric mean over the batches."""
        return math.exp(sum(map(math.log, self.ratios.values())) / len(self.ratios))


# benchmarks/results/vllm_engine_h100.json and vllm_engine_h200.json
MEASURED = (
    Measured("weight_only", "4 bits", "H100", {1: 0.8, 8: 0.85, 32: 0.88, 128: 0.87}),
    Measured("weight_only", "4 bits, zero points", "H100", {1: 0.66, 8: 0.77, 32: 0.72, 128: 0.83}),
    Measured("weight_only", "8 bits", "H100", {1: 0.69, 8: 0.77, 32: 0.84, 128: 0.85}),
    Measured("int8", "8 bits both, dynamic", "H100", {1: 0.93, 8: 0.92, 32: 0.95, 128: 0.99}),
    Measured("fp8", "float8, dynamic", "H100", {1: 0.96, 8: 0.94, 32: 1.0, 128: 0.94}),
    Measured("weight_only", "4 bits", "H200", {1: 0.75, 8: 0.79, 32: 0.77, 128: 0.87}),
    Measured("weight_only", "4 bits, zero points", "H200", {1: 0.65, 8: 0.68, 32: 0.73, 128: 0.84}),
    Measured("experts", "experts, 4 bits", "H200", {1: 0.71, 8: 0.8, 32: 0.79, 128: 0.81}),
)


def scheme_of(kernel: str, c: Any) -> str:
    """Name the kind of weights that vLLM describes; rows have the same name.

    Args:
        kernel: as in :class:`Measured`. c: vLLM's description of a layer for this kernel.
    """
    if kernel == "weight_only":
        order = ", act-order" if getattr(c, "has_g_idx", False) else ""
        return f"{c.weight_type.size_bits} bits{', zero points' if c.zero_points else ''}{order}"
    if kernel == "int8":
        static, zeros = c.is_static_input_scheme, not c.input_symmetric
        return f"8 bits both, {'static' if static else 'dynamic'}{', zero points' if zeros else ''}"
    if kernel == "experts":
        return f"experts, {_scheme_of_experts(c.layout)}"
    if kernel == "float4":
        return "mxfp4" if type(c).__name__.startswith("Mx") else "nvfp4"
    return f"float8, {'static' if c.activation_quant_key.scale.static else 'dynamic'}"


def _scheme_of_experts(layout: Any) -> str:
    """Name it by how the file has the experts."""
    scheme, order = layout.scheme, ", act-order" if layout.has_order else ""
    if scheme.weights.type == "float":
        return "mxfp4" if scheme.group_size == 32 else "nvfp4"
    zeros = ", zero points" if scheme.has_zeros else ""
    return f"{scheme.weights.num_bits} bits{zeros}{order}"


def why_not_ahead(kernel: str, c: Any, gpu: str) -> str | None:
    """Tell why vLLM's own kernels are asked before ours; None where ours are measured ahead.

    Args:
        gpu: the name that the driver gives the GPU. The rest as in :func:`scheme_of`.
    """
    scheme = scheme_of(kernel, c)
    for row in MEASURED:
        if (row.kernel, row.scheme) == (kernel, scheme) and row.gpu in gpu.split():
            if row.mean < AHEAD:
                return None
            return (
                f"{scheme} took {row.mean:.2f} of the time of vLLM's own kernels on an {row.gpu}, "
                "so those are asked before"
            )
    return f"{scheme} is not measured on {gpu}, so vLLM's own kernels are asked before"
