"""A small batch that a model runs on, where its configuration says enough to make one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..ops.errors import wrong_value
from .positions import longest_input

_TOKENS = 4


def _tokens(config: Any, device: torch.device, dtype: torch.dtype) -> torch.Tensor | None:
    words = getattr(config, "vocab_size", None)
    if not isinstance(words, int) or words < 1:
        return None
    count = min(_TOKENS, longest_input(config) or _TOKENS)
    return torch.arange(1, count + 1, device=device).remainder(words).unsqueeze(0)


def _pixels(config: Any, device: torch.device, dtype: torch.dtype) -> torch.Tensor | None:
    side, channels = getattr(config, "image_size", None), getattr(config, "num_channels", 3)
    sides = (side, side) if isinstance(side, int) else side
    if not (isinstance(sides, tuple | list) and len(sides) == 2 and isinstance(channels, int)):
        return None
    return torch.zeros(1, channels, *sides, device=device, dtype=dtype)


# Main input of a model of transformers -> f(its configuration, device, dtype) -> that input.
_INPUTS: dict[str, Callable[[Any, torch.device, torch.dtype], torch.Tensor | None]] = {
    "input_ids": _tokens,
    "pixel_values": _pixels,
}


def example_of(where: str, argument: str, model: nn.Module, hint: str) -> Any:
    """A batch for a model of transformers that reads tokens or pixels.

    Args:
        where, argument, hint: what an error names, and says what to do. model: any.

    Raises:
        ValueError: the model is another one, or its configuration has no sizes.
    """
    kind, config = getattr(model, "main_input_name", None), getattr(model, "config", None)
    make, first = _INPUTS.get(str(kind)), next(model.parameters(), None)
    found = None
    if make is not None and first is not None and config is not None:
        of_text = config.get_text_config() if make is _tokens else config
        found = make(of_text, first.device, getattr(model, "dtype", first.dtype))
    if found is None:
        reads = "" if kind is None else f", whose main input is {kind}"
        wrong_value(
            where,
            argument,
            "go with a model of transformers that reads input_ids or pixel_values of known sizes",
            f"{type(model).__name__}{reads}",
            hint=hint,
        )
    if getattr(config, "is_encoder_decoder", False):
        return {kind: found, "decoder_input_ids": _tokens(config, found.device, found.dtype)}
    return {kind: found}
