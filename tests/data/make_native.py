"""Write the fixtures of the format that this library's save_pretrained had before it wrote
compressed-tensors, with the Python of that time.

    git archive 30d090a^ mixed_gemm | tar -x -C OLD
    PYTHONPATH=OLD MIXED_GEMM_LIBRARY=build/libmixed_gemm.so python tests/data/make_native.py

Made with transformers 5.24, torch 2.13.0; the ops of packed weights are the same since.
"""

from __future__ import annotations

from pathlib import Path

import torch

import mixed_gemm

DATA = Path(__file__).parent
SOURCES = {
    "native_4bit_act_order": "gptq_v2_4bit_act_order",
    "native_8bit": "gptq_v2_8bit",
}


def main() -> None:
    for folder, source in SOURCES.items():
        model = mixed_gemm.from_pretrained(DATA / source, dtype=torch.float16)
        model.save_pretrained(DATA / folder)
        (DATA / folder / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
