"""The torch.library.Library of our kernels, which are registered as long as it lives."""

import torch

LIBRARY = torch.library.Library("mixed_gemm", "IMPL")  # type: ignore[no-untyped-call]
