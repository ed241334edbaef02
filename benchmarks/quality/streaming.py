"""The memory and time to calibrate a large model a block at a time: two decoder blocks of the shape
of Llama-3-70B, with random weights, from a folder on the disk.

    python -m benchmarks.quality.streaming FOLDER --device cuda --out FILE.json
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import torch

from mixed_gemm.formats import save_checkpoint
from mixed_gemm.quantization import CalibratedCheckpoint
from mixed_gemm.quantization.methods.gptq import GPTQ

from ..about import about_run

BLOCKS, VOCABULARY = 2, 1024
SHAPE = {  # sizes of a block of Llama-3-70B
    "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip


def write_model(folder: Path, device: str) -> int:
    """Write the dense folder, and return the bytes of a block."""
    import transformers

    config = transformers.LlamaConfig(
        **SHAPE, num_hidden_layers=BLOCKS, vocab_size=VOCABULARY, tie_word_embeddings=False,
        dtype=torch.bfloat16,
    )  # fmt: skip
    with torch.device(device):
        torch.manual_seed(0)
        model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    return sum(p.nbytes for p in model.model.layers[0].parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--commit")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    block = write_model(given.folder / "dense", given.device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(VOCABULARY, (given.tokens // 1024, 1024), generator=generator)
    begun = time.perf_counter()
    found = CalibratedCheckpoint(
        given.folder / "dense", "w4a16", group_size=128, method=GPTQ(),
        calibration=torch.split(rows, 1), work=given.folder / "work", device=given.device,
        progress=False,
    )  # fmt: skip
    calibrated = time.perf_counter() - begun
    save_checkpoint(found, given.folder / "quantized")
    result = {
        "about": about_run(torch.device(given.device), {}, given.commit),
        "shape": SHAPE,
        "blocks": BLOCKS,
        "method": repr(GPTQ()),
        "calibration_tokens": rows.numel(),
        "block_bytes": block,
        "peak_device_bytes": torch.cuda.max_memory_allocated(),
        "peak_resident_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "seconds_per_block": round(calibrated / BLOCKS, 1),
        "seconds": round(time.perf_counter() - begun, 1),
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
