"""The object that torch hangs our kernels on: they last as long as it does."""

import torch

LIBRARY = torch.library.Library("mixed_gemm", "IMPL")  # type: ignore[no-untyped-call]
