"""Writes the models of ``rows`` to folders: SmolLM2, and a small Llama whose widths are multiples
of 128, both with weights that lie on no grid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.weights.rounding import quantize_weight

from ..quality.smollm2 import make_folder
from .rows import Row

Packed = tuple[dict[str, Tensor], dict[str, Any]]
PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "One, two, three, four,",
    "Monday, Tuesday, Wednesday,",
    "To be, or not to be, that is",
    "The first president of the United States was",
    "Once upon a time, there was a little girl named",
    "The opposite of hot is",
)
SMALL: dict[str, Any] = {
    "vocab_size": 128, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip


# The sizes that the check on a GPU serves: widths and heads that kernels for GPUs are made for.
WIDER: dict[str, Any] = {
    **SMALL, "vocab_size": 2048, "hidden_size": 1024, "intermediate_size": 2816,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 128,
    "max_position_embeddings": 1024,
}  # fmt: skip


def dense_folder(target: Path, small: bool) -> Path:
    """Write a dense model, unless it is there, and return ``target``."""
    return random_folder(target, SMALL) if small else make_folder(target)


def random_folder(target: Path, config: dict[str, Any], dtype: str = "float32") -> Path:
    """Write a Llama of random weights, unless it is there, and return ``target``."""
    if not (target / "model.safetensors").is_file():
        import transformers

        torch.manual_seed(0)
        model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
        for parameter in model.parameters():  # far apart logits: the best token leads clearly
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=1.5 / parameter.shape[1] ** 0.5)
        model.to(getattr(torch, dtype)).save_pretrained(target)
    return target


def drawn(
    rows: int, length: int, vocabulary: int = SMALL["vocab_size"], seed: int = 0
) -> list[list[int]]:
    """Draw token numbers of a random model."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(0, vocabulary, (rows, length), generator=generator)
    return [list(map(int, row)) for row in numbers]


def prompts(folder: Path) -> list[list[int]]:
    """Token numbers for the model of a folder."""
    if not (folder / "tokenizer.json").is_file():
        vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
        return drawn(200, 20, vocabulary)  # longer than a step of the engine takes
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return [list(tokenizer(text).input_ids) for text in PROMPTS]


def write(row: Row, dense: Path, target: Path, dtype: str = "float16") -> Path:
    """Quantize the model of a folder as a row says, in ``dtype``; return ``target``."""
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        dense, dtype=getattr(torch, dtype)
    ).eval()
    if row.file == "compressed-tensors":
        batches = None
        if row.needs_text:
            batches = [torch.tensor([ids]) for ids in prompts(dense)]
        mixed_gemm.quantize_(model, calibration=batches, progress=False, **row.options)
        model.save_pretrained(target)
    else:
        target.mkdir(parents=True, exist_ok=True)
        linears = {name: x.weight for name, x in _linears(model).items()}
        packed, config = PACKED_BY[row.file](linears, **row.options)
        tensors = {**_others(model, linears), **packed}
        save_file(tensors, target / "model.safetensors", {"format": "pt"})
        whole = {**model.config.to_dict(), "quantization_config": config}
        (target / "config.json").write_text(json.dumps(whole, default=str))
        model.generation_config.save_pretrained(target)
    if (dense / "tokenizer.json").is_file():
        transformers.AutoTokenizer.from_pretrained(dense).save_pretrained(target)
    return target


def _linears(model: nn.Module) -> dict[str, nn.Linear]:
    found = dict(model.named_modules())
    return {
        name: module
        for name, module in found.items()
        if isinstance(module, nn.Linear) and name != "lm_head"
    }


def _others(model: nn.Module, linears: Iterable[str]) -> dict[str, Tensor]:
    taken = {f"{name}.weight" for name in linears}
    tied = bool(getattr(model.config, "tie_word_embeddings", False))
    return {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if name not in taken and not (tied and name == "lm_head.weight")
    }


def _words(codes: Tensor, bits: int) -> Tensor:
    """int64 codes ``[rows, columns]`` -> int32, rows packed from the lowest bits on."""
    per_word = 32 // bits
    fields = codes.view(codes.shape[0] // per_word, per_word, -1)
    shifts = (torch.arange(per_word) * bits).view(1, -1, 1)
    words = (fields << shifts).sum(1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def _codes(
    weight: Tensor, bits: int, group_size: int, symmetric: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(codes ``[K, N]``, scales and zero codes ``[G, N]``), rounded to nearest."""
    q, scales, zeros = quantize_weight(
        weight.detach(), bits, group_size, symmetric, scale_dtype=weight.dtype
    )
    middle = 1 << (bits - 1)
    codes = q.t().long() + middle
    points = torch.full(scales.shape, middle) if zeros is None else zeros.long() + middle
    return codes, scales.contiguous(), points


def _order(name: str, k: int) -> Tensor:
    """An order of columns. Layers that read the same input have the same, as GPTQ gives them."""
    numbers = [int(x) for x in name.split(".") if x.isdigit()]  # layer, and expert
    seed = k + ("o_proj" in name) + sum(2 * 100**i * x for i, x in enumerate(numbers))
    return torch.randperm(k, generator=torch.Generator().manual_seed(seed))


def _gptq(
    weights: Mapping[str, Tensor], bits: int, group_size: int, symmetric: bool, act_order: bool
) -> Packed:
    tensors: dict[str, Tensor] = {}
    for name, weight in weights.items():
        k = weight.shape[1]
        order = _order(name, k) if act_order else torch.arange(k)
        codes, scales, zeros = _codes(weight[:, order], bits, group_size, symmetric)
        back = order.argsort()
        tensors[f"{name}.qweight"] = _words(codes[back], bits)
        # The first version of the format stores zero points less one.
        stored = (zeros - 1) & ((1 << bits) - 1)
        tensors[f"{name}.qzeros"] = _words(stored.t().contiguous(), bits).t().contiguous()
        tensors[f"{name}.scales"] = scales
        size = k if group_size == -1 else group_size
        tensors[f"{name}.g_idx"] = (back // size).to(torch.int32)
    return tensors, {
        "quant_method": "gptq", "bits": bits, "group_size": group_size, "sym": symmetric,
        "desc_act": act_order, "lm_head": False, "checkpoint_format": "gptq",
    }  # fmt: skip


def _awq(weights: Mapping[str, Tensor], group_size: int) -> Packed:
    tensors: dict[str, Tensor] = {}
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # the order of the columns in a word of AutoAWQ

    def packed(codes: Tensor) -> Tensor:
        rows, n = codes.shape
        shuffled = codes.view(rows, n // 8, 8)[..., order].reshape(rows, n)
        return _words(shuffled.t().contiguous(), 4).t().contiguous()

    for name, weight in weights.items():
        codes, scales, zeros = _codes(weight, 4, group_size, False)
        tensors[f"{name}.qweight"], tensors[f"{name}.qzeros"] = packed(codes), packed(zeros)
        tensors[f"{name}.scales"] = scales
    return tensors, {
        "quant_method": "awq", "bits": 4, "group_size": group_size, "zero_point": True,
        "version": "gemm", "modules_to_not_convert": None,
    }  # fmt: skip


# Kind of a file -> what packs the linears of a model, (their tensors, the quantization_config).
PACKED_BY: dict[str, Callable[..., Packed]] = {"gptq": _gptq, "awq": _awq}
