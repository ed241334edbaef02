"""Random walks: a tiny model of transformers is quantized, and then some of the things that people
do with models are done to it, one after another. After each the outputs are what they were, and
what a dense model in float32 with the dequantized weights computes.

Each feature has tests of its own; here they meet. A failure names the seed, what was drawn and the
steps up to there.
"""

from __future__ import annotations

import copy
import io
import pickle
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from accelerate import cpu_offload
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm import QuantizedTensor, Scheme
from mixed_gemm.quantization import Options

WALKS, COUNT = 30, 5  # of walks, of steps in each
SIZES: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "num_experts_per_tok": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MODELS: dict[str, Any] = {
    "Llama": transformers.LlamaConfig(**SIZES, attention_bias=True),
    "Llama, tied": transformers.LlamaConfig(**SIZES, tie_word_embeddings=True),
    "Qwen3": transformers.Qwen3Config(**SIZES, head_dim=16),
    "Gemma 3": transformers.Gemma3TextConfig(**SIZES, head_dim=16),
    "Phi-3": transformers.Phi3Config(**SIZES),
    "GPT-2": transformers.GPT2Config(vocab_size=96, n_embd=64, n_layer=2, n_head=4, n_positions=64),
    "Mixtral": transformers.MixtralConfig(**SIZES, num_local_experts=4),
    "gpt-oss": transformers.GptOssConfig(**SIZES, head_dim=16, num_local_experts=4),
    "T5": transformers.T5Config(
        vocab_size=96, d_model=64, d_kv=16, d_ff=64, num_layers=2, num_heads=4,
        decoder_start_token_id=0, dropout_rate=0.0,
    ),
}  # fmt: skip
SCHEMES: dict[str, str | Scheme] = {
    "int4": Scheme.named("w4a16", group_size=32),
    "int4, zeros": Scheme.named("w4a16_asym", group_size=16),
    "int4, added zeros": Scheme.weight_only(4, 64, "add"),
    "int8": "w8a16",
    "float8 weights": "w8a16_fp8",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
    "nf4": "nf4",
    "w8a8": "w8a8",
    "fp8": "fp8",
}
ROUND_ACTIVATIONS = ("w8a8", "fp8")
OPTIONS: tuple[dict[str, Any], ...] = ({}, {}, {}, {"fuse": True}, {"embeddings": "w8a16"})
# The norm of what differs over that of what is expected, in the median of all rows.
NEAR = {torch.float32: 3e-4, torch.float16: 3e-2, torch.bfloat16: 1e-1}
ROUNDED = 0.3  # where activations are rounded to 8 bits
SAME, NEARLY, NEW = "the same bits", "nearly the same", "other numbers"


class Impossible(Exception):
    """The step is not for the model as it is now."""


@dataclass
class Walk:
    """A model on its way.

    Attributes:
        was: its outputs before a step.
        is_loaded: whether transformers loaded it, as quantized.
        is_adapted: whether there are adapters on it.
        within: whether its weights were made in inference mode.
    """

    model: Any
    inputs: dict[str, Tensor]
    scheme: str
    draw: random.Random
    folder: Path
    was: Tensor
    is_loaded: bool = False
    is_adapted: bool = False
    within: bool = False
    steps: list[str] = field(default_factory=list)

    @property
    def dtype(self) -> torch.dtype:
        return self.was.dtype

    @property
    def layers(self) -> list[Any]:
        modules = self.model.modules()
        return [x for x in modules if isinstance(x, mixed_gemm.Linear) and x.is_quantized]

    def need(self, holds: object) -> None:
        """Leave a step that is not for the model where a condition does not hold."""
        if not holds:
            raise Impossible

    def outputs(self, model: Any = None) -> Tensor:
        with torch.no_grad():
            found: Tensor = (model or self.model)(**self.inputs).logits
        return found.clone()


def distance(found: Tensor, expected: Tensor) -> float:
    found, expected = found.double().flatten(0, -2), expected.double().flatten(0, -2)
    each = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    return float(each.median()) if each.isfinite().all() else float("inf")


def reference(model: Any) -> nn.Module:
    """The same in float32, with plain layers of torch around the dequantized weights."""
    made = copy.deepcopy(model)
    for name, layer in list(made.named_modules()):
        if isinstance(layer, mixed_gemm.Linear):
            dense: Any = nn.Linear(layer.in_features, layer.out_features, bias=False)
            dense.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone())
        elif isinstance(layer, mixed_gemm.Embedding):
            dense = layer.to_float()  # of the model's own class, which may scale rows
        else:
            continue
        dense.weight = nn.Parameter(layer.dequantize().float())
        made.set_submodule(name, dense)
    return nn.Module.float(made).eval()


# --- steps: each changes the walk and says how the outputs are to be ------------------------------


def copied(walk: Walk) -> str:
    walk.need(not walk.within)
    old, walk.model = walk.model, copy.deepcopy(walk.model)
    with torch.no_grad():
        for parameter in old.parameters():  # of which the copy knows nothing
            parameter.copy_(torch.zeros(parameter.shape))
    return SAME


def pickled(walk: Walk) -> str:
    walk.model = pickle.loads(pickle.dumps(walk.model))
    return SAME


def saved_by_torch(walk: Walk) -> str:
    walk.need(not walk.within)
    file = io.BytesIO()
    torch.save(walk.model.state_dict(), file)
    file.seek(0)
    walk.model = copy.deepcopy(walk.model)
    with torch.no_grad():
        for parameter in walk.model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    assign = walk.draw.random() < 0.5
    walk.model.load_state_dict(torch.load(file, weights_only=True), strict=True, assign=assign)
    return SAME


def _read(walk: Walk) -> str:
    count, kind, how = len(walk.layers), type(walk.model), walk.draw.choice(("", "fused", "class"))
    if how == "class":
        walk.model = kind.from_pretrained(walk.folder, dtype=walk.dtype)
    else:
        walk.model = mixed_gemm.from_pretrained(
            walk.folder, fuse=how == "fused", dtype=walk.dtype, model_class=kind
        )
    assert len(walk.layers) == count
    walk.is_loaded, walk.within = True, False
    return SAME


def save_pretrained(walk: Walk) -> str:
    walk.need(not walk.is_adapted and walk.layers)
    walk.folder = walk.folder.with_name(f"{walk.folder.name}p")
    walk.model.save_pretrained(walk.folder)
    return _read(walk)


def save_checkpoint(walk: Walk) -> str:
    walk.need(not walk.is_adapted and walk.layers)
    walk.folder = walk.folder.with_name(f"{walk.folder.name}c")
    mixed_gemm.save_checkpoint(walk.model, walk.folder)
    return _read(walk)


def cast(walk: Walk) -> str:
    dtype = walk.draw.choice(list(NEAR))
    walk.need(not walk.is_adapted and dtype != walk.dtype)
    # Frequencies of rotary embeddings, which a model that is loaded has in float32.
    kept = {x: buffer for x, buffer in walk.model.named_buffers() if "inv_freq" in x}
    walk.model.to(dtype)
    for name, buffer in kept.items():
        owner, _, part = name.rpartition(".")
        setattr(walk.model.get_submodule(owner), part, buffer)
    assert {x.dtype for x in walk.model.parameters()} == {dtype}
    return NEARLY


def moved(walk: Walk) -> str:
    walk.model.cpu().to("cpu")
    return SAME


def fuse(walk: Walk) -> str:
    walk.need(walk.layers and not walk.is_adapted)
    assert str(mixed_gemm.fuse_(walk.model))
    return SAME


def unfuse(walk: Walk) -> str:
    mixed_gemm.unfuse_(walk.model)
    return SAME


def inference_mode(walk: Walk) -> str:
    walk.need(not walk.is_adapted)
    with torch.inference_mode():
        state = walk.model.state_dict()
        walk.model = copy.deepcopy(walk.model)
        walk.model.load_state_dict(state)
    walk.within = True
    return NEARLY  # experts are computed one by one then


def threads(walk: Walk) -> str:
    found: list[Tensor] = []
    both = [threading.Thread(target=lambda: found.append(walk.outputs())) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(found) == 2 and all(torch.equal(x, walk.was) for x in found)
    return SAME


def functional_call(walk: Walk) -> str:
    own = {name: x.detach() for name, x in walk.model.named_parameters()}
    dense = {x: w.dequantize() if isinstance(w, QuantizedTensor) else w for x, w in own.items()}
    for parameters in (own, dense):
        with torch.no_grad():
            found = torch.func.functional_call(walk.model, parameters, (), walk.inputs).logits
        near = max(NEAR[walk.dtype], ROUNDED * (walk.scheme in ROUND_ACTIVATIONS))
        assert distance(found, walk.was) < near
    return SAME


def hooked(walk: Walk) -> str:
    seen: list[Any] = []
    handles = [x.register_forward_hook(lambda *call: seen.append(call)) for x in walk.layers]
    near = distance(walk.outputs(), walk.was)
    for handle in handles:
        handle.remove()
    assert near < NEAR[walk.dtype] and bool(seen) == bool(handles)
    return SAME


def written(walk: Walk) -> str:
    walk.need(walk.layers and not walk.within)
    with torch.no_grad():
        layer = walk.draw.choice(walk.layers)
        layer.weight.copy_(torch.randn(layer.weight.shape) / layer.in_features**0.5)
    return NEW


def made_dense(walk: Walk) -> str:
    walk.need(walk.layers and not walk.is_adapted)
    layer = walk.draw.choice(walk.layers)
    layer.weight = nn.Parameter(layer.dequantize().clone(), requires_grad=False)
    return NEW


def dequantized(walk: Walk) -> str:
    walk.need(walk.is_loaded and walk.layers and not walk.is_adapted)
    walk.model.dequantize()
    assert not walk.layers
    return NEW


def adapted(walk: Walk) -> str:
    walk.need(walk.layers and not walk.is_adapted)
    names = [x for x, m in walk.model.named_modules() if isinstance(m, mixed_gemm.Linear)]
    chosen = walk.draw.sample(names, 2)
    walk.model = peft.get_peft_model(walk.model, peft.LoraConfig(r=4, target_modules=chosen)).eval()
    walk.is_adapted = True
    return NEARLY


def trained(walk: Walk) -> str:
    walk.need(walk.is_adapted and not walk.within)
    before = {id(x): x.dequantize() for x in walk.model.parameters() if hasattr(x, "scheme")}
    parameters = [x for x in walk.model.parameters() if x.requires_grad]
    walk.model(**walk.inputs).logits.float().square().mean().backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    torch.optim.SGD(parameters, lr=1e-2).step()
    for x in walk.model.parameters():
        assert not hasattr(x, "scheme") or torch.equal(x.dequantize(), before[id(x)])
    return NEW


def merged(walk: Walk) -> str:
    walk.need(walk.is_adapted and not walk.within)
    walk.model, walk.is_adapted = walk.model.merge_and_unload(), False
    return NEW


def resized(walk: Walk) -> str:
    walk.need(not walk.is_adapted and not walk.within)
    walk.model.resize_token_embeddings(walk.was.shape[-1] + 8, mean_resizing=False)
    found = walk.outputs()[..., : walk.was.shape[-1]]
    assert distance(found, walk.was) < max(NEAR[walk.dtype], 1e-2)
    return NEW


def offloaded(walk: Walk) -> str:
    model = copy.deepcopy(walk.model)
    cpu_offload(model, torch.device("cpu"))
    assert distance(walk.outputs(model), walk.was) < NEAR[walk.dtype]
    return SAME


STEPS: tuple[Callable[[Walk], str], ...] = (
    copied, pickled, saved_by_torch, save_pretrained, save_checkpoint, save_pretrained, cast, moved,
    fuse, unfuse, inference_mode, threads, functional_call, hooked, written, made_dense,
    dequantized, adapted, trained, merged, resized, offloaded,
)  # fmt: skip


def begun(draw: random.Random, folder: Path) -> Walk:
    """Draw a model, a dtype, a scheme and options, and quantize."""
    name, scheme = draw.choice(list(MODELS)), draw.choice(list(SCHEMES))
    dtype, options = draw.choice(list(NEAR)), draw.choice(OPTIONS)
    torch.manual_seed(draw.randrange(1000))
    of = transformers.AutoModelForSeq2SeqLM if name == "T5" else transformers.AutoModelForCausalLM
    dense = of.from_config(copy.deepcopy(MODELS[name]))
    with torch.no_grad():
        for parameter in dense.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
    dense.save_pretrained(folder / "dense")
    model = type(dense).from_pretrained(folder / "dense", dtype=dtype).eval()
    mixed_gemm.quantize_(model, SCHEMES[scheme], options=Options(**options, progress=False))
    inputs = {"input_ids": torch.randint(3, 96, (2, 6))}
    if name == "T5":
        inputs["decoder_input_ids"] = torch.randint(3, 96, (2, 4))
    walk = Walk(model, inputs, scheme, draw, folder / "m", torch.empty(0, dtype=dtype))
    walk.was = walk.outputs()
    walk.steps.append(f"{name}, {scheme}, {dtype}, {options}")
    return walk


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(WALKS))
def test_walk(seed: int, tmp_path: Path) -> None:
    transformers.utils.logging.disable_progress_bar()
    walk = begun(random.Random(seed), tmp_path)
    while len(walk.steps) <= COUNT:
        step = walk.draw.choice(STEPS)
        before = walk.was
        try:
            expected = step(walk)
        except Impossible:
            continue
        walk.steps.append(step.__name__)
        print(*walk.steps, sep=" > ")
        walk.was = walk.outputs()
        near = NEAR[walk.dtype]
        if expected == SAME:
            assert torch.equal(walk.was, before)
        elif expected == NEARLY:
            assert distance(walk.was, before) < max(near, NEAR[before.dtype], 0.05)
        truth = distance(walk.was, walk.outputs(reference(walk.model)))
        assert truth < max(near, ROUNDED * (walk.scheme in ROUND_ACTIVATIONS))
