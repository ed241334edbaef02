"""Checks of ``Options.heads``: a head that cannot be quantized as asked is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from torch import nn

from ..ops.errors import wrong_value
from ..weights.scheme import Scheme
from .methods.names import fewer_bits
from .names import is_head
from .select import Target

NO_HEAD = "no linear is called as in quantization.names.HEADS"
NO_TENSOR = "the files have none: a head that is tied to an embedding is packed by embeddings"
STORED_BITS = 4  # codes of fewer bits are stored in as many


def heads_in(model: nn.Module) -> dict[str, Any]:
    """Return name -> module of the linears that are output heads by their names."""
    return {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, nn.Linear) and is_head(name)
    }


def check_heads(
    where: str,
    model: nn.Module,
    embeddings: bool | Scheme,
    heads: bool | Scheme,
    targets: Mapping[str, Target],
    skipped: Mapping[str, str],
) -> None:
    """Check what became of the heads that were asked for.

    Args:
        where: who was asked. model: dense. embeddings, heads: see ``Options``.
        targets, skipped: what ``select`` returned.

    Raises:
        ValueError: there is no head, or none of them is quantized, or one has the weight of an
            embedding that is left alone, or that is packed by another scheme.
    """
    if heads is False:
        return
    found = heads_in(model)
    tables = {
        id(x._parameters["weight"]): name
        for name, x in model.named_modules()
        if isinstance(x, nn.Embedding) and x._parameters.get("weight") is not None
    }
    is_asked = isinstance(embeddings, Scheme)
    for name, module in found.items():
        table, target = tables.get(id(module._parameters.get("weight"))), targets.get(name)
        if table is not None and target is None:
            wrong_value(
                where, "heads", f"be False where {name} has the weight of {table}, which is dense",
                str(heads), f"{table}: {skipped[table]}" if is_asked and table in skipped else "",
                "" if is_asked else "embeddings='w8a16' packs one tensor for both",
            )  # fmt: skip
        if target is not None and isinstance(heads, Scheme) and target.scheme != heads:
            wrong_value(
                where, "heads",
                f"be as embeddings where {name} has the weight of {table}, one tensor",
                f"{heads} and {target.scheme}", hint="heads=True, or none",
            )  # fmt: skip
    if not any(name in targets for name in found):
        why = [f"{name}: {skipped[name]}" for name in found if name in skipped]
        refuse_no_head(where, heads, "; ".join(why) or NO_HEAD)


def refuse_no_head(where: str, heads: object, why: str) -> NoReturn:
    """Raise ValueError, since no head is quantized.

    Args:
        where: who was asked. heads: what was asked. why: none is.
    """
    wrong_value(
        where, "heads", "be False where no output head is a linear to quantize", f"{heads} ({why})",
        hint="other layers are chosen by skip and scheme",
    )  # fmt: skip


def refuse_fewer_bits(where: str, heads: bool | Scheme, method: Any) -> None:
    """Raise ValueError where a method would look for codes of fewer bits in a head that has room
    for more.

    Args:
        where: who was asked. heads: see ``Options``. method: of ``quantize_``, or None.
    """
    bits = fewer_bits(method)
    if bits is not None and isinstance(heads, Scheme) and heads.bits != STORED_BITS:
        wrong_value(
            where, "heads", f"be a scheme of {STORED_BITS} bits with codes of {bits}", str(heads),
            hint="a method has one setting for all layers",
        )  # fmt: skip
