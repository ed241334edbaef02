"""Write the AWQ fixtures with AutoAWQ's own packers.

    pip download autoawq==0.2.9 --no-deps --no-binary :all: && tar xf autoawq-0.2.9.tar.gz
    PYTHONPATH=tests/python python tests/data/make_awq.py autoawq-0.2.9

Its package no longer builds or imports as a whole (it is deprecated), so only awq.modules.linear is
imported, from the unpacked source. Made with autoawq 0.2.9, torch 2.13.0.
"""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import tiny_llama
from safetensors.torch import save_file
from torch import nn

DATA = Path(__file__).parent
VERSION = "autoawq 0.2.9"


def import_packers(source: Path) -> types.ModuleType:
    for name in ("awq", "awq.utils", "awq.modules"):  # their __init__ import the deprecated models
        package = types.ModuleType(name)
        package.__path__ = [str(source / name.replace(".", "/"))]
        sys.modules[name] = package
    import awq.modules.linear as linear

    return linear


def main() -> None:
    packers = import_packers(Path(sys.argv[1]))
    cases = {  # folder -> (packer, version in the config, group size, bias on down_proj)
        "awq_gemm": (packers.WQLinear_GEMM, "gemm", 32, True),
        "awq_gemm_channel": (packers.WQLinear_GEMM, "gemm", -1, False),
        "awq_gemv": (packers.WQLinear_GEMV, "gemv", 32, True),
        "awq_gemv_fast": (packers.WQLinear_GEMVFast, "gemv_fast", 64, True),
    }
    for folder, (packer, version, group_size, bias) in cases.items():
        tensors = tiny_llama.plain_tensors()
        for name, (n, k) in tiny_llama.LINEARS.items():
            truth = tiny_llama.grid(name, n, k, 4, group_size, symmetric=False)
            linear = nn.Linear(k, n, bias=bias and name.endswith("down_proj"))
            linear.weight.data = truth.weight()
            if linear.bias is not None:
                linear.bias.data = tiny_llama.bias(name, n).float()
            scales, zeros = truth.scales, truth.zeros.float()
            if packer is not packers.WQLinear_GEMM:  # the others take [N, G]
                scales, zeros = scales.t().contiguous(), zeros.t().contiguous()
            size = k if group_size == -1 else group_size  # -1 is no size to its from_linear
            packed = packer.from_linear(linear, 4, size, scales=scales, zeros=zeros)
            for role, tensor in packed.state_dict().items():
                tensors[f"{name}.{role}"] = tensor.contiguous()
        out = DATA / folder
        out.mkdir(exist_ok=True)
        save_file(tensors, out / "model.safetensors", {"format": "pt", "made_by": VERSION})
        quantization = {
            "quant_method": "awq",
            "bits": 4,
            "group_size": group_size,
            "zero_point": True,
            "version": version,
            "modules_to_not_convert": None,
        }
        config = {**tiny_llama.CONFIG, "quantization_config": quantization}
        (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
