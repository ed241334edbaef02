"""Check the machine code of every compiled kernel, on every architecture, without a GPU.

    python tests/sass/check_sass.py build/libmixed_gemm.so

No kernel may use local memory (spills, stack) but those that SPILLS names, with a reason. What must
and must not be in the mainloop of a kernel stands in RULES, by kernel name. Prints one line per
kernel and architecture. Exit status: 0 fine, 1 faults (listed last), 77 when cuobjdump or nvdisasm
is missing (`make test` installs both from PyPI).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

SKIPPED = 77

# What is counted, as patterns on one SASS instruction. The converters of dequant/ show as the prmt
# that interleaves bytes with the magic ones (either operand order), and as the lop3 tables of
# (x & y) | z and (~x & y) | z in any operand order: address arithmetic uses others.
COUNTED = {
    "LDGSTS": r"LDGSTS",
    "LDSM": r"LDSM",
    "HMMA": r"HMMA\.16816",
    "HGMMA": r"HGMMA\.64x",
    "IMMA": r"IMMA\.16832",
    "IGMMA": r"IGMMA\.64x",
    "QGMMA": r"QGMMA\.64x\d+x32\.F32\.E4M3\.E4M3",
    "QMMA": r"QMMA\.16832",
    "PRMT": r"PRMT .*, 0x(?:5250|5351|1614|1715),",
    "LDS": r"LDS R",
    "LOP3": r"LOP3\.LUT .*, 0x(?:ea|ec|f8|ae|ba|ce|dc|f2|f4), !PT",
    "I2F": r"I2F",
    "CALL": r"CALL",
    "LDL": r"LDL",
    "STL": r"STL",
}
EARLY = "EARLY"  # counted by early_loads()
AWAITED = "AWAITED"  # counted by awaited_loads()
SERIAL = "SERIAL"  # counted by serialized_products()
# Zero points by mainloop/zero_products.cuh: those of the last groups come behind the mainloop.
BESIDE_MAINLOOP = "HMMA.1688.F32.TF32"
TENSOR_CORES = ("HMMA", "HGMMA", "IMMA", "IGMMA", "QGMMA", "QMMA")


@dataclass
class Kernel:
    arch: str
    name: str  # demangled
    registers: int = 0
    stack: int = 0
    shared: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def label(self) -> str:
        """The name without return type, namespaces, enum casts and parameters."""
        without_casts = re.sub(r"\([\w:]+\)(?=\d)", "", self.name)
        return re.sub(r"^void |\w+::", "", without_casts).partition("(")[0].replace("> >", ">>")


@dataclass(frozen=True)
class Rule:
    kernel: str  # pattern on the demangled name
    needs: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    of: str = ""  # the architecture whose builds have such kernels, if not all have


@dataclass(frozen=True)
class Spill:
    """Kernels that may use so many bytes of local memory, outside of the mainloop if not said."""

    kernel: str  # pattern on Kernel.label
    most_bytes: int
    reason: str
    arch: str = r"sm_\w+"
    in_mainloop: bool = False

    def names(self, kernel: Kernel) -> bool:
        return bool(
            re.fullmatch(self.kernel, kernel.label) and re.fullmatch(self.arch, kernel.arch)
        )


MULTISTAGE = r"\b(mixed_gemm|plain_gemm|conv)_kernel<"
SCALED = r"\b(scaled_mm|plain_scaled)_kernel<"
SKINNY_SCALED = r"\bscaled_skinny_kernel<"
INTEGER = rf"{SCALED}.*signed char|\bconv_int8_kernel<"
WGMMA = r"\bspecialized_gemm_kernel<.*\bWgmmaConfig<"
# The instruction that a converter (dequant/) shows as, by weight type and element.
CONVERTED = {
    ("Int4", "half_t"): "LOP3",
    ("Int8", "half_t"): "PRMT",
    ("Int4", "bfloat16_t"): "LOP3",
    ("Int8", "bfloat16_t"): "LOP3",
    ("E2M1", "half_t"): "LOP3",
    ("E2M1", "bfloat16_t"): "LOP3",
    ("E4M3", "half_t"): "LOP3",
    ("E4M3", "bfloat16_t"): "LOP3",
    ("NF4", "half_t"): "LOP3",
    ("NF4", "bfloat16_t"): "LOP3",
}
# Kernels on wgmma look the pairs of a book up in shared memory; FP4 has the kernels of NF4.
BOOK = ("NF4", "LDS")
SCALED_WGMMA = r"\bspecialized_gemm_kernel<.*\bWgmmaScaledConfig"
# Kernels of a set are compiled for the same architectures: fp8 from 8.9 on, wgmma for 9.0a, the
# rest for all but those that run another one's code (cmake/CudaArchitectures.cmake).
SETS = (r"float_e4m3|\bscaled_reduce_kernel<float", r"\bspecialized_gemm_kernel<", r"")
# sm_90 and sm_100 have no fp8 mma.sync: ptxas emulates it by HMMA. The wgmma kernels are chosen on
# the first, and nothing else is there on the second, so it only has to be right.
EMULATED = (r"sm_90|sm_100", rf"{SCALED}.*float_e4m3")
SPILLS = (
    Spill(
        kernel=r"skinny_gemm_kernel<SkinnyGemmConfig<half_t, Int4, [12], 2, false>>",
        arch="sm_120",
        most_bytes=8,
        in_mainloop=True,
        reason="the launch bounds leave 80 registers, which are enough everywhere else; code for "
        "sm_120 has not been run, and nothing is known of what the load from L1 takes",
    ),
    Spill(
        kernel=r"mixed_gemm_kernel<GemmConfig<\w+, (Int[48]|E2M1|E4M3|NF4), \d, 5, "
        r"MultistageTiles>, 0>",
        most_bytes=8,
        reason="128 x 256 with the code of stream-K takes all 255 registers (multistage/config.h), "
        "and keeps a value of the epilogue in memory, once a tile",
    ),
    Spill(
        kernel=r"skinny_gemm_kernel<SkinnyGemmConfig<\w+, NF4, (3, [01]|1, 2), false>>",
        most_bytes=8,
        in_mainloop=True,
        reason="two registers more than the launch bounds leave, beside those that find a pair in "
        "its table; 16 columns in halves were measured so, at 1.05 to 1.16 of int4, and requesting "
        "the next weights late, which would free them, was not",
    ),
    Spill(
        kernel=r"grouped_skinny_kernel<SkinnyGemmConfig<\w+, Int4, \d+, [23], true>>",
        most_bytes=16,
        in_mainloop=True,
        reason="pointers to the weight, the scales and the outputs of an expert are registers, "
        "where those of one weight are constants, and the launch bounds leave 80 or 128 of them; "
        "bfloat16, which spills on sm_80 alone, was timed on an H200, float16 was not",
    ),
    Spill(
        kernel=r"scaled_mm_kernel<DirectConfig<float_e4m3_t, float, \w+, ScaledTiles, 6>>",
        arch=r"sm_89|sm_120",
        most_bytes=8,
        reason="128 x 256 takes all 255 registers, and keeps a value of the epilogue in memory",
    ),
    Spill(
        kernel=r"scaled_mm_kernel<DirectConfig<signed char, int, \w+, ScaledTiles, 6>>",
        most_bytes=8,
        reason="128 x 256 takes all 255 registers, and keeps a value of the epilogue in memory",
    ),
    Spill(
        kernel=r"scaled_skinny_kernel<ScaledSkinnyGemmConfig<float_e4m3_t, float, \w+, 1>>",
        arch=EMULATED[0],
        most_bytes=24,
        in_mainloop=True,
        reason="emulated, see EMULATED: 16 tokens of float16 take more than the 80 registers of 24 "
        "warps on an SM; measured with them on an H100, 1.0 to 1.1 of int8",
    ),
    Spill(
        kernel=r"quantize_per_token_kernel<float, false>",
        arch="sm_80",
        most_bytes=8,
        reason="32 fp32 elements of a row stay in the 64 registers that its launch bounds leave a "
        "thread; a value waits in memory outside of the loops",
    ),
    Spill(
        kernel=r"scaled_mm_kernel<DirectConfig<float_e4m3_t, .*",
        arch=EMULATED[0],
        most_bytes=112,
        reason="emulated, see EMULATED",
    ),
)
LOCAL_MEMORY = ("LDL", "STL")
RULES = (
    Rule(kernel=r"", forbids=LOCAL_MEMORY),
    # ptxas moves ld.global.nc before the wait, as if nobody wrote there: it did in awq_gemm. But
    # the reduction of scaled_mm reads scales and bias early, which its own first kernel read too.
    Rule(kernel=r"^(?!.*\bscaled_reduce_kernel<)", forbids=(EARLY,)),
    # A scale that is moved when it has just been requested waits for the memory in every iteration:
    # 4 to 6 % in bf16 kernels, for as long as nobody looked.
    Rule(kernel=r"\bskinny_gemm_kernel<", needs=("HMMA",), forbids=(AWAITED,)),
    Rule(kernel=MULTISTAGE, needs=("LDGSTS", "LDSM", "HMMA"), forbids=("I2F", "CALL")),
    Rule(kernel=SCALED, needs=("LDGSTS", "LDSM"), forbids=("I2F", "CALL")),
    Rule(kernel=INTEGER, needs=("LDGSTS", "LDSM", "IMMA"), forbids=("I2F", "CALL")),
    Rule(kernel=rf"{SKINNY_SCALED}.*signed char", needs=("IMMA",), forbids=("I2F", "CALL")),
    Rule(kernel=SKINNY_SCALED, forbids=("CALL",)),
    # It converts the sums of each block of K, so it has I2F there; and before sm_90 its __syncwarp
    # is a CALL that warps which have converged branch around.
    Rule(kernel=r"\bblock_gemm_kernel<", needs=("LDGSTS", "LDSM", "IMMA")),
    Rule(kernel=WGMMA, needs=("LDSM", "HGMMA"), forbids=("I2F", "CALL"), of="sm_90a"),
    Rule(kernel=r"\bspecialized_gemm_kernel<", forbids=(SERIAL,), of="sm_90a"),
    Rule(kernel=rf"{SCALED_WGMMA}<[\w:]*WgmmaInt8,", needs=("IGMMA",), of="sm_90a"),
    Rule(
        kernel=rf"{SCALED_WGMMA}<[\w:]*WgmmaFp8(Blocks)?,",
        needs=("QGMMA",),
        forbids=("I2F", "CALL"),
        of="sm_90a",
    ),
    *(
        Rule(
            kernel=rf"{family}.*{element}, (?:\w+::)*{weight},",
            needs=(BOOK[1] if family is WGMMA and weight == BOOK[0] else instruction,),
            of=arch,
        )
        for family, arch in ((MULTISTAGE, ""), (WGMMA, "sm_90a"))
        for (weight, element), instruction in CONVERTED.items()
    ),
)


def find_tool(name: str) -> Path | None:
    places = [Path(folder) / "nvidia/cu13/bin" / name for folder in sys.path]
    places += [Path(found) for found in [shutil.which(name)] if found]
    return next((place for place in places if place.is_file()), None)


def cuobjdump(tools: Path, *arguments: str) -> str:
    """Its output; with `tools` first on PATH, since it starts the nvdisasm that it finds there."""
    env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    command = [str(tools / "cuobjdump"), *arguments]
    done = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:  # it has said why on stderr
        sys.exit(1)
    return done.stdout


@dataclass(frozen=True)
class Instruction:
    address: int
    predicated: bool
    text: str

    @property
    def target(self) -> int | None:
        if not self.text.startswith("BRA"):
            return None
        return int(self.text.rpartition(" 0x")[2], 16)

    @property
    def falls_through(self) -> bool:
        return self.predicated or not self.text.startswith(("BRA 0x", "EXIT", "RET"))


def natural_loop(predecessors: dict[int, list[int]], header: int, end: int) -> set[int]:
    """Addresses that reach the back edge end -> header without passing the header. The compiler
    moves rarely taken blocks out of line, so a loop is not the range between the two."""
    loop, open_ends = {header, end}, [end]
    while open_ends:
        for address in predecessors.get(open_ends.pop(), []):
            if address not in loop:
                loop.add(address)
                open_ends.append(address)
    return loop


def mainloop(code: list[Instruction]) -> list[Instruction]:
    """The instructions of the innermost loops around tensor-core instructions."""
    multiplies = [
        one.address
        for one in code
        if one.text.startswith(TENSOR_CORES) and not one.text.startswith(BESIDE_MAINLOOP)
    ]
    predecessors: dict[int, list[int]] = {}
    for one, following in zip(code, [*code[1:], None], strict=True):
        successors = [one.target, following.address if following and one.falls_through else None]
        for successor in (address for address in successors if address is not None):
            predecessors.setdefault(successor, []).append(one.address)
    loops = [
        natural_loop(predecessors, one.target, one.address)
        for one in code
        if one.target is not None and any(one.target <= at <= one.address for at in multiplies)
    ]
    inside: set[int] = set()
    for at in multiplies:
        inside |= min((loop for loop in loops if at in loop), key=len, default=set())
    return [one for one in code if one.address in inside]


def count_instructions(body: str) -> Counter[str]:
    """Counts COUNTED in one function's listing: lines of `/*0a10*/  [@P0] OPCODE operands ;`."""
    lines = re.findall(r"/\*([0-9a-f]{4,})\*/ +(@!?U?P\w+)? *([A-Z].*?) *;", body)
    code = [Instruction(int(at, 16), bool(predicate), text) for at, predicate, text in lines]
    inside = mainloop(code)
    in_mainloop = "\n".join(one.text for one in inside)
    counts = Counter(
        {
            label: len(re.findall(rf"^{pattern}", in_mainloop, flags=re.MULTILINE))
            for label, pattern in COUNTED.items()
        }
    )
    counts[EARLY] = early_loads(code)
    counts[AWAITED] = awaited_loads(inside)
    counts[SERIAL] = serialized_products(inside)
    return counts


def early_loads(code: list[Instruction]) -> int:
    """Loads from device memory before the wait for the kernel before (grid/pdl.cuh)."""
    texts = [one.text for one in code]
    wait = next((i for i, text in enumerate(texts) if text.startswith("ACQBULK")), 0)
    return sum(text.startswith(("LDG", "LD.", "UBLKCP", "UTMALDG")) for text in texts[:wait])


def serialized_products(inside: list[Instruction]) -> int:
    """Instructions of a warpgroup after which the mainloop waits for all that were started, if that
    is more than half of them: ptxas lets each one wait where registers do not suffice (C7512). The
    last of a group of scales is waited for by us."""
    order = [
        one.text.startswith("WARPGROUP.DEPBAR")
        for one in inside
        if re.match(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0\b|[HIQ]GMMA", one.text)
    ]
    waited = sum(pair == (False, True) for pair in pairwise(order))
    return waited if 2 * waited > order.count(False) else 0


def awaited_loads(inside: list[Instruction]) -> int:
    """16-bit loads from device memory whose register is read by one of the 20 instructions that
    follow, up to a branch that is always taken."""
    count = 0
    for i, load in enumerate(inside):
        loaded = re.match(r"LDG\.E\.U16\S* (R\d+),", load.text)
        if not loaded:
            continue
        for after in inside[i + 1 : i + 21]:
            count += bool(re.search(rf"\b{loaded[1]}\b", after.text))
            if not after.falls_through:
                break
    return count


def kernels_of(tools: Path, library: str, arch: str) -> list[Kernel]:
    """Those of sm_90a too when asked for sm_90: cuobjdump lists both."""
    usage = cuobjdump(tools, "-arch", arch, "-res-usage", library)
    listing = cuobjdump(tools, "-arch", arch, "-sass", library)
    resources = {
        match[1]: match
        for match in re.finditer(
            r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", usage
        )
    }
    kernels = []
    for cubin in listing.split("\tcode for ")[1:]:
        its_arch = cubin.partition("\n")[0]
        for part in cubin.split("\t\tFunction : ")[1:]:
            symbol, _, body = part.partition("\n")
            registers, stack, shared, local = map(int, resources[symbol].groups()[1:])
            counts = count_instructions(body)
            kernels.append(Kernel(its_arch, symbol, registers, stack + local, shared, counts))
    return kernels


def demangle(kernels: list[Kernel]) -> None:
    symbols = "\n".join(kernel.name for kernel in kernels)
    names = subprocess.run(
        ["c++filt"], input=symbols, text=True, stdout=subprocess.PIPE, check=True
    ).stdout.split("\n")
    for kernel, name in zip(kernels, names, strict=False):
        kernel.name = name


def faults_of(kernel: Kernel) -> Iterator[str]:
    named = [spill for spill in SPILLS if spill.names(kernel)]
    if kernel.stack > (allowed := max((spill.most_bytes for spill in named), default=0)):
        yield f"{kernel.stack} bytes of stack or local memory, SPILLS names {allowed}"
    if re.fullmatch(EMULATED[0], kernel.arch) and re.search(EMULATED[1], kernel.name):
        return
    for rule in RULES:
        if re.search(rule.kernel, kernel.name):
            yield from (f"no {label}" for label in rule.needs if not kernel.counts[label])
            yield from (
                f"has {label}"
                for label in rule.forbids
                if kernel.counts[label]
                and not (label in LOCAL_MEMORY and any(spill.in_mainloop for spill in named))
            )


def faults_of_sets(kernels: list[Kernel]) -> Iterator[str]:
    archs_of_set: dict[str, set[str]] = defaultdict(set)
    archs_of_label: dict[tuple[str, str], set[str]] = defaultdict(set)
    for kernel in kernels:
        of_set = next(pattern for pattern in SETS if re.search(pattern, kernel.name))
        archs_of_set[of_set].add(kernel.arch)
        archs_of_label[of_set, kernel.label].add(kernel.arch)
    for (of_set, label), archs in archs_of_label.items():
        if archs != archs_of_set[of_set]:
            yield f"{label}: not on {', '.join(sorted(archs_of_set[of_set] - archs))}"


def faults_of_rules(kernels: list[Kernel], archs: list[str]) -> Iterator[str]:
    """A rule that no kernel matches checks nothing, as after a kernel was given another name, and a
    spill that no kernel has is a name too many."""
    for rule in RULES:
        expected = not rule.of or rule.of in archs
        if expected and not any(re.search(rule.kernel, kernel.name) for kernel in kernels):
            yield f"no kernel matches {rule.kernel}"
    for spill in SPILLS:
        of_arch = [kernel for kernel in kernels if re.fullmatch(spill.arch, kernel.arch)]
        if of_arch and not any(re.fullmatch(spill.kernel, kernel.label) for kernel in of_arch):
            yield f"no kernel matches {spill.kernel} of SPILLS"


def print_table(kernels: list[Kernel]) -> None:
    columns = [*COUNTED, EARLY, AWAITED, SERIAL]
    width = max(len(kernel.label) for kernel in kernels)
    print(f"{'arch':6} {'kernel':{width}} {'regs':>5} {'smem':>6}", *(f"{c:>7}" for c in columns))
    for k in kernels:
        counts = (f"{k.counts[column]:7}" for column in columns)
        print(f"{k.arch:6} {k.label:{width}} {k.registers:5} {k.shared:6}", *counts)


def main(library: str) -> int:
    found = [find_tool(name) for name in ("cuobjdump", "nvdisasm")]
    if found[0] is None or found[1] is None or found[0].parent != found[1].parent:
        print(
            "skipped: no cuobjdump and nvdisasm side by side; install the packages that",
            "`python tools/requirements.py test` lists",
        )
        return SKIPPED
    tools = found[0].parent

    listed = cuobjdump(tools, "-lelf", library)
    archs = sorted(set(re.findall(r"\.(sm_\w+)\.cubin", listed)))
    with ProcessPoolExecutor() as pool:
        asked = sorted({arch.rstrip("af") for arch in archs}, reverse=True)  # the longest first
        per_arch = list(pool.map(partial(kernels_of, tools, library), asked))
    kernels = [kernel for group in per_arch for kernel in group]
    demangle(kernels)
    kernels.sort(key=lambda kernel: (kernel.label, kernel.arch))

    print_table(kernels)
    faults = [f"{k.arch} {k.label}: {fault}" for k in kernels for fault in faults_of(k)]
    faults += faults_of_sets(kernels)
    faults += [f"{arch}: no kernel listed" for arch in {*archs} - {k.arch for k in kernels}]
    faults += faults_of_rules(kernels, archs)
    print(f"{len(kernels)} kernels on {len(archs)} architectures, {len(faults)} faults")
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
