"""tests/sass/check_sass.py on listings that are written here: what it counts, and which spills are
faults."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sass"))

import check_sass

ROOT = Path(__file__).resolve().parents[2]
ARRIVE = "WARPGROUP.ARRIVE"
MULTIPLY = "HGMMA.64x32x16.F32 R24, R68, gdesc[UR12], R24"
LAST = f"{MULTIPLY}, gsb0"
WAIT = {count: f"WARPGROUP.DEPBAR.LE gsb0, {count:#x}" for count in (0, 1)}


def counts(*loop: str, behind: tuple[str, ...] = ()) -> dict[str, int]:
    """What is counted in a kernel with this loop."""
    texts = [*loop, "@P0 BRA 0x0000", *behind, "EXIT"]
    lines = [f"        /*{16 * i:04x}*/                   {text} ;" for i, text in enumerate(texts)]
    return check_sass.count_instructions("\n".join(lines))


def test_products_that_each_wait_for_the_one_before_are_seen() -> None:
    one = (ARRIVE, LAST, WAIT[0])
    found = counts(*one, *one, *one, *one)
    assert (found["HGMMA"], found["SERIAL"]) == (4, 4)


@pytest.mark.parametrize(
    "loop",
    [
        (ARRIVE, MULTIPLY, LAST, WAIT[1], ARRIVE, MULTIPLY, LAST, WAIT[1]),
        (ARRIVE, LAST, WAIT[1], ARRIVE, LAST, WAIT[1]),  # groups of one
        (ARRIVE, MULTIPLY, MULTIPLY, MULTIPLY, LAST, WAIT[0]),  # scales of a group are due
    ],
)
def test_products_that_run_on_are_not(loop: tuple[str, ...]) -> None:
    assert counts(*loop, behind=(WAIT[0],))["SERIAL"] == 0


def kernel(name: str, stack: int, arch: str = "sm_80", **found: int) -> check_sass.Kernel:
    has = {rule: 1 for rule in ("LDGSTS", "LDSM", "HMMA", "PRMT", "LOP3", "QMMA")}
    return check_sass.Kernel(arch, name, stack=stack, counts={**dict.fromkeys(
        [*check_sass.COUNTED, check_sass.EARLY, check_sass.AWAITED, check_sass.SERIAL], 0
    ), **has, **found})  # fmt: skip


LARGE = "void ns::mixed_gemm_kernel<ns::GemmConfig<cutlass::half_t, ns::Int4, (ns::ScaleMode)6, 5, ns::MultistageTiles>, (ns::SplitCode)0>(int)"  # noqa: E501
SMALL = LARGE.replace("6, 5,", "6, 4,")


def test_only_spills_that_are_named_are_no_faults() -> None:
    assert not list(check_sass.faults_of(kernel(LARGE, 8)))
    assert "16 bytes of stack" in next(check_sass.faults_of(kernel(LARGE, 16, "sm_90a")))
    assert "SPILLS names 0" in next(check_sass.faults_of(kernel(SMALL, 8, "sm_90a")))
    assert list(check_sass.faults_of(kernel(LARGE, 8, LDL=1))) == ["has LDL"]


def test_a_spill_in_a_mainloop_is_no_fault_where_that_is_named() -> None:
    name = "void ns::skinny_gemm_kernel<ns::SkinnyGemmConfig<cutlass::half_t, ns::Int4, 1, 2, false>>(int)"  # noqa: E501
    assert not list(check_sass.faults_of(kernel(name, 8, "sm_120", LDL=1, STL=1)))
    assert "has LDL" in list(check_sass.faults_of(kernel(name, 8, "sm_90", LDL=1)))


def test_a_serialized_kernel_is_a_fault() -> None:
    name = "void ns::specialized_gemm_kernel<ns::WgmmaScaledConfig<ns::X, 1>>(int)"
    assert list(check_sass.faults_of(kernel(name, 0, "sm_90a", SERIAL=4))) == ["has SERIAL"]


def test_every_weight_type_has_rules() -> None:
    header = (ROOT / "csrc" / "core" / "weight_type.h").read_text(encoding="utf-8")
    (names,) = re.findall(r"using WeightTypes =\s+WeightList<([^>]*)>;", header)
    weights = set(re.split(r",\s*", names)) - {"FP4"}  # which has the kernels of NF4
    elements = {"half_t", "bfloat16_t"}
    assert set(check_sass.CONVERTED) == {(w, e) for w in weights for e in elements}


def test_a_kernel_without_its_converter_is_a_fault() -> None:
    assert list(check_sass.faults_of(kernel(LARGE, 0, LOP3=0))) == ["no LOP3"]


def test_every_named_spill_has_a_reason() -> None:
    assert all(spill.reason and spill.most_bytes > 0 for spill in check_sass.SPILLS)
