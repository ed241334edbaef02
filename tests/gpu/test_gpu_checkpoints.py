"""Checkpoints on CUDA: the ops on AutoAWQ and GPTQ tensors, and every fixture of tests/data, loaded
onto the GPU and multiplied with. Weights come from support/awq.py and tiny_llama.py."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from problems.awq import gptq_words
from support import tiny_llama
from support.awq import Awq, awq
from support.checkpoints import FLOATS, INTEGERS

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.formats import open_checkpoint
from mixed_gemm.formats.layer import LayerTensors
from mixed_gemm.integrations.transformers.pending import EXTRA_STATE, pending
from mixed_gemm.weights import QuantizedWeight

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
DATA = Path(__file__).resolve().parents[1] / "data"
DTYPES = (torch.float16, torch.bfloat16)
# Around the row tiles (8, 16, 32), the last M of the kernels (128) and far in the dense path.
ROWS = (1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 300)
ONE_OF_EACH_KERNEL = (1, 12, 40, 160)
# group size, K; K = 30 has no kernel of its own, 20 and 24 are less than a step of 32
SCHEMES = (
    (16, 80), (32, 96), (48, 144), (64, 192), (128, 4096), (256, 512), (512, 512),
    (-1, 20), (-1, 24), (-1, 30), (-1, 1000),
)  # fmt: skip
# Ragged around the 64 columns of a block and its clusters; then wide blocks, then not (n % 16).
COLUMNS = (8, 56, 64, 72, 136, 264, 1000, 4096, 17408, 17416)


def placed(w: Awq) -> Awq:
    return replace(
        w, **{name: x.to(DEVICE) for name, x in vars(w).items() if isinstance(x, torch.Tensor)}
    )


def random(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(shape).to(DEVICE, dtype)


def run(w: Awq, a: torch.Tensor) -> torch.Tensor:
    return mixed_gemm.awq_gemm(a, w.qweight, w.scales, w.qzeros)


# --- AutoAWQ -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("group_size", "k"), SCHEMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_awq_gemm_is_within_the_bound(record, dtype, group_size, k):
    for n in COLUMNS:
        if n * k > 1 << 24:
            continue  # float64 references of it take seconds
        w = placed(awq(n, k, group_size, dtype))
        a = random(max(ROWS), k, dtype=dtype)
        arguments, scheme = (a, w.q, w.scales, w.zeros), {"group_size": group_size}
        expected = reference.fpA_intB_gemm(*arguments, **scheme)
        bound = reference.error_bound(*arguments, **scheme)
        for m in ROWS:
            out = run(w, a[:m])
            assert out.dtype == dtype
            ratio = reference.error_ratio(out, expected[:m], bound[:m])
            record(f"awq_gemm-g{group_size}-{str(dtype)[6:]}", ratio)


def test_awq_gemm_float32(record):
    w = placed(awq(136, 192, 64, torch.float32))
    for m in ONE_OF_EACH_KERNEL:
        a = random(m, 192, dtype=torch.float32)
        record("awq_gemm-float32", w.ratio(run(w, a), a))


@pytest.mark.parametrize("n", (136, 17408))
@pytest.mark.parametrize("group_size", (32, 64))  # fine, coarse
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_awq_gemm_one_hot_rows_read_the_weight(dtype, group_size, n):
    w = placed(awq(n, 192, group_size, dtype))
    exact, identity = w.dense().to(dtype), torch.eye(192, dtype=dtype, device=DEVICE)
    for m in ONE_OF_EACH_KERNEL:
        for first in range(0, 192, m):
            rows = slice(first, min(first + m, 192))
            assert torch.equal(run(w, identity[rows]), exact[rows]), (m, first)


@pytest.mark.parametrize("dtype", (*DTYPES, torch.float32), ids=str)
def test_awq_dequantize_rounds_once_and_equals_cpu(dtype):
    for n, k, group_size in ((8, 16, 16), (136, 96, 48), (72, 30, -1), (4096, 512, 128)):
        w = awq(n, k, group_size, dtype)
        here = placed(w)
        out = mixed_gemm.awq_dequantize(here.qweight, here.scales, here.qzeros)
        assert torch.equal(out, here.dense().to(dtype))
        assert torch.equal(out.cpu(), mixed_gemm.awq_dequantize(w.qweight, w.scales, w.qzeros))


@pytest.mark.parametrize("m", ONE_OF_EACH_KERNEL)
@pytest.mark.parametrize("n", (136, 17408))
def test_awq_gemm_takes_weights_at_odd_places(n, m):
    """One element off: 4 bytes for the words, 2 for the scales, where kernels read 16 at once."""
    w, a = placed(awq(n, 128, 32)), random(m, 128)
    expected = run(w, a)
    for name in ("qweight", "qzeros", "scales"):
        t = getattr(w, name)
        flat = torch.full((t.numel() + 1,), -1, dtype=t.dtype, device=DEVICE)
        flat[1:] = t.flatten()
        wide = torch.full((t.shape[0], t.shape[1] + 3), -1, dtype=t.dtype, device=DEVICE)
        wide[:, 1:-2] = t
        odd = {"offset": flat[1:].view(t.shape), "strided": wide[:, 1:-2]}
        odd["transposed"] = t.t().contiguous().t()
        for place, view in odd.items():
            out = run(replace(w, **{name: view}), a)
            # one word at a time instead of two is another order of the sums
            ratio = w.ratio(out, a)
            assert ratio <= 1 and (n > 136 or torch.equal(out, expected)), (name, place, ratio)


@pytest.mark.parametrize("m", ONE_OF_EACH_KERNEL)
def test_awq_gemm_repeats_are_bitwise_equal_and_rows_independent(m):
    for n in (64, 4096, 17408):
        w, a = placed(awq(n, 512, 128, torch.bfloat16)), random(m, 512, dtype=torch.bfloat16)
        first = run(w, a)
        assert all(torch.equal(run(w, a), first) for _ in range(50))
        poisoned = a.clone()
        poisoned[m // 2] = float("nan")
        out, keep = run(w, poisoned), torch.arange(m, device=DEVICE) != m // 2
        assert torch.equal(out[keep], first[keep]) and out[m // 2].isnan().all()


@pytest.mark.parametrize("m", ONE_OF_EACH_KERNEL)
def test_awq_gemm_reads_weights_that_the_kernel_before_writes(m):
    """A slow awq_gemm, which lets its successor start early, makes the words of the next one."""
    k, n, rows = 1 << 18, 64, 64

    def words(*size: int) -> torch.Tensor:
        return torch.randint(-(2**31), 2**31, size, dtype=torch.int32, device=DEVICE)

    slow = (words(k, n // 8), random(k // 128, n) / 32, words(k // 128, n // 8))
    scales, zeros, a = random(1, 4 * n), words(1, n // 2), random(m, rows)
    inputs = [random(1, k).expand(rows, -1) for _ in range(4)]

    def outputs(wait: bool) -> list[torch.Tensor]:
        results = []
        for x in inputs:  # all their products lie in the same memory, one after the other
            made = mixed_gemm.awq_gemm(x, *slow)
            if wait:
                torch.cuda.synchronize()
            results.append(mixed_gemm.awq_gemm(a, made.view(torch.int32), scales, zeros))
            del made
        return results

    assert all(map(torch.equal, outputs(wait=False), outputs(wait=True)))


def test_awq_gemm_split_is_a_hint_on_every_path():
    w = placed(awq(72, 96, 32))
    for m in ONE_OF_EACH_KERNEL:
        a = random(m, 96)
        for split in (1, 8, 32):
            out = torch.ops.mixed_gemm.awq_gemm(a, w.qweight, w.scales, w.qzeros, split)
            assert torch.equal(out, run(w, a))


def test_awq_gemm_beyond_two_to_the_31_elements():
    """vllm#24782: an int offset into the activations overflowed from 524,289 rows on."""
    m, k = 524_300, 4096
    w = placed(awq(8, k, 128))
    a = torch.zeros(m, k, dtype=torch.float16, device=DEVICE)
    for rows in (slice(0, 3), slice(m - 3, m)):
        a[rows] = random(3, k)
    out = run(w, a)
    for rows in (slice(0, 3), slice(m - 3, m)):
        assert w.ratio(out[rows], a[rows]) <= 1
    assert not out[3 : m - 3].any()


def test_awq_gemm_gradient_and_autocast():
    w = placed(awq(72, 96, 32, torch.float32))
    a = random(40, 96, dtype=torch.float32).requires_grad_()
    grad = random(40, 72, dtype=torch.float32)
    run(w, a).backward(grad)
    exact = grad.double() @ w.dense().t()
    torch.testing.assert_close(a.grad.double(), exact, rtol=1e-5, atol=1e-5)
    for dtype in DTYPES:
        with torch.autocast(DEVICE, dtype=dtype):
            assert run(w, a.detach()).dtype == dtype


def test_bad_input_raises_and_leaves_no_sticky_error():
    w, a = placed(awq(72, 96, 32)), random(5, 96)
    expected = run(w, a)
    bad = (
        ((a, w.qweight.cpu(), w.scales, w.qzeros), r"device.*cpu"),
        ((a, w.qweight, w.qzeros, w.scales), "scales come before qzeros"),
        ((a, w.qweight, w.scales[:1], w.qzeros), r"scales must be .* = \(3, 72\), got \(1, 72\)"),
        ((a[:, :80], w.qweight, w.scales, w.qzeros), r"input must be .*96.*80"),
    )
    for arguments, message in bad if DEVICE == "cuda" else bad[1:]:
        with pytest.raises(RuntimeError, match=message):
            torch.ops.mixed_gemm.awq_gemm(*arguments, 1)
        assert torch.equal(run(w, a), expected)
    with pytest.raises(ValueError, match=r"each of 0\.\.31 once"):
        perm = torch.zeros(32, dtype=torch.int32, device=DEVICE)
        mixed_gemm.ops.gptq_repack(
            torch.zeros(4, 8, dtype=torch.int32, device=DEVICE), perm, bits=4
        )


# --- repacking ---------------------------------------------------------------------------------


def test_awq_repack_equals_packing_the_integers():
    for n, k in ((8, 1), (72, 80), (264, 130), (4096, 512)):
        w = awq(n, k, -1)
        packed = mixed_gemm.ops.awq_repack(w.qweight.to(DEVICE))
        assert torch.equal(packed.cpu(), mixed_gemm.pack_weights(w.q, 4))
        strided = torch.stack([w.qweight.to(DEVICE)] * 2, -1)[..., 1]
        assert torch.equal(mixed_gemm.ops.awq_repack(strided), packed)


@pytest.mark.parametrize("bits", (2, 3, 4, 8))
def test_gptq_repack_equals_packing_the_integers(bits):
    for n, k in ((1, 32), (65, 96), (130, 224), (1000, 4096)):
        codes = torch.randint(0, 2**bits, (k, n))
        words = gptq_words(codes, bits).to(DEVICE)
        for perm in (None, torch.randperm(k)):
            rows = codes if perm is None else codes[perm]
            q = (rows - 2 ** (bits - 1)).t().to(torch.int8)
            order = None if perm is None else perm.to(DEVICE, torch.int32)
            packed = mixed_gemm.ops.gptq_repack(words, order, bits=bits)
            assert torch.equal(packed.cpu(), mixed_gemm.pack_weights(q, 8 if bits == 8 else 4))


# --- streams and graphs ------------------------------------------------------------------------


# --- checkpoints -------------------------------------------------------------------------------


def layer_ratio(linear: mixed_gemm.Linear, weight: QuantizedWeight, m: int) -> float:
    """Of a forward with ``m`` random rows, against ``weight`` dequantized in float64."""
    a = random(m, weight.shape[1], dtype=linear.scales.dtype)
    on_device = {
        name: None if x is None else x.to(DEVICE)
        for name in ("q", "scales", "zeros", "bias", "permutation")
        for x in (getattr(weight, name),)
    }
    order = on_device["permutation"]
    x = a if order is None else a[:, order]
    arguments = (x, *(on_device[name] for name in ("q", "scales", "zeros", "bias")))
    scheme = {
        "group_size": weight.group_size,
        "zero_mode": "add" if weight.zero_mode == "add" else "sub",
    }
    expected = reference.fpA_intB_gemm(*arguments, **scheme)
    bound = reference.error_bound(*arguments, **scheme)
    with torch.no_grad():
        return reference.error_ratio(linear(a), expected, bound)


@pytest.mark.parametrize("folder", (*INTEGERS, *FLOATS))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fixture_multiplies_within_the_bound(record, dtype, folder):
    for loaded in open_checkpoint(DATA / folder):
        weight = (loaded.requantize() if loaded.is_fp8 else loaded).to(dtype).weight_only()
        linear = weight.to_linear(dtype).to(DEVICE)
        # float16 is what the files of integers have: nothing is rounded but the product
        if folder in INTEGERS and dtype == torch.float16:
            assert torch.equal(linear.dequantize().cpu(), truth(folder, loaded.name).half())
        for m in (1, 5, 40, 300):
            ratio = layer_ratio(linear, weight, m)
            record(f"{folder}-{str(dtype)[6:]}", ratio)


def truth(folder: str, name: str) -> torch.Tensor:
    """float32 ``[N, K]``: what the packer was given."""
    _, bits, group_size, symmetric, act_order, least_zero = INTEGERS[folder]
    n, k = tiny_llama.LINEARS[name]
    scheme = (bits, group_size, symmetric, act_order, least_zero)
    return tiny_llama.grid(name, n, k, *scheme).weight()


@pytest.mark.parametrize("folder", (*INTEGERS, *FLOATS))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fixture_decoded_on_the_device_equals_cpu(dtype, folder):
    """As from_pretrained does it: the file's tensors go to the device, and are decoded there."""
    checkpoint = open_checkpoint(DATA / folder)
    for name, (n, k) in tiny_llama.LINEARS.items():
        tensors = LayerTensors(checkpoint.index, name)
        model = torch.nn.Linear(k, n, tensors.has("bias"), device="meta", dtype=dtype)
        layer = pending(name, checkpoint.codec, tensors, model)
        for role in filter(tensors.has, checkpoint.codec.roles):
            tensor = tensors.load(role).to(DEVICE)
            if role == EXTRA_STATE:
                layer.set_extra_state(tensor)
                continue
            parameter = torch.nn.Parameter(tensor, requires_grad=False)
            parameter._is_hf_initialized = True
            setattr(layer, role, parameter)
        found = layer.finish()
        weight = checkpoint.layer(name)
        wanted = weight.to_linear(dtype)
        tensors_of = {k: v for k, v in found.state_dict().items() if k != "_extra_state"}
        assert {x.device.type for x in tensors_of.values()} == {DEVICE}
        assert set(found.state_dict()) == set(wanted.state_dict())
        for key, value in wanted.state_dict().items():
            assert torch.equal(found.state_dict()[key].cpu(), value), (name, key)


@pytest.mark.parametrize(
    "folder", ("gptq_v2_4bit_act_order", "awq_gemv_fast", "ct_pack_4bit_zeros")
)
def test_fixture_is_captured_and_compiled(folder):
    for loaded in open_checkpoint(DATA / folder):
        linear = loaded.to_linear(torch.float16).to(DEVICE).requires_grad_(False)
        a = random(3, loaded.shape[1])
        expected = linear(a)
        torch._dynamo.reset()  # layers of other shapes are not recompilations of this one
        compiled = torch.compile(copy.deepcopy(linear), fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(a), expected)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = linear(a)
        a.copy_(random(*a.shape))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, linear(a)) and not torch.equal(out, expected)


# --- transformers ------------------------------------------------------------------------------


@pytest.fixture
def end_to_end(monkeypatch):
    """The helpers of the CPU's tests, with the prompt on the device."""
    pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
    pytest.importorskip("accelerate", reason="optional: hf extra; device_map needs it")
    from support import generation

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(generation, "PROMPT", generation.PROMPT.to(DEVICE))
    return generation


@pytest.mark.parametrize("folder", INTEGERS)
def test_from_pretrained_generates_what_the_dense_model_does(end_to_end, folder):
    # One of them asks for rounded activations (W8A8), which the dense model does not have.
    options = {"dtype": torch.float32, "device_map": DEVICE, "weight_only": True}
    model = mixed_gemm.from_pretrained(DATA / folder, **options)
    end_to_end.assert_equals_dense(model, end_to_end.truth(folder).to(DEVICE))


@pytest.mark.parametrize("folder", INTEGERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_from_pretrained_generates_within_the_bound(record, end_to_end, folder, dtype):
    """Every layer at every step of generate(). Tokens are compared in float32 only: the two best
    logits of this model are as close as 0.003, which rounding to 16 bits moves by 0.01."""
    options = {"dtype": dtype, "device_map": DEVICE, "weight_only": True}
    model = mixed_gemm.from_pretrained(DATA / folder, **options)
    ratio = end_to_end.worst_ratio(model, end_to_end.generated)
    record(f"generate-{folder}-{str(dtype)[6:]}", ratio)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_w8a8_file_is_served_as_w8a8(dtype):
    """Activations are rounded on the GPU as on the CPU, to the bit, so the products differ by their
    last rounding alone."""
    for loaded in open_checkpoint(DATA / "ct_int_8bit"):
        linear = loaded.to_linear(dtype)
        assert linear.weight.kind == "w8a8"
        x = torch.randn(9, loaded.shape[1], dtype=dtype)
        with torch.no_grad():
            here, there = linear(x), linear.to(DEVICE)(x.to(DEVICE)).cpu()
        torch.testing.assert_close(there, here)
