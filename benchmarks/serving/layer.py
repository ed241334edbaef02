"""The layer of ``MixedGemmLinearKernel`` driven as vLLM drives it, on a GPU machine without vLLM.
Its parameters are made, loaded, packed and applied, eagerly and in a CUDA graph, and compared with
torch's own ops; and what a call costs the host beside ``torch.nn.functional.linear``.

    python -m benchmarks.serving.layer --out layer.json [--device cuda]

vLLM is not there, so the few names that the kernel takes from it stand in ``_NAMES`` as the least
things that do what the kernel asks of them. What vLLM really has is compared by
tests/python/integrations/test_vllm_interface.py, and the real engine runs in tests/vllm: this only
moves the same object to a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mixed_gemm import reference

HOST_CALLS, GOAL_US = 2000, 5.0


@dataclass
class Config:
    """The fields of vLLM's MPLinearLayerConfig."""

    full_weight_shape: tuple[int, int]
    partition_weight_shape: tuple[int, int]
    weight_type: Any
    act_type: torch.dtype
    group_size: int
    zero_points: bool
    out_type: torch.dtype | None = None


@dataclass(frozen=True)
class Codes:
    """The part of vLLM's ScalarType that is asked for unsigned codes."""

    size_bits: int
    bias: int

    def is_integer(self) -> bool:
        return True

    def is_signed(self) -> bool:
        return False


class _Base:
    def __init__(self, c: Any, q: str, s: str, zp: str | None = None) -> None:
        self.config, self.w_q_name, self.w_s_name, self.w_zp_name = c, q, s, zp


def _permute(param: Any, input_dim: int, output_dim: int, **kwargs: Any) -> Any:
    if param.input_dim != input_dim:
        param.data = param.data.t()
    return param


_NAMES: dict[str, dict[str, Any]] = {
    "vllm": {},
    "vllm.model_executor": {},
    "vllm.model_executor.kernels": {},
    "vllm.model_executor.kernels.linear": {"MPLinearKernel": _Base},
    "vllm.model_executor.parameter": {"permute_param_layout_": _permute},
}


def kernel_class() -> Any:
    """``MixedGemmLinearKernel`` on the names above, also where vLLM is installed: its own want its
    own parameters."""
    for name, found in _NAMES.items():
        module = types.ModuleType(name)
        vars(module).update(found)
        sys.modules[name] = module
    from mixed_gemm.integrations.vllm.weight_only import MixedGemmLinearKernel

    return MixedGemmLinearKernel


def _parameter(values: Tensor, input_dim: int) -> nn.Parameter:
    """As compressed-tensors' layers make them in vLLM: ``[output, input]``."""
    made = nn.Parameter(values, requires_grad=False)
    made.input_dim = input_dim  # type: ignore[attr-defined]
    return made


class Case:
    """One layer, with the integers that it stands for."""

    def __init__(
        self, n: int, k: int, bits: int, size: int, zeros: bool, dtype: torch.dtype, device: str
    ) -> None:
        middle, per_word, groups = 1 << (bits - 1), 32 // bits, 1 if size == -1 else k // size
        generator = torch.Generator().manual_seed(n + k + bits)
        codes = torch.randint(0, 2**bits, (n, k), generator=generator)
        points = torch.randint(0, 2**bits, (groups, n), generator=generator)
        self.q = (codes - middle).to(torch.int8).to(device)
        self.scales = ((0.5 + torch.rand(groups, n, generator=generator)) / 2**bits).to(dtype)
        self.scales = self.scales.to(device)
        self.zeros = (points - middle).to(dtype).to(device) if zeros else None
        self.size, self.dtype, self.device, self.k, self.n = size, dtype, device, k, n
        self.layer = nn.Module()
        self.layer.register_parameter("w", _parameter(_words(codes, per_word, bits).to(device), 1))
        self.layer.register_parameter("s", _parameter(self.scales.t().contiguous(), 1))
        if zeros:
            words = _words(points, per_word, bits).t().contiguous()
            self.layer.register_parameter("z", _parameter(words.to(device), 1))
        kind = Codes(bits, 0 if zeros else middle)
        config = Config((k, n), (k, n), kind, dtype, size, zeros)
        cls = kernel_class()
        able, reason = cls.can_implement(config)
        assert able, reason
        self.kernel = cls(config, "w", "s", "z" if zeros else None)
        self.kernel.process_weights_after_loading(self.layer)

    def input(self, m: int) -> Tensor:
        return torch.randn(m, self.k, device=self.device).to(self.dtype)

    def ratio(self, out: Tensor, x: Tensor) -> float:
        """Return the error as a part of the bound, against float64."""
        arguments: Any = tuple(
            None if t is None else t.cpu() for t in (x, self.q, self.scales, self.zeros)
        )
        expected = reference.fpA_intB_gemm(*arguments, group_size=self.size)
        bound = reference.error_bound(*arguments, group_size=self.size)
        return float(reference.error_ratio(out.cpu(), expected, bound))

    def dense(self) -> Tensor:
        """``[N, K]`` in the dtype of the activations."""
        size = self.k if self.size == -1 else self.size
        zeros = 0 if self.zeros is None else self.zeros.t().float().repeat_interleave(size, 1)
        scales = self.scales.t().float().repeat_interleave(size, 1)
        dense: Tensor = ((self.q.float() - zeros) * scales).to(self.dtype)
        return dense


def _words(codes: Tensor, per_word: int, bits: int) -> Tensor:
    fields = codes.view(codes.shape[0], -1, per_word)
    words = (fields << (torch.arange(per_word) * bits)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def captured(case: Case, x: Tensor) -> Tensor:
    """Return the layer's result in a CUDA graph, for an input that came after the capture."""
    static = torch.zeros_like(x)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        case.kernel.apply_weights(case.layer, static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out: Tensor = case.kernel.apply_weights(case.layer, static)
    static.copy_(x)
    graph.replay()
    torch.cuda.synchronize()
    return out


def host_us(call: Callable[[], Any], device: str) -> float:
    """Microseconds of the host for a call: the least of five runs, without waiting for the GPU."""
    best = float("inf")
    for _ in range(5):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(HOST_CALLS // 5):
            call()
        best = min(best, (time.perf_counter() - start) / (HOST_CALLS // 5))
        if device == "cuda":
            torch.cuda.synchronize()
    return best * 1e6


@torch.inference_mode()
def run(device: str, commit: str) -> dict[str, Any]:
    rows = []
    for bits in (4, 8):
        for zeros in (False, True):
            for size in (32, 128, -1):
                for dtype in (torch.float16, torch.bfloat16):
                    case = Case(1536, 1024, bits, size, zeros, dtype, device)
                    for m in (1, 16, 70):
                        x = case.input(m)
                        out = case.kernel.apply_weights(case.layer, x)
                        row = {
                            "bits": bits, "zeros": zeros, "group_size": size, "M": m,
                            "dtype": str(dtype).removeprefix("torch."),
                            "error_ratio": case.ratio(out, x),
                            # A loop of torch ops on dense weights, for the same input.
                            "dense_error_ratio": case.ratio(x @ case.dense().t(), x),
                        }  # fmt: skip
                        if device == "cuda":
                            same = torch.equal(captured(case, x), out)
                            row["graph_equals_eager"] = same
                        rows.append(row)
    small = Case(64, 64, 4, 32, False, torch.float16, device)
    x, dense = small.input(1), small.dense()
    ours = host_us(lambda: small.kernel.apply_weights(small.layer, x), device)
    linear = host_us(lambda: torch.nn.functional.linear(x, dense), device)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {
        "meta": {"device": name, "torch": torch.__version__, "vllm": "vllm" in sys.modules
                 and hasattr(sys.modules["vllm"], "__version__"), "commit": commit,
                 "date": datetime.date.today().isoformat()},
        "rows": rows,
        "host_us": {"ours": ours, "linear": linear, "more": ours - linear, "goal": GOAL_US},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", default="", help="whose code it is")
    given = parser.parse_args()
    report = run(given.device, given.commit)
    given.out.write_text(json.dumps(report, indent=1) + "\n")
    worst = max(row["error_ratio"] for row in report["rows"])
    graphs = all(row.get("graph_equals_eager", True) for row in report["rows"])
    print(f"error {worst:.3f} of the bound, graphs as eager: {graphs}, {report['host_us']}")
    return int(not (worst <= 1 and graphs))


if __name__ == "__main__":
    sys.exit(main())
