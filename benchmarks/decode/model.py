"""A decoder in plain torch, with random weights and a static cache, as few lines as a step needs.

Nothing but the seven linear layers of a block and the sum over the cache is left to libraries, so
that a step has no time that a part of it does not explain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import mixed_gemm

from .shape import JOINT, Shape

DENSE = "dense"
ROPE_BASE = 500000.0
EPSILON = 1e-5


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, EPSILON)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the features of ``[B, heads, T, D]`` by the angles of their places."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def gated(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


@dataclass(frozen=True)
class Glue:
    """The elementwise functions between products, eager or each compiled by itself."""

    normed: Callable[[Tensor, Tensor], Tensor] = normed
    rotated: Callable[[Tensor, Tensor, Tensor], Tensor] = rotated
    gated: Callable[[Tensor, Tensor], Tensor] = gated

    @classmethod
    def compiled(cls) -> Glue:
        return cls(*(torch.compile(f, dynamic=False) for f in (normed, rotated, gated)))


def linear(k: int, n: int, weights: str, like: Tensor) -> nn.Module:
    """A layer without bias, drawn at random.

    Args:
        weights: ``DENSE`` or the name of a scheme. like: has its device and dtype.
    """
    layer = nn.Linear(k, n, bias=False, device=like.device, dtype=like.dtype)
    layer.requires_grad_(False)
    layer.weight.normal_(std=k**-0.5)
    return layer if weights == DENSE else mixed_gemm.Linear.from_float(layer, weights)


class Block:
    """Attention and MLP. ``keys`` and ``values`` are the cache, ``[B, kv_heads, length, D]``."""

    keys: Tensor
    values: Tensor

    def __init__(self, shape: Shape, weights: str, like: Tensor, products: str = "apart") -> None:
        self.shape = shape
        self.before_attention, self.before_mlp = (like.new_ones(shape.hidden) for _ in range(2))
        self.linears = {
            name: linear(k, n, weights, like) for name, (k, n) in shape.linears(products).items()
        }

    def projected(self, h: Tensor, joint: str) -> Sequence[Tensor]:
        """The outputs of the layers of JOINT[joint], by one product where the block has one."""
        names = JOINT[joint]
        if joint not in self.linears:
            return [self.linears[name](h) for name in names]
        apart = self.shape.linears()
        parts: Sequence[Tensor] = self.linears[joint](h).split([apart[x][1] for x in names], -1)
        return parts

    def by_heads(self, x: Tensor) -> Tensor:
        """``[B, T, heads * D]`` -> ``[B, heads, T, D]``."""
        return x.view(*x.shape[:-1], -1, self.shape.head).transpose(1, 2)

    def remember(self, key: Tensor, value: Tensor, first: int) -> None:
        """Put keys and values of tokens from place ``first`` on into the cache."""
        last = first + key.shape[2]
        self.keys[:, :, first:last] = key
        self.values[:, :, first:last] = value

    def attention(self, query: Tensor, first: int) -> Tensor:
        """Sum the cache up to each token, which begin at place ``first``: one token, or all from
        the first on."""
        tokens = query.shape[2]
        keys, values = (x[:, :, : first + tokens] for x in (self.keys, self.values))
        out = F.scaled_dot_product_attention(
            query, keys, values, is_causal=tokens > 1, enable_gqa=True
        )
        return out.transpose(1, 2).flatten(2)

    def __call__(self, x: Tensor, first: int, angles: tuple[Tensor, Tensor], glue: Glue) -> Tensor:
        layers = self.linears
        h = glue.normed(x, self.before_attention)
        query, key, value = map(self.by_heads, self.projected(h, "qkv"))
        self.remember(glue.rotated(key, *angles), value, first)
        x = x + layers["o"](self.attention(glue.rotated(query, *angles), first))
        h = glue.normed(x, self.before_mlp)
        out: Tensor = x + layers["down"](glue.gated(*self.projected(h, "gate_up")))
        return out


class Decoder:
    """Embedding, blocks, norm and head.

    Args:
        weights, head: of the layers of blocks and of the head: ``DENSE`` or the name of a scheme.
        products: of the layers of blocks, as :meth:`Shape.linears` takes it.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        shape: Shape,
        weights: str,
        device: torch.device,
        dtype: torch.dtype,
        glue: Glue,
        head: str = DENSE,
        products: str = "apart",
    ) -> None:
        like = torch.empty(0, device=device, dtype=dtype)
        self.shape, self.glue, self.products = shape, glue, products
        self.embedding = like.new_empty(shape.vocabulary, shape.hidden).normal_()
        self.blocks = [Block(shape, weights, like, products) for _ in range(shape.layers)]
        self.before_head = like.new_ones(shape.hidden)
        self.head = linear(shape.hidden, shape.vocabulary, head, like)

    def allocate(self, batch: int, length: int) -> None:
        """Make the caches and the angles for sequences of at most ``length`` tokens."""
        shape, like = self.shape, self.before_head
        for block in self.blocks:
            size = (batch, shape.kv_heads, length, shape.head)
            # numbers as any: a step reads places that nobody wrote
            block.keys, block.values = (like.new_empty(size).normal_() for _ in range(2))
        half = torch.arange(0, shape.head, 2, device=like.device) / shape.head
        places = torch.arange(length, device=like.device)
        angles = torch.outer(places, ROPE_BASE**-half).repeat(1, 2)
        self.cos, self.sin = angles.cos().to(like.dtype), angles.sin().to(like.dtype)

    def angles(self, first: int, tokens: int) -> tuple[Tensor, Tensor]:
        places = slice(first, first + tokens)
        return self.cos[places], self.sin[places]

    def __call__(self, ids: Tensor, first: int) -> Tensor:
        """``[B, T]`` -> the logits behind the last token, ``[B, vocabulary]``."""
        angles = self.angles(first, ids.shape[1])
        x = F.embedding(ids, self.embedding)
        for block in self.blocks:
            x = block(x, first, angles, self.glue)
        logits: Tensor = self.head(self.glue.normed(x[:, -1], self.before_head))
        return logits

    def weight_bytes(self) -> int:
        """The bytes of weights that a step reads: all but the embedding."""
        layers = [layer for block in self.blocks for layer in block.linears.values()]
        return sum(map(_stored_bytes, layers)) + _stored_bytes(self.head)

    def cache_bytes(self, batch: int, length: int) -> int:
        """The bytes of keys and values of so many tokens."""
        shape = self.shape
        elements = 2 * shape.layers * batch * shape.kv_heads * length * shape.head
        return elements * self.before_head.element_size()


def _stored_bytes(layer: Any) -> int:
    weight = layer.weight
    is_ours = isinstance(weight, mixed_gemm.QuantizedTensor)
    return int(weight.stored_bytes if is_ours else weight.nbytes)
