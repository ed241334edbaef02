"""From a model to a sentence: quantize a language model with calibration, save it, read it again,
and let it write.

    python examples/quantize_language_model.py MODEL A.txt B.txt --held-out C.txt --out OUT

MODEL is a folder of transformers or a hub id. Needs the extra hf: pip install 'mixed-gemm[hf]'.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
import transformers

import mixed_gemm


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+", type=Path, help="what calibrates: mix kinds of text")
    parser.add_argument("--held-out", type=Path, help="what perplexity is measured on")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=64)
    parser.add_argument("--method", default="gptq")
    parser.add_argument("--tokens", type=int, default=32768, help="of calibration")
    parser.add_argument("--prompt", default="Write a sentence about the sea.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def weight_bytes(model: torch.nn.Module) -> int:
    """Bytes of all parameters; those of a quantized layer count as they are stored."""
    linears = {x for x in model.modules() if isinstance(x, mixed_gemm.Linear)}
    inside = {id(p) for x in linears for p in x.parameters()}
    stored = sum(x.weight.stored_bytes for x in linears)
    return stored + sum(p.nbytes for p in model.parameters() if id(p) not in inside)


def write(model: Any, tokenizer: Any, prompt: str) -> tuple[str, float]:
    """(the answer of the model, tokens per second)."""
    asked = prompt
    if tokenizer.chat_template:
        asked = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
    ids = tokenizer(asked, return_tensors="pt").input_ids.to(model.device)
    model.generate(ids, max_new_tokens=2, do_sample=False)  # the first call sets up
    begun = time.perf_counter()
    answer = model.generate(ids, max_new_tokens=48, do_sample=False)[0, ids.shape[1] :]
    seconds = time.perf_counter() - begun
    return tokenizer.decode(answer, skip_special_tokens=True), len(answer) / seconds


def print_answer(model: Any, tokenizer: Any, prompt: str) -> None:
    answer, rate = write(model, tokenizer, prompt)
    print(f"  {answer}\n  {rate:.1f} tokens per second")


def main() -> None:
    given = arguments()
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(given.model, dtype="auto")
    model = model.eval().to(given.device)
    batches = mixed_gemm.quantization.text_batches(tokenizer, given.texts, tokens=given.tokens)
    held_out = None
    if given.held_out is not None:
        text = given.held_out.read_text(encoding="utf-8")
        held_out = tokenizer(text, return_tensors="pt", verbose=False).input_ids[0]
    print(f"dense: {weight_bytes(model) / 1e6:.0f} MB")
    print_answer(model, tokenizer, given.prompt)

    report = mixed_gemm.quantize_(
        model,
        bits=given.bits,
        group_size=given.group_size,
        method=given.method,
        calibration=[x.to(given.device) for x in batches],
        options=mixed_gemm.quantization.Options(evaluate=held_out),
    )
    print(report)
    model.save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)

    again = mixed_gemm.from_pretrained(given.out, dtype=model.dtype).to(given.device)
    print(f"quantized, read from {given.out}: {weight_bytes(again) / 1e6:.0f} MB")
    print_answer(again, tokenizer, given.prompt)


if __name__ == "__main__":
    main()
