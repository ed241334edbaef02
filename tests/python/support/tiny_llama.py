"""A Llama of one layer whose quantized weights are known in closed form, without random numbers:
the truth that tests/data/make_*.py hands to the packers of others, and that our loaders must find.
"""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

HIDDEN, INTERMEDIATE, VOCABULARY = 64, 128, 64
BLOCK = "model.layers.0"
# name -> (N, K)
LINEARS = {
    f"{BLOCK}.self_attn.q_proj": (HIDDEN, HIDDEN),
    f"{BLOCK}.self_attn.k_proj": (HIDDEN, HIDDEN),
    f"{BLOCK}.self_attn.v_proj": (HIDDEN, HIDDEN),
    f"{BLOCK}.self_attn.o_proj": (HIDDEN, HIDDEN),
    f"{BLOCK}.mlp.gate_proj": (INTERMEDIATE, HIDDEN),
    f"{BLOCK}.mlp.up_proj": (INTERMEDIATE, HIDDEN),
    f"{BLOCK}.mlp.down_proj": (HIDDEN, INTERMEDIATE),
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": None,
    "dtype": "float16",
}


def scatter(name: str, *shape: int) -> Tensor:
    """int64 in 0..2^20, the low bits of a product (splitmix's first step): the same everywhere."""
    count = math.prod(shape)
    x = torch.arange(count, dtype=torch.int64) + 1_000_003 * (zlib.crc32(name.encode()) % 4099)
    x = (x ^ (x >> 9)) * 0x5851F42D4C957F2D
    x = (x ^ (x >> 31)) * 0x14057B7EF767814F
    return ((x >> 33) & 0xFFFFF).reshape(shape)


@dataclass(frozen=True)
class Grid:
    """w[n, k] = (codes[n, k] - zeros[g, n]) * scales[g, n], g = g_idx[k].

    codes int64 ``[N, K]``, zeros int64 and scales float16 ``[G, N]``, g_idx int64 ``[K]``.
    """

    codes: Tensor
    zeros: Tensor
    scales: Tensor
    g_idx: Tensor

    def weight(self) -> Tensor:
        """float32 ``[N, K]``, exact."""
        scales, zeros = self.scales.float()[self.g_idx].t(), self.zeros[self.g_idx].t()
        return (self.codes - zeros).float() * scales


def grid(
    name: str,
    n: int,
    k: int,
    bits: int,
    group_size: int,
    symmetric: bool,
    act_order: bool = False,
    least_zero: int = 0,
) -> Grid:
    """The truth of one layer. group_size -1 is all of K."""
    size = k if group_size == -1 else group_size
    groups = -(-k // size)
    codes = scatter(name + "codes", n, k) % 2**bits
    scales = (1 + scatter(name + "scales", groups, n) % 97 / 97) * 0.15 / 2 ** (bits - 1)
    zeros = torch.full((groups, n), 2 ** (bits - 1))
    if not symmetric:
        # around the middle, as in real files, with both ends present
        spread = scatter(name + "zeros", groups, n) % 5 - 2
        zeros = (zeros + spread * 2 ** (bits - 3 if bits > 3 else 0)).clamp(least_zero, 2**bits - 1)
        zeros.view(-1)[0], zeros.view(-1)[-1] = least_zero, 2**bits - 1
    g_idx = torch.arange(k) // size
    if act_order:
        g_idx = g_idx[scatter(name + "order", k).argsort(stable=True)]
    return Grid(codes, zeros, scales.half(), g_idx)


def plain_tensors(dtype: torch.dtype = torch.float16) -> dict[str, Tensor]:
    """The tensors that are not quantized."""

    def values(name: str, *shape: int) -> Tensor:
        return ((scatter(name, *shape) / 2**19 - 1) * 0.5).to(dtype)

    norms = [f"{BLOCK}.input_layernorm", f"{BLOCK}.post_attention_layernorm", "model.norm"]
    return {
        "model.embed_tokens.weight": values("embed", VOCABULARY, HIDDEN),
        "lm_head.weight": values("head", VOCABULARY, HIDDEN),
        **{f"{x}.weight": (1 + values(x, HIDDEN) / 4).to(dtype) for x in norms},
    }


def bias(name: str, n: int) -> Tensor:
    """float16 ``[n]``."""
    return ((scatter(name + "bias", n) / 2**19 - 1) * 0.1).half()


@dataclass(frozen=True)
class FloatGrid:
    """w = values * scales: values float8_e4m3fn ``[N, K]``, scales as the file has them (``[1]``,
    ``[N, 1]`` or blocks), rows and columns of a block."""

    values: Tensor
    file_scales: Tensor
    block: tuple[int, int]

    def scales(self) -> Tensor:
        """``[N, K]``, one for each weight."""
        n, k = self.values.shape
        full = self.file_scales.reshape(-1, self.file_scales.shape[-1])
        full = full.repeat_interleave(self.block[0], 0)[:n]
        return full.repeat_interleave(self.block[1], 1)[:, :k]

    def weight(self) -> Tensor:
        """float32 ``[N, K]``, exact."""
        return self.values.float() * self.scales().float()


def float_grid(name: str, n: int, k: int, strategy: str, block: list[int] | None) -> FloatGrid:
    """strategy: "tensor", "channel" or "block" of ``block`` rows and columns."""
    patterns = scatter(name + "float8", n, k) % 256
    patterns = torch.where(patterns & 0x7F == 0x7F, 0x40, patterns)  # not NaN
    rows, columns = {"tensor": (n, k), "channel": (1, k)}.get(strategy, tuple(block or ()))
    shape = (1,) if strategy == "tensor" else (-(-n // rows), -(-k // columns))
    scales = (1 + scatter(name + "scales", *shape) % 97 / 97) * 2.0**-11
    values = patterns.to(torch.uint8).view(torch.float8_e4m3fn)
    return FloatGrid(values, scales.bfloat16(), (rows, columns))


def write_dense(folder: Path) -> Path:
    """The same model as a dense checkpoint, its weights those of int4 in groups of 32."""
    from safetensors.torch import save_file

    folder.mkdir()
    tensors = plain_tensors()
    for name, (n, k) in LINEARS.items():
        tensors[f"{name}.weight"] = grid(name, n, k, 4, 32, False).weight().half()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder
