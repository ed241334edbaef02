"""Each linear layer in vLLM's engine beside ``mixed_gemm.Linear`` on the bits that it read there.
If every call gives the same bits, what differs in tokens was computed between them.
"""

from __future__ import annotations

from typing import Any

# The layers that vLLM joins into one.
JOINED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
Call = tuple[str, Any, Any]


class Watch:
    """Note every call of a linear layer in the model of an engine: (name, input, output)."""

    def __init__(self, llm: Any) -> None:
        self.calls: list[Call] = []
        self._hooks: list[Any] = []
        llm.collective_rpc(self._attach)

    def _attach(self, worker: Any) -> None:
        for name, module in worker.get_model().named_modules():
            if name.endswith("_proj"):
                self._hooks.append(module.register_forward_hook(self._noting(name)))

    def _noting(self, name: str) -> Any:
        def note(_: Any, given: tuple[Any, ...], out: Any) -> None:
            result = out[0] if isinstance(out, tuple) else out
            self.calls.append((name, given[0].clone(), result.clone()))

        return note

    def end(self) -> list[Call]:
        for hook in self._hooks:
            hook.remove()
        return self.calls


def same_bits(model: Any, calls: list[Call]) -> int:
    """Count the calls that the modules of transformers' model repeat to the bit."""
    import torch

    modules, same = dict(model.named_modules()), 0
    with torch.inference_mode():
        for name, x, out in calls:
            parent, leaf = name.rsplit(".", 1)
            parts = [modules[f"{parent}.{part}"](x) for part in JOINED.get(leaf, (leaf,))]
            same += torch.equal(torch.cat(parts, -1), out)
    return same
