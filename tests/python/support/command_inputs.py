"""Inputs that a user may give the command by mistake, made from its own table of arguments: values
that are wrong for each, folders of models that are broken in each way, and texts.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer
from safetensors.torch import save_file
from support import tiny_llama

from mixed_gemm.cli.app import COMMANDS

HUGE = str(10**30)
NO_NUMBERS = ("x", "", "--", "nan", "inf", "1.5")
NUMBERS = ("0", "-1", str(2**31), HUGE, f"-{HUGE}")
TEXTS = ("nonesuch", "", " ", "\u00e9", "cuda:264", "\udcff", "a" * 5000)


@dataclass(frozen=True)
class Parameter:
    """An argument or an option of a command that takes a value.

    Attributes:
        command, name: as the table has them. kind: its type, without None and list.
        place: among the arguments; None for an option. option: what it is called.
    """

    command: str
    name: str
    kind: type
    place: int | None
    option: str

    def given(self, line: Sequence[str], value: str) -> list[str]:
        """A command line with this value in it.

        Args:
            line: the command, options, "--", arguments. value: in the place of what is there.
        """
        at = line.index("--")
        if self.place is None:
            return [*line[:at], f"{self.option}={value}", *line[at:]]
        given = [*line[at + 1 :]]
        given[self.place : self.place + 1] = [value]
        return [*line[: at + 1], *given]

    def values(self) -> tuple[str, ...]:
        """Values that hardly anybody means."""
        return (*NO_NUMBERS, *NUMBERS) if self.is_number else TEXTS

    @property
    def is_number(self) -> bool:
        return self.kind in (int, float)


def _plain(kind: Any) -> Any:
    """int of ``int | None``, Path of ``list[Path] | None``."""
    for part in get_args(kind):
        if part is not type(None):
            return _plain(part)
    return kind


def parameters() -> list[Parameter]:
    """All of them but flags, of all commands."""
    found = []
    for command, function in COMMANDS.items():
        places = itertools.count()
        for name, annotated in get_type_hints(function, include_extras=True).items():
            if name == "return":
                continue
            kind, said = get_args(annotated)
            is_argument = isinstance(said, typer.models.ArgumentInfo)
            place = next(places) if is_argument else None
            declared = getattr(said, "param_decls", None) or (f"--{name.replace('_', '-')}",)
            if _plain(kind) is not bool:
                found.append(Parameter(command, name, _plain(kind), place, declared[0]))
    return found


# --- folders -------------------------------------------------------------------------------------


def dense_folder(folder: Path) -> Path:
    """A dense Llama of one layer with a tokenizer of words."""
    folder.mkdir()
    tensors = tiny_llama.plain_tensors()
    for name, (n, k) in tiny_llama.LINEARS.items():
        tensors[f"{name}.weight"] = tiny_llama.grid(name, n, k, 4, 32, False).weight().half()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(tiny_llama.CONFIG))
    return add_tokenizer(folder)


def add_tokenizer(folder: Path) -> Path:
    """One of the words w0, w1, ... for a folder."""
    import tokenizers
    import transformers

    words = {f"w{i}": i for i in range(tiny_llama.VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


def _weights(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        file = folder / "model.safetensors"
        file.write_bytes(change(file.read_bytes()))

    return broken


def _config(content: bytes | None = None, **changes: Any) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        file = folder / "config.json"
        said = {**json.loads(file.read_text()), **changes}
        file.write_bytes(json.dumps(said).encode() if content is None else content)

    return broken


def _removed(*names: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / name).unlink(missing_ok=True) for name in names] and None


def _written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def _folder_in_the_place_of(name: str) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return broken


def _link_to_itself(name: str) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(name)

    return broken


_HEADER = json.dumps({"a.weight": {"dtype": "F32", "shape": [9**9], "data_offsets": [0, 4]}})
BREAKAGES: dict[str, Callable[[Path], None]] = {
    "empty": lambda folder: [x.unlink() for x in folder.iterdir()] and None,
    "no weights": _removed("model.safetensors"),
    "no config": _removed("config.json"),
    "no tokenizer": _removed("tokenizer.json", "tokenizer_config.json"),
    "weights of no bytes": _weights(lambda x: b""),
    "weights cut in the header": _weights(lambda x: x[:50]),
    "weights cut in the data": _weights(lambda x: x[:-100]),
    "weights with more": _weights(lambda x: x + b"more"),
    "weights of zeros": _weights(lambda x: bytes(len(x))),
    "weights of text": _weights(lambda x: b"version https://git-lfs.github.com/spec/v1\n"),
    "weights that lie": _weights(
        lambda x: len(_HEADER).to_bytes(8, "little") + _HEADER.encode() + b"1234"
    ),
    "weights that are a folder": _folder_in_the_place_of("model.safetensors"),
    "weights that are a link to nowhere": _link_to_itself("model.safetensors"),
    "config of no bytes": _config(b""),
    "config cut": _config(b'{"model_type": "llama", "hidd'),
    "config that is a list": _config(b"[1, 2]"),
    "config that is null": _config(b"null"),
    "config that is not UTF-8": _config(b'{"model_type": "ll\xff\xfeama"}'),
    "config in UTF-16": _config('{"model_type": "llama"}'.encode("utf-16")),
    "config that nests": _config(b"[" * 100_000),
    "config that is a folder": _folder_in_the_place_of("config.json"),
    "config without a model type": _config(b"{}"),
    "an architecture of nobody": _config(model_type="nonesuch", architectures=["Nonesuch"]),
    "a model type that is a number": _config(model_type=7),
    "sizes that are texts": _config(hidden_size="wide"),
    "sizes that are negative": _config(hidden_size=-64),
    "sizes that do not fit": _config(hidden_size=96, intermediate_size=8),
    "sizes of nothing": _config(num_attention_heads=0),
    "a dtype of nobody": _config(dtype="float9"),
    "an activation of nobody": _config(hidden_act="nonesuch"),
    "a quantization of nobody": _config(quantization_config={"quant_method": "nonesuch"}),
    "a quantization that is a text": _config(quantization_config="int4"),
    "a quantization that is empty": _config(quantization_config={}),
    "an encoder": _config(model_type="bert", architectures=["BertForMaskedLM"]),
    "an encoder and a decoder": _config(model_type="t5", architectures=["T5Model"]),
    "a model of images": _config(model_type="vit", architectures=["ViTModel"]),
    "a tokenizer cut": _written("tokenizer.json", b'{"version": "1.'),
    "a tokenizer that is a list": _written("tokenizer.json", b"[]"),
    "a tokenizer config cut": _written("tokenizer_config.json", b'{"tok'),
    "a tokenizer of nobody": _written(
        "tokenizer_config.json", b'{"tokenizer_class": "NonesuchTokenizer"}'
    ),
    "an index of nothing": _written("model.safetensors.index.json", b"{}"),
    "an index of what is not there": _written(
        "model.safetensors.index.json", b'{"weight_map": {"a.weight": "other.safetensors"}}'
    ),
    "an index that leads out": _written(
        "model.safetensors.index.json", b'{"weight_map": {"a.weight": "../model.safetensors"}}'
    ),
    "an index cut": _written("model.safetensors.index.json", b'{"weight_map"'),
    "an adapter that is cut": _written("adapter_config.json", b"{"),
    "an adapter of nobody": _written("adapter_config.json", b'{"peft_type": "NONESUCH"}'),
    "a generation config cut": _written("generation_config.json", b"{"),
}


def broken_copy(folder: Path, whole: Path, how: str) -> Path:
    """A copy of a folder, broken in one of the ways of :data:`BREAKAGES`."""
    made = shutil.copytree(whole, folder)
    BREAKAGES[how](made)
    return made


TEXT_FILES: dict[str, bytes] = {
    "of no bytes": b"",
    "of blanks": b" \n\n ",
    "of one word": b"w1",
    "not in UTF-8": b"w1 w2 \xff\xfe w3",
    "in UTF-16": "w1 w2 w3".encode("utf-16"),
    "in Latin-1": "w1 \u00e9 w2".encode("latin-1"),
    "cut in a character": "w1 \u20ac".encode()[:-1],
}
