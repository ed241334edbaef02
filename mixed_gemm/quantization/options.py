"""``Options``, which few calls of ``quantize_`` need; and the keywords that it took before there
were ``Options`` and ``Scheme.named``.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

import torch
from typing_extensions import TypedDict

from .._progress import Progress
from ..ops.errors import ArgumentTypeError, wrong_type, wrong_value
from ..weights.scheme import Scheme, refined

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Options:
    """Settings of :func:`mixed_gemm.quantize_` beside the scheme, the method and its data.

    Attributes:
        block_size: input channels of a convolution that share a scale, -1 or a multiple of 16.
            None: 128, or -1 where there are no more channels.
        average_bits: 4..8: layers of 4 bits get 8 where that changes outputs most, measured with
            the calibration data (without: by the weights), as far as the average of a weight
            allows. These become integers with the same groups and zero points, or "w8a16" where
            the codes of 4 bits are no integers. Output heads and embeddings are chosen for and
            counted where ``heads`` and ``embeddings`` ask for 4 bits, a tied tensor once; those of
            another scheme stay as they are asked for. Not for schemes that round activations.
        smooth: for schemes of int8 activations: alpha of SmoothQuant (0.5 is usual), or "search",
            as method="smoothquant" does: for each layer the one by which its output changes least.
            Factors are folded into the norm or linear before, whose weights change, or kept as a
            pre_scale.
        fuse_activations: whether an ``nn.Sequential`` runs a layer and the ReLU, ReLU6, GELU or
            SiLU right behind it in one kernel: see ``mixed_gemm.nn.FusedSequential``. Not for
            linears of "w8a8" and "fp8"; an ``Int8Conv2d`` runs ReLU only.
        fuse: whether linears that read the same tensor run as one product, see
            :func:`mixed_gemm.fuse_`, whose example is the first batch of a list that calibrates, or
            is made for models of transformers that read tokens or pixels.
        embeddings: whether every ``nn.Embedding`` becomes a :class:`mixed_gemm.Embedding`,
            whatever the scheme; ``skip`` counts. True: rows of int8 with a scale each; one that is
            tied (to an output head, say) stays. A scheme of packed codes whose activations are left
            alone, such as "w8a16": rows of that, rounded to nearest; an output head that is tied to
            them multiplies by the same weight.
        heads: whether linears that are output heads by their names
            (``quantization.names.HEADS``: "lm_head", "*classifier*", ...), which ``skip`` leaves
            dense by default, are quantized, too. True: by the scheme of the others. A scheme, or
            a name of one, such as "w8a16": by that. Further names in ``skip`` count, and so does
            a ``skip`` that has not all of the default. One that is tied to an embedding has the
            scheme of ``embeddings``, without which it is refused; so is a model without heads.
        evaluate: int64 ``[T]``, tokens of a text: the report has the perplexity before and after,
            of a model that gives logits. Use another text than the calibration data.
        progress: a bar on stderr: True on a terminal only, "force" always, False never.
    """

    block_size: int | None = None
    average_bits: float | None = None
    smooth: float | Literal["search"] | None = None
    fuse_activations: bool = False
    embeddings: bool | str | Scheme = False
    heads: bool | str | Scheme = False
    fuse: bool = False
    evaluate: torch.Tensor | None = field(default=None, compare=False)
    progress: Progress = True

    @property
    def rows_scheme(self) -> bool | Scheme:
        """``embeddings``, a scheme where a name of one was given.

        Raises:
            ValueError: there is no such scheme, or embeddings have no form of it.
        """
        asked = self.embeddings
        return asked if isinstance(asked, bool) else rows_scheme("quantize_", asked)

    @property
    def heads_scheme(self) -> bool | Scheme:
        """``heads``, a scheme where a name of one was given.

        Raises:
            ValueError: there is no such scheme.
        """
        return self.heads if isinstance(self.heads, bool) else refined("quantize_", self.heads)


def rows_scheme(where: str, asked: str | Scheme) -> Scheme:
    """Return the scheme by which rows of an embedding are packed.

    Args:
        where: what an error names. asked: a scheme or a name of one.

    Raises:
        ValueError: there is no such scheme, or embeddings have no form of it.
    """
    found = refined(where, asked)
    if not found.is_packed:
        wrong_value(
            where,
            "embeddings",
            "be True, False or a scheme of packed codes whose activations are left alone",
            str(found),
            hint="'w8a16', 'w4a16', 'mxfp4', 'nvfp4' or 'nf4'",
        )
    return found


class OldKeywords(TypedDict, total=False):
    """Keywords of ``quantize_`` that ``Scheme.named`` and :class:`Options` take."""

    bits: int | None
    group_size: int | None
    symmetric: bool | None
    zero_mode: str | None
    activations: str | None
    block_size: int | None
    average_bits: float | None
    smooth: float | Literal["search"] | None
    fuse_activations: bool
    embeddings: bool | str | Scheme
    heads: bool | str | Scheme
    fuse: bool
    evaluate: torch.Tensor | None
    progress: Progress


_DEFAULTS = {x.name: x.default for x in fields(Options)}


def told_apart(options: Options, keywords: Mapping[str, Any]) -> tuple[dict[str, Any], Options]:
    """Return the old keywords that are words of a scheme, and the options with the other ones.

    Args:
        options: as they were given. keywords: old ones, by name.

    Raises:
        TypeError: there is no such keyword, or ``options`` are none.
        ValueError: a keyword is given that ``options`` set, too.
    """
    if not isinstance(options, Options):
        wrong_type("quantize_", "options", "be a mixed_gemm.quantization.Options", repr(options))
    for name in keywords:
        if name not in OldKeywords.__annotations__:
            raise ArgumentTypeError(f"quantize_() got an unexpected keyword argument '{name}'")
    given = {name: value for name, value in keywords.items() if name in _DEFAULTS}
    for name, value in given.items():
        if getattr(options, name) is not _DEFAULTS[name]:
            wrong_value(
                "quantize_",
                name,
                "be given once",
                f"{name}={value!r} and {name}={getattr(options, name)!r} in options",
            )
    words = {name: value for name, value in keywords.items() if name not in _DEFAULTS}
    return words, replace(options, **given)


def showing_old_keywords(function: _Function) -> _Function:
    """Make ``help`` and ``inspect`` name each of :class:`OldKeywords` that a function takes by
    ``**keywords``: they know none of the names in ``Unpack``."""
    own = inspect.signature(function)
    kinds = typing.get_type_hints(OldKeywords)
    old = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=kind
        )
        for name, kind in kinds.items()
    ]
    new = [x for x in own.parameters.values() if x.kind is not x.VAR_KEYWORD]
    function.__signature__ = own.replace(parameters=[*new, *old])  # type: ignore[attr-defined]
    return function
