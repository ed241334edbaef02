"""Other tools on the same model, calibration and texts: llm-compressor's GPTQ and AWQ, hqq and
auto-round. They are installed by hand, outside this project's environment:

    pip install llmcompressor==0.14.0.1 hqq==0.2.8.post1 auto-round==0.15.1
    python -m benchmarks.quality.peers FOLDER --device cuda --out FILE.json
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ..about import about_run
from . import measure

GROUP = 64  # divides K = 576, which their groups must
Batches = list[torch.Tensor]


def _loader(batches: Batches) -> Any:
    rows = torch.cat(batches).cpu()
    items = [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in rows]
    return torch.utils.data.DataLoader(items, batch_size=8)  # type: ignore[arg-type]


def _llmcompressor(modifier: str, symmetric: bool, **options: Any) -> Callable[[Any, Batches], Any]:
    def run(model: Any, batches: Batches) -> Any:
        from llmcompressor import oneshot
        from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier

        weights = {"num_bits": 4, "type": "int", "symmetric": symmetric, "strategy": "group",
                   "group_size": GROUP, "observer": options.pop("observer", "minmax")}  # fmt: skip
        groups = {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
        if modifier == "GPTQ":
            recipe: Any = GPTQModifier(**groups, ignore=["lm_head"], **options)
        else:
            from llmcompressor.modifiers.transform.awq import AWQModifier

            recipe = [AWQModifier(**options), QuantizationModifier(**groups, ignore=["lm_head"])]
        oneshot(
            model=model, dataset=_loader(batches), recipe=recipe,
            num_calibration_samples=sum(len(x) for x in batches),
        )  # fmt: skip
        return model

    return run


def _hqq(model: Any, batches: Batches) -> Any:
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    config = BaseQuantizeConfig(nbits=4, group_size=GROUP, axis=1)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, torch.nn.Linear) and name != "lm_head":
            made = HQQLinear(
                layer, config, compute_dtype=torch.float32, device=layer.weight.device.type,
                del_orig=False,
            )  # fmt: skip
            layer.weight.data = made.dequantize().to(layer.weight.dtype)
    return model


def _autoround(symmetric: bool) -> Callable[[Any, Batches], Any]:
    def run(model: Any, batches: Batches) -> Any:
        import transformers
        from auto_round import AutoRound

        folder = model.name_or_path
        made = AutoRound(
            model, transformers.AutoTokenizer.from_pretrained(folder), scheme="W4A16",
            group_size=GROUP, sym=symmetric, dataset=_loader(batches), iters=200,
            nsamples=sum(len(x) for x in batches), seqlen=batches[0].shape[1], batch_size=8,
        )  # fmt: skip
        found, _ = made.quantize()
        return found

    return run


TOOLS: dict[str, tuple[str, Callable[[Any, Batches], Any]]] = {
    "GPTQ symmetric": ("llmcompressor", _llmcompressor("GPTQ", True, actorder="static")),
    "GPTQ asymmetric": ("llmcompressor", _llmcompressor("GPTQ", False, actorder="static")),
    "AWQ symmetric": ("llmcompressor", _llmcompressor("AWQ", True)),
    "AWQ asymmetric": ("llmcompressor", _llmcompressor("AWQ", False)),
    "hqq": ("hqq", _hqq),
    "autoround symmetric": ("auto-round", _autoround(True)),
    "autoround asymmetric": ("auto-round", _autoround(False)),
}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a folder on the path
        return "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--tokens", type=int, default=131072)
    parser.add_argument("--commit")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    settings = measure.Settings(given.tokens, 512, 0, given.device)
    batches = settings.batches(given.folder)
    dense = measure.evaluate(measure.load(given.folder, given.device), given.folder, given.device)
    result: dict[str, Any] = {
        "about": about_run(torch.device(given.device), {}, given.commit),
        "calibration": {"tokens": sum(x.numel() for x in batches), "length": 512},
        "dense": dense,
        "rows": [],
    }
    for name, (package, run) in TOOLS.items():
        if given.only not in name:
            continue
        begun = time.perf_counter()
        row: dict[str, Any] = {"name": name, "tool": f"{package} {_version(package)}"}
        try:
            model = run(measure.load(given.folder, given.device), batches)
            row["seconds"] = round(time.perf_counter() - begun, 1)
            model = model.to(given.device).eval()
            found = measure.evaluate(model, given.folder, given.device)
            row["percent"] = {x: round(100 * (found[x] / dense[x] - 1), 2) for x in dense}
        except Exception:  # a tool of others failed: it is told, and the next one is run
            row["error"] = traceback.format_exc()[-600:]
        result["rows"].append(row)
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(row, flush=True)


if __name__ == "__main__":
    main()
