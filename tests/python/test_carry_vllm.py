"""tools/carry_vllm.py: the cut leaves what one GPU runs and moves nothing, and what is packed is
laid out again with the entry point of the plug-in."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import carry_vllm
import cut_fatbin
import fatbin


class Code(NamedTuple):
    kind: str
    arch: int
    text: bytes


def container(*codes: Code) -> bytes:
    kinds = {name: number for number, name in fatbin.KINDS.items()}
    body = b"".join(
        fatbin.ENTRY.pack(kinds[x.kind], 0x101, fatbin.ENTRY.size, len(x.text), 0, 0, 0, 0, x.arch)
        + x.text
        for x in codes
    )
    return fatbin.CONTAINER.pack(fatbin.MAGIC, 1, fatbin.CONTAINER.size, len(body)) + body


def left(code: bytes | bytearray) -> list[str]:
    """Which entries still have something in them."""
    found = fatbin.entries(code)
    return [f"{x.kind}_{x.arch}" for x in found if any(code[x.begin : x.begin + x.size])]


SM80, SM90, SM100 = (Code("sm", x, b"machine code of %d" % x) for x in (80, 90, 100))
PTX80, PTX89, PTX90, PTX100 = (Code("ptx", x, b"text for %d" % x) for x in (80, 89, 90, 100))


@pytest.mark.parametrize(
    ("codes", "stays"),
    [
        ((SM80, SM90, PTX90), ["sm_90"]),
        ((SM80, PTX80, PTX89, PTX100), ["ptx_89"]),
        ((SM100, PTX100), []),
        ((SM90,), ["sm_90"]),
        ((PTX90, SM100), ["ptx_90"]),
    ],
)
def test_an_h100_keeps_what_it_runs(codes: tuple[Code, ...], stays: list[str]) -> None:
    code = bytearray(container(*codes))
    before = [(x.at, x.size) for x in fatbin.entries(code)]
    kept = cut_fatbin.cut(code, 90)
    assert left(code) == stays
    assert [(x.at, x.size) for x in fatbin.entries(code)] == before
    assert kept == sum(len(x.text) for x in codes if f"{x.kind}_{x.arch}" in stays)


def test_each_container_is_cut_for_itself_and_the_rest_is_asked_for() -> None:
    code = bytearray(container(SM80, SM90) + bytes(8) + container(PTX80, SM100))
    cut_fatbin.cut(code, 90)
    assert left(code) == ["sm_90", "ptx_80"]
    cut_fatbin.cut(code, 90, lambda text: b"machine" not in text)
    assert left(code) == ["ptx_80"]


def test_a_library_keeps_its_length_and_all_else(tmp_path: Path) -> None:
    (tmp_path / "code").write_bytes(container(SM80, SM90))
    source = f'asm(".section {fatbin.SECTION}, \\"a\\"; .incbin \\"{tmp_path}/code\\"; .previous");'
    (tmp_path / "a.c").write_text(f"{source}\nint answer(void) {{ return 42; }}\n")
    library = tmp_path / "a.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "a.c")], check=True
    )
    whole, cut = library.read_bytes(), cut_fatbin.cut_library(library, 90)
    at = whole.index(SM80.text)
    size = len(SM80.text)
    assert cut == whole[:at] + bytes(size) + whole[at + size :]


def kernel(rows: str, rest: str, head: int, element: str, capped: int) -> bytes:
    """As the compiler names a kernel of FlashAttention 3 in machine code."""
    name = (
        f"_ZN7cutlass13device_kernelIN5flash21FlashAttnFwdSm90IJNS1_ILi{rows}EEE{rest}EEE"
        f"Li{head}ENS_{element}EfNS_4arch4Sm90ELb1ELb0ELb{capped}EEEE"
    )
    return b"\x7fELF" + name.encode() + b"\0"


HALF = "10bfloat16_t"


@pytest.mark.parametrize(
    ("code", "stays"),
    [
        (kernel("128", "SA_SA_", 128, HALF, 0), True),
        (kernel("128", "NS1_ILi176ESA_", 128, "6half_t", 0), True),
        (kernel("192", "NS1_ILi128EEENS1_ILi64", 64, HALF, 0), True),
        (kernel("128", "SA_SA_", 128, HALF, 1), False),
        (kernel("128", "SA_SA_", 128, "12float_e4m3_t", 0), False),
        (kernel("128", "NS1_ILi80EEENS1_ILi256", 256, HALF, 0), False),
        (b"\x7fELF another kernel", True),
    ],
)
def test_flash_attention_keeps_common_heads(code: bytes, stays: bool) -> None:
    assert cut_fatbin.common_heads(code) == stays


def test_what_is_packed_of_the_wheel() -> None:
    wanted = {
        "vllm/envs.py": True, "vllm/_C_stable_libtorch.abi3.so": True,
        "vllm/spinloop.abi3.so": True, "vllm-0.26.0.dist-info/METADATA": True,
        "vllm-0.26.0.dist-info/entry_points.txt": True, "vllm/_flashmla_C.abi3.so": False,
        "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so": False,
        "vllm/third_party/fmha_sm100/a.py": False, "vllm/a.cu": False,
    }  # fmt: skip
    assert {name: carry_vllm.wanted_of_wheel(name) for name in wanted} == wanted
    packages = {
        "zmq/__init__.py": True, "pycountry/locales/de.mo": False, "tvm_ffi/include/a.h": False,
        "zstandard/backend_c.so": False, "mistral_common/data/tekken_240911.json": False,
    }  # fmt: skip
    assert {name: carry_vllm.wanted_of_packages(name) for name in packages} == packages


def test_packages_are_pinned() -> None:
    lines = carry_vllm.PACKAGES.read_text().splitlines()
    pins = [x for x in lines if not x.startswith("#")]
    assert len(pins) > 40 and all(x.count("==") == 1 for x in pins)
    assert any(x.startswith("zstandard==") for x in pins)


def test_what_was_packed_is_laid_out_with_our_plug_in(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "vllm.whl", "w") as wheel:
        wheel.writestr("vllm/envs.py", "ENVS = 1\n")
        wheel.writestr("vllm/left.out", "")
    (tmp_path / "site" / "zmq").mkdir(parents=True)
    (tmp_path / "site" / "zmq" / "__init__.py").write_text("")
    folder, target = tmp_path / "carried", tmp_path / "target"
    folder.mkdir()
    carry_vllm.pack_wheel(tmp_path / "vllm.whl", folder / "vllm.txz")
    carry_vllm.pack_packages(tmp_path / "site", folder / "packages.txz")
    carry_vllm.pack_library(Path(sys.executable), folder)
    carry_vllm.unpack(folder, target)
    assert (target / "vllm" / "envs.py").read_text() == "ENVS = 1\n"
    assert not (target / "vllm" / "left.out").exists() and (target / "zmq").is_dir()
    assert (target / carry_vllm.LIBRARY).read_bytes() == Path(sys.executable).read_bytes()
    (points,) = target.glob("mixed_gemm-*.dist-info/entry_points.txt")
    assert "[vllm.general_plugins]\nmixed_gemm = mixed_gemm.integrations.vllm:register" in (
        points.read_text()
    )
    # The same again: nothing is done; another archive: all of it anew.
    (target / "kept").touch()
    carry_vllm.unpack(folder, target)
    assert (target / "kept").exists()
    with tarfile.open(folder / "vllm.txz", "w:xz"):
        pass
    carry_vllm.unpack(folder, target)
    assert not (target / "kept").exists() and not (target / "vllm").exists()


def test_a_folder_without_vllm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no vllm\.txz in .*carry_vllm\.py prepare writes it"):
        carry_vllm.unpack(tmp_path, tmp_path / "target")


def test_command_lines() -> None:
    parse = carry_vllm.arguments().parse_args
    given = parse(["prepare", "folder", "--wheel", "a.whl", "--library", "a.so"])
    assert (given.command, given.folder, given.wheel) == ("prepare", Path("folder"), Path("a.whl"))
    assert parse(["unpack", "folder", "target"]).target == Path("target")
    with pytest.raises(SystemExit):
        parse(["pack", "folder"])
