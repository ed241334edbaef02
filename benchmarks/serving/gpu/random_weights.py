"""An entry point of vLLM's plug-ins: its loader of random weights fills integers and float8 with
random bits as well, which it leaves as they come, so that kernels read what real weights look like.
Bytes that are exponents of scales are drawn around 2^-4, scales of float8 are positive, and what
divides them all keeps a model finite.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "random_weights"
SMALLEST = 4096  # elements; what is smaller is no weight
GLOBAL_SCALE = 1e5  # scales of NVFP4 are divided by it
LARGEST = 200.0  # float8 values lie within it
SLICE = 256  # rows of float8 that are drawn, as float32 in between; all others repeat them


def write_metadata(target: Path) -> Path:
    """Write the metadata by which vLLM finds :func:`register`; return ``target``, for
    PYTHONPATH."""
    info = target / f"{NAME}-0.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0.0\n")
    (info / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{NAME} = {__name__}:register\n"
    )
    return target


def register() -> None:
    """Put :func:`fill_bits` before vLLM's own function, and have each module fill what it holds
    itself: the loader asks every module for all that lies below it too, so that it would fill a
    weight once for each module above it."""
    from vllm.model_executor.model_loader import dummy_loader, weight_utils

    own = weight_utils.initialize_single_dummy_weight
    if getattr(own, "fills_bits", False):
        return

    def fill(param: Any, *args: Any, name: str = "", **kwargs: Any) -> None:
        fill_bits(param, lambda: own(param, *args, **kwargs), name)

    fill.fills_bits = True  # type: ignore[attr-defined]
    for module in (weight_utils, dummy_loader):
        module.initialize_single_dummy_weight = fill
    dummy_loader.initialize_dummy_weights = lambda layer, *_: each_once(layer, fill)


def each_once(layer: Any, fill: Callable[..., None]) -> None:
    """Fill the parameters and saved buffers that a module holds itself."""
    for name, tensor in layer.state_dict().items():
        if "." not in name:  # else it belongs to a module below
            fill(tensor, name=name)


def fill_bits(param: Any, otherwise: Callable[[], None], name: str = "") -> None:
    """Integers of any value, float8 within 200 (which no NaN is), norms around 1; bytes of a name
    with "scale" are exponents (e8m0), of which the largest is a NaN."""
    import torch

    data = param.data
    if "global_scale" in name:
        data.fill_(GLOBAL_SCALE)
    elif data.device.type == "meta" or data.numel() < SMALLEST:
        otherwise()
    elif data.dim() == 1 and not data.is_floating_point():
        data.zero_()  # which group an input belongs to
    elif data.dtype == torch.uint8 and "scale" in name:
        data.random_(120, 127)
    elif data.dtype in (torch.int32, torch.int8, torch.uint8):
        words = data.numel() * data.element_size() // 4
        bits = torch.randint(-(2**31), 2**31 - 1, (words,), dtype=torch.int32, device=data.device)
        data.copy_(bits.view(data.dtype).view(data.shape))
    elif data.dtype == torch.float8_e4m3fn:
        first, least = data[:SLICE], 1 if "scale" in name else -LARGEST
        first.copy_(torch.empty(first.shape, device=data.device).uniform_(least, LARGEST))
        for part in data.split(SLICE)[1:]:
            part.copy_(first[: len(part)])
    elif data.dim() == 1 and data.is_floating_point():
        data.uniform_(0.5, 1.5)
    else:
        otherwise()
