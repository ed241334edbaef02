"""Fuzz what reads files of others: the loaders with their configurations and indexes, and the tags
of mixed_gemm's own checkpoints. Any exception but CheckpointError is a finding, and so are a read
that takes long and memory beyond the limit.

    python tests/fuzz/fuzz_loaders.py [options of libFuzzer] CORPUS...

With ``--once FILE...`` the inputs are only read, which needs no atheris. run.py calls both.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

from inputs import FIXTURES, KINDS, REPOSITORY, join, split
from mutate_json import mutate_json

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(REPOSITORY))
ONCE = "--once" in sys.argv
if ONCE:
    from mixed_gemm.formats import CheckpointError, open_checkpoint
    from mixed_gemm.quantization import DenseCheckpoint
    from mixed_gemm.weights import IntegerWeight, Scheme, values
else:
    import atheris

    with atheris.instrument_imports(include=["mixed_gemm", "pickletools"]):
        import pickletools  # noqa: F401  (so that its branches are seen too)

        from mixed_gemm.formats import CheckpointError, open_checkpoint
        from mixed_gemm.quantization import DenseCheckpoint
        from mixed_gemm.weights import IntegerWeight, Scheme, values

LARGEST = 1 << 20  # bytes of zeros behind a header
FOLDER = Path(tempfile.mkdtemp())
NAMES = (
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model.pt",
    "model.gguf",
)


def with_zeros(header: bytes) -> bytes:
    """A file of this header, with as much data as it says."""
    try:
        entries = json.loads(header).values()
        end = max((entry["data_offsets"][1] for entry in entries), default=0)
        data = bytes(min(max(int(end), 0), LARGEST))
    except Exception:  # the header is not ours to judge
        data = bytes(16)
    return len(header).to_bytes(8, "little") + header + data


def write_tag(text: bytes) -> None:
    from safetensors.torch import save_file
    from torch import frombuffer, ones, uint8, zeros

    tag = frombuffer(bytearray(text or b"{"), dtype=uint8)
    packed = zeros(64, 32, dtype=uint8)
    tensors = {"m.b_packed": packed, "m.scales": ones(1, 64), "m._extra_state": tag}
    save_file(tensors, FOLDER / "model.safetensors")
    values.tag_problem(IntegerWeight.tag_of((64, 64), Scheme.weight_only(4, -1), False), tag, "m")


def write(content: bytes) -> Path:
    """The checkpoint that is to be opened."""
    for name in NAMES:
        (FOLDER / name).unlink(missing_ok=True)
    kind, (config, index, weights) = split(content)
    if config:
        (FOLDER / "config.json").write_bytes(config)
    if index:
        (FOLDER / "model.safetensors.index.json").write_bytes(index)
    if kind == "fixture":
        source = FIXTURES[(weights or b"\0")[0] % len(FIXTURES)]
        (FOLDER / "model.safetensors").symlink_to(source / "model.safetensors")
    elif kind == "header":
        (FOLDER / "model.safetensors").write_bytes(with_zeros(weights))
    elif kind == "pickle":
        with zipfile.ZipFile(FOLDER / "model.pt", "w") as file:
            file.writestr("a/data.pkl", weights)
            file.writestr("a/data/0", bytes(4096))
    elif kind == "torch":
        (FOLDER / "model.pt").write_bytes(weights)
    elif kind == "tag":
        write_tag(weights)
    elif kind == "gguf":
        (FOLDER / "model.gguf").write_bytes(weights + bytes(LARGEST))
        return FOLDER / "model.gguf"
    else:
        (FOLDER / "model.safetensors").write_bytes(weights)
    return FOLDER


def read(path: Path) -> None:
    for strict in (False, True):
        try:
            checkpoint = open_checkpoint(path, strict=strict)
        except CheckpointError:
            break
        for name in checkpoint.layers:
            with contextlib.suppress(CheckpointError):
                weight = checkpoint.layer(name)
                assert weight.q.numel() and weight.scales.isfinite().all()
        for name in checkpoint.tensors:
            with contextlib.suppress(CheckpointError):
                checkpoint.tensor(name)
    with contextlib.suppress(CheckpointError):
        dense = DenseCheckpoint(path, group_size=-1, embeddings="w8a16")
        for name in dense.layers:
            dense.layer(name)


def one_input(content: bytes) -> None:
    path = write(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read(path)


def mutate(content: bytes, max_size: int, seed: int) -> bytes:
    """One part of the input changed: a value of its JSON, or bytes as libFuzzer likes."""
    rng = random.Random(seed)
    kind, parts = split(content)
    if rng.random() < 0.02:
        kind = rng.choice(KINDS)
    at = rng.choice([i for i, part in enumerate(parts) if part] or [0])
    if at == 0 and rng.random() < 0.1:
        parts[0] = (rng.choice(FIXTURES) / "config.json").read_bytes()
    changed = mutate_json(parts[at], rng) if rng.random() < 0.7 else None
    room = max(1, max_size - 13 - sum(map(len, parts)) + len(parts[at]))
    parts[at] = changed or atheris.Mutate(parts[at], room)
    return join(kind, *parts)[:max_size]


def main() -> None:
    if ONCE:
        for path in sys.argv[1:]:
            if path != "--once":
                one_input(Path(path).read_bytes())
        return
    atheris.Setup(sys.argv, one_input, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
