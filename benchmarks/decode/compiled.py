"""The decoder as transformers has it, with random weights and a static cache, and its step as
``torch.compile`` makes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm.quantization import Options

from .model import DENSE, EPSILON, ROPE_BASE
from .shape import Shape

ROOM = 32  # places of a cache behind the token that is decoded, which attention reads and masks


def weights_of(scheme: str) -> Any:
    """Return the argument of ``quantize_`` for the layers of blocks: a scheme, or a function that
    leaves all of them dense."""
    return (lambda name, layer: None) if scheme == DENSE else scheme


def decoder(
    shape: Shape,
    weights: str,
    device: torch.device,
    dtype: torch.dtype,
    head: str = DENSE,
    products: str = "apart",
) -> Any:
    """A ``LlamaForCausalLM`` of a shape, in eval mode; the head is not tied to the embedding.

    Args:
        shape: of the decoder. weights, head: of the layers of blocks and of the head: ``DENSE`` or
            the name of a scheme.
        device, dtype: of it.
        products: "joint": one product for q, k and v and one for gate and up, by ``fuse_``.
    """
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=shape.hidden, intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, head_dim=shape.head, vocab_size=shape.vocabulary,
        rms_norm_eps=EPSILON, tie_word_embeddings=False, max_position_embeddings=131072,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
    )  # fmt: skip
    with torch.device(device):
        model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.eval().requires_grad_(False)
    if (weights, head) != (DENSE, DENSE):
        heads = False if head == DENSE else head
        options = Options(heads=heads, progress=False)
        mixed_gemm.quantize_(model, weights_of(weights), options=options)
    if products == "joint":
        ids = torch.arange(4, device=device)[None]
        mixed_gemm.fuse_(model, example_inputs={"input_ids": ids})
    return model


def filled_cache(model: Any, batch: int, context: int) -> Any:
    """Return a static cache that has random keys and values of ``context`` tokens, and zeros
    behind.

    Raises:
        RuntimeError: static caches of this release of transformers do not count their tokens.
    """
    import transformers

    cache = transformers.StaticCache(config=model.config, max_cache_len=context + 1 + ROOM)
    ids = torch.zeros(batch, 1, dtype=torch.long, device=model.device)
    run(model, ids, **{word_of(model): cache})  # allocates
    generator = torch.Generator(model.device).manual_seed(0)
    for layer in cache.layers:
        if not isinstance(getattr(layer, "cumulative_length", None), Tensor):
            raise RuntimeError(
                f"transformers {transformers.__version__}: a {type(layer).__name__} does not count "
                "its tokens in a tensor. Hint: transformers 5.24"
            )
        for part in (layer.keys, layer.values):
            part.zero_()
            part[:, :, :context].normal_(generator=generator)
    rewind(cache, context)
    return cache


def rewind(cache: Any, context: int) -> None:
    """Have a cache hold ``context`` tokens, as before a step."""
    for layer in cache.layers:
        layer.cumulative_length.fill_(context)


def word_of(model: Any) -> str:
    """Return the name of a model's argument that is its cache: "cache" since transformers 5.24,
    "past_key_values" before."""
    known = inspect.signature(type(model).forward).parameters
    return "cache" if "cache" in known else "past_key_values"


def run(model: Any, ids: Tensor, **cache: Any) -> Tensor:
    """``[B, 1]`` -> the logits behind it, ``[B, vocabulary]``.

    Args:
        model: of :func:`decoder`. ids: of one token each.
        cache: by the name of :func:`word_of`; it has one token more.
    """
    logits: Tensor = model(input_ids=ids, use_cache=True, **cache).logits[:, -1]
    return logits


def compiled(model: Any, cache: Any) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Compile f(ids) -> (the ids behind, the logits of them), of one graph; on a GPU a CUDA graph.

    Args:
        model: of :func:`decoder`. cache: its own, which stays at its place.
    """

    named = {word_of(model): cache}

    def step(ids: Tensor) -> tuple[Tensor, Tensor]:
        logits = run(model, ids, **named)
        return logits.argmax(-1, keepdim=True), logits

    mode = "reduce-overhead" if model.device.type == "cuda" else None
    found: Callable[[Tensor], tuple[Tensor, Tensor]] = torch.compile(
        step, mode=mode, dynamic=False, fullgraph=True
    )
    return found


def weight_bytes(model: Any) -> int:
    """The bytes of matrices that a step reads: all but the embedding."""
    layers = [x for x in model.modules() if isinstance(x, torch.nn.Linear)]
    return sum(_stored_bytes(x.weight) for x in layers)


def cache_bytes(cache: Any) -> int:
    """The bytes of the keys and values that a step reads."""
    return sum(int(x.keys.nbytes + x.values.nbytes) for x in cache.layers)


def _stored_bytes(weight: Any) -> int:
    is_ours = isinstance(weight, mixed_gemm.QuantizedTensor)
    return int(weight.stored_bytes if is_ours else weight.nbytes)
