"""The step of a decoder and each of its parts as calls that can be timed by themselves."""

from __future__ import annotations

import torch

from mixed_gemm.selection.timing import Call

from .model import Decoder


def calls(model: Decoder, batch: int, tokens: int, first: int) -> dict[str, Call]:
    """The whole step and its parts, which together do all that the step does.

    Args:
        model: its caches hold ``first + tokens`` tokens.
        tokens: of each sequence that the step reads; 1 when it decodes.
        first: how many the cache has before; 0 where ``tokens`` is more than 1.

    Raises:
        ValueError: several tokens behind others.
    """
    if tokens > 1 and first:
        raise ValueError("a step reads one token behind others, or several from the first on")
    shape, glue, like = model.shape, model.glue, model.before_head
    angles = model.angles(first, tokens)
    ids = torch.zeros(batch, tokens, dtype=torch.long, device=like.device)
    layers = shape.linears(model.products)
    inputs = {
        k: like.new_empty(batch, tokens, k).normal_() for k in {k for k, _ in layers.values()}
    }
    x, wide = inputs[shape.hidden], inputs[shape.intermediate]
    query, key = (
        like.new_empty(batch, heads, tokens, shape.head).normal_()
        for heads in (shape.heads, shape.kv_heads)
    )

    def step() -> None:
        ids[:, -1] = model(ids, first).argmax(-1)

    def linears() -> None:
        for block in model.blocks:
            for name, (k, _) in layers.items():
                block.linears[name](inputs[k])

    def attention() -> None:
        for block in model.blocks:
            block.attention(query, first)

    def between() -> None:
        torch.nn.functional.embedding(ids, model.embedding)
        for block in model.blocks:
            glue.normed(x, block.before_attention)
            glue.rotated(query, *angles)
            block.remember(glue.rotated(key, *angles), key, first)
            torch.add(x, x)  # as the residual is
            glue.normed(x, block.before_mlp)
            glue.gated(wide, wide)
            torch.add(x, x)
        glue.normed(x[:, -1], model.before_head)

    def head() -> None:
        ids[:, -1] = model.head(x[:, -1]).argmax(-1)

    return {
        "step": step, "linears": linears, "attention": attention, "between": between, "head": head
    }  # fmt: skip
