"""The GPUs that the library under test was built for."""

from __future__ import annotations

import mixed_gemm


def has_code(sm: int) -> bool:
    """The GPUs of this build. Machine code runs on the GPUs of its generation from its own on; a
    build without CUDA plans for every GPU."""
    built = [
        int(arch.rstrip("af")) for arch in mixed_gemm.env().build["cuda_archs"].split(",") if arch
    ]
    return not built or any(arch // 10 == sm // 10 and arch <= sm for arch in built)
