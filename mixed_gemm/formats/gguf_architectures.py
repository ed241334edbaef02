"""Architectures that GGUF files are read of, and what their tensors are called in transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# A name in the file -> that in transformers, and its shape in the words of GgufModel.sizes; a bias
# has the first of it. The first "{}" is the number of a layer, the second that of an expert: such a
# tensor holds all experts of a layer.
Names = Mapping[str, tuple[str, tuple[str, ...]]]
_COMMON: Names = {
    "token_embd": ("model.embed_tokens", ("vocabulary", "hidden")),
    "output_norm": ("model.norm", ("hidden",)),
    "output": ("lm_head", ("vocabulary", "hidden")),
    "blk.{}.attn_norm": ("model.layers.{}.input_layernorm", ("hidden",)),
    "blk.{}.attn_q": ("model.layers.{}.self_attn.q_proj", ("queries", "hidden")),
    "blk.{}.attn_k": ("model.layers.{}.self_attn.k_proj", ("keys", "hidden")),
    "blk.{}.attn_v": ("model.layers.{}.self_attn.v_proj", ("keys", "hidden")),
    "blk.{}.attn_output": ("model.layers.{}.self_attn.o_proj", ("hidden", "queries")),
    "blk.{}.ffn_norm": ("model.layers.{}.post_attention_layernorm", ("hidden",)),
}
_HEAD_NORMS: Names = {
    "blk.{}.attn_q_norm": ("model.layers.{}.self_attn.q_norm", ("head",)),
    "blk.{}.attn_k_norm": ("model.layers.{}.self_attn.k_norm", ("head",)),
}
_DENSE: Names = {
    "blk.{}.ffn_gate": ("model.layers.{}.mlp.gate_proj", ("intermediate", "hidden")),
    "blk.{}.ffn_up": ("model.layers.{}.mlp.up_proj", ("intermediate", "hidden")),
    "blk.{}.ffn_down": ("model.layers.{}.mlp.down_proj", ("hidden", "intermediate")),
}
_SHARED_EXPERT: Names = {
    "blk.{}.ffn_gate_inp_shexp": ("model.layers.{}.mlp.shared_expert_gate", ("one", "hidden")),
    "blk.{}.ffn_gate_shexp": (
        "model.layers.{}.mlp.shared_expert.gate_proj",
        ("shared", "hidden"),
    ),
    "blk.{}.ffn_up_shexp": ("model.layers.{}.mlp.shared_expert.up_proj", ("shared", "hidden")),
    "blk.{}.ffn_down_shexp": ("model.layers.{}.mlp.shared_expert.down_proj", ("hidden", "shared")),
}
ROPE_FACTORS = "rope_freqs.weight"  # Llama 3.1 has it: what its rope scaling comes to


def _experts(module: str, gate: str, up: str, down: str) -> Names:
    """The tensors of a router and its experts.

    Args:
        module: that holds them in a layer. gate, up, down: linears of an expert.
    """
    owner = f"model.layers.{{}}.{module}"
    inner, whole = ("experts", "expert", "hidden"), ("experts", "hidden", "expert")
    return {
        "blk.{}.ffn_gate_inp": (f"{owner}.gate", ("experts", "hidden")),
        "blk.{}.ffn_gate_exps": (f"{owner}.experts.{{}}.{gate}", inner),
        "blk.{}.ffn_up_exps": (f"{owner}.experts.{{}}.{up}", inner),
        "blk.{}.ffn_down_exps": (f"{owner}.experts.{{}}.{down}", whole),
    }


@dataclass(frozen=True)
class Mixture:
    """The experts of an architecture.

    count, width, shared: as its config calls their number, the rows of an expert's gate and, where
        there is one, those of the shared expert's.
    normalizes: whether the weights of the chosen ones of a token add up to one, as llama.cpp
        computes it. says_so: whether the config has a word for it.
    """

    count: str
    width: str
    shared: str = ""
    normalizes: bool = True
    says_so: bool = True


@dataclass(frozen=True)
class Architecture:
    """One that is read.

    model_type, model_class: of transformers. names: of its tensors.
    paired_rows: rows of q and k alternate between the two halves of a head, which transformers has
        one after the other.
    says_bias: whether the config has a word for biases of the attention.
    mixture: its experts; None where it has none.
    """

    model_type: str
    model_class: str
    names: Names = field(repr=False)
    paired_rows: bool = False
    says_bias: bool = False
    mixture: Mixture | None = None


_OF_QWEN = _experts("mlp", "gate_proj", "up_proj", "down_proj")
_OF_MIXTRAL = _experts("block_sparse_moe", "w1", "w3", "w2")
# general.architecture, and whether the file has experts -> what it is. Mistral files are "llama"
# too, and those of Mixtral.
ARCHITECTURES = {
    ("llama", False): Architecture(
        "llama", "LlamaForCausalLM", {**_COMMON, **_DENSE}, paired_rows=True, says_bias=True
    ),
    ("llama", True): Architecture(
        "mixtral",
        "MixtralForCausalLM",
        {**_COMMON, **_OF_MIXTRAL},
        paired_rows=True,
        mixture=Mixture("num_local_experts", "intermediate_size", says_so=False),
    ),
    ("qwen2", False): Architecture("qwen2", "Qwen2ForCausalLM", {**_COMMON, **_DENSE}),
    ("qwen2moe", True): Architecture(
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        {**_COMMON, **_OF_QWEN, **_SHARED_EXPERT},
        mixture=Mixture(
            "num_experts",
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
            normalizes=False,
        ),
    ),
    ("qwen3", False): Architecture(
        "qwen3", "Qwen3ForCausalLM", {**_COMMON, **_DENSE, **_HEAD_NORMS}, says_bias=True
    ),
    ("qwen3moe", True): Architecture(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        {**_COMMON, **_OF_QWEN, **_HEAD_NORMS},
        says_bias=True,
        mixture=Mixture("num_experts", "moe_intermediate_size"),
    ),
}


def architecture_of(name: object, experts: int) -> Architecture:
    """The architecture of a file.

    Args:
        name: general.architecture. experts: how many the metadata says, 0 where it says nothing.

    Raises:
        ValueError: it is not read.
    """
    found = ARCHITECTURES.get((name, experts > 0)) if isinstance(name, str) else None
    if found is None:
        kind = f"with {experts} experts " if experts else ""
        dense, mixtures = (
            ", ".join(name for name, has_experts in ARCHITECTURES if has_experts == wanted)
            for wanted in (False, True)
        )
        raise ValueError(
            f"the architecture {name!r} {kind}is not read; {dense} are, and with experts {mixtures}"
        )
    return found
