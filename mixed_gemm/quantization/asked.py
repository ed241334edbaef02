"""The scheme that a call of ``quantize_`` asks for, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from ..nn.conv import default_block_size
from ..weights.scheme import Scheme, refined

AnyScheme = str | Scheme | Callable[[str, Any], str | Scheme | None]


class AskedScheme:
    """Gives each layer its scheme.

    Args:
        scheme: a name, a scheme, or f(name, module) that returns one, or None.
        words: settings of the scheme that are another way, as of ``Scheme.named``.
        block_size: input channels of a convolution that share a scale; None: see ``Options``.

    Raises:
        ValueError: the scheme and the words do not fit each other. TypeError: it is no scheme.
    """

    def __init__(self, scheme: AnyScheme, words: Mapping[str, Any], block_size: int | None) -> None:
        self._scheme, self._words, self._block_size = scheme, words, block_size
        if not callable(scheme):
            self("", None)  # refuses what does not fit, even where no layer is selected

    def __call__(self, name: str, layer: Any) -> Scheme | None:
        """Return the scheme of a layer; None where it is to be left alone."""
        own = callable(self._scheme)
        asked = self._scheme(name, layer) if callable(self._scheme) else self._scheme
        if asked is None:
            return None
        found = refined("quantize_", asked, **self._words)
        if not (isinstance(layer, nn.Conv2d) and found.is_weight_only):
            return found
        if self._block_size is not None:
            return found.for_convolution(self._block_size)
        # A function has seen the layer, and its group size is meant for it.
        return found.for_convolution(
            found.group_size if own else default_block_size(layer.in_channels)
        )

    def rounds_activations(self, schemes: Iterable[Scheme]) -> bool:
        """Tell whether activations are rounded in one of the schemes that layers were given; where
        no layer was given one, whether the scheme that was asked for rounds them."""
        given = list(schemes)
        if not callable(self._scheme) and not given:
            return refined("quantize_", self._scheme).input_activations is not None
        return any(x.input_activations is not None for x in given)
