"""Products of two extents around 2^31, where a 32-bit count wraps: every op and family against
float64 at sampled rows and columns, the last element and those around element 2^31 among them; and
no element may be left unwritten. A refusal that names the limit counts as an answer.

    python tests/gpu/sizes.py --out sizes.json            # an H100 or more: up to 40 GiB at a time
    python tests/gpu/sizes.py --device cpu --log2 16      # the same code, small

Exit status 1 if an element was wrong. Not a pytest file.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from problems import verdict
from problems.placing import poison_output
from problems.scaled import ScaledCase, ScaledProblem, listed_for
from run_info import meta, write, write_part

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.ops.problem import num_groups
from mixed_gemm.reference import conv as reference_conv
from mixed_gemm.reference import moe as reference_moe
from mixed_gemm.reference import scaled as reference_scaled
from mixed_gemm.selection.planning import device_string

F16, BF16 = torch.float16, torch.bfloat16
FLOAT8 = torch.float8_e4m3fn
REFUSAL = re.compile(
    r"mixed_gemm(::|\.)\w+: .*(at most|fewer than|below|must be in|can be counted)"
)
AT_ONCE = 1 << 28  # elements that are looked at together
ops = torch.ops.mixed_gemm


@dataclass(frozen=True)
class Around:
    """Where the counts are: ``limit`` is 2^31, or less to try the script."""

    device: str
    limit: int

    def split(self, short_log2: int) -> tuple[int, int]:
        """(long, short) with long * short = limit, short about 2^short_log2 of 2^31."""
        short = max(16, min(1 << short_log2, int(self.limit**0.5)) // 16 * 16)
        return self.limit // short, short

    def samples(self, extent: int, width: int) -> Tensor:
        """Rows of ``width`` elements: the ends, those around the limit, and some at random."""
        at = self.limit // width
        rng = random.Random(extent)
        wanted = {0, 1, extent // 2, at - 1, at, at + 1, extent - 2, extent - 1}
        wanted |= {rng.randrange(extent) for _ in range(24)}
        found = sorted(i for i in wanted if 0 <= i < extent)
        return torch.tensor(found, device=self.device)

    def ints(self, *shape: int, bits: int = 8) -> Tensor:
        high = 1 << (bits - 1)
        return torch.randint(-high, high, shape, dtype=torch.int8, device=self.device)

    def normal(self, *shape: int, dtype: torch.dtype = F16) -> Tensor:
        return torch.randn(shape, dtype=dtype, device=self.device)

    def float8(self, *shape: int) -> Tensor:
        return (self.normal(*shape) * 4).to(FLOAT8)

    def scales(self, *shape: int, dtype: torch.dtype = F16) -> Tensor:
        return (torch.rand(shape, device=self.device) / 16 + 0.01).to(dtype)


Run = tuple[str, Callable[[], Tensor], Callable[[Tensor], Tensor]]  # name, call, verdict


def unwritten(out: Tensor) -> int:
    """Elements that are NaN."""
    if not out.is_floating_point() or out.dtype == FLOAT8:
        return 0
    flat = out.reshape(-1)
    return sum(int(part.isnan().sum()) for part in flat.split(AT_ONCE))


def one_of_each(names: list[str]) -> list[str]:
    """The first configuration of every family and split."""
    found: dict[tuple[str, str], str] = {}
    for name in names:
        split = re.search(r"_(streamk|parallel|cluster)", name)
        found.setdefault((name.partition("_")[0], split[1] if split else ""), name)
    return list(found.values())


def candidates(answer: str) -> list[str]:
    return [c["config"] for c in json.loads(answer).get("candidates", ())]


# --- fpA_intB_gemm ------------------------------------------------------------------------------


def gemm_runs(on: Around, m: int, n: int, k: int, bits: int, group: int, forced: bool) -> Iterator:
    q = on.ints(n, k, bits=bits)
    packed = mixed_gemm.pack_weights(q, bits)
    groups = num_groups(k, group)
    a, scales = on.normal(m, k), on.scales(groups, n)
    zeros = torch.randint(-4, 4, (groups, n), device=on.device).to(F16)
    bias = on.normal(n)
    rows, columns = on.samples(m, max(n, k)), on.samples(n, k)
    options = {"bits": bits, "group_size": group}

    def check(out: Tensor) -> Tensor:
        part = (x[:, columns] for x in (scales, zeros))
        oracle = reference.oracle(a[rows], q[columns], *part, bias[columns], group_size=group)
        return verdict.worst(out[rows][:, columns], oracle)

    def call(config: str | None) -> Tensor:
        poison_output((m, n), a)
        if config is None:
            return mixed_gemm.fpA_intB_gemm(a, packed, scales, zeros, bias, **options)
        return ops.fpA_intB_gemm_config(a, packed, scales, zeros, bias, **options, config=config)

    configs: list[str | None] = [None]
    if forced and on.device != "cpu":
        where = device_string(on.device)
        configs += one_of_each(candidates(ops._plan(m, n, k, "float16", bits, group, "sub", where)))
    for config in configs:
        name = f"M={m} N={n} K={k} int{bits} g{group} {config or 'free'}"
        yield f"fpA_intB_gemm {name}", lambda c=config: call(c), check


def gemm(on: Around) -> Iterator[Run]:
    m, n = on.split(15)
    for more in (-1, 0, 1):
        yield from gemm_runs(on, m + more, n, 64, 4, 32, forced=more == 1)
    yield from gemm_runs(on, m // 3 + 2, n, 256, 4, 64, forced=True)  # times 3 slices and more
    m, k = on.split(11)
    for more in (-1, 1):
        yield from gemm_runs(on, m + more, 72, k, 4, 128, forced=more == 1)
    n, k = on.split(14)
    for bits, more in ((4, 1), (8, 1), (8, -1)):
        yield from gemm_runs(on, 3, n + more, k, bits, 128, forced=more == 1)
    yield from gemm_runs(on, 40, n + 1, k, 8, -1, forced=True)


def strided_gemm(on: Around) -> Iterator[Run]:
    """Rows so far apart that the last one begins beyond the limit."""
    m, ld = on.split(14)
    k, n = min(256, ld), 72
    buffer = torch.full((m + 1, ld), float("nan"), dtype=F16, device=on.device)
    buffer[:, :k] = on.normal(m + 1, k)
    a, q, scales = buffer[:, :k], on.ints(n, k, bits=4), on.scales(num_groups(k, 64), n)
    packed, rows = mixed_gemm.pack_weights(q, 4), on.samples(m + 1, ld)

    def check(out: Tensor) -> Tensor:
        return verdict.worst(out[rows], reference.oracle(a[rows], q, scales, group_size=64))

    def call(config: str | None = None) -> Tensor:
        poison_output((m + 1, n), a)
        if config is None:
            return mixed_gemm.fpA_intB_gemm(a, packed, scales, bits=4, group_size=64)
        return ops.fpA_intB_gemm_config(a, packed, scales, bits=4, group_size=64, config=config)

    yield f"fpA_intB_gemm M={m + 1} rows {ld} apart, free", call, check
    if on.device != "cpu":
        where = device_string(on.device)
        for config in one_of_each(candidates(ops._plan(m, n, k, "float16", 4, 64, "none", where))):
            yield f"fpA_intB_gemm rows {ld} apart, {config}", lambda c=config: call(c), check


def weights(on: Around) -> Iterator[Run]:
    n, k = on.split(14)
    n += 1
    for bits in (4, 8):
        q = on.ints(n, k, bits=bits)
        packed = mixed_gemm.pack_weights(q, bits)
        scales, columns = on.scales(num_groups(k, 128), n), on.samples(n, k)

        def same(out: Tensor, q: Tensor = q) -> Tensor:
            parts = zip(out.split(4096), q.split(4096), strict=True)
            return torch.stack([verdict.exact(x, y) for x, y in parts]).max()

        def dense(out: Tensor, q: Tensor = q, s: Tensor = scales, i: Tensor = columns) -> Tensor:
            w = reference.dequantize(q[i], s[:, i], group_size=128)
            return verdict.exact(out[i], w.to(F16))

        def dequantized(p: Tensor = packed, s: Tensor = scales, b: int = bits) -> Tensor:
            return mixed_gemm.dequantize_weights(p, s, bits=b, group_size=128, n=n, k=k)

        def unpacked(p: Tensor = packed, b: int = bits) -> Tensor:
            return mixed_gemm.unpack_weights(p, b, n, k)

        yield f"unpack_weights N={n} K={k} int{bits}", unpacked, same
        yield f"dequantize_weights N={n} K={k} int{bits}", dequantized, dense


# --- 8 bits -------------------------------------------------------------------------------------


def scaled_runs(
    on: Around,
    m: int,
    n: int,
    k: int,
    forced: bool,
    operand: torch.dtype = torch.int8,
    block: tuple[int, int] | None = None,
) -> Iterator[Run]:
    made = on.ints if operand == torch.int8 else on.float8
    a, weight = made(m, k), made(n, k)
    blocks = -(-k // block[1]) if block else 1
    scale_a = on.scales(m, blocks, dtype=torch.float32)
    of_columns = (-(-n // block[0]), blocks) if block else (n,)
    scale_b = on.scales(*of_columns, dtype=torch.float32)
    rows, columns = on.samples(m, max(n, k)), on.samples(n, k)
    case = ScaledCase(m, n, k, BF16, operand, block=block)
    problem = ScaledProblem(case, a, weight, scale_a, scale_b, None, None, None)

    def check(out: Tensor, config: str | None) -> Tensor:
        of_sampled = scale_b[columns // block[0] if block else columns]
        part = (a[rows], weight[columns].t(), scale_a[rows], of_sampled)
        size = (1, block[1]) if block else None
        expected = reference_scaled.scaled_mm(*part, block_size=size)
        bound = reference_scaled.error_bound(
            *part, out_dtype=BF16, block_size=size, **problem.sums(config)._asdict()
        )
        return verdict.ratio(out[rows][:, columns], expected, bound)

    configs: list[str | None] = [None]
    if forced and on.device != "cpu":
        configs += one_of_each([name for name in listed_for(case, on.device)
                                if name in problem.configs()])  # fmt: skip
    name = "scaled_mm" if operand == torch.int8 else "scaled_mm of float8"
    name = f"{name}{' by blocks' if block else ''} M={m} N={n} K={k}"
    for config in configs:
        yield (
            f"{name} {config or 'free'}",
            partial(problem.run, config=config),
            partial(check, config=config),
        )


def runs_of(
    name: str,
    configs: list[str | None],
    call: Callable[[str | None], Tensor],
    check: Callable[[Tensor], Tensor],
) -> Iterator[Run]:
    """One of the op's own choice (None) and of each configuration."""
    for config in configs:
        yield f"{name} {config or 'free'}", lambda c=config: call(c), check


def scaled(on: Around) -> Iterator[Run]:
    m, n = on.split(15)
    for more in (-1, 1):
        yield from scaled_runs(on, m + more, n, 64, forced=more == 1)
    yield from scaled_runs(on, m // 3 + 2, n, 512, forced=True)
    m, k = on.split(11)
    yield from scaled_runs(on, m + 1, 72, k, forced=True)
    n, k = on.split(14)
    yield from scaled_runs(on, 40, n + 1, k, forced=True)


def float8(on: Around) -> Iterator[Run]:
    """With scales of rows and columns, and of blocks: outputs, activations and weights of so many
    elements."""
    for block in (None, (128, 128)):
        kind: dict[str, Any] = {"operand": FLOAT8, "block": block, "forced": True}
        m, n = on.split(15)
        yield from scaled_runs(on, m + 1, n, 128, **kind)
        m, k = on.split(11)
        yield from scaled_runs(on, m + 1, 72, k, **kind)
        n, k = on.split(14)
        yield from scaled_runs(on, 40, n + 1, k, **kind)


def scaled_dynamic(on: Around) -> Iterator[Run]:
    """Bit for bit the two calls that it stands for, which `scaled` and `quantizers` look at."""
    outputs, activations = on.split(15), on.split(11)
    for m, n, k in (
        (outputs[0] + 1, outputs[1], 64),
        (activations[0] + 1, 72, activations[1]),
    ):
        a, weight, scale = on.normal(m, k), on.ints(n, k), on.scales(n, dtype=torch.float32)
        rows = on.samples(m, max(n, k))

        def check(out: Tensor, given: tuple[Tensor, ...] = (a, weight, scale, rows)) -> Tensor:
            x, w, s, at = given
            q, of_rows, _ = mixed_gemm.quantize_per_token(x[at])
            return verdict.exact(out[at], mixed_gemm.scaled_mm(q, w.t(), of_rows, s, out_dtype=F16))

        call = partial(mixed_gemm.scaled_mm_dynamic, a, weight.t(), scale)
        yield f"scaled_mm_dynamic M={m} N={n} K={k}", call, check


def quantizers(on: Around) -> Iterator[Run]:
    m, k = on.split(11)
    a = on.normal(m + 1, k)
    rows = on.samples(m + 1, k)

    def check(out: Tensor) -> Tensor:
        expected = reference_scaled.quantize_per_token(a[rows].cpu())[0]
        return verdict.exact(out[rows].cpu(), expected)

    def per_tensor(out: Tensor) -> Tensor:
        expected = reference_scaled.quantize_per_tensor(a[rows].cpu(), step.cpu())
        return verdict.exact(out[rows].cpu(), expected)

    step = torch.tensor(0.02, device=on.device)
    shape = f"M={m + 1} K={k}"
    yield f"quantize_per_token {shape}", lambda: mixed_gemm.quantize_per_token(a)[0], check
    yield (
        f"quantize_per_tensor {shape}",
        lambda: mixed_gemm.quantize_per_tensor(a, step),
        per_tensor,
    )

    def to_float8(out: Tensor, block_size: int | None) -> Tensor:
        expected, _ = reference_scaled.quantize_fp8(a[rows].cpu(), block_size=block_size)
        return verdict.exact(out[rows].float().cpu(), expected.float())

    for size in (None, 128):
        yield (
            f"quantize_fp8 {shape} by {size or 'row'}",
            lambda size=size: mixed_gemm.quantize_fp8(a, block_size=size)[0],
            partial(to_float8, block_size=size),
        )


def experts(on: Around) -> Iterator[Run]:
    """Rows of so many elements; each reference looks at some of the tokens."""
    m, k = on.split(11)
    m, top_k, count = m // 4 + 1, 4, 64
    x, ids = on.normal(m, k), torch.randint(0, count, (m, top_k), device=on.device)
    tokens, weights = on.samples(m, top_k * k), torch.rand(m, top_k, device=on.device)
    shape = f"M={m} K={k} top_k={top_k}"

    def permuted(rows: Tensor) -> Tensor:
        _, _, positions = reference_moe.moe_permute(x[:, :1], ids, count)
        found = rows[positions[tokens].long()]
        return verdict.exact(found, x[tokens][:, None].expand_as(found))

    yield f"moe_permute {shape}", lambda: mixed_gemm.moe_permute(x, ids, count)[0], permuted
    rows, _, positions = mixed_gemm.moe_permute(x, ids, count)

    def combined(out: Tensor) -> Tensor:
        expected = reference_moe.moe_combine(rows, positions[tokens], weights[tokens])
        return verdict.exact(out[tokens], expected)

    yield f"moe_combine {shape}", lambda: mixed_gemm.moe_combine(rows, positions, weights), combined
    some = on.samples(len(rows), k)

    def gated(out: Tensor) -> Tensor:
        given = rows[some].cpu()
        expected = reference_moe.gated_activation(given)
        return verdict.ratio(out[some].cpu(), expected, reference_moe.gated_error_bound(given))

    yield f"gated_activation {shape}", lambda: mixed_gemm.gated_activation(rows), gated


def block_runs(on: Around, m: int, n: int, k: int, block: int, forced: bool) -> Iterator[Run]:
    a, weight = on.normal(m, k), on.ints(n, k)
    groups = num_groups(k, block)
    scale, offset = on.scales(groups, n), on.normal(groups, n) / 16
    rows, columns = on.samples(m, max(n, k)), on.samples(n, k)
    arguments = (a, weight.t(), scale, offset)

    def check(out: Tensor) -> Tensor:
        part = (a[rows], weight[columns].t(), scale[:, columns], offset[:, columns])
        oracle = reference_conv.block_oracle(*part, block_size=block)
        return verdict.ratio(out[rows][:, columns], *oracle)

    def call(config: str | None) -> Tensor:
        poison_output((m, n), a)
        if config is None:
            return mixed_gemm.block_quant_gemm(*arguments, block_size=block)
        return ops._block_quant_gemm_config(*arguments, None, block_size=block, config=config)

    configs: list[str | None] = [None]
    if forced and on.device != "cpu":
        answer = ops._plan_block_quant_gemm(m, n, k, block, device_string(on.device))
        configs += one_of_each(candidates(answer))
    yield from runs_of(f"block_quant_gemm M={m} N={n} K={k} b{block}", configs, call, check)


def block(on: Around) -> Iterator[Run]:
    m, n = on.split(15)
    yield from block_runs(on, m + 1, n, 64, 32, forced=True)
    m, k = on.split(11)
    yield from block_runs(on, m + 1, 72, k, 128, forced=True)
    n, k = on.split(14)
    yield from block_runs(on, 40, n + 1, k, 128, forced=True)


def awq_runs(on: Around, m: int, n: int, k: int) -> Iterator[Run]:
    def words(*shape: int) -> Tensor:
        return torch.randint(-(2**31), 2**31, shape, dtype=torch.int32, device=on.device)

    def codes(of: Tensor, columns: Tensor) -> Tensor:  # [rows, columns]
        nibble = columns % 8 // 2 + columns % 2 * 4
        return of[:, columns // 8] >> (4 * nibble) & 15

    groups = k // 16 if k < 128 else k // 128
    qweight, qzeros, scales = words(k, n // 8), words(groups, n // 8), on.scales(groups, n)
    a, rows, columns = on.normal(m, k), on.samples(m, max(n, k)), on.samples(n, k)
    scheme = {"group_size": k // groups if groups > 1 else -1}

    def parts() -> tuple[Tensor, Tensor, Tensor]:
        q = (codes(qweight, columns) - 8).t().to(torch.int8)
        return q, scales[:, columns], (codes(qzeros, columns) - 8).to(F16)

    def check(out: Tensor) -> Tensor:
        oracle = reference.oracle(a[rows], *parts(), **scheme)
        return verdict.worst(out[rows][:, columns], oracle)

    def dense(out: Tensor) -> Tensor:
        return verdict.exact(out[:, columns], reference.dequantize(*parts(), **scheme).t().to(F16))

    def call() -> Tensor:
        poison_output((m, n), a)
        return mixed_gemm.awq_gemm(a, qweight, scales, qzeros)

    yield f"awq_gemm M={m} N={n} K={k}", call, check
    if n * k >= on.limit:
        shape = f"K={k} N={n}"
        yield (
            f"awq_dequantize {shape}",
            lambda: mixed_gemm.awq_dequantize(qweight, scales, qzeros),
            dense,
        )


def awq(on: Around) -> Iterator[Run]:
    m, n = on.split(15)
    yield from awq_runs(on, m + 1, n, 64)
    m, k = on.split(11)
    yield from awq_runs(on, m + 1, 72, k)
    n, k = on.split(14)
    yield from awq_runs(on, 40, (n + 8) // 8 * 8, k)


# --- images -------------------------------------------------------------------------------------


def conv(on: Around) -> Iterator[Run]:
    """Up to 2^31 - 1 elements of an image tensor are right, from 2^31 on they are refused."""
    side, in_c = 32, 64
    images = max(2, on.limit // (side * side * in_c))
    q = on.ints(8, in_c, 3, 3, bits=4)
    packed, scales = mixed_gemm.pack_conv_weights(q, 4), on.scales(1, 8)
    weight, weight_scale = on.ints(8, in_c, 3, 3), on.scales(8, dtype=torch.float32)
    geometry = {"stride": (4, 4), "padding": (1, 1)}
    int8 = {"input_scale": 0.02, "input_zero_point": 3, "output_scale": 1.0, "output_zero_point": 1}
    for count in (images - 1, images):
        shape = (count, in_c, side, side)
        x = on.normal(*shape).contiguous(memory_format=torch.channels_last)
        rows = on.samples(count, side * side * in_c)

        def check(out: Tensor, x: Tensor = x, rows: Tensor = rows) -> Tensor:
            oracle = reference_conv.oracle(x[rows], q, scales, **geometry)
            return verdict.ratio(out[rows], *oracle)

        def call(x: Tensor = x) -> Tensor:
            options = {"bits": 4, "kernel_size": (3, 3), **geometry}
            return mixed_gemm.qconv2d(x, packed, scales, **options)

        yield f"qconv2d input {shape}", call, check
        del x, check, call
        y = on.ints(*shape).contiguous(memory_format=torch.channels_last)

        def exact(out: Tensor, y: Tensor = y, rows: Tensor = rows) -> Tensor:
            options = {**geometry, **int8}
            expected = reference_conv.qconv2d_int8(y[rows], weight, weight_scale, **options)
            return verdict.exact(out[rows], expected)

        def call_int8(y: Tensor = y) -> Tensor:
            return mixed_gemm.qconv2d_int8(y, weight, weight_scale, **geometry, **int8)

        yield f"qconv2d_int8 input {shape}", call_int8, exact


def conv_output(on: Around) -> Iterator[Run]:
    """The same of the output: few channels in, many out."""
    side, out_c = 32, 128
    images = max(2, on.limit // (side * side * out_c))
    q = on.ints(out_c, 8, 1, 1, bits=4)
    packed, scales = mixed_gemm.pack_conv_weights(q, 4), on.scales(1, out_c)
    for count in (images - 1, images):
        x = on.normal(count, 8, side, side).contiguous(memory_format=torch.channels_last)
        rows = on.samples(count, side * side * out_c)

        def check(out: Tensor, x: Tensor = x, rows: Tensor = rows) -> Tensor:
            return verdict.ratio(out[rows], *reference_conv.oracle(x[rows], q, scales))

        def call(x: Tensor = x) -> Tensor:
            return mixed_gemm.qconv2d(x, packed, scales, bits=4, kernel_size=(1, 1))

        yield f"qconv2d output ({count}, {out_c}, {side}, {side})", call, check


PARTS: dict[str, Callable[[Around], Iterator[Run]]] = {
    "gemm": gemm,
    "strided_gemm": strided_gemm,
    "weights": weights,
    "scaled": scaled,
    "scaled_mm of float8": float8,
    "scaled_mm_dynamic": scaled_dynamic,
    "quantizers": quantizers,
    "experts": experts,
    "block": block,
    "awq": awq,
    "conv": conv,
    "conv_output": conv_output,
}


def answer(call: Callable[[], Tensor], check: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    try:
        out = call()
        holes = unwritten(out)
        return {"ratio": float(check(out)), "unwritten": holes}
    except torch.OutOfMemoryError as error:
        return {"out_of_memory": str(error)[:200]}
    except (RuntimeError, ValueError, NotImplementedError) as error:
        kind = "refused" if REFUSAL.search(str(error)) else "error"
        return {kind: str(error)[:300]}


def is_wrong(result: dict[str, Any]) -> bool:
    return "error" in result or not result.get("ratio", 0.0) <= 1 or result.get("unwritten", 0) > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--log2", type=int, default=31, help="of the limit; less tries the script")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--out", help="JSON")
    args = parser.parse_args()
    torch.manual_seed(0)
    on, results = Around(args.device, 1 << args.log2), []
    start = time.monotonic()
    for part in args.parts:
        runs = PARTS[part](on)
        while True:
            try:
                run = next(runs, None)
            except Exception as error:  # while its operands were made
                results.append({"part": part, "name": "operands", "error": str(error)[:300]})
                break
            if run is None:
                break
            name, call, check = run
            result = {"part": part, "name": name, **answer(call, check)}
            results.append(result)
            print(result, flush=True)
            del run, call, check
            if args.device != "cpu":
                torch.cuda.empty_cache()
        del runs
        gc.collect()
    wrong = [result for result in results if is_wrong(result)]
    report = {
        "meta": {
            **meta(args.device),
            "runs": len(results),
            "right": sum("ratio" in r and not is_wrong(r) for r in results),
            "refused": sum("refused" in r for r in results),
            "out_of_memory": sum("out_of_memory" in r for r in results),
            "wrong": len(wrong),
            "seconds": round(time.monotonic() - start, 1),
        },
        "results": results,
        "failures": wrong,
    }
    print(report["meta"])
    if args.out:
        write(args.out, report)
    rows = [
        {
            "name": f"extents around 2^{args.log2}: {part}",
            "count": sum(r["part"] == part for r in results),
            "failed": sum(r["part"] == part for r in wrong),
        }
        for part in args.parts
    ]
    write_part("cases", "sizes", args.device, [row for row in rows if row["count"]])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
