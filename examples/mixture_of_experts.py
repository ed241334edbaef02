"""A mixture of experts: quantize it, save it, read it again, and let it write; the numbers of what
was read are those of what was saved, to the bit.

    python examples/mixture_of_experts.py                       a small random Qwen3-MoE
    python examples/mixture_of_experts.py MODEL --scheme mxfp4  a folder of transformers, a hub id

Needs the extra hf: pip install 'mixed-gemm[hf]'.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

import mixed_gemm
from mixed_gemm.nn.experts import Experts

SMALL: dict[str, Any] = {
    "vocab_size": 1000, "hidden_size": 256, "moe_intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "num_experts": 16,
    "num_experts_per_tok": 4, "max_position_embeddings": 128, "eos_token_id": None,
}  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="a folder or a hub id; a random model by default")
    parser.add_argument("--scheme", default="w4a16", help="w4a16, w8a16, mxfp4, nvfp4, w8a8, ...")
    parser.add_argument("--out", type=Path, help="a new folder; a temporary one by default")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def dense(name: str | None) -> Any:
    """The model of a folder, or a random one."""
    if name is not None:
        return transformers.AutoModelForCausalLM.from_pretrained(name, dtype="auto")
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(**SMALL)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def show(name: str, model: Any) -> None:
    """Print how the experts of the first layer run, and what all of them take."""
    layers = [x for x in model.modules() if isinstance(x, Experts)]
    linears = [x for layer in layers for x in layer.modules() if isinstance(x, mixed_gemm.Linear)]
    stored = sum(x.weight.stored_bytes for x in linears)
    how = layers[0].why_one_by_one or "all experts of a layer in two products"
    print(f"{name}: {len(linears)} linears of experts, {stored / 1e6:.2f} MB; {how}")


def main() -> None:
    given = arguments()
    model = dense(given.model).eval().to(given.device)
    report = mixed_gemm.quantize_(model, given.scheme, progress=False)
    print(str(report).splitlines()[-1])
    show("quantized", model)
    ids = torch.arange(3, 11, device=given.device).view(1, -1)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        out = given.out or Path(folder) / "quantized"
        model.save_pretrained(out)
        again = mixed_gemm.from_pretrained(out, dtype=model.dtype).eval().to(given.device)
        show("read again", again)
        same = torch.equal(model(ids).logits, again(ids).logits)
        print(f"the same logits: {same}")
        written = again.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=0)
        print(f"written: {written[0, ids.shape[1] :].tolist()}")
    raise SystemExit(not same)


if __name__ == "__main__":
    main()
