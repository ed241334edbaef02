"""Problems of scaled_mm and scaled_mm_azp."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

import mixed_gemm
from mixed_gemm import reference
from mixed_gemm.reference import scaled as reference_scaled
from mixed_gemm.selection.planning import device_string

from . import verdict
from .covering import Rules
from .gemm import COLUMNS, ROWS
from .lattice import FLOAT, Sample, integers, powers
from .placing import (
    LEAD_RULES,
    OF_ACTIVATIONS,
    PLACES_OF_ROWS,
    lead,
    place,
    poison_output,
)
from .rows import CUT_GROUP, CUT_K, CUT_M, CUT_N, GEMM_SIZES, HALF, Call, K, N, Op
from .values import Values

OUT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
OPERANDS = (torch.int8, torch.float8_e4m3fn)
AZP = ("none", "folded", "per_row")
DEPTHS = (
    0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65, 127, 128, 129, 255, 257, 384, 513,
    777, 1001, 1024, 2049,
)  # fmt: skip
STEP_K = 128  # a slice of K is at least one of them
MOST_SLICES = 40


@dataclass(frozen=True)
class ScaledCase:
    """One problem. ``row_scales`` and ``column_scales``: one for each, else one for all. ``block``:
    the scales are those of blocks."""

    m: int = 5
    n: int = 40
    k: int = 96
    out_dtype: torch.dtype = torch.float16
    operand: torch.dtype = torch.int8
    row_scales: bool = True
    column_scales: bool = True
    azp: str = "none"
    bias: bool = False
    lead: str = "2d"
    a_place: str = "alone"
    b_place: str = "alone"
    vectors_place: str = "alone"
    block: tuple[int, int] | None = None

    def __str__(self) -> str:
        names = [str(x).removeprefix("torch.") for x in (self.operand, self.out_dtype)]
        scales = "".join("tc"[x] for x in (self.row_scales, self.column_scales))
        bias = "-bias" if self.bias else ""
        blocks = "-blocks{}x{}".format(*self.block) if self.block else ""
        return f"m{self.m}n{self.n}k{self.k}-{'-'.join(names)}-{scales}-{self.azp}{bias}{blocks}"


FACTORS: dict[str, tuple[Any, ...]] = {
    "m": ROWS,
    "n": (0, *COLUMNS),
    "k": DEPTHS,
    "out_dtype": OUT_DTYPES,
    "operand": OPERANDS,
    "row_scales": (False, True),
    "column_scales": (False, True),
    "azp": AZP,
    "bias": (False, True),
    **OF_ACTIVATIONS,
    "b_place": PLACES_OF_ROWS,
    "vectors_place": ("alone", "guarded", "odd_offset", "every_second_row", "expanded"),
    "block": (None, (128, 128), (16, 48), (1, 5), (128, 4096)),
}
RULES: Rules = {
    **LEAD_RULES,
    ("operand", "azp"): lambda operand, azp: operand == torch.int8 or azp == "none",
    ("azp", "block"): lambda azp, block: azp == "none" or block is None,
    ("operand", "block"): lambda operand, block: operand != torch.int8 or block is None,
}


class Sums(NamedTuple):
    """The precision of float8 sums, as reference_scaled.error_bound takes it."""

    sum_epsilon: float = 2.0**-23
    promotion: int | None = None


TORCH_SCALED, TORCH_BLOCKS = "torch._scaled_mm", "torch.mm"


def sums_on_cuda(config: str, device: torch.device | str, k: int = 1) -> Sums:
    """Return the precision of a configuration by its name, or where that is empty of the one that
    is chosen among ours. On sm_90 wgmma keeps few bits between promotions, and fp16 tensor cores
    emulate mma.sync; mma.sync of sm_89 is taken to be as coarse as wgmma, and so is cuBLAS. torch
    reduces blocks in fp32."""
    if config == TORCH_BLOCKS:
        return Sums()
    if config == TORCH_SCALED or torch.cuda.get_device_capability(device) < (9, 0):
        return Sums(reference_scaled.HOPPER_FP8_EPSILON)
    chosen_wgmma = not config and k > 0 and torch.cuda.get_device_capability(device) == (9, 0)
    if chosen_wgmma or config.startswith("wgmma"):
        return Sums(promotion=reference_scaled.FP8_PROMOTION)
    return Sums()


@dataclass
class ScaledProblem(verdict.Remembered):
    case: ScaledCase
    a: Tensor
    weight: Tensor  # [N, K]
    scale_a: Tensor
    scale_b: Tensor
    bias: Tensor | None
    azp_adj: Tensor | None
    azp: Tensor | None

    @property
    def b(self) -> Tensor:
        return self.weight.t()

    def run(self, a: Tensor | None = None, config: str | None = None, **changes: Any) -> Tensor:
        """Through the Python layer, or a configuration by name. Into memory that held NaN."""
        a = self.a if a is None else a
        like = torch.empty(0, dtype=self.case.out_dtype, device=a.device)
        poison_output((*a.shape[:-1], self.b.shape[1]), like)
        arguments: dict[str, Any] = {
            "a": a,
            "b": self.b,
            "scale_a": self.scale_a,
            "scale_b": self.scale_b,
            "bias": self.bias,
            "out_dtype": self.case.out_dtype,
            **({"block_size": self.case.block} if self.case.block else {}),
        }
        op: Callable[..., Tensor] = mixed_gemm.scaled_mm
        if config is not None:
            arguments.update(azp_adj=self.azp_adj, azp=self.azp, config=config)
            op = torch.ops.mixed_gemm._scaled_mm_config
        elif self.azp_adj is not None:
            arguments.update(azp_adj=self.azp_adj, azp=self.azp)
            op = mixed_gemm.scaled_mm_azp
        return op(**{**arguments, **changes})

    def configs(self) -> list[str]:
        names = configs_of(self.case, self.a.device)
        return [name for name in names if self.case.block is None or name.startswith("wgmma")]

    def sums(self, config: str | None) -> Sums:
        """How float8 is added up."""
        if not self.a.is_cuda or self.case.operand == torch.int8:
            return Sums()
        if config is None:
            selected = answer_for(self.case, self.a.device).get("selected", "")
            config = selected if selected in (TORCH_SCALED, TORCH_BLOCKS) else ""
        return sums_on_cuda(config, self.a.device, self.case.k)

    def oracle(
        self, sum_epsilon: float = 2.0**-23, promotion: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """(exact, bound); see reference_scaled.error_bound."""
        operands = (self.a, self.b, self.scale_a, self.scale_b, self.bias)
        points: dict[str, Any] = {"azp_adj": self.azp_adj, "azp": self.azp}
        points["block_size"] = self.case.block
        expected = reference_scaled.scaled_mm(*operands, **points)
        bound = reference_scaled.error_bound(
            *operands,
            out_dtype=self.case.out_dtype,
            sum_epsilon=sum_epsilon,
            promotion=promotion,
            **points,
        )
        return expected, bound

    def ratio(
        self, out: Tensor, sum_epsilon: float = 2.0**-23, promotion: int | None = None
    ) -> float:
        """max |out - exact| / bound."""
        assert out.dtype == self.case.out_dtype
        return reference.error_ratio(out, *self.oracle(sum_epsilon, promotion))

    def verdict(self, out: Tensor, config: str | None = None) -> Tensor:
        assert out.dtype == self.case.out_dtype and out.is_contiguous()
        sums = self.sums(config)
        return verdict.ratio(out, *self.once(sums, lambda: self.oracle(*sums)))


def opcheck(problem: ScaledProblem) -> None:
    """torch's own check of the op that the problem is of."""
    p = problem
    options: dict[str, Any] = {"out_dtype": problem.case.out_dtype}
    if problem.case.block:
        options["block_size"] = problem.case.block
    shared = (p.a, p.b, p.scale_a, p.scale_b)
    ops = torch.ops.mixed_gemm
    if p.case.operand == torch.float8_e4m3fn:  # which torch's own "test_schema" cannot compare
        tests = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
        op = ops.scaled_mm.default
        torch.library.opcheck(op, (*shared, p.bias), options, test_utils=tests)
    elif p.azp_adj is None:
        torch.library.opcheck(ops.scaled_mm.default, (*shared, p.bias), options)
    else:
        arguments = (*shared, p.azp_adj, p.azp, p.bias)
        torch.library.opcheck(ops.scaled_mm_azp.default, arguments, options)


def answer_for(case: ScaledCase, device: torch.device | str) -> dict[str, Any]:
    """Return the plan of the library."""
    names = (str(dtype).removeprefix("torch.") for dtype in (case.operand, case.out_dtype))
    ask = torch.ops.mixed_gemm._plan_scaled_mm
    text = ask(case.m, case.n, case.k, *names, device_string(device), case.block)
    answer: dict[str, Any] = json.loads(text)
    assert answer["ok"] or case.operand != torch.int8, answer
    return answer


def listed_for(case: ScaledCase, device: torch.device | str) -> list[str]:
    """Return the kernels of ours that the planner of the library lists; none where the GPU has no
    float8."""
    names = [c["config"] for c in answer_for(case, device).get("candidates", ())]
    return [name for name in names if name not in (TORCH_SCALED, TORCH_BLOCKS)]


def configs_of(case: ScaledCase, device: torch.device | str) -> list[str]:
    """All that is listed, and splits that are legal and that are not: more workers of stream-K than
    the GPU holds at once, an odd split, and a slice for every step of K."""
    listed = listed_for(case, device)
    steps = -(-case.k // STEP_K)
    plain = [
        name for name in listed if name.count("_") == 1 and not name.startswith("skinny_")
    ]  # whose blocks do not share out K
    slices = [s for s in (5, steps) if 1 < s <= min(steps, MOST_SLICES)]
    more = [f"{name}_parallel{s}" for name in plain for s in slices]
    streams = [name for name in plain if f"{name}_streamk1" in listed]
    more += [f"{name}_streamk{s}" for name in streams for s in (3, 16)]
    return list(dict.fromkeys(listed + more))


def make(
    case: ScaledCase, device: str = "cpu", seed: int = 0, drawn_on: str = "cpu"
) -> ScaledProblem:
    """Random tensors: the same values on every device if ``drawn_on`` is the same."""
    values = Values(device, seed, drawn_on)
    m, n, k = case.m, case.n, case.k

    def operand(rows: int) -> Tensor:
        if case.operand == torch.int8:
            return values.integers(-128, 128, rows, k, dtype=torch.int8)
        return (values.normal(rows, k) * 4).to(case.operand)

    def scale(count: int) -> Tensor:  # negative scales are legal
        return (0.5 + values.uniform(count)) * values.signs(count) / 64 / max(k, 1) ** 0.5

    def put(x: Tensor | None) -> Any:
        return None if x is None else place(x, case.vectors_place)

    a, weight = operand(m), place(operand(n), case.b_place)
    scale_a = scale(m)[:, None] if case.row_scales else scale(1)
    scale_b = scale(n) if case.column_scales else scale(1)
    if case.block is not None:
        blocks, grid = -(-k // case.block[1]), -(-n // case.block[0])
        scale_a, scale_b = (
            scale(m * blocks).view(m, blocks),
            scale(grid * blocks).view(grid, blocks),
        )
    bias = values.normal(n).to(case.out_dtype) if case.bias else None
    azp_adj = azp = None
    if case.azp == "folded":
        azp_adj = mixed_gemm.ops.azp_adjustment(weight, 37 - 64 * (n % 3))
    elif case.azp == "per_row":
        azp_adj = mixed_gemm.ops.azp_adjustment(weight)
        azp = values.integers(-128, 128, m, 1, dtype=torch.int32)
    return ScaledProblem(
        case,
        place(lead(a, case.lead), case.a_place),
        weight,
        put(scale_a.contiguous()),
        put(scale_b),
        put(bias),
        put(azp_adj),
        put(azp),
    )


def cost(case: ScaledCase) -> int:
    return max(case.m, 1) * max(case.n, 1) * max(case.k, 1)


def sample(
    shape: tuple[int, ...] = (3, 16),
    n: int = 4,
    operand: torch.dtype = torch.int8,
    dtype: torch.dtype = FLOAT,
    scale_a: tuple[int, ...] | None = None,
    scale_b: tuple[int, ...] | None = None,
) -> Sample:
    """The shapes of the scales: one for each row, and a single 1, where none is said, so that
    results fit into bfloat16."""
    k = shape[-1]
    a, b = integers(*shape, dtype=operand), integers(n, k, dtype=operand).t()
    given = {
        "a": a,
        "b": b,
        "scale_a": powers(*((*shape[:-1], 1) if scale_a is None else scale_a)),
        "scale_b": torch.ones(1) if scale_b is None else powers(*scale_b),
        "bias": integers(n, dtype=dtype),
        "out_dtype": dtype,
    }

    def exact(bias: Tensor) -> Tensor:
        y = (a.double() @ b.double()) * given["scale_a"].double() * given["scale_b"].double()
        return y + bias

    return Sample("scaled_mm", given, ("bias",), exact)


def sample_azp(**sizes: Any) -> Sample:
    plain = sample(**sizes)
    rows = (*plain.arguments["a"].shape[:-1], 1)
    points = {
        "azp_adj": plain.arguments["b"].sum(0, dtype=torch.int32),
        "azp": integers(*rows, dtype=torch.int32),
    }

    def exact(bias: Tensor) -> Tensor:
        x = plain.arguments
        scale = x["scale_a"].double() * x["scale_b"].double()
        a = x["a"].double() - points["azp"].double()
        return a @ x["b"].double() * scale + bias

    return Sample("scaled_mm_azp", {**plain.arguments, **points}, ("bias",), exact)


_FLOAT8 = ScaledCase(48, 512, 1024, torch.bfloat16, torch.float8_e4m3fn)
OPS = {
    "scaled_mm": Op(
        ScaledCase, FACTORS, make, cost, RULES, GEMM_SIZES,
        typical=(
            ScaledCase(24, 200, 320, azp="per_row", bias=True),
            ScaledCase(24, 200, 321, azp="folded", column_scales=False),
            ScaledCase(48, 512, 1024, torch.bfloat16),
            _FLOAT8,
            replace(_FLOAT8, block=(128, 128), bias=True),
        ),
        forced=True,
    ),
}  # fmt: skip
SMALL = {"shape": (3, K), "n": N, "dtype": HALF, "scale_b": (1, N)}
CALLS = {
    "scaled_mm": Call(sample, SMALL, (ScaledCase(bias=True),)),
    "scaled_mm_azp": Call(sample_azp, SMALL, (ScaledCase(azp="per_row"),)),
}
TRAINED = {
    "scaled_mm": sample,
    "scaled_mm float8": lambda: sample(operand=torch.float8_e4m3fn),
    "scaled_mm_azp": sample_azp,
}


def _sharded(*rows: int, scale_a: tuple[int, ...], scale_b: tuple[int, ...] = (CUT_N,)) -> Sample:
    return sample((*rows, CUT_K), CUT_N, scale_a=scale_a, scale_b=scale_b)


def _sharded_by_blocks(*rows: int, block: tuple[int, int] = (4, CUT_GROUP)) -> Sample:
    blocks = CUT_K // block[1]
    scales = {"scale_a": (*rows, blocks), "scale_b": (-(-CUT_N // block[0]), blocks)}
    given = sample((*rows, CUT_K), CUT_N, operand=torch.float8_e4m3fn, **scales)
    return given.without(block_size=list(block))


SHARDED = {
    "scaled_mm, scale per row": lambda: _sharded(CUT_M, scale_a=(CUT_M, 1)),
    "scaled_mm, scales per tensor": lambda: _sharded(CUT_M, scale_a=(1,), scale_b=(1,)),
    "scaled_mm, no bias": lambda: _sharded(CUT_M, scale_a=(CUT_M, 1)).without("bias"),
    "scaled_mm, 3-D": lambda: _sharded(CUT_M, 2, scale_a=(CUT_M, 2, 1), scale_b=(1, CUT_N)),
    "scaled_mm, 3-D, rows in one dimension": lambda: _sharded(CUT_M, 2, scale_a=(2 * CUT_M,)),
    "scaled_mm, odd rows": lambda: _sharded(5, scale_a=(5,)),
    "scaled_mm, blocks": lambda: _sharded_by_blocks(CUT_M),
    "scaled_mm, blocks, 3-D": lambda: _sharded_by_blocks(CUT_M, 2),
    "scaled_mm, blocks, no bias": lambda: _sharded_by_blocks(3).without("bias"),
    "scaled_mm, blocks that no cut fits": lambda: _sharded_by_blocks(3, block=(CUT_N, CUT_GROUP)),
    "scaled_mm_azp": lambda: sample_azp(shape=(CUT_M, CUT_K), n=CUT_N, scale_b=(CUT_N,)),
}
