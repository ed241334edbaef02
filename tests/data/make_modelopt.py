"""Write the fixtures of ModelOpt with its own quantization and export, on a CPU.

    pip install --no-deps --target modelopt nvidia-modelopt==0.47.0 omegaconf pulp nvidia-ml-py \
        antlr4-python3-runtime==4.9.3 scipy
    PYTHONPATH=tests/python:modelopt python tests/data/make_modelopt.py

The dense model is that of ``tiny_llama.write_dense``; where scales are by block of 128 x 128 its
MLP is wider, so that there are several. NVFP4_AWQ has no fixture: ModelOpt searches its scales on a
GPU alone. Made with torch 2.13.0 and transformers 5.24.
"""

from __future__ import annotations

import shutil
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import modelopt.torch.quantization as mtq
import torch
import transformers
from modelopt.torch.export import export_hf_checkpoint
from support import tiny_llama

FOLDER = Path(__file__).parent / "modelopt"
FILES = ("config.json", "hf_quant_config.json", "model.safetensors")
CASES = {  # folder -> (configuration, that of keys and values)
    "nvfp4": ("NVFP4_DEFAULT_CFG", None),
    "nvfp4_kv_nvfp4": ("NVFP4_DEFAULT_CFG", "NVFP4_KV_CFG"),
    "nvfp4_mlp": ("NVFP4_MLP_ONLY_CFG", None),
    "w4a16_nvfp4": ("W4A16_NVFP4_CFG", None),
    "w4a8_nvfp4": ("W4A8_NVFP4_FP8_CFG", None),
    "w4a8_mxfp4": ("W4A8_MXFP4_FP8_CFG", None),
    "fp8_kv_fp8": ("FP8_DEFAULT_CFG", "FP8_KV_CFG"),
    "fp8_pc_pt": ("FP8_PER_CHANNEL_PER_TOKEN_CFG", None),
    "fp8_pb_wo": ("FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", None),
    "mxfp8": ("MXFP8_DEFAULT_CFG", None),
    "mixed": ("mixed", None),
}


def mixed() -> dict[str, Any]:
    """NVFP4 in the MLP, FP8 in attention."""
    found = deepcopy(mtq.FP8_DEFAULT_CFG)
    rows = deepcopy(mtq.NVFP4_DEFAULT_CFG["quant_cfg"])
    kept = [x for x in rows if x.get("cfg", {}).get("num_bits") == (2, 1)]
    found["quant_cfg"] = [
        *found["quant_cfg"],
        *({**x, "quantizer_name": f"*mlp*{x['quantizer_name'].lstrip('*')}"} for x in kept),
    ]
    return found


def configuration(name: str, cache: str | None) -> dict[str, Any]:
    found = mixed() if name == "mixed" else deepcopy(getattr(mtq, name))
    if cache is None:
        return found
    of_cache = deepcopy(getattr(mtq, cache))["quant_cfg"]
    return mtq.update_quant_cfg_with_kv_cache_quant(found, of_cache)


def widen(model: Any) -> None:
    """An MLP of 192 columns: one block of 128 and one of 64."""
    model.config.intermediate_size = wide = 192
    for name, linear in model.model.layers[0].mlp.named_children():
        if isinstance(linear, torch.nn.Linear):
            n, k = (wide if x == tiny_llama.INTERMEDIATE else x for x in linear.weight.shape)
            values = tiny_llama.scatter(name, n, k) / 2**20 - 0.5
            linear.weight.data = values.to(torch.bfloat16)
            linear.out_features, linear.in_features = n, k


def run(model: Any) -> None:
    tokens = tiny_llama.scatter("tokens", 4, 16) % tiny_llama.VOCABULARY
    model(tokens)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        dense = tiny_llama.write_dense(Path(scratch) / "dense")
        for folder, (name, cache) in CASES.items():
            model = transformers.AutoModelForCausalLM.from_pretrained(dense, dtype=torch.bfloat16)
            if folder == "fp8_pb_wo":
                widen(model)
            mtq.quantize(model, configuration(name, cache), run)
            out = Path(scratch) / folder
            export_hf_checkpoint(model, export_dir=out)
            (FOLDER / folder).mkdir(parents=True, exist_ok=True)
            for file in FILES:
                shutil.copy(out / file, FOLDER / folder / file)


if __name__ == "__main__":
    main()
