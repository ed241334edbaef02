"""Perplexity of the quantized model beside that of the dense one."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import mixed_gemm
from mixed_gemm.quantization import perplexity

from ..about import about_run
from . import smollm2, texts
from .rows import ROWS, Row

USE_DATA = {"smooth", "average_bits"}  # options that measure by calibration data
WINDOW = 1024  # tokens the model sees at once; texts are cut into windows without overlap


@dataclass(frozen=True)
class Settings:
    """Settings of calibration: tokens in all and of a window, the seed of places, and the
    device; how many tokens of each text are measured, None for all; and whether layers multiply by
    their dequantized weights then, where a CPU has slow kernels for one of the schemes."""

    tokens: int
    length: int
    seed: int
    device: str
    measured: int | None = None
    dense: bool = False

    def batches(self, folder: Path) -> list[torch.Tensor]:
        rows = texts.calibration(folder, self.tokens // self.length, self.length, self.seed)
        return list(torch.split(rows.to(self.device), 8))


def load(folder: Path, device: str) -> Any:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2.make_folder(folder / "model"), dtype=torch.float32
    )
    return model.eval().to(device)


def answer(folder: Path, device: str) -> None:
    """Write the model's own answers."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    model = load(folder, device).to(torch.bfloat16)
    texts.save_answers(folder, texts.own_answers(model, tokenizer))


@torch.inference_mode()
def evaluate(
    model: Any, folder: Path, device: str, measured: int | None = None
) -> dict[str, float]:
    """Return text -> perplexity, over ``measured`` tokens of each. Products are in half precision,
    as kernels run them."""
    half = torch.float16 if torch.device(device).type == "cuda" else torch.bfloat16
    found = {}
    for name, ids in texts.held_out(folder).items():
        with torch.autocast(torch.device(device).type, half):
            found[name] = perplexity(
                model, ids[:measured], window=WINDOW, stride=WINDOW - 1, progress=False
            ).perplexity
    return found


def measured(row: Row, model: Any, batches: list[torch.Tensor]) -> dict[str, Any]:
    """Quantize the model in place; what that took."""
    cuda = next(model.parameters()).is_cuda
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    options = row.options
    needs = options.get("method") not in (None, "rtn", "hqq") or options.keys() & USE_DATA
    report = mixed_gemm.quantize_(
        model, calibration=batches if needs else None, progress=False, **row.options
    )
    peak = {"peak_mb": round(torch.cuda.max_memory_allocated() / 1e6)} if cuda else {}
    return {
        "seconds": round(time.perf_counter() - begun, 1),
        **peak,
        "weights_mb": round(report.bytes_after / 1e6, 2),
        "model_mb": round(model_bytes(model) / 1e6, 2),
        "bits": bits_of(report),
        "recipe": model.mixed_gemm_recipe["method"],
    }


def model_bytes(model: Any) -> int:
    """The bytes of all weights, each once, dense ones in 16 bits."""
    weights = {id(x): x for x in model.parameters()}.values()
    return sum(
        x.stored_bytes if isinstance(x, mixed_gemm.QuantizedTensor) else 2 * x.numel()
        for x in weights
    )


def bits_of(report: Any) -> dict[str, Any] | None:
    """Return the average that ``average_bits`` found, over how many weights, and the bits of tied
    tensors; None where it was not asked for."""
    found = report.average
    if found is None:
        return None
    tables = {name: found.bits[name] for name in found.tied.values()}
    return {"average": round(found.found, 3), "weights": found.weights, "tables": tables}


def make_dense(model: Any) -> None:
    """Put dense layers with what the quantized weights stand for in their places."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, mixed_gemm.Linear):
            parent, _, child = name.rpartition(".")
            dense = torch.nn.Linear(layer.in_features, layer.out_features, False, device="meta")
            dense.weight = torch.nn.Parameter(layer.dequantize(torch.float32), False)
            dense.bias = layer.bias
            setattr(model.get_submodule(parent), child, dense)


def table(
    folder: Path, rows: Sequence[Row], settings: Settings, out: Path, commit: str | None = None
) -> None:
    """Measure rows, and write them as JSON after each, so that none is lost. Rows of ``out`` that
    are not measured now stay, each with its commit: what it says is relative to the dense model,
    not to a clock.
    """
    warnings.filterwarnings("ignore", category=UserWarning)
    device, batches = settings.device, settings.batches(folder)
    dense = evaluate(load(folder, device), folder, device, settings.measured)
    result: dict[str, Any] = {
        "about": about_run(torch.device(device), {}, commit),
        "calibration": {"tokens": sum(x.numel() for x in batches), "length": settings.length},
        "dense": dense,
    }
    if settings.measured is not None:
        result["measured_tokens"] = settings.measured
    if settings.dense:
        result["products"] = "of dequantized weights"
    kept: dict[str, Any] = {}
    if out.exists():
        kept = {x["name"]: x for x in json.loads(out.read_text(encoding="utf-8"))["rows"]}
    order = [row.name for row in ROWS]
    for row in rows:
        model = load(folder, device)
        took = measured(row, model, batches)
        if settings.dense:
            make_dense(model)
        found = evaluate(model, folder, device, settings.measured)
        above = {name: round(100 * (found[name] / dense[name] - 1), 2) for name in dense}
        found_row = {"name": row.name, "goal": row.goal, "percent": above, **took, "commit": commit}
        kept[row.name] = found_row
        result["rows"] = [kept[name] for name in order if name in kept]
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"{row.name:40s} % {above} {took['seconds']} s", flush=True)
