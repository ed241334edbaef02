"""``Question``: the product of a weight as ``plan`` asks the library for its kernel. A kind of
weight says it (``QuantizedTensor.question``), so that planning knows no kind by name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Question:
    """A product, and who tells its kernel.

    text: the product in words.
    op: of the library that answers, in JSON. arguments: of that op.
    answer: in place of them, where the product is torch's.
    """

    text: str
    op: str = ""
    arguments: tuple[Any, ...] = ()
    answer: dict[str, Any] | None = None

    def asked(self) -> dict[str, Any]:
        """Ask the library.

        Raises:
            RuntimeError: it knows no such device.
        """
        if self.answer is not None:
            return self.answer
        found: dict[str, Any] = json.loads(getattr(torch.ops.mixed_gemm, self.op)(*self.arguments))
        return found


def scaled(
    m: int,
    n: int,
    k: int,
    operand: str,
    out: str,
    where: str,
    block_size: tuple[int, int] | None = None,
) -> Question:
    """The question of ``scaled_mm``.

    Args:
        operand, out: names of the dtypes. where: the device, as the library knows it.
        block_size: as of the op.
    """
    blocks = "" if block_size is None else f", block_size={block_size[0]} x {block_size[1]}"
    return Question(
        f"scaled_mm M={m} N={n} K={k} {operand} to {out} on {where}{blocks}",
        "_plan_scaled_mm",
        (m, n, k, operand, out, where, block_size),
    )


def codes(m: int, n: int, k: int, dtype: str, weight: str, group_size: int, where: str) -> Question:
    """The question of ``fpA_fpB_gemm``.

    Args:
        dtype: name of the dtype of activations. weight: the type of codes. group_size: elements of
            K that share a scale. where: the device, as the library knows it.
    """
    return Question(
        f"fpA_fpB_gemm M={m} N={n} K={k} {dtype} {weight} group_size={group_size} on {where}",
        "_plan_codes",
        (m, n, k, dtype, weight, group_size, where),
    )


def grouped(
    m: int, experts: int, n: int, k: int, dtype: str, weight: str, size: int, zeros: str, where: str
) -> Question:
    """The question of ``grouped_fpA_intB_gemm`` and ``grouped_fpA_fpB_gemm``.

    Args:
        m: rows of all experts. dtype: name of the dtype of activations. weight: the type of codes,
            "int4" and "int8" among them. size: elements of K that share a scale. zeros: none, sub
            or add. where: the device, as the library knows it.
    """
    is_integer = weight.startswith("int")
    op = "grouped_fpA_intB_gemm" if is_integer else "grouped_fpA_fpB_gemm"
    told = f" zero_mode={zeros}" if is_integer else ""
    return Question(
        f"{op} M={m} E={experts} N={n} K={k} {dtype} {weight} group_size={size}{told} on {where}",
        "_plan_grouped",
        (m, experts, n, k, dtype, weight, size, zeros if is_integer else "none", where),
    )


def by_block(m: int, n: int, k: int, out: str, size: int, where: str) -> Question:
    """The question of ``block_quant_gemm``; its arguments are those of :func:`scaled`."""
    return Question(
        f"block_quant_gemm M={m} N={n} K={k} {out} block_size={size} on {where}",
        "_plan_block_quant_gemm",
        (m, n, k, size, where),
    )


def float8(
    m: int, n: int, k: int, out: str, where: str, block_size: tuple[int, int] | None
) -> Question:
    """The question of ``scaled_mm`` of float8, or what runs where the library has no kernel for it;
    its arguments are those of :func:`scaled`."""
    sm = re.match(r"cuda:sm=(\d+)", where)
    ask = torch.ops.mixed_gemm._why_not_scaled
    why = ask("float8_e4m3fn", int(sm[1]) if sm else 0, block_size)
    if why:
        return dense(m, n, k, out, where, "float8 weight", why)
    return scaled(m, n, k, "float8_e4m3fn", out, where, block_size)


def dense(m: int, n: int, k: int, out: str, where: str, what: str, why: str) -> Question:
    """The product of a weight that is made dense in every call.

    Args:
        what: the weight, in words. why: no kernel takes it as it is.
    """
    name = "torch.nn.functional.linear"
    answer = {
        "ok": True,
        "selected": name,
        "family": "torch",
        "reason": f"{why}: the weight is made dense for each product",
        "candidates": [{"config": name, "predicted_us": None}],
    }
    return Question(f"F.linear M={m} N={n} K={k} {out}, {what}, on {where}", answer=answer)
