"""Quantized experts of a mixture, which no layer here computes: how they are known in files, and
what is said of them.
"""

from __future__ import annotations

_HINT = (
    "Hint: quantize the dense model with mixed-gemm quantize, which leaves experts dense, or serve "
    "this file with vLLM"
)
# Why methods are not read whose files hold nothing but experts in their own format.
METHODS = dict.fromkeys(
    ("mxfp4", "gpt_oss_mxfp4"),
    "quantized experts are not supported: gpt-oss holds them as MXFP4, in blocks of 32 (..._blocks "
    f"and ..._scales), for which there are no kernels. {_HINT}",
)


def is_expert(name: str) -> bool:
    """Whether a name is that of one of a mixture's experts, or of all of a layer in one tensor."""
    return "experts" in name.split(".")


def refusal(holder: str = "") -> str:
    """Why quantized experts are not read.

    Args:
        holder: what the model has in their place, in words.
    """
    place = f"the model has {holder}" if holder else "they are in one tensor of three dimensions"
    return f"quantized experts are not supported: {place}, for which there are no kernels. {_HINT}"
