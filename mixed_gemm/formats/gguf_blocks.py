"""The bytes of a GGUF tensor, type by type: blocks along K become integers, scales and zero points.
Each formula holds exactly in float32, but for one addition that may round: see ``_offset``.

``d``, ``dmin`` and ``m`` are the float16 numbers of a block, ``u`` its unsigned codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..weights.exchange import QuantizedWeight
from ..weights.rounding import quantize_weight
from ..weights.scheme import Scheme

# The codes of B blocks: q int8 [B, elements], scales [B, groups], zeros [B, groups] or None, and
# w = q * scale + zero.
Codes = tuple[Tensor, Tensor, Tensor | None]


@dataclass(frozen=True)
class BlockType:
    """One type of quantized tensor.

    name: as llama.cpp has it. elements, nbytes: of a block. scheme: of our weight.
    decode: uint8 ``[B, nbytes]`` -> Codes; None where the gguf package gives the values, which are
        then rounded to symmetric integers.
    """

    name: str
    elements: int
    nbytes: int
    scheme: Scheme
    decode: Callable[[Tensor], Codes] | None


def _half(blocks: Tensor, at: int) -> Tensor:
    """The float16 number at byte ``at`` of each block, ``[B, 1]``."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16)


def _nibbles(packed: Tensor) -> Tensor:
    """``[B, n]`` -> ``[B, 2 n]``: the low halves of the bytes, then the high ones."""
    return torch.cat((packed & 0xF, packed >> 4), dim=1)


def _signed(codes: Tensor, offset: int) -> Tensor:
    return codes.to(torch.int8) - offset


def _offset(scales: Tensor, mins: Tensor) -> Tensor:
    """The zero point of 4-bit codes, which are stored from -8 on: u * s + m = (u - 8) * s + z,
    z = m + 8 s.

    Where the codes of -8 s to 8 s span zero, m is near -8 s and the sum is exact in the dtype of
    its terms (Sterbenz: between half and twice of each other). Else it rounds once to float32.
    """
    return mins.float() + 8 * scales.float()


def _q4_0(blocks: Tensor) -> Codes:
    """w = d (u - 8)."""
    return _signed(_nibbles(blocks[:, 2:]), 8), _half(blocks, 0), None


def _q4_1(blocks: Tensor) -> Codes:
    """w = d u + m."""
    d = _half(blocks, 0).float()
    return _signed(_nibbles(blocks[:, 4:]), 8), d, _offset(d, _half(blocks, 2))


def _fifth_bits(blocks: Tensor, at: int) -> Tensor:
    """Bit i of the 32 at byte ``at`` belongs to element i: ``[B, 32]`` of 0 and 16."""
    shifts = torch.arange(8, dtype=torch.uint8, device=blocks.device)
    bits = (blocks[:, at : at + 4, None] >> shifts) & 1
    return bits.flatten(1) << 4


def _q5_0(blocks: Tensor) -> Codes:
    """w = d (u - 16)."""
    codes = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return _signed(codes, 16), _half(blocks, 0), None


def _q5_1(blocks: Tensor) -> Codes:
    """w = d u + m: five bits fit in our eight without an offset."""
    codes = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return _signed(codes, 0), _half(blocks, 0), _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Codes:
    """w = d q."""
    return blocks[:, 2:].contiguous().view(torch.int8), _half(blocks, 0), None


def _six_bit_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and minima of the eight groups of Q4_K and Q5_K, float32 ``[B, 8]``: w = s u + m.
    The factors have 6 bits each, in the 12 bytes behind d and dmin: the first four of either in
    the low bits of bytes 0 to 7, the others in the nibbles of bytes 8 to 11 and the high bits."""
    low, high, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((low & 63, (rest & 0xF) | ((low >> 6) << 4)), dim=1)
    mins = torch.cat((high & 63, (rest >> 4) | ((high >> 6) << 4)), dim=1)
    # 11 bits times 6: exact in float32.
    return _half(blocks, 0).float() * scales, -(_half(blocks, 2).float() * mins)


def _by_chunks(packed: Tensor, nbytes: int) -> Tensor:
    """The nibbles of each run of ``nbytes`` bytes, run by run."""
    count = packed.shape[0]
    return _nibbles(packed.reshape(-1, nbytes)).reshape(count, -1)


def _q4_k(blocks: Tensor) -> Codes:
    """w = d s u - dmin m, with factors s and m of 6 bits for each of eight groups."""
    scales, mins = _six_bit_scales(blocks)
    return _signed(_by_chunks(blocks[:, 16:], 32), 8), scales, _offset(scales, mins)


def _q5_k(blocks: Tensor) -> Codes:
    """The same with a fifth bit: bit g of byte i is that of element i of group g."""
    scales, mins = _six_bit_scales(blocks)
    shifts = torch.arange(8, dtype=torch.uint8, device=blocks.device)[:, None]
    fifth = ((blocks[:, None, 16:48] >> shifts) & 1).flatten(1) << 4
    return _signed(_by_chunks(blocks[:, 48:], 32) | fifth, 0), scales, mins


def _q6_k(blocks: Tensor) -> Codes:
    """w = d s (u - 32), with an int8 factor s for each of sixteen groups. Each half of a block has
    64 bytes of nibbles and 32 bytes of four pairs of bits, pair j for its elements 32 j to
    32 j + 31."""
    low = _by_chunks(blocks[:, :128], 64)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=blocks.device)[:, None]
    pairs = (blocks[:, 128:192].reshape(-1, 1, 32) >> shifts) & 3
    codes = low | (pairs.reshape(low.shape) << 4)
    factors = blocks[:, 192:208].contiguous().view(torch.int8)
    # 11 bits times 8: exact in float32.
    return _signed(codes, 32), _half(blocks, 208).float() * factors, None


# The number of a type in the file -> what it is.
BLOCK_TYPES = {
    2: BlockType("Q4_0", 32, 18, Scheme.of_file("int4", 32), _q4_0),
    3: BlockType("Q4_1", 32, 20, Scheme.of_file("int4", 32, "add"), _q4_1),
    6: BlockType("Q5_0", 32, 22, Scheme.of_file("int8", 32), _q5_0),
    7: BlockType("Q5_1", 32, 24, Scheme.of_file("int8", 32, "add"), _q5_1),
    8: BlockType("Q8_0", 32, 34, Scheme.of_file("int8", 32), _q8_0),
    12: BlockType("Q4_K", 256, 144, Scheme.of_file("int4", 32, "add"), _q4_k),
    13: BlockType("Q5_K", 256, 176, Scheme.of_file("int8", 32, "add"), _q5_k),
    14: BlockType("Q6_K", 256, 210, Scheme.of_file("int8", 16), _q6_k),
}
FLOAT_TYPES = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}
# How types that are no integers are rounded to some: 0.4 % RMS of a Gaussian weight.
REQUANTIZED = Scheme.weight_only(8, 32)


def block_type(number: int) -> BlockType:
    """The type of this number.

    Raises:
        ValueError: the gguf package does not give the values of this type, or is not installed.
    """
    return BLOCK_TYPES.get(number) or _of_package(number)


def _of_package(number: int) -> BlockType:
    """A type whose values the gguf package gives."""
    try:
        import gguf
    except ImportError as error:
        own = ", ".join(x.name for x in BLOCK_TYPES.values())
        raise ValueError(
            f"is of the type {number}. {own} are read as they are, others through the gguf "
            "package, which is not installed. Hint: pip install 'mixed-gemm[gguf]'"
        ) from error
    try:
        kind = gguf.GGMLQuantizationType(number)
        size, nbytes = gguf.GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"is of the type {number}, which the gguf package does not know"
        ) from error
    if size % REQUANTIZED.group_size:
        raise ValueError(f"is of the type {kind.name}, which is no type of weights")
    package_values(torch.zeros(1, nbytes, dtype=torch.uint8, device="cpu"), kind.name)
    return BlockType(kind.name, size, nbytes, REQUANTIZED, None)


def package_values(blocks: Tensor, name: str) -> Tensor:
    """uint8 ``[N, bytes]`` of one type -> float32 ``[N, K]``, by the gguf package.

    Raises:
        ValueError: the package does not read this type.
    """
    import gguf

    kind = gguf.GGMLQuantizationType[name]
    try:
        values = gguf.dequantize(blocks.cpu().numpy(), kind)
    except NotImplementedError as error:
        raise ValueError(f"is of the type {name}, whose values gguf does not give") from error
    return torch.from_numpy(values).to(blocks.device)


def weight_of(
    blocks: Tensor, kind: BlockType, name: str = "", bias: Tensor | None = None
) -> QuantizedWeight:
    """The integers, scales and zero points of a matrix.

    Args:
        blocks: uint8 ``[N, bytes of a row]``. name: of the layer. bias: ``[N]`` or None.

    Raises:
        ValueError: a scale is NaN or Inf.
    """
    n = blocks.shape[0]
    if kind.decode is None:
        dense = package_values(blocks, kind.name)
        q, scales, zeros = quantize_weight(dense, kind.scheme.bits, kind.scheme.group_size)
    else:
        codes, by_row, offsets = kind.decode(blocks.reshape(-1, kind.nbytes))
        q, scales = codes.reshape(n, -1), by_row.reshape(n, -1).t()
        zeros = None if offsets is None else offsets.reshape(n, -1).t().contiguous()
    return QuantizedWeight.of_codes(
        name, q.contiguous(), scales.contiguous(), zeros, scheme=kind.scheme, bias=bias
    )


def values(blocks: Tensor, kind: BlockType) -> Tensor:
    """float32 ``[N, K]``, what the file says: not rounded to integers.

    Raises:
        ValueError: a scale is NaN or Inf.
    """
    if kind.decode is None:
        return package_values(blocks, kind.name)
    return weight_of(blocks, kind).dequantize()
