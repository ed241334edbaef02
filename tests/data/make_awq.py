"""Write the AWQ fixtures with AutoAWQ's own packers.

    pip download autoawq==0.2.9 --no-deps --no-binary :all: && tar xf autoawq-0.2.9.tar.gz
    PYTHONPATH=tests/python python tests/data/make_awq.py autoawq-0.2.9

Its package no longer builds or imports as a whole (it is deprecated), so only awq.modules.linear is
imported, from the unpacked source. Made with autoawq 0.2.9, torch 2.13.0.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fixtures import import_parts, linear, write
from support import tiny_llama


def main() -> None:
    folders = ("awq", "awq.utils", "awq.modules", "awq.modules.linear")
    parts = ("utils.module", "utils.utils", "utils.packing_utils")
    packers = [f"modules.linear.{x}" for x in ("gemm", "gemv", "gemv_fast")]
    import_parts(Path(sys.argv[1]), "awq", folders, [f"awq.{x}" for x in (*parts, *packers)])
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.modules.linear.gemv import WQLinear_GEMV
    from awq.modules.linear.gemv_fast import WQLinear_GEMVFast

    cases = {  # folder -> (packer, version in the config, group size, bias on down_proj)
        "awq_gemm": (WQLinear_GEMM, "gemm", 32, True),
        "awq_gemm_channel": (WQLinear_GEMM, "gemm", -1, False),
        "awq_gemv": (WQLinear_GEMV, "gemv", 32, True),
        "awq_gemv_fast": (WQLinear_GEMVFast, "gemv_fast", 64, True),
    }
    for folder, (packer, version, group_size, bias) in cases.items():
        tensors = {}
        for name, (n, k) in tiny_llama.LINEARS.items():
            truth = tiny_llama.grid(name, n, k, 4, group_size, symmetric=False)
            scales, zeros = truth.scales, truth.zeros.float()
            if packer is not WQLinear_GEMM:  # the others take [N, G]
                scales, zeros = scales.t().contiguous(), zeros.t().contiguous()
            packed = packer.from_linear(
                linear(name, truth.weight(), bias),
                4,
                k if group_size == -1 else group_size,  # -1 is no size to its from_linear
                scales=scales,
                zeros=zeros,
            )
            tensors |= {f"{name}.{role}": x for role, x in packed.state_dict().items()}
        quantization = {
            "quant_method": "awq",
            "bits": 4,
            "group_size": group_size,
            "zero_point": True,
            "version": version,
            "modules_to_not_convert": None,
        }
        write(folder, tensors, quantization, "autoawq 0.2.9")


if __name__ == "__main__":
    main()
