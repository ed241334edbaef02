"""GGUF files of mixtures of experts, beside what transformers makes of them itself, or the gguf
package where transformers does not read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from integrations.test_gguf import dense, generated, logits
from support import gguf_files
from support.gguf_files import EXPERT, EXPERTS, HEAD, HIDDEN, LAYERS, SHARED, tiny
from torch import Tensor

import mixed_gemm
from mixed_gemm.formats import CheckpointError, open_checkpoint
from mixed_gemm.formats.gguf_file import GgufContainer
from mixed_gemm.nn.experts import Experts

gguf = pytest.importorskip("gguf", reason="transformers reads such files with it: the oracle")
transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

# transformers takes these from its defaults, whatever the file says.
SAID: dict[str, dict[str, int]] = {
    "qwen2moe": {"moe_intermediate_size": EXPERT, "shared_expert_intermediate_size": SHARED},
    "qwen3moe": {"moe_intermediate_size": EXPERT, "head_dim": HEAD},
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


def written(folder: Path, architecture: str, kinds: tuple[str, ...], **more: Any) -> Path:
    return tiny(architecture, kinds, experts=True, **more).write(folder / "model.gguf")


def assert_same_experts(model: Any, truth: Any) -> None:
    """truth: a model of transformers, which holds gate and up of all experts in one tensor."""
    for layer, wanted in zip(model.model.layers, truth.model.layers, strict=True):
        experts = layer.mlp.experts
        assert isinstance(experts, Experts) and experts.form.count == EXPERTS
        for number, expert in enumerate(experts.experts):
            found = [x.weight.dequantize(torch.float32) for x in expert.linears]
            assert torch.equal(torch.cat(found[:2]), wanted.mlp.experts.gate_up_proj[number])
            assert torch.equal(found[2], wanted.mlp.experts.down_proj[number])
        assert torch.equal(layer.mlp.gate.weight, wanted.mlp.gate.weight)


@pytest.mark.parametrize(
    ("architecture", "kinds", "tied"),
    [
        ("qwen3moe", ("Q4_0",), True),
        ("qwen3moe", ("Q8_0", "Q5_0"), False),
        ("qwen3moe", ("Q4_K", "Q6_K", "Q4_1"), False),
        ("qwen2moe", ("Q4_K",), False),
        ("qwen2moe", ("Q5_K", "Q5_1", "Q8_0"), True),
    ],
)
def test_a_mixture_is_that_of_transformers(
    tmp_path: Path, architecture: str, kinds: tuple[str, ...], tied: bool
) -> None:
    path = written(tmp_path, architecture, kinds, tied=tied)
    model = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    truth = dense(path, **SAID[architecture])
    assert type(model) is type(truth) and not model.training
    assert_same_experts(model, truth)
    assert all(getattr(model.config, key) == value for key, value in SAID[architecture].items())
    assert model.config.norm_topk_prob == truth.config.norm_topk_prob
    assert torch.allclose(logits(model), logits(truth), rtol=1e-3, atol=1e-3)
    assert torch.equal(generated(model), generated(truth))
    apart = [x.mlp.experts.why_one_by_one for x in model.model.layers]
    assert len(kinds) > 1 or not any(apart)


def test_what_the_gguf_package_writes_is_read_as_transformers_reads_it(tmp_path: Path) -> None:
    """As llama.cpp converts a model: names by the package's table, blocks by its quantizers."""
    config = transformers.Qwen3MoeConfig(
        vocab_size=64, hidden_size=64, intermediate_size=192, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=6,
        num_experts_per_tok=3, moe_intermediate_size=32, max_position_embeddings=64,
        norm_topk_prob=True, tie_word_embeddings=False, rms_norm_eps=1e-6,
    )  # fmt: skip
    torch.manual_seed(0)
    source = transformers.Qwen3MoeForCausalLM(config)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "qwen3moe")
    writer.add_name("tiny")
    writer.add_vocab_size(64)
    writer.add_token_list([f"t{i}" for i in range(64)])
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(192)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(6)
    writer.add_expert_used_count(3)
    writer.add_expert_feed_forward_length(32)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3MOE, 2)
    for key, x in source.state_dict().items():
        owner, _, part = key.rpartition(".")
        joined = {"gate_up_proj": ("gate_proj", "up_proj")}.get(part, (part,))
        parts = x.chunk(len(joined), 1) if x.dim() == 3 else (x,)
        for role, tensor in zip(joined, parts, strict=True):
            module = f"{owner}.{role}" if x.dim() == 3 else owner
            name = names.get_name(module, try_suffixes=(".weight",)) + ".weight"
            values = tensor.detach().float().contiguous().numpy()
            kind = (
                gguf.GGMLQuantizationType.Q8_0 if "down" in name else gguf.GGMLQuantizationType.Q4_0
            )
            if values.ndim == 1 or "ffn_gate_inp" in name:
                writer.add_tensor(name, values)
            else:
                writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path = tmp_path / "model.gguf"
    model = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    truth = dense(path, moe_intermediate_size=32, head_dim=16)
    assert model.model.layers[0].mlp.experts.form.count == 6
    for layer, wanted in zip(model.model.layers, truth.model.layers, strict=True):
        for number, expert in enumerate(layer.mlp.experts.experts):
            found = [x.weight.dequantize(torch.float32) for x in expert.linears]
            assert torch.equal(torch.cat(found[:2]), wanted.mlp.experts.gate_up_proj[number])
            assert torch.equal(found[2], wanted.mlp.experts.down_proj[number])
    assert torch.allclose(logits(model), logits(truth), rtol=1e-3, atol=1e-3)
    assert float((logits(model) - logits(source)).norm() / logits(source).norm()) < 0.3


def values_of(path: Path) -> dict[str, Tensor]:
    """Name in the file -> what the gguf package reads."""
    return {
        x.name: torch.from_numpy(np.array(gguf.dequantize(x.data, x.tensor_type)))
        for x in gguf.GGUFReader(path).tensors
    }


def test_mixtral_is_read(tmp_path: Path) -> None:
    """transformers takes such a file for a dense Llama."""
    from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

    path = written(tmp_path, "llama", ("Q4_0", "Q8_0"), tied=False)
    model = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    config = transformers.MixtralConfig(**{
        key: getattr(model.config, key)
        for key in (
            "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim",
            "num_attention_heads", "num_key_value_heads", "num_local_experts", "rms_norm_eps",
            "num_experts_per_tok", "max_position_embeddings", "rope_parameters",
        )
    })  # fmt: skip
    assert (config.num_local_experts, config.num_experts_per_tok) == (4, 2)
    truth, found = transformers.MixtralForCausalLM(config).eval(), values_of(path)
    process = LlamaTensorProcessor(
        {"num_attention_heads": gguf_files.HEADS, "num_key_value_heads": gguf_files.KEY_HEADS}
    ).process
    state = {
        "model.embed_tokens.weight": found["token_embd.weight"],
        "model.norm.weight": found["output_norm.weight"],
        "lm_head.weight": found["output.weight"],
    }
    for layer in range(LAYERS):
        ours, theirs = f"model.layers.{layer}.", f"blk.{layer}."
        for role, name in {
            "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
            "mlp.gate": "ffn_gate_inp",
        }.items():  # fmt: skip
            key = f"{theirs}{name}.weight"
            weights = process(found[key].numpy(), key).weights
            state[f"{ours}{role}.weight"] = torch.from_numpy(np.ascontiguousarray(weights))
        gate, up, down = (found[f"{theirs}ffn_{x}_exps.weight"] for x in ("gate", "up", "down"))
        state[f"{ours}mlp.experts.gate_up_proj"] = torch.cat((gate, up), 1)
        state[f"{ours}mlp.experts.down_proj"] = down
    truth.load_state_dict(state)
    assert_same_experts(model, truth)
    assert torch.allclose(logits(model), logits(truth), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("architecture", ["qwen3moe", "qwen2moe", "llama"])
def test_a_saved_mixture_is_read_back(tmp_path: Path, architecture: str) -> None:
    path = written(tmp_path, architecture, ("Q4_0", "Q6_K"))
    model = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    model.save_pretrained(tmp_path / "saved")
    mixed_gemm.save_checkpoint(open_checkpoint(path), tmp_path / "converted")
    for folder in ("saved", "converted"):
        again = mixed_gemm.from_pretrained(tmp_path / folder, dtype=torch.float32)
        assert torch.equal(logits(again), logits(model)), folder
        assert not (tmp_path / folder / "README.md").exists()


@pytest.mark.parametrize("kinds", [("Q4_0", "F16"), ("F16", "Q8_0"), ("Q4_0",) * 4 + ("F16",) * 3])
def test_dense_experts_are_read_beside_quantized_ones(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    """The last have their attention quantized alone: the experts stay as transformers has them."""
    path = written(tmp_path, "qwen3moe", kinds)
    model = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    truth = dense(path, **SAID["qwen3moe"])
    are_apart = any(isinstance(x, Experts) for x in model.modules())
    assert are_apart == (len(kinds) == 2)
    assert torch.allclose(logits(model), logits(truth), rtol=1e-3, atol=1e-3)


def test_one_expert_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: dict[str, list[int]] = {}
    plain = GgufContainer.read

    def read(self: GgufContainer, name: str, nbytes: int, first: int = 0) -> Tensor:
        reads.setdefault(name, []).append(nbytes)
        return plain(self, name, nbytes, first)

    monkeypatch.setattr(GgufContainer, "read", read)
    mixed_gemm.from_pretrained(written(tmp_path, "qwen3moe", ("Q8_0",)), dtype=torch.float32)
    for part in ("gate", "up", "down"):
        one = EXPERT * HIDDEN // 32 * 34
        assert reads[f"blk.1.ffn_{part}_exps.weight"] == [one] * EXPERTS


def test_a_quantized_router_is_dense(tmp_path: Path) -> None:
    router = gguf_files.matrix("Q8_0", (EXPERTS, HIDDEN), seed=5)
    model = tiny("qwen3moe", experts=True).with_tensors(blk__0__ffn_gate_inp__weight=router)
    path = model.write(tmp_path / "model.gguf")
    read = mixed_gemm.from_pretrained(path, dtype=torch.float32)
    assert_same_experts(read, dense(path, **SAID["qwen3moe"]))


def test_older_files_say_no_width_of_an_expert(tmp_path: Path) -> None:
    """llama.cpp takes the chosen ones to be as wide as a dense layer, then."""
    model = tiny("qwen2moe", experts=True).with_metadata(
        qwen2moe__expert_feed_forward_length=None, qwen2moe__expert_shared_feed_forward_length=None
    )
    config = open_checkpoint(model.write(tmp_path / "model.gguf")).config
    assert config["moe_intermediate_size"] == EXPERT
    assert config["shared_expert_intermediate_size"] == SHARED


def _changed(architecture: str = "qwen3moe", **metadata: Any) -> gguf_files.Gguf:
    return tiny(architecture, experts=True).with_metadata(**metadata)


def _with(name: str, tensor: gguf_files.Tensor) -> gguf_files.Gguf:
    return tiny("qwen3moe", experts=True).with_tensors(**{f"blk__0__{name}": tensor})


WRONG: dict[str, tuple[gguf_files.Gguf, str]] = {
    "another architecture": (
        _changed(general__architecture="deepseek2", deepseek2__expert_count=64),
        "'deepseek2' with 64 experts is not read; llama, qwen2, qwen3 are, and with experts llama",
    ),
    "more chosen than there are": (
        _changed(qwen3moe__expert_used_count=9),
        "expert_used_count is 9 of 4 experts",
    ),
    "too many": (
        _changed(qwen3moe__expert_count=1 << 20, qwen3moe__expert_used_count=1),
        "1 of 1048576 experts, at most 4096 are read",
    ),
    "sigmoid": (_changed(qwen3moe__expert_gating_func=2), "expert_gating_func is 2; only 1"),
    "a scale": (_changed(qwen3moe__expert_weights_scale=2.5), "expert_weights_scale is 2.5"),
    "weights that add up to less": (
        _changed(qwen3moe__expert_weights_norm=False),
        "expert_weights_norm is False; only True is read",
    ),
    "gate and up in one": (
        _with("ffn_gate_up_exps__weight", gguf_files.matrix("Q4_0", (4, 512, 256))),
        "holds experts in a form that is not read",
    ),
    "a bias": (
        _with("ffn_gate_exps__bias", gguf_files.matrix("F32", (4, 256))),
        "holds experts in a form that is not read",
    ),
    "one by itself": (
        _with("ffn_gate__0__weight", gguf_files.matrix("Q4_0", (256, 256))),
        "holds experts in a form that is not read",
    ),
    "rows that are no whole blocks": (
        _with("ffn_gate_exps__weight", gguf_files.Tensor(12, (4, 256, 128), bytes(4 * 128 * 144))),
        "must be of three dimensions, with experts' rows in blocks of 256",
    ),
    "two dimensions": (
        _with("ffn_gate_exps__weight", gguf_files.matrix("Q4_0", (1024, 256))),
        "must be of three dimensions, with experts' rows",
    ),
    "another number": (
        _with("ffn_gate_exps__weight", gguf_files.matrix("Q4_0", (3, 256, 256))),
        r"ffn_gate_exps.weight: must be of the shape \(4, 256, 256\), got \(3, 256, 256\)",
    ),
    "a type that is not known": (
        _with("ffn_gate_exps__weight", gguf_files.Tensor(99, (4, 256, 256), bytes(1 << 17))),
        "ffn_gate_exps.weight: is of the type 99",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_read_is_refused(tmp_path: Path, what: str) -> None:
    model, said = WRONG[what]
    path = model.write(tmp_path / "model.gguf")
    with pytest.raises(CheckpointError, match=said) as error:
        open_checkpoint(path)
    assert "exp" in str(error.value)
