"""Linears that an architecture keeps in float32 whatever dtype is asked for, as T5 does with those
that overflow in float16: quantized and read again they are what they were.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import mixed_gemm
from mixed_gemm.integrations.transformers import kept_dtype

KEPT = "encoder.block.0.layer.1.DenseReluDense.wo"
IDS = {"input_ids": torch.arange(3, 9).view(1, 6), "decoder_input_ids": torch.arange(4).view(1, 4)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=96, d_model=64, d_kv=16, d_ff=128, num_layers=1, num_heads=4,
        decoder_start_token_id=0,
    )  # fmt: skip
    made: Path = tmp_path_factory.mktemp("t5")
    transformers.T5ForConditionalGeneration(config).half().save_pretrained(made)
    return made


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(**IDS).logits
    return found


@pytest.mark.parametrize("scheme", ("w8a16", "w8a8", "fp8", "w8a16_fp8", "nvfp4"))
@pytest.mark.parametrize(
    ("dtype", "kept"),
    ((torch.float16, torch.float32), (torch.bfloat16, torch.bfloat16)),
    ids=("float16", "bfloat16"),
)
def test_they_are_read_in_the_dtype_that_they_are_kept_in(
    dtype: torch.dtype, kept: torch.dtype, scheme: str, folder: Path, tmp_path: Path
) -> None:
    kind = transformers.T5ForConditionalGeneration
    model = kind.from_pretrained(folder, dtype=dtype)
    assert model.get_submodule(KEPT).weight.dtype == kept
    mixed_gemm.quantize_(model, scheme)
    model.save_pretrained(tmp_path)
    options: dict[str, Any] = {"dtype": dtype, "model_class": kind}
    asked = mixed_gemm.MixedGemmConfig(scheme)
    for again in (
        mixed_gemm.from_pretrained(tmp_path, **options),
        mixed_gemm.from_pretrained(folder, quantization_config=asked, **options),
    ):
        layer = again.get_submodule(KEPT)
        assert layer.is_quantized and layer.weight.dtype == kept
        assert torch.equal(logits(again), logits(model))


def test_what_transformers_leaves_in_the_dtype_of_the_file_is_read_in_the_one_asked_for(
    tmp_path: Path,
) -> None:
    """Up to 5.20 that is each dense parameter that has another name in the file."""
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, num_local_experts=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MixtralForCausalLM(config).bfloat16()
    mixed_gemm.quantize_(model, "w8a16")
    model.save_pretrained(tmp_path)
    again = mixed_gemm.from_pretrained(tmp_path, dtype=torch.float32)
    dense = {name: x for name, x in again.named_parameters() if type(x) is torch.nn.Parameter}
    assert any("gate" in name for name in dense)
    assert {x.dtype for x in dense.values()} == {torch.float32}
    assert again(torch.arange(6).view(1, 6)).logits.dtype == torch.float32


def test_parameters_that_transformers_left_are_cast_and_declared_ones_are_not() -> None:
    model = transformers.MixtralForCausalLM(
        transformers.MixtralConfig(
            vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, num_local_experts=2,
        )
    ).half()  # fmt: skip
    model.model.norm.weight = torch.nn.Parameter(torch.ones(64))  # float32 by its own declaration
    kept = kept_dtype.kept_dtypes(model, torch.float16)
    asked = kept_dtype.asked_dtypes(model, kept)
    gate = model.model.layers[0].mlp.gate
    gate.bfloat16()
    kept_dtype.give_dtypes(model, asked)
    assert gate.weight.dtype == torch.float16 and model.model.norm.weight.dtype == torch.float32
