"""A quantized language model spread over the GPUs of this machine, each of which reads its share of
the files: what it says, and what each GPU holds.

    torchrun --nproc-per-node=2 examples/several_gpus.py FOLDER --prompt "The garden in June"
    torchrun --nproc-per-node=2 examples/several_gpus.py FOLDER --dense w4a16   # not quantized yet

FOLDER: of any quantized format that mixed_gemm reads, or a hub id. Over gloo where there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from transformers.distributed import DistributedConfig

import mixed_gemm


def held_bytes(model: torch.nn.Module) -> int:
    """Bytes of the parameters on this rank."""
    total = 0
    for parameter in model.parameters():
        share: Any = getattr(parameter, "_local_tensor", parameter)
        quantized = isinstance(share, mixed_gemm.QuantizedTensor)
        total += share.stored_bytes if quantized else share.nbytes
    return total


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--prompt", help="text; needs a tokenizer in the folder")
    parser.add_argument("--ids", type=int, nargs="+", default=[1, 2, 3], help="tokens, else")
    parser.add_argument("--tokens", type=int, default=32, help="to generate")
    parser.add_argument("--dense", metavar="SCHEME", help="quantize a dense model on the way")
    options = parser.parse_args(argv)
    dense = None if options.dense is None else mixed_gemm.MixedGemmConfig(options.dense)
    quantized = {} if dense is None else {"quantization_config": dense}
    model = mixed_gemm.from_pretrained(
        options.folder,
        dtype="auto",
        distributed_config=DistributedConfig(tp_plan="auto"),
        **quantized,
    )
    tokenizer: Any = None
    ids = options.ids
    if options.prompt is not None:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(options.folder)
        ids = tokenizer(options.prompt)["input_ids"]
    found = model.generate(
        torch.tensor([ids], device=model.device), max_new_tokens=options.tokens, do_sample=False
    )
    megabytes = torch.tensor([held_bytes(model) / 1e6], device=model.device)
    each = [torch.empty_like(megabytes) for _ in range(dist.get_world_size())]
    dist.all_gather(each, megabytes)
    if dist.get_rank() == 0:
        print("MB of parameters on each rank:", ", ".join(f"{float(x):.2f}" for x in each))
        print(found[0].tolist() if tokenizer is None else tokenizer.decode(found[0]))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads may abort an interpreter that is being finalized


if __name__ == "__main__":
    main()
