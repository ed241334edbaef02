"""The cost of each scheme in quality, on the sentence model of `make demo`.

    python tools/compare_schemes.py --measure   quantize and compare: a minute on two cores
    python tools/compare_schemes.py             writes the table of docs/schemes.md from that
    python tools/compare_schemes.py --check     exit status 1 if it would change

Embeddings of the sentences and queries of examples/sentences.txt against those of the model in
float32, which the quantized ones keep for their activations. Calibration is the first 96 sentences.
"""

from __future__ import annotations

import copy
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from written import settle, with_part

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "schemes.md"
RESULTS = ROOT / "benchmarks" / "results" / "schemes_minilm.json"
BEGIN = "<!-- quality: tools/compare_schemes.py writes this part -->"
END = "<!-- end of quality -->"
CALIBRATED = 96  # sentences
BATCH = 32
SETTINGS: dict[str, dict[str, Any]] = {
    '"w4a16"': {"scheme": "w4a16"},
    '"w4a16", group_size=32': {"scheme": "w4a16", "group_size": 32},
    '"w4a16_asym"': {"scheme": "w4a16_asym"},
    '"w4a16_asym", group_size=32': {"scheme": "w4a16_asym", "group_size": 32},
    '"w8a16"': {"scheme": "w8a16"},
    '"w8a8"': {"scheme": "w8a8"},
    '"w8a8", activations="dynamic_azp"': {"scheme": "w8a8", "activations": "dynamic_azp"},
    '"w8a8", smooth=0.5': {"scheme": "w8a8", "smooth": 0.5},
    '"w8a8", activations="static"': {"scheme": "w8a8", "activations": "static"},
    '"w8a8", activations="static", smooth=0.5': {
        "scheme": "w8a8",
        "activations": "static",
        "smooth": 0.5,
    },
    '"w8a8", activations="static", smooth=0.7': {
        "scheme": "w8a8",
        "activations": "static",
        "smooth": 0.7,
    },
}


def measure() -> list[dict[str, Any]]:
    import mixed_gemm

    sys.path.insert(0, str(ROOT / "examples"))
    demo: Any = importlib.import_module("semantic_search")

    model, tokenizer = demo.load(demo.find_model(None))
    corpus = demo.read_corpus(ROOT / "examples" / "sentences.txt")
    texts = corpus.sentences + corpus.queries
    exact = demo.Encoder(copy.deepcopy(model), tokenizer, "cpu")(texts).double()
    batches = [
        dict(tokenizer(corpus.sentences[i : i + BATCH], padding=True, return_tensors="pt"))
        for i in range(0, CALIBRATED, BATCH)
    ]
    rows = []
    for name, settings in SETTINGS.items():
        calibrated = "smooth" in settings or settings.get("activations") == "static"
        options = {**settings, "calibration": batches} if calibrated else settings
        quantized = copy.deepcopy(model)
        report = mixed_gemm.quantize_(quantized, progress=False, **options)
        cosine = (demo.Encoder(quantized, tokenizer, "cpu")(texts).double() * exact).sum(1)
        errors = [x.weight_error for x in report.layers.values() if x.weight_error is not None]
        rows.append(
            {
                "settings": name,
                "cosine_mean": round(cosine.mean().item(), 4),
                "cosine_min": round(cosine.min().item(), 4),
                "weight_error": round(sum(errors) / len(errors), 4),
            }
        )
        print(rows[-1])
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| `quantize_(model, ...)` | cosine to float32, mean (least) | error of the weights |"]
    lines.append("|---|---|---|")
    for row in rows:
        cosine = f"{row['cosine_mean']:.4f} ({row['cosine_min']:.4f})"
        lines.append(f"| `{row['settings']}` | {cosine} | {row['weight_error']:.1%} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    if arguments == ["--measure"]:
        lines = ",\n".join(json.dumps(row) for row in measure())
        RESULTS.write_text(f"[\n{lines}\n]\n")
    page = with_part(PAGE, BEGIN, table(json.loads(RESULTS.read_text())), END)
    return settle(PAGE, page, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
