"""Write the compressed-tensors fixtures with the package's own compressors.

    pip install --no-deps --target ct-0.20 compressed-tensors==0.20.0     (and its requirements)
    PYTHONPATH=tests/python:ct-0.20 python tests/data/make_compressed_tensors.py
    pip install --no-deps --target ct-0.17 compressed-tensors==0.17.1
    PYTHONPATH=tests/python:ct-0.17:ct-0.20 python tests/data/make_compressed_tensors.py

The installed version decides which cases are written: from 0.18 on, values are packed densely;
before, 32 // bits to a word, and act-order had its g_idx. Made with torch 2.13.0.
"""

from __future__ import annotations

from importlib.metadata import version

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from fixtures import linear, write
from support import tiny_llama
from torch import Tensor

VERSION = version("compressed-tensors")
OLD = tuple(map(int, VERSION.split(".")[:2])) < (0, 18)
DYNAMIC = {"num_bits": 8, "strategy": "token", "dynamic": True, "symmetric": True}


def integer_tensors(name: str, n: int, k: int, args: dict, act_order: bool) -> dict[str, Tensor]:
    group_size = args.get("group_size") or -1
    truth = tiny_llama.grid(
        name, n, k, args["num_bits"], group_size, args["symmetric"], act_order=act_order
    )
    tensors = {"weight": truth.weight(), "weight_scale": truth.scales.t().contiguous()}
    if not args["symmetric"]:
        zeros = truth.zeros - 2 ** (args["num_bits"] - 1)
        tensors["weight_zero_point"] = zeros.t().to(torch.int8).contiguous()
    if act_order:
        tensors["weight_g_idx"] = truth.g_idx.int()
    return tensors


def float_tensors(name: str, n: int, k: int, args: dict) -> dict[str, Tensor]:
    truth = tiny_llama.float_grid(name, n, k, args["strategy"], args.get("block_structure"))
    return {"weight": truth.weight(), "weight_scale": truth.file_scales}


def weights(bits: int, strategy: str, symmetric: bool = True, **more: object) -> dict:
    return {"num_bits": bits, "type": "int", "strategy": strategy, "symmetric": symmetric, **more}


def fp8(strategy: str, **more: object) -> dict:
    return {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True, **more}


NEW_CASES = {  # folder -> format, weights, input activations
    "ct_pack_4bit": ("pack-quantized", weights(4, "group", group_size=32), None),
    "ct_pack_4bit_zeros": ("pack-quantized", weights(4, "group", False, group_size=32), None),
    "ct_pack_8bit_channel": ("pack-quantized", weights(8, "channel"), None),
    "ct_pack_3bit_dense": ("pack-quantized", weights(3, "group", False, group_size=32), None),
    "ct_int_8bit": ("int-quantized", weights(8, "channel"), {**DYNAMIC, "type": "int"}),
    "ct_float_channel": ("float-quantized", fp8("channel"), {**DYNAMIC, "type": "float"}),
    "ct_float_tensor": ("float-quantized", fp8("tensor"), {**DYNAMIC, "type": "float"}),
    "ct_float_block": (
        "float-quantized",
        fp8("block", block_structure=[32, 64]),
        {**DYNAMIC, "type": "float"},
    ),
}
OLD_CASES = {
    "ct_pack_3bit_aligned": ("pack-quantized", weights(3, "group", False, group_size=32), None),
    "ct_pack_4bit_act_order": (
        "pack-quantized",
        weights(4, "group", group_size=32, actorder="group"),
        None,
    ),
}


def main() -> None:
    for folder, (form, args, activations) in (OLD_CASES if OLD else NEW_CASES).items():
        act_order = "actorder" in args
        scheme = QuantizationScheme(
            targets=["Linear"],
            weights=QuantizationArgs(**args),
            input_activations=activations and QuantizationArgs(**activations),
        )
        tensors = {}
        for name, (n, k) in tiny_llama.LINEARS.items():
            if form == "float-quantized":
                given = float_tensors(name, n, k, args)
            else:
                given = integer_tensors(name, n, k, args, act_order)
            bias = linear(name, given["weight"], with_bias=True).bias
            found = BaseCompressor.get_value_from_registry(form).compress(given, scheme)
            if bias is not None:
                found["bias"] = bias.detach().half()
            tensors |= {f"{name}.{role}": tensor for role, tensor in found.items()}
        group = {"targets": ["Linear"], "weights": args, "input_activations": activations}
        quantization = {
            "quant_method": "compressed-tensors",
            "format": form,
            "quantization_status": "compressed",
            "ignore": ["lm_head"],
            "config_groups": {"group_0": group},
            "version": VERSION,
        }
        write(folder, tensors, quantization, f"compressed-tensors {VERSION}")


if __name__ == "__main__":
    main()
