"""Write the inputs that fuzzing begins with: small checkpoints of every format, whole and broken.

python tests/fuzz/make_corpus.py FOLDER
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path

import torch
from inputs import DATA, FIXTURES, REPOSITORY, join
from safetensors.torch import load_file, save

sys.path.append(str(REPOSITORY / "tests" / "python"))
from support import gguf_files

from mixed_gemm.weights import IntegerWeight, Scheme

GGUF = {
    "gguf-llama": ("llama", "Q4_0", "Q6_K"),
    "gguf-qwen2": ("qwen2", "Q4_1", "Q3_K"),
    "gguf-qwen3": ("qwen3", "Q5_K", "IQ4_NL"),
}
LAYER = "model.layers.0.self_attn.q_proj"


def small(folder: Path) -> bytes:
    """One layer of a fixture, its header being what mutations should meet."""
    tensors = load_file(folder / "model.safetensors")
    kept = {name: x for name, x in tensors.items() if name.startswith(f"{LAYER}.")}
    return bytes(save(kept))


def torch_file(folder: Path) -> bytes:
    tensors = load_file(folder / "model.safetensors")
    kept = {name: x for name, x in tensors.items() if name.startswith(f"{LAYER}.")}
    buffer = io.BytesIO()
    torch.save(kept, buffer)
    return buffer.getvalue()


def inputs() -> dict[str, bytes]:
    found = {}
    for number, folder in enumerate(FIXTURES):
        config = (folder / "config.json").read_bytes()
        weights = small(folder)
        header = weights[8 : 8 + int.from_bytes(weights[:8], "little")].rstrip()
        found[f"{folder.name}"] = join("safetensors", config, b"", weights)
        found[f"{folder.name}-header"] = join("header", config, b"", header)
        found[f"{folder.name}-config"] = join("fixture", config, b"", bytes([number]))
    awq = DATA / "awq_gemm"
    config = (awq / "config.json").read_bytes()
    names = load_file(awq / "model.safetensors")
    index = json.dumps({"weight_map": dict.fromkeys(names, "model.safetensors")}).encode()
    found["index"] = join("fixture", config, index, bytes([FIXTURES.index(awq)]))
    whole = torch_file(awq)
    found["torch"] = join("torch", config, b"", whole)
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        pickled = file.read(next(x for x in file.namelist() if x.endswith("data.pkl")))
    found["pickle"] = join("pickle", config, b"", pickled)
    buffer = io.BytesIO()
    torch.save({"m.weight": torch.nn.Parameter(torch.zeros(4, 8))}, buffer)
    with zipfile.ZipFile(buffer) as file:
        pickled = file.read(next(x for x in file.namelist() if x.endswith("data.pkl")))
    found["parameter"] = join("pickle", b"", b"", pickled)
    tag = IntegerWeight.tag_of((64, 64), Scheme.weight_only(4, -1), False)
    found["tag"] = join("tag", b"", b"", json.dumps(tag).encode())
    dense = save({"m.weight": torch.ones(4, 32), "m.bias": torch.ones(4)})
    found["dense"] = join("safetensors", b'{"model_type": "llama"}', b"", dense)
    for kind, (architecture, *kinds) in GGUF.items():
        found[kind] = join("gguf", b"", b"", gguf_files.tiny(architecture, tuple(kinds)).header())
    return found


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in inputs().items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
