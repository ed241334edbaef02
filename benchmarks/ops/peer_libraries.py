"""4-bit products of other libraries, where their wheels are installed, on random weights in the
form that each stores: bitsandbytes (0.50.2), ONNX Runtime on the CPU (1.32), vLLM on a GPU
(0.26.0).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mixed_gemm.selection.timing import Call

NF4_BLOCK = 64
GROUP = 128


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def nf4(a: Tensor, weights: Sequence[Tensor]) -> list[Call]:
    """bitsandbytes' product with weights ``[N, K]`` of its 4-bit floating-point numbers, each block
    of 64 with a scale."""
    functional: Any = importlib.import_module("bitsandbytes.functional")
    matmul: Any = importlib.import_module("bitsandbytes").matmul_4bit
    stored = [functional.quantize_4bit(w, blocksize=NF4_BLOCK, quant_type="nf4") for w in weights]
    return [partial(matmul, a, w.t(), state) for w, state in stored]


def matmul_nbits(a: Tensor, codes: Sequence[Tensor], scales: Tensor, level: int) -> list[Call]:
    """ONNX Runtime's product on the CPU.

    Args:
        a: float32 ``[M, K]``. codes: uint8 ``[N, K]`` of 0 to 15, the zero point being 8. scales:
            float32 ``[N, K / 128]``.
        level: of accuracy: 0 multiplies float32, 4 rounds the activations to int8.
    """
    runtime: Any = importlib.import_module("onnxruntime")
    onnx: Any = importlib.import_module("onnx")
    helper, numbers = onnx.helper, onnx.numpy_helper
    k, n = a.shape[1], codes[0].shape[0]
    node = helper.make_node(
        "MatMulNBits", ["a", "b", "scales"], ["y"], domain="com.microsoft",
        K=k, N=n, bits=4, block_size=GROUP, accuracy_level=level,
    )  # fmt: skip
    ends = [helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, None) for x in ("a", "y")]
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    inputs = {"a": a.numpy()}

    def run(session: Any) -> Tensor:
        return torch.from_numpy(session.run(None, inputs)[0])

    calls: list[Call] = []
    for code in codes:
        blocks = code.view(n, k // GROUP, GROUP // 2, 2)
        packed = blocks[..., 0] | blocks[..., 1] << 4
        held = [
            numbers.from_array(packed.numpy(), "b"),
            numbers.from_array(scales.reshape(-1).numpy(), "scales"),
        ]
        graph = helper.make_graph([node], "product", ends[:1], ends[1:], held)
        versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=versions, ir_version=10)
        session = runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        calls.append(partial(run, session))
    return calls


def _load_vllm() -> Any:
    """Register vLLM's ops, and return its types of numbers."""
    modules = ("vllm._C", "vllm._C_stable_libtorch")  # before 0.26, and from it on
    importlib.import_module(next(filter(installed, modules), modules[0]))
    return importlib.import_module("vllm.scalar_type").scalar_types


def marlin(
    a: Tensor,
    words: Sequence[Tensor],
    scales: Tensor,
    number: str = "uint4b8",
    whole: Tensor | None = None,
) -> list[Call]:
    """vLLM's product with 4-bit weights in groups.

    Args:
        a: ``[M, K]``. words: int32 ``[K / 16, 2 * N]``. scales: ``[G, N]``, of groups of 128 in the
            dtype of ``a``, of 32 in float8_e8m0fnu, or of 16 in float8_e4m3fn.
        number: the type of a code, by vLLM's name.
        whole: float32 ``[1]``, the scale of all of a weight, or None.
    """
    code = getattr(_load_vllm(), number)
    count = torch.cuda.get_device_properties(a.device).multi_processor_count
    workspace = torch.zeros(4 * count, dtype=torch.int, device=a.device)
    (m, k), n = a.shape, scales.shape[1]
    none = None
    op = torch.ops._C.marlin_gemm
    return [
        partial(
            op, a, none, w, none, scales, none, whole, none, none, none, workspace, code.id,
            m, n, k, True, False, True, False,
        )
        for w in words
    ]  # fmt: skip


def machete(a: Tensor, words: Sequence[Tensor], scales: Tensor) -> list[Call]:
    """vLLM's product for compute capability 9.0 of float16 with int4 in groups of 128.

    Args:
        a: ``[M, K]``. words: int32 ``[N, K / 8]``. scales: ``[K / 128, N]``.
    """
    uint4b8 = _load_vllm().uint4b8
    pack, op, dtype = torch.ops._C.machete_prepack_B, torch.ops._C.machete_mm, a.dtype
    stored = [pack(w.t(), dtype, uint4b8.id, dtype) for w in words]
    none = None
    return [
        partial(op, a, w, uint4b8.id, dtype, scales, none, GROUP, none, none, none) for w in stored
    ]


def marlin_moe(experts: int, hidden: int, inner: int, top_k: int) -> Any:
    """vLLM's two products of a layer of experts, int4 in groups of 128, of random weights.

    Args:
        experts: E. hidden, inner: sizes of the layer. top_k: experts of a token.

    Returns:
        (x ``[T, hidden]``, ids ``[T, top_k]``, inner rows ``[T * top_k, inner]``) -> a call of both
        products, for which the rows of experts are aligned now.
    """
    code = _load_vllm().uint4b8
    importlib.import_module("vllm._moe_C_stable_libtorch")
    op = torch.ops._moe_C.moe_wna16_marlin_gemm
    count = torch.cuda.get_device_properties("cuda").multi_processor_count
    workspace = torch.zeros(4 * count, dtype=torch.int, device="cuda")
    none = None

    def weight(n: int, k: int) -> tuple[Tensor, Tensor]:
        words = torch.randint(-(2**31), 2**31 - 1, (experts, k // 16, n * 2), device="cuda")
        scales = torch.rand(experts, k // GROUP, n, device="cuda") * 0.01
        return words.int(), scales.bfloat16()

    first, second = weight(2 * inner, hidden), weight(hidden, inner)

    def aligned(ids: Tensor, block: int) -> list[Tensor]:
        flat, slots, owners = ids.flatten().tolist(), list[int](), list[int]()
        of_expert: list[list[int]] = [[] for _ in range(experts)]
        for slot, expert in enumerate(flat):
            of_expert[expert].append(slot)
        for expert, own in enumerate(of_expert):
            padding = -len(own) % block
            slots += own + [len(flat)] * padding
            owners += [expert] * ((len(own) + padding) // block)
        found = (slots, owners, [len(slots)])
        return [torch.tensor(x, dtype=torch.int32, device="cuda") for x in found]

    def both(x: Tensor, ids: Tensor, inner_rows: Tensor) -> Call:
        tokens, choices = x.shape[0], x.shape[0] * top_k
        block = next((b for b in (8, 16, 32, 48) if choices / experts / b < 0.9), 64)
        places, ones = aligned(ids, block), torch.rand(tokens, top_k, device="cuda")
        wide = x.new_empty(choices, 2 * inner)
        out = x.new_empty(choices, hidden)

        def product(
            a: Tensor, c: Tensor, w: tuple[Tensor, Tensor], m: int, k: int, last: bool
        ) -> None:
            op(
                a, c, w[0], none, w[1], none, none, none, none, none, workspace, *places, ones,
                block, 1 if last else top_k, last, code.id, m, c.shape[1], k,
                True, False, True, False, -1, -1, -1,
            )  # fmt: skip

        def call() -> None:
            product(x, wide, first, tokens, hidden, False)
            product(inner_rows, out, second, choices, inner, True)

        return call

    return both
