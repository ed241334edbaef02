"""The records of the ops against their contracts and schemas."""

from __future__ import annotations

import pytest
import torch

from mixed_gemm import _library
from mixed_gemm.ops.contract import contracts
from mixed_gemm.ops.op import Op
from mixed_gemm.ops.registry import OPS
from mixed_gemm.ops.sharding import Rows


def arguments(op: Op) -> dict[str, str]:
    """Names and types, as the schema has them."""
    schema = getattr(torch.ops.mixed_gemm, op.name).default._schema
    return {x.name: str(x.type) for x in schema.arguments}


def tensors(op: Op) -> set[str]:
    return {name for name, kind in arguments(op).items() if "Tensor" in kind}


def test_every_contract_has_a_record() -> None:
    assert {op.name for op in OPS} == set(contracts())


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_fake_gives_the_result_where_the_contract_has_no_sizes_of_it(op: Op) -> None:
    forms = {x["form"] for x in contracts()[op.name].results}
    if isinstance(op.fake, str):
        return
    assert callable(op.fake) == (forms == {"made"})
    assert callable(op.fake) or forms <= {"like", "leading", "sizes"}


# Ops that run when weights are loaded, or for tests: what a kernel in Python costs does not count.
NOT_GATED = {
    "awq_dequantize", "awq_repack", "fpA_fpB_gemm_config", "fpA_intB_gemm_config", "gptq_repack",
    "grouped_fpA_fpB_gemm_config", "grouped_fpA_intB_gemm_config", "pack_codes",
    "pack_conv_weights", "pack_weights", "unpack_codes", "unpack_weights",
}  # fmt: skip


@pytest.mark.skipif(not _library.has_autograd, reason="the library of this torch is not built")
def test_a_call_without_gradients_runs_no_kernel_in_python() -> None:
    dumps = {op.name: torch._C._dispatch_dump(f"mixed_gemm::{op.name}") for op in OPS}
    public = {name for name in dumps if not name.startswith("_")}
    assert {x for x in public if "autograd/gate.cpp" not in dumps[x]} == NOT_GATED


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_records_name_tensors_of_the_schema(op: Op) -> None:
    rule = op.derivatives.rule
    named = {*op.derivatives.whys}
    if rule is not None:
        named |= set(rule.trained)
    if not isinstance(op.vmap, str):
        named |= set(op.vmap.over)
    counted = set()
    if not isinstance(op.sharding, str):
        named |= set(op.sharding.column_major)
        for way in op.sharding.ways:
            found = {way.of, *way.per_row} if isinstance(way, Rows) else set(way.dims)
            counted |= {name for name in found if arguments(op).get(name) == "int"}
            named |= found - counted
    assert named <= tensors(op)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_what_is_missing_has_a_reason(op: Op) -> None:
    rules = (op.fake, op.autocast, op.vmap, op.flops, op.sharding, op.opcheck)
    texts = (op.doc, op.derivatives.why, *rules)
    assert all(text.strip() == text != "" for text in texts if isinstance(text, str))
