"""Quantize every row, save it in every way, train an adapter on it and merge that.

    python -m trips.make FOLDER

What the other processes need is left in the folder of the row: ``dense`` and ``saved``, both of
save_pretrained; ``wanted.pt``, what must be found again; ``adapter`` and ``merged``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import peft
import torch

import mixed_gemm
from trips.cells import WRONG, Cells, compared, logits, quietly, row_folder
from trips.subjects import Subject, subjects

# Merging rounds the sum of weight and adapter to the scheme again (docs/adapters.md): root mean
# square of what that changes in a layer over that of its weight, by bits.
MERGED = {4: 0.15, 8: 0.04}


SAVED = ("saved", "checkpoint")  # by save_pretrained, by save_checkpoint


def quantized(model: Any) -> dict[str, mixed_gemm.Linear]:
    return {n: m for n, m in model.named_modules() if isinstance(m, mixed_gemm.Linear)}


def save(subject: Subject, model: Any, folder: Path) -> str:
    """The format that the files say; the same for both ways of saving."""
    model.save_pretrained(folder / "saved")
    mixed_gemm.save_checkpoint(model, folder / "checkpoint")
    configs = [json.loads((folder / x / "config.json").read_text()) for x in SAVED]
    said = [config["quantization_config"] for config in configs]
    formats = {found.get("format", found["quant_method"]) for found in said}
    return f"`{formats.pop()}`" if len(formats) == 1 else f"{WRONG}: {sorted(formats)}"


def told(subject: Subject) -> str:
    """How many layers are quantized, and which matrices are not: each must be in the report."""
    model, report = subject.with_report()
    named = {f"{x}.weight" for x in report.skipped} | set(report.skipped)
    layers = tuple(f"{name}." for name in report.quantized)
    silent = [
        name for name, x in model.named_parameters()
        if x.squeeze().dim() > 1 and name not in named and not name.startswith(layers)
        and not name.endswith("bias")
    ]  # fmt: skip
    if silent:
        return f"{WRONG}: the report is silent about {', '.join(silent)}"
    left = sorted({name.rpartition(".")[2] for name in report.skipped})
    return f"{len(report.quantized)} layers; left: {', '.join(left)}"


def keep(subject: Subject, model: Any, folder: Path) -> None:
    """Leave the inputs and the results that the reading processes must find."""
    inputs = dict(subject.model.inputs())
    wanted = {
        "inputs": inputs,
        "logits": logits(model, inputs),
        "weights": {name: layer.dequantize() for name, layer in quantized(model).items()},
        "rounds_activations": any(
            x.scheme.input_activations is not None for x in quantized(model).values()
        ),
    }
    torch.save(wanted, folder / "wanted.pt")
    torch.save(model.state_dict(), folder / "state.pt")


class Adapter:
    """A LoRA adapter on a row."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self._inputs, self._folder = dict(subject.model.inputs()), folder
        model = subject.quantized()
        torch.manual_seed(4)
        config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=sorted(quantized(model)))
        self._model: Any = peft.get_peft_model(model, config)

    def step(self) -> str:
        """Two steps of SGD: B of an adapter is zero at first, and keeps A from learning."""
        layers = {n: m.base_layer for n, m in self._model.named_modules() if hasattr(m, "lora_A")}
        before = {name: dict(x.weight.tensors()) for name, x in layers.items()}
        copies = {n: {k: t.clone() for k, t in parts.items()} for n, parts in before.items()}
        trained = [p for p in self._model.parameters() if p.requires_grad]
        losses = []
        for _ in range(3):
            loss = self._model(**self._inputs).logits.square().mean()
            loss.backward()
            losses.append(loss.item())
            with torch.no_grad():
                for p in trained:
                    assert p.grad is not None
                    p.sub_(0.02 * p.grad / p.grad.norm().clamp(min=1e-9))
                    p.grad = None
        if not losses[2] < losses[1] < losses[0]:
            return f"{WRONG}: losses {losses}"
        for name, parts in before.items():
            if any(not torch.equal(t, copies[name][k]) for k, t in parts.items()):
                return f"{WRONG}: the packed weight of {name} changed"
        self._model.eval()
        self._model.save_pretrained(str(self._folder / "adapter"))
        torch.save(logits(self._model, self._inputs), self._folder / "tuned.pt")
        return "loss falls"

    def merge(self) -> str:
        """Every weight beside the exact sum."""
        layers = {n: m for n, m in self._model.base_model.model.named_modules()
                  if hasattr(m, "lora_A")}  # fmt: skip
        with torch.no_grad():
            sums = {
                name: layer.base_layer.dequantize() + layer.get_delta_weight("default")
                for name, layer in layers.items()
            }
        merged = self._model.merge_and_unload().eval()
        if quantized(merged).keys() != sums.keys():
            return f"{WRONG}: {len(quantized(merged))} layers of {len(sums)} are quantized"
        merged.save_pretrained(self._folder / "merged")
        torch.save(logits(merged, self._inputs), self._folder / "merged.pt")
        for name, layer in quantized(merged).items():
            text = compared(layer.dequantize(), sums[name], MERGED[layer.bits])
            if text.startswith(WRONG):
                return f"{text} ({name})"
        return f"weights {text}"


def fill(cells: Cells, subject: Subject, folder: Path) -> None:
    subject.dense().save_pretrained(folder / "dense")
    model = subject.quantized()
    keep(subject, model, folder)
    cells.run(subject.name, "save", lambda: save(subject, model, folder))
    if subject.is_architecture:
        cells.run(subject.name, "quantize_", lambda: told(subject))
        return
    adapter = Adapter(subject, folder)
    cells.run(subject.name, "LoRA", adapter.step)
    cells.run(subject.name, "merge", adapter.merge)


def main(folder: Path) -> None:
    quietly()
    cells, manifest = Cells(folder, "make"), []
    for subject in subjects():
        place = row_folder(folder, subject.name)
        fill(cells, subject, place)
        manifest.append([subject.name, place.name, subject.model.auto])
    (folder / "manifest.json").write_text(json.dumps(manifest))
    cells.write()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
