"""Rows of results files of commits before there was one schema: the names that differ, and the ops
they did not name. A file that a new run replaces needs nothing of this. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .row import Row
from .timed import ATEN, CONV2D, DENSE, QCONV2D

FIELDS = {"operand": "dtype", "block_size": "group_size"}
OPS = {
    "cublas": DENSE,
    "aten_int4": ATEN,
    "torch.nn.functional.conv2d": CONV2D,
}
# Rows of these had the name of the op for a configuration, or that of a kernel which is not ours.
NOT_OURS = (DENSE, ATEN, "awq_gemm", "int_mm_loop", "int_mm_loop_products")
SIXTEEN_BITS = ("quantize_per_token", "quantize_per_token, asymmetric", "quantize_per_tensor")


def row_of(old: Mapping[str, Any]) -> Row:
    """A row of any committed file."""
    fields = {FIELDS.get(name, name): value for name, value in old.items()}
    if "batch" in fields:
        return _convolution(fields)
    fields["op"] = OPS.get(fields["op"], fields["op"])
    if fields["op"] in NOT_OURS:
        fields.update(kernel="", selected=False)
    if fields.get("out_dtype") == fields["dtype"]:
        del fields["out_dtype"]
    if "operand" in old:
        fields["bits"] = 16 if fields["op"] in (DENSE, *SIXTEEN_BITS) else 8
    if fields["op"] == DENSE:
        # Rows of the oldest files have the zero mode of their suite or the block of the op.
        fields.update(bits=32 if fields["dtype"] == "float32" else 16)
        fields.update(group_size=None, zero_mode=None)
    return Row(**fields)


LAYER = re.compile(r"(\d+)x(\d+)x\d+ -> (\d+), (\d+)x\d+, stride (\d+)")


def _convolution(fields: Mapping[str, Any]) -> Row:
    """Rows of bench_conv.py named a configuration and no op. ``qconv2d`` was the op."""
    found = LAYER.fullmatch(fields["layer"])
    assert found, fields["layer"]
    in_c, side, out_c, kernel, stride = map(int, found.groups())
    out_side = (side + 2 * (kernel // 2) - kernel) // stride + 1
    name = fields["kernel"]
    op = OPS.get(name, QCONV2D)
    scheme = (
        {"bits": 16}
        if op == CONV2D
        else {
            "bits": 4,
            "group_size": min(64, in_c) if in_c % 16 == 0 else -1,
            "zero_mode": "add" if fields["offsets"] else None,
        }
    )
    return Row(
        op=op,
        kernel="" if name in (QCONV2D, *OPS) else name,
        selected=False,
        dtype="float16",
        N=out_c,
        K=in_c * kernel * kernel,
        M=fields["batch"] * out_side * out_side,
        **{name: fields[name] for name in ("us", "us_min", "us_max")},
        layer=f"{fields['batch']}x{fields['layer']}",
        **scheme,
    )
