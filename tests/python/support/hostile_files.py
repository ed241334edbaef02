"""Checkpoints that are broken or malicious, each made in a folder of its own and read in a fork:
what came out, the seconds of a processor, and the most memory that it had. Prints JSON.

    python hostile_files.py [NAME...]

A process of its own, so that its memory is that of torch and of the reader.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mixed_gemm.formats import CheckpointError, open_checkpoint

DATA = Path(__file__).resolve().parents[2] / "data"
SECONDS = 30  # a case that takes longer is killed
ADDRESSES = 8 << 30  # bytes; what asks for more is refused and does not end the machine
BIG = 7 << 20  # below what is read of a configuration
CASES: dict[str, Callable[[Path], Path]] = {}
Config = dict[str, Any]


def case(name: str) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    def add(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
        CASES[name] = make
        return make

    return add


# --- JSON: config.json and the index ------------------------------------------------------------


def sparse(path: Path, size: int, begin: bytes = b"") -> None:
    with path.open("wb") as file:
        file.write(begin)
        file.truncate(size)


JSON_TEXTS: dict[str, Callable[[], bytes]] = {
    "nested lists": lambda: b"[" * 100_000 + b"]" * 100_000,
    "nested objects": lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "empty objects": lambda: b'{"a": [' + b"{}," * (BIG // 3) + b"{}]}",
    "empty lists": lambda: b'{"a": [' + b"[]," * 600_000 + b"[]]}",
    "numbers": lambda: b'{"a": [' + b"1.5," * 990_000 + b"1]}",
    "one long string": lambda: b'{"a": "' + b"x" * BIG + b'"}',
    "one long string of four bytes": lambda: (
        b'{"a": "' + b"x" * BIG + "\U0001f600".encode() + b'"}'
    ),
    "escapes": lambda: b'{"a": "' + b"\\n" * (BIG // 2) + b'"}',
    "a long number": lambda: b'{"a": ' + b"9" * 100_000 + b"}",
    "no UTF-8": lambda: b'{"a": "\xff\xfe"}',
    "no end": lambda: b'{"a": ',
    "a list": lambda: b"[1, 2]",
    "empty": lambda: b"",
    "zero bytes": lambda: bytes(1000),
    "a name twice": lambda: b'{"quantization_config": {}, "quantization_config": {"bits": 8}}',
}


def make_json(text: Callable[[], bytes], name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copytree(DATA / "awq_gemm", folder, dirs_exist_ok=True)
        (folder / name).write_bytes(text())
        return folder

    return make


for title, text in JSON_TEXTS.items():
    CASES[f"config: {title}"] = make_json(text, "config.json")
    CASES[f"index: {title}"] = make_json(text, "model.safetensors.index.json")


INDEX_TEXTS: dict[str, Callable[[], bytes]] = {
    "23 MB of four bytes a character": lambda: (
        b'{"a": "' + b"x" * (23 << 20) + "\U0001f600".encode() + b'"}'
    ),
    "23 MB of escapes": lambda: b'{"a": "' + b"\\n" * (11 << 20) + b'"}',
    "900,000 objects": lambda: b'{"weight_map": {"a": [' + b"{}," * 900_000 + b"{}]}}",
    "23 MB of names": lambda: (
        b'{"weight_map": {'
        + b",".join(b'"%0100d": "x.safetensors"' % i for i in range(190_000))
        + b"}}"
    ),
}
for title, text in INDEX_TEXTS.items():
    CASES[f"index: {title}"] = make_json(text, "model.safetensors.index.json")


@case("config: 1 GB")
def _(folder: Path) -> Path:
    make_json(bytes, "config.json")(folder)
    sparse(folder / "config.json", 1 << 30, b'{"a": 1')
    return folder


@case("index: a tensor twice")
def _(folder: Path) -> Path:
    shutil.copytree(DATA / "awq_gemm", folder, dirs_exist_ok=True)
    entry = '"lm_head.weight": "model.safetensors"'
    text = f'{{"weight_map": {{{entry}, {entry}}}}}'
    (folder / "model.safetensors.index.json").write_text(text)
    return folder


def not_a_file(kind: str, name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copytree(DATA / "awq_gemm", folder, dirs_exist_ok=True)
        path = folder / name
        path.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to({"device": "/dev/zero", "link": "/nowhere", "circle": path}[kind])
        return folder

    return make


for kind in ("pipe", "folder", "device", "link", "circle"):
    for name in ("config.json", "model.safetensors", "model.safetensors.index.json"):
        CASES[f"{name} is a {kind}"] = not_a_file(kind, name)


# --- safetensors --------------------------------------------------------------------------------


def entry(dtype: str, shape: list[Any], begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def make_safetensors(header: Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path, text = folder / "model.safetensors", header()
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
        return path

    return make


def dumped(**tensors: Any) -> bytes:
    return json.dumps(tensors).encode()


ONE = entry("F32", [4], 0, 16)
HEADERS: dict[str, Callable[[], bytes]] = {
    "no JSON": lambda: b"not json at all",
    "a list": lambda: b"[]",
    "nested": lambda: b"[" * 100_000,
    "nested entry": lambda: b'{"m.qweight": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a million objects": lambda: b'{"a": [' + b"{}," * 900_000 + b"{}]}",
    "long": lambda: b'{"a": "' + b"x" * (23 << 20) + b'"}',
    "a tensor twice": lambda: b'{"a": ' + dumped(**ONE) + b', "a": ' + dumped(**ONE) + b"}",
    "an entry that is none": lambda: dumped(a=[1]),
    "no dtype": lambda: dumped(a={"shape": [4], "data_offsets": [0, 16]}),
    "no shape": lambda: dumped(a={"dtype": "F32", "data_offsets": [0, 16]}),
    "no offsets": lambda: dumped(a={"dtype": "F32", "shape": [4]}),
    "overlap": lambda: dumped(a=entry("F32", [4], 0, 16), b=entry("F32", [2], 8, 16)),
    "a hole": lambda: dumped(a=entry("F32", [1], 0, 4), b=entry("F32", [2], 8, 16)),
    "bytes behind": lambda: dumped(a=entry("F32", [1], 0, 4)),
    "beyond the end": lambda: dumped(a=entry("F32", [40], 0, 160)),
    "another size": lambda: dumped(a=entry("F32", [5], 0, 16)),
    "sizes that wrap to 0": lambda: dumped(a=entry("U8", [2**32, 2**32], 0, 0)),
    "2^40 cubed": lambda: dumped(a=entry("F32", [2**40] * 3, 0, 16)),
    "huge but empty": lambda: dumped(
        a=entry("F32", [2**62, 2**62, 0], 0, 0), b=entry("F32", [4], 0, 16)
    ),
    "negative": lambda: dumped(a=entry("F32", [-4], 0, 16)),
    "negative offsets": lambda: dumped(a=entry("F32", [4], -16, 0)),
    "backwards": lambda: dumped(a=entry("F32", [4], 16, 0)),
    "floats": lambda: dumped(a=entry("F32", [4.0], 0, 16)),
    "booleans": lambda: dumped(a=entry("F32", [True], 0, 16)),
    "texts": lambda: dumped(a=entry("F32", ["4"], "0", "16")),
    "a thousand dimensions": lambda: dumped(a=entry("F32", [1] * 1000 + [4], 0, 16)),
    "an unknown dtype": lambda: dumped(**{"m.qweight": entry("Q7", [4], 0, 16)}),
    "a long name": lambda: dumped(**{"a" * 100_000: ONE}),
    "a name with a line end": lambda: dumped(**{"a\nb": ONE}),
    "half a character": lambda: b'{"\\ud800": ' + dumped(**ONE) + b"}",
    "nothing": lambda: b"{}",
}
for title, header in HEADERS.items():
    CASES[f"header: {title}"] = make_safetensors(header)


@case("header: of 2^63 bytes")
def _(folder: Path) -> Path:
    (folder / "model.safetensors").write_bytes((2**63).to_bytes(8, "little") + b"{}")
    return folder


@case("header: of 200 MB")
def _(folder: Path) -> Path:
    sparse(folder / "model.safetensors", 210 << 20, (200 << 20).to_bytes(8, "little") + b"{")
    return folder


def of_size(size: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "model.safetensors").write_bytes(bytes(size))
        return folder

    return make


for size in (0, 7, 8, 9):
    CASES[f"a file of {size} bytes"] = of_size(size)


def shards(names: list[str]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        for name in names:
            shutil.copy(DATA / "ct_int_8bit" / "model.safetensors", folder / name)
        return folder

    return make


CASES["a shard of three, without an index"] = shards(["model-00001-of-00003.safetensors"])
CASES["two shards of three"] = shards([f"model-0000{i}-of-00003.safetensors" for i in (1, 3)])


# --- torch files --------------------------------------------------------------------------------


def archive(path: Path, content: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", method) as file:
        warnings.simplefilter("ignore")  # a name twice is meant
        for name, value in content.items():
            file.writestr(f"archive/{name}", value)


def saved(value: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        torch.save(value() if callable(value) else value, folder / "model.pt")
        return folder / "model.pt"

    return make


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/mixed_gemm_was_fooled",)


def pickled(content: Callable[[], bytes], **records: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        archive(folder / "model.pt", {"data.pkl": content(), **records})
        return folder / "model.pt"

    return make


def strided(shape: tuple[int, ...], stride: tuple[int, ...]) -> dict[str, torch.Tensor]:
    base = torch.zeros(4)
    return {"m.weight": base.as_strided(shape, stride)}


def bomb() -> bytes:
    """A tuple of two of a tuple of two of ...: its hash takes 2^64 steps."""
    value: Any = ()
    for _ in range(64):
        value = (value, value)
    return pickle.dumps([value], 2)[:-1] + b"}" + b"h\x01" + b"K\x01s."


SAVED: dict[str, object] = {
    "calls os.system": lambda: {"a": Evil()},
    "repeats 2^33 elements": lambda: strided((2**33,), (0,)),
    "repeats 2^16 x 2^19 elements": lambda: strided((2**16, 2**19), (0, 0)),
    "overlaps itself": lambda: strided((3, 2), (1, 1)),
    "is sparse": lambda: {"a": torch.zeros(2, 2).to_sparse()},
    "is a list": [torch.zeros(2)],
    "is a module": lambda: torch.nn.Linear(2, 2),
    "is a text": "text",
    "holds no tensors": {"a": 1},
    "is nested": lambda: nested(3000),
}


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth // 10):  # what pickle itself can write
        value = {"a": value}
    return value


for title, value in SAVED.items():
    CASES[f"torch: {title}"] = saved(value)

PICKLES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "no end": lambda: b"\x80\x02}",
    "a memo of 2^32": lambda: b"\x80\x02}r\xff\xff\xff\xffq\x00.",
    "stack underflow": lambda: b"\x80\x02uu.",
    "an unknown instruction": lambda: b"\x80\x02\xff.",
    "a million marks": lambda: b"\x80\x02" + b"(" * 1_000_000 + b".",
    "a million lists": lambda: b"\x80\x02" + b"]" * 1_000_000 + b".",
    "text of 2^31 bytes": lambda: b"\x80\x02X\xff\xff\xff\x7fabc.",
    "a number of 100,000 digits": lambda: b"\x80\x02L" + b"9" * 100_000 + b"L\n.",
    "nested tuples": lambda: b"\x80\x02" + b")" + b"\x85" * 100_000 + b".",
    "a key that takes forever": bomb,
    "a tensor of nothing": lambda: (
        b"\x80\x02}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n)Rs."
    ),
    "a storage of nothing": lambda: b"\x80\x02}X\x01\x00\x00\x00a)Qs.",
}
for title, content in PICKLES.items():
    CASES[f"pickle: {title}"] = pickled(content)


@case("torch: cut")
def _(folder: Path) -> Path:
    path = saved(lambda: {"a": torch.zeros(1000)})(folder)
    path.write_bytes(path.read_bytes()[:-500])
    return path


@case("torch: without a storage")
def _(folder: Path) -> Path:
    path = saved(lambda: {"a": torch.zeros(1000)})(folder)
    with zipfile.ZipFile(path) as file:
        kept = {x.split("/", 1)[1]: file.read(x) for x in file.namelist() if "/data/" not in x}
    archive(path, kept)
    return path


@case("torch: with a storage that is too small")
def _(folder: Path) -> Path:
    path = saved(lambda: {"a": torch.zeros(1000)})(folder)
    with zipfile.ZipFile(path) as file:
        kept = {x.split("/", 1)[1]: file.read(x) for x in file.namelist()}
    archive(path, {**kept, "data/0": bytes(10)})
    return path


@case("torch: compressed zeros, 256 MB of them")
def _(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "model.pt", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", pickle.dumps({}, 2))
        with file.open("archive/data/0", "w", force_zip64=True) as record:
            for _ in range(16):
                record.write(bytes(16 << 20))
    return folder / "model.pt"


@case("torch: a pickle of 100 MB")
def _(folder: Path) -> Path:
    return pickled(lambda: b"\x80\x02" + b"N0" * (50 << 20) + b".")(folder)


@case("torch: big endian")
def _(folder: Path) -> Path:
    return pickled(lambda: pickle.dumps({}, 2), byteorder=b"big")(folder)


@case("torch: a directory of 1 GB")
def _(folder: Path) -> Path:
    sparse(folder / "model.pt", 1 << 30)
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 65535, 65535, (1 << 30) - 22, 0, 0)
    with (folder / "model.pt").open("r+b") as file:
        file.seek(-22, os.SEEK_END)
        file.write(end)
    return folder / "model.pt"


@case("torch: zeros")
def _(folder: Path) -> Path:
    (folder / "pytorch_model.bin").write_bytes(bytes(100_000))
    return folder


@case("torch: of before 1.6")
def _(folder: Path) -> Path:
    torch.save({"a": torch.zeros(4)}, folder / "m.pt", _use_new_zipfile_serialization=False)
    return folder


# --- sizes and texts in configurations ----------------------------------------------------------


def configured(fixture: str, change: Callable[[Config], None]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copytree(DATA / fixture, folder, dirs_exist_ok=True)
        config = json.loads((folder / "config.json").read_text())
        change(config["quantization_config"])
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


def weights_of(**options: Any) -> Callable[[Config], None]:
    return lambda config: config["config_groups"]["group_0"]["weights"].update(options)


def targets_of(*targets: Any) -> Callable[[Config], None]:
    return lambda config: config["config_groups"]["group_0"].update(targets=list(targets))


HUGE = 10**30
for bits in (0, -1, 1, 5, 6, 7, 16, 64, HUGE, "4", True, 4.5, [4]):
    CASES[f"ct: num_bits {bits!r}"] = configured("ct_pack_4bit", weights_of(num_bits=bits))
    CASES[f"gptq: bits {bits!r}"] = configured(
        "gptq_v1_4bit", lambda config, bits=bits: config.update(bits=bits)
    )
    CASES[f"awq: bits {bits!r}"] = configured(
        "awq_gemv", lambda config, bits=bits: config.update(bits=bits)
    )
for size in (0, -7, 7, HUGE, -HUGE, "32", True):
    CASES[f"ct: group_size {size!r}"] = configured("ct_pack_4bit", weights_of(group_size=size))
    for fixture in ("gptq_v1_4bit", "awq_gemm", "awq_gemv", "awq_gemv_fast"):
        CASES[f"{fixture}: group_size {size!r}"] = configured(
            fixture, lambda config, size=size: config.update(group_size=size)
        )
for block in ([0, 1], [HUGE, 1], [1, HUGE], ["\u00b2", 1], [-1, 128], [1.5, 1], "axb", {}, [1]):
    CASES[f"ct: blocks {block!r}"] = configured("ct_float_block", weights_of(block_structure=block))
PATTERNS = (
    "re:[",
    "re:(",
    "re:a{9999999999}",
    "re:(a+)+$",
    "re:.*.*.*.*.*.*.*.*x",
    f"re:{'(' * 400}",
)
for pattern in PATTERNS:
    CASES[f"ct: target {pattern[:24]!r}"] = configured("ct_pack_4bit", targets_of(pattern))
CASES["ct: target 3"] = configured("ct_pack_4bit", targets_of(3))
for value in ([], {"a": 1}, {"a": []}, "text", 3):
    CASES[f"ct: config_groups {value!r}"] = configured(
        "ct_pack_4bit", lambda config, value=value: config.update(config_groups=value, format=value)
    )


def tagged(tag: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        text = tag if isinstance(tag, bytes) else json.dumps(tag).encode()
        tensors = {
            "m.b_packed": torch.zeros(64, 32, dtype=torch.uint8),
            "m.scales": torch.ones(1, 64),
            "m._extra_state": torch.frombuffer(bytearray(text), dtype=torch.uint8),
        }
        from safetensors.torch import save_file

        save_file(tensors, folder / "model.safetensors")
        return folder

    return make


TAG: Config = {
    "layout_version": 1, "in_features": 64, "out_features": 64, "bits": 4, "group_size": -1,
    "zero_mode": "none",
}  # fmt: skip
TAGS: dict[str, Any] = {
    "nested": b"[" * 4000,
    "of 5 MB": b" " * (5 << 20),
    "no JSON": b"\xff",
    "empty": b"{}",
    "a list": [1],
    "zero bits": {**TAG, "bits": 0},
    "bits that are no integer": {**TAG, "bits": 4.0},
    "no group": {**TAG, "group_size": 0},
    "a group that is no integer": {**TAG, "group_size": 64.0},
    "infinite": b'{"layout_version": 1, "in_features": 1e999, "out_features": 64, "bits": 4, '
    b'"group_size": -1, "zero_mode": "none"}',
    "huge": {**TAG, "in_features": HUGE},
    "negative": {**TAG, "in_features": -64},
    "nothing in it": {**TAG, "in_features": 0},
    "another version": {**TAG, "layout_version": 99},
    "another mode": {**TAG, "zero_mode": ["none"]},
}
for title, tag in TAGS.items():
    CASES[f"tag: {title}"] = tagged(tag)


# --- GGUF ---------------------------------------------------------------------------------------


def gguf_file(content: Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "model.gguf").write_bytes(content())
        return folder / "model.gguf"

    return make


def metadata_of(*values: bytes) -> bytes:
    """A file without tensors, of raw metadata: each with its type in front."""
    entries = b"".join(struct.pack("<Q", 5) + b"k%04d" % i + x for i, x in enumerate(values))
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + entries


LONG = 2**62
GGUFS: dict[str, Callable[[], bytes]] = {
    "four bytes": lambda: b"GGUF",
    "zero bytes": lambda: bytes(1000),
    "an endless count of metadata": lambda: b"GGUF" + struct.pack("<IQQ", 3, 0, LONG),
    "an endless count of tensors": lambda: b"GGUF" + struct.pack("<IQQ", 3, LONG, 0),
    "100000 tensors of nothing": lambda: (
        b"GGUF"
        + struct.pack("<IQQ", 3, 100_000, 0)
        + b"".join(
            struct.pack("<Q", 5) + b"%05d" % i + struct.pack("<IIQ", 0, 0, 0)
            for i in range(100_000)
        )
    ),
    "an endless array of bytes": lambda: metadata_of(struct.pack("<IIQ", 9, 0, LONG)),
    "an endless array of strings": lambda: metadata_of(struct.pack("<IIQ", 9, 8, LONG)),
    "a million empty strings": lambda: metadata_of(
        struct.pack("<IIQ", 9, 8, 1_000_000) + bytes(8_000_000)
    ),
    "arrays of arrays": lambda: metadata_of(struct.pack("<IIQ", 9, 9, 1) * 100_000),
    "a string of 2^62 bytes": lambda: metadata_of(struct.pack("<IQ", 8, LONG)),
    "a string of 20 MB": lambda: metadata_of(struct.pack("<IQ", 8, 20 << 20) + bytes(20 << 20)),
    "a header without an end": lambda: (
        metadata_of(struct.pack("<IIQ", 9, 0, 64 << 20)) + bytes(32 << 20)
    ),
    "a name that is no UTF-8": lambda: b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2) + b"\xff\xfe",
    "a tensor of 2^31 x 2^31": lambda: tiny_gguf((2**31 - 512, 2**31 - 512)),
    "a tensor of 2^63": lambda: tiny_gguf((2**63, 1)),
    "a tensor of 2^32 - 1 dimensions": lambda: (
        b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"x" + struct.pack("<I", 2**32 - 1)
    ),
}


def tiny_gguf(shape: tuple[int, ...]) -> bytes:
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    record = struct.pack("<Q", 1) + b"x" + dims + struct.pack("<IQ", 2, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + record + bytes(64)


for title, text in GGUFS.items():
    CASES[f"gguf: {title}"] = gguf_file(text)


@case("gguf: a terabyte of nothing")
def _(folder: Path) -> Path:
    sparse(folder / "model.gguf", 1 << 40, b"GGUF" + struct.pack("<IQQ", 3, 1, 1))
    return folder / "model.gguf"


@case("gguf: a pipe")
def _(folder: Path) -> Path:
    os.mkfifo(folder / "model.gguf")
    return folder / "model.gguf"


# --- cut or changed while it is open ------------------------------------------------------------


def read_all(path: Path) -> None:
    checkpoint = open_checkpoint(path)
    if path.name in AFTER_OPENING:
        AFTER_OPENING[path.name](path)
    for name in checkpoint.layers:
        checkpoint.layer(name)
    for name in checkpoint.tensors:
        checkpoint.tensor(name)


def cut(path: Path) -> None:
    file = next(x for x in path.iterdir() if x.suffix in (".safetensors", ".pt"))
    os.truncate(file, file.stat().st_size // 2)


def rewrite(path: Path) -> None:
    file = path / "model.safetensors"
    content = file.read_bytes()
    time.sleep(0.02)
    file.write_bytes(content[:-4096] + bytes(4096))


AFTER_OPENING = {"cut": cut, "rewritten": rewrite}


@case("a safetensors file that is cut while it is open")
def _(folder: Path) -> Path:
    return Path(shutil.copytree(DATA / "awq_gemm", folder / "cut"))


@case("a torch file that is cut while it is open")
def _(folder: Path) -> Path:
    from safetensors.torch import load_file

    (folder / "cut").mkdir()
    torch.save(load_file(DATA / "awq_gemm" / "model.safetensors"), folder / "cut" / "m.pt")
    shutil.copy(DATA / "awq_gemm" / "config.json", folder / "cut" / "config.json")
    return folder / "cut"


@case("a safetensors file that is written to while it is open")
def _(folder: Path) -> Path:
    return Path(shutil.copytree(DATA / "awq_gemm", folder / "rewritten"))


# --- running them -------------------------------------------------------------------------------


def child(path: Path, out: int) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    try:
        read_all(path)
        text = "read"
    except CheckpointError as error:
        text = f"CheckpointError: {error}"
    except BaseException as error:
        text = f"{type(error).__name__}: {str(error)[:200]}"
    os.write(out, json.dumps(text[:600]).encode())
    os._exit(0)


def run(name: str, root: Path) -> dict[str, Any]:
    folder = root / "case"
    folder.mkdir()
    path = CASES[name](folder)
    readable, writable = os.pipe()
    process = os.fork()
    if process == 0:
        signal.alarm(SECONDS)
        child(path, writable)
    os.close(writable)
    _, status, usage = os.wait4(process, 0)
    with os.fdopen(readable, "rb") as pipe:
        answer = pipe.read()
    text = json.loads(answer) if answer else f"ended with signal {status & 127}"
    shutil.rmtree(folder)
    seconds = usage.ru_utime + usage.ru_stime
    return {"text": text, "seconds": seconds, "mb": usage.ru_maxrss / 1024}


def main(names: list[str]) -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as root:
        print(json.dumps({name: run(name, Path(root)) for name in names or CASES}))


if __name__ == "__main__":
    main(sys.argv[1:])
