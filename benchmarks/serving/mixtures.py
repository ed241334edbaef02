"""Small mixtures of experts for vLLM's engine: their folders, prompts after which neither a token
nor a router is in doubt, and each call of a layer of experts beside that of transformers' model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

import mixed_gemm

from . import engine
from .models import PACKED_BY, SMALL, WIDER, Packed

# The type of a model in its config -> the names of its configuration for experts.
KINDS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 4, "intermediate_size": 256},
    "qwen3_moe": {"num_experts": 4, "moe_intermediate_size": 256, "norm_topk_prob": True},
    "gpt_oss": {"num_local_experts": 4, "intermediate_size": 256, "sliding_window": 16},
}
# By how much, in logits, the last expert that a router chooses must lead the next, as a share of
# ``engine.LEAD``, which is for logits of tokens.
ROUTER_LEAD = 0.3
Call = tuple[str, dict[str, Any], Any]


# The sizes that the check on a GPU serves: kinds have these names for them.
WIDER_EXPERTS = {
    "num_experts": 8, "num_local_experts": 8, "intermediate_size": 512,
    "moe_intermediate_size": 512, "sliding_window": 128,
}  # fmt: skip


def sizes_of(kind: str, wider: bool = False) -> dict[str, Any]:
    """Return the sizes in the configuration of a small mixture, or of a wider one, for GPUs."""
    if not wider:
        return {**SMALL, "num_experts_per_tok": 2, "head_dim": 64, **KINDS[kind]}
    larger = {name: WIDER_EXPERTS.get(name, value) for name, value in KINDS[kind].items()}
    return {**WIDER, "num_experts_per_tok": 2, **larger}


def mixture_folder(
    target: Path,
    kind: str,
    dtype: str,
    file: str = "compressed-tensors",
    wider: bool = False,
    **options: Any,
) -> Path:
    """Write a quantized mixture of random weights, and return ``target``.

    Args:
        kind: of :data:`KINDS`. dtype: of the folder. file: "gptq" or "awq", or what
            ``save_pretrained`` writes of a model that ``quantize_`` has quantized.
        wider: as of :func:`sizes_of`.
        options: of ``quantize_``, or of the writer of the file.
    """
    import transformers

    torch.manual_seed(0)
    sizes = sizes_of(kind, wider)
    config = transformers.AutoConfig.for_model(kind, **sizes)
    model: Any = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():  # far apart logits: the best token leads clearly
        if parameter.dim() >= 2:
            nn.init.normal_(parameter, std=1.5 / parameter.shape[-1] ** 0.5)
    model.to(getattr(torch, dtype)).eval()
    if file == "compressed-tensors":
        mixed_gemm.quantize_(model, progress=False, **options)
        model.save_pretrained(target)
    else:
        model.save_pretrained(target)
        _pack(target, PACKED_BY[file], options)
    return target


def _pack(folder: Path, pack: Callable[..., Packed], options: dict[str, Any]) -> None:
    """Pack the matrices of layers in a dense folder, which has each expert by itself."""
    weights, config = folder / "model.safetensors", folder / "config.json"
    dense = load_file(weights)
    linears = {
        name.removesuffix(".weight"): x for name, x in dense.items()
        if ".layers." in name and x.dim() == 2 and not name.endswith(".gate.weight")
    }  # fmt: skip
    packed, said = pack(linears, **options)
    kept = {name: x for name, x in dense.items() if name.removesuffix(".weight") not in linears}
    save_file({**kept, **packed}, weights, {"format": "pt"})
    whole = {**json.loads(config.read_text()), "quantization_config": said}
    config.write_text(json.dumps(whole))


def decided(model: Any, prompts: list[list[int]], count: int) -> engine.Continuation:
    """Continue the prompt whose tokens and experts lead the next best by most.

    Args:
        prompts: of one length.
    """
    with _routers(model) as chosen:
        found = engine.continuations(model, prompts, count)
    by_prompt = [x.view(len(prompts), -1).min(1).values for x in chosen]
    least = torch.stack(by_prompt).min(0).values.tolist()

    def score(number: int) -> float:
        return float(min(*found[number].leads, least[number] / ROUTER_LEAD))

    best = max(range(len(prompts)), key=score)
    return engine.continuations(model, [prompts[best]], count)[0]


@contextmanager
def _routers(model: Any) -> Iterator[list[torch.Tensor]]:
    """Note by how much each router's last choice leads the next, a tensor for each call."""
    leads: list[torch.Tensor] = []

    def note(router: Any, _: Any, out: Any) -> None:
        best = out[0].float().topk(router.top_k + 1).values
        leads.append(best[:, -2] - best[:, -1])

    routers = [x for x in model.modules() if type(x).__name__.endswith("TopKRouter")]
    hooks = [x.register_forward_hook(note) for x in routers]
    try:
        yield leads
    finally:
        for hook in hooks:
            hook.remove()


class Watch:
    """Note every call of a layer of experts in the model of an engine: (name, arguments, result),
    and the name of the method that runs it."""

    def __init__(self, llm: Any) -> None:
        self.calls: list[Call] = []
        self.methods: set[str] = set()
        llm.collective_rpc(self._attach)

    def _attach(self, worker: Any) -> None:
        for name, module in worker.get_model().named_modules():
            if name.endswith("routed_experts"):
                self.methods.add(type(module.quant_method).__name__)
                module.quant_method.apply = self._noting(name, module.quant_method.apply)

    def _noting(self, name: str, apply: Any) -> Any:
        def noted(**given: Any) -> Any:
            out = apply(**given)
            kept = {k: given[k].clone() for k in ("x", "topk_ids", "topk_weights")}
            self.calls.append((name, kept, out.clone()))
            return out

        return noted


def repeated(model: Any, calls: list[Call]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Give (what the experts of transformers' model give, the result) of each call."""
    modules = dict(model.named_modules())
    with torch.inference_mode():
        for name, given, out in calls:
            # vLLM has the layer of experts in a module of its own, and Mixtral's by its older name.
            ours = name.removesuffix(".routed_experts").replace("block_sparse_moe", "mlp")
            yield modules[ours](given["x"], given["topk_ids"].long(), given["topk_weights"]), out


def same_bits(model: Any, calls: list[Call]) -> int:
    """Count the calls that the experts of transformers' model repeat to the bit."""
    return sum(torch.equal(found, out) for found, out in repeated(model, calls))
