"""Write the GPTQ fixtures with the packers of AutoGPTQ and GPTQModel.

    pip download auto-gptq==0.7.1 --no-deps && unzip -d auto_gptq-0.7.1 auto_gptq-0.7.1-*.whl
    pip download gptqmodel==7.7.0 --no-deps --no-binary :all: && tar xf gptqmodel-7.7.0.tar.gz
    PYTHONPATH=tests/python python tests/data/make_gptq.py auto_gptq-0.7.1 gptqmodel-7.7.0

Both import only the modules that pack (and transformers): AutoGPTQ wants CUDA, GPTQModel a newer
torch. Made with those versions, torch 2.13.0, transformers 5.17.0.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from fixtures import import_parts, linear, write
from support import tiny_llama
from torch import nn

ROLES = ("qweight", "qzeros", "scales", "g_idx", "bias")


def import_packers(auto_gptq: Path, gptqmodel: Path):
    """(AutoGPTQ's QuantLinear, GPTQModel's PackableQuantLinear, its v2 -> v1 conversion)."""
    nn_modules = "auto_gptq.nn_modules"
    import_parts(
        auto_gptq,
        "auto_gptq",
        ("auto_gptq", nn_modules, f"{nn_modules}.qlinear"),
        (f"{nn_modules}.qlinear.qlinear_cuda_old",),
    )
    from auto_gptq.nn_modules.qlinear.qlinear_cuda_old import QuantLinear

    real = ("nn_modules.qlinear", "utils.model", "utils.model_dequant", "utils.planar_packing")
    import_parts(
        gptqmodel,
        "gptqmodel",
        ("gptqmodel", "gptqmodel.nn_modules", "gptqmodel.utils"),
        [f"gptqmodel.{x}" for x in real],
    )
    from gptqmodel.nn_modules.qlinear import PackableQuantLinear
    from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module

    return QuantLinear, PackableQuantLinear, convert_gptq_v2_to_v1_format_module


def gptqmodel_module(base: type[nn.Module], bits: int) -> nn.Module:
    """Make a module with what PackableQuantLinear needs for packing, without the kernels behind
    it."""
    module = base.__new__(base)
    nn.Module.__init__(module)
    module.bits, module.maxq, module.planar = bits, 2**bits - 1, False
    module.pack_dtype, module.pack_dtype_bits, module.pack_factor = torch.int32, 32, 32 // bits
    module.pack_np_dtype, module.pack_np_math_dtype = np.int32, np.uint32
    module._qzeros_format = 2
    return module


def main() -> None:
    auto_linear, packable, to_v1 = import_packers(Path(sys.argv[1]), Path(sys.argv[2]))
    cases = {  # folder -> packer, format, bits, group, symmetric, act-order, least zero point
        "gptq_v1_4bit": ("auto_gptq", "gptq", 4, 64, True, False, 0),
        "gptq_v1_4bit_zeros": ("auto_gptq", "gptq", 4, 32, False, False, 1),
        "gptq_v1_4bit_borrow": ("gptqmodel", "gptq", 4, 32, False, False, 0),
        "gptq_v2_4bit_act_order": ("gptqmodel", "gptq_v2", 4, 32, False, True, 0),
        "gptq_v1_3bit": ("auto_gptq", "gptq", 3, 32, False, False, 1),
        "gptq_v2_2bit": ("gptqmodel", "gptq_v2", 2, 32, False, False, 0),
        "gptq_v2_8bit": ("gptqmodel", "gptq_v2", 8, -1, True, False, 0),
    }
    for folder, (packer, form, bits, group_size, symmetric, act_order, least) in cases.items():
        tensors = {}
        for name, (n, k) in tiny_llama.LINEARS.items():
            truth = tiny_llama.grid(
                name, n, k, bits, group_size, symmetric, act_order=act_order, least_zero=least
            )
            layer = linear(name, truth.weight(), with_bias=True)
            scales, zeros = truth.scales.float().t(), truth.zeros.float().t()
            if packer == "auto_gptq":
                module = auto_linear(bits, group_size, k, n, layer.bias is not None)
                module.pack(layer, scales.contiguous(), zeros.contiguous(), None)
                module.g_idx = module.g_idx.int()
            else:
                module = gptqmodel_module(packable, bits)
                module.pack_original(layer, scales, zeros, truth.g_idx.int())
                if form == "gptq":
                    module.qzero_format = lambda format: None
                    config = SimpleNamespace(bits=bits, pack_dtype=torch.int32)
                    to_v1(module, config)
            for role in ROLES:
                tensor = getattr(module, role, None)
                if tensor is not None:
                    is_float = tensor.is_floating_point()
                    tensors[f"{name}.{role}"] = tensor.detach().half() if is_float else tensor
        versions = {"auto_gptq": "auto_gptq 0.7.1", "gptqmodel": "gptqmodel 7.7.0"}
        quantization = {
            "quant_method": "gptq",
            "bits": bits,
            "group_size": group_size,
            "desc_act": act_order,
            "sym": symmetric,
            "checkpoint_format": form,
            "true_sequential": True,
            "damp_percent": 0.01,
            "lm_head": False,
        }
        if packer == "gptqmodel":
            quantization["meta"] = {"quantizer": ["gptqmodel:7.7.0"]}
        write(folder, tensors, quantization, versions[packer])


if __name__ == "__main__":
    main()
