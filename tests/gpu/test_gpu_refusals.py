"""What is refused on a GPU alone, or refused there by other code: tensors on two devices, freed
storages, values outside the range of ``bits``, too little memory. A valid call after each.
"""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from support.op_calls import CALLS, TENSORS, placed, public, raw

import mixed_gemm

pytestmark = pytest.mark.gpu
FORCED = "fpA_intB_gemm_config"
# The table names the configuration of a CPU.
ON_GPU = [(op, name) for op, name in TENSORS if not op.endswith("_config")]
TENSORS_OF = Counter(op for op, _ in ON_GPU)
BESIDE = [(op, name) for op, name in ON_GPU if TENSORS_OF[op] > 1]


def valid(op):
    return placed(CALLS[op](), "cuda")


@pytest.mark.parametrize(("op", "name"), BESIDE)
def test_one_argument_on_the_cpu(op, name):
    bad = valid(op)
    bad[name] = bad[name].cpu()
    text = rf"^mixed_gemm::{op}: all tensors must be on one device, got .*cpu.* Hint"
    for call, error in ((raw, RuntimeError), (public, ValueError)):
        with pytest.raises(error, match=text) as caught:
            call(op, bad)
        assert "cuda:0" in str(caught.value)
    public(op, valid(op))


@pytest.mark.parametrize(("op", "name"), BESIDE)
def test_one_argument_on_meta(op, name):
    bad = valid(op)
    bad[name] = bad[name].to("meta")
    with pytest.raises(ValueError, match=rf"mixed_gemm::{op}: all tensors must be on one device"):
        public(op, bad)


@pytest.mark.parametrize(("op", "name"), ON_GPU)
def test_a_freed_argument(op, name):
    bad = valid(op)
    bad[name].untyped_storage().resize_(0)
    text = rf"^mixed_gemm::{op}: {name} must have a storage of \d+ bytes or more, got 0 bytes"
    with pytest.raises(ValueError, match=text):
        public(op, bad)
    public(op, valid(op))
    torch.cuda.synchronize()


@pytest.mark.parametrize(
    ("op", "shape"), [("pack_weights", (5, 7)), ("pack_conv_weights", (5, 7, 3, 3))]
)
def test_values_outside_the_range_are_refused_on_demand(op, shape):
    q = torch.zeros(shape, dtype=torch.int8, device="cuda")
    index = tuple(extent - 1 for extent in shape)
    q[index] = 9
    pack = getattr(mixed_gemm.ops, op)
    assert pack(q, 4).is_cuda  # not looked at: that would wait for the GPU
    with pytest.raises(
        ValueError, match=r"q must be in -8\.\.7 for bits=4, got 9 at index"
    ) as caught:
        pack(q, 4, check=True)
    assert str(index) in str(caught.value)
    q[index] = 7
    assert torch.equal(pack(q, 4, check=True), pack(q, 4))


def test_no_memory_is_torchs_error_and_leaves_a_working_gpu():
    free = torch.cuda.mem_get_info()[0]
    a = torch.zeros(1, 16, device="cuda").expand(2 * free // 16, 16)
    with pytest.raises(torch.OutOfMemoryError, match="memory"):
        mixed_gemm.quantize_per_token(a)
    public("quantize_per_token", valid("quantize_per_token"))


def test_a_configuration_of_another_problem_is_not_implemented():
    bad = valid(FORCED)
    bad["config"] = "multistage_m16n128s6_parallel5"
    with pytest.raises(NotImplementedError, match="mixed_gemm::fpA_intB_gemm_config: multistage"):
        public(FORCED, bad)
    bad["config"] = "fastest"
    with pytest.raises(ValueError, match="unknown config fastest"):
        public(FORCED, bad)
