"""Quantized layers that wait in the memory of the CPU, or on disk, between their calls.

accelerate moves plain parameters; a quantized weight is a tensor of several. So an offloaded layer
has its parts as parameters, which accelerate's own hooks fetch and drop, and puts the weight
together from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ...nn.base import QuantizedModule
from ...nn.embedding import Embedding
from ...nn.linear import Linear
from ...nn.own_embedding import kind_for, own_class, take_attributes
from ...weights.tensor import QuantizedTensor

FOLDER = "mixed_gemm"  # in the offload_folder


class _Offloaded(QuantizedModule):
    """The base that the two classes below put before theirs."""

    @property
    def weight(self) -> Any:  # type: ignore[override]
        """Put the weight together from the parts, wherever those are now."""
        like, found = self._like_weight, self._parameters
        parts = {name: found[name] for name in like.tensors()}
        return type(like)(parts, like.scheme, like.shape, like.dtype)

    def hold(self, weight: QuantizedTensor, bias: Tensor | None) -> None:
        """Take the parts of a weight, and a bias, as parameters."""
        for name, part in weight.tensors().items():
            self.register_parameter(name, nn.Parameter(part, requires_grad=False))
        self._like_weight = weight.with_parts(lambda part: part.to("meta"))
        if bias is not None or isinstance(self, nn.Linear):
            self.register_parameter("bias", bias)  # type: ignore[arg-type]

    def loaded(self) -> Linear | Embedding:
        """Return the layer as it would be without offloading, in the memory of the CPU."""
        hook: Any = getattr(self, "_hf_hook", None)
        fetched: Mapping[str, Tensor] = getattr(hook, "weights_map", None) or {}
        tensors = {
            name: fetched[name].cpu() if parameter.is_meta else parameter.detach().cpu()
            for name, parameter in self._parameters.items()
            if parameter is not None
        }
        bias, like = tensors.pop("bias", None), self._like_weight
        weight = type(like)(tensors, like.scheme, like.shape, like.dtype)
        if isinstance(self, Embedding):
            return Embedding.around(weight, self)
        made = Linear.from_weight(weight, bias)
        made.is_conv1d = bool(getattr(self, "is_conv1d", False))
        return made

    def _quantized(self) -> QuantizedTensor | None:
        found: QuantizedTensor = self.weight
        return found

    def _save_to_state_dict(self, *args: Any) -> None:
        nn.Module._save_to_state_dict(self, *args)

    def _load_from_state_dict(self, *args: Any) -> None:
        nn.Module._load_from_state_dict(self, *args)

    def to_quantized_weight(self, name: str = "") -> Any:
        return self.loaded().to_quantized_weight(name)


class OffloadedLinear(_Offloaded, Linear):  # type: ignore[override]
    """A ``mixed_gemm.Linear`` whose parts are parameters."""

    def forward(self, input: Tensor) -> Tensor:
        out: Tensor = self.weight.product(input, self.bias)
        return out


class OffloadedEmbedding(_Offloaded, Embedding):  # type: ignore[override]
    """A ``mixed_gemm.Embedding`` whose parts are parameters."""


@dataclass(frozen=True)
class Place:
    """Where accelerate wants a layer: its hook, found on the placeholder."""

    hook: Any

    @classmethod
    def of(cls, module: nn.Module) -> Place | None:
        """Find the place of a placeholder; None where accelerate has nothing to do with it."""
        hook = getattr(module, "_hf_hook", None)
        hooks = (hook, *getattr(hook, "hooks", ()))
        found = [x for x in hooks if hasattr(x, "execution_device")]
        return cls(next((x for x in found if x.offload), found[0])) if found else None

    def fetch(self, role: str) -> Tensor | None:
        """Take a tensor of the placeholder that was left where it is; None where there is none.
        Nobody asks for it again: what is in memory is let go."""
        weights = self.hook.weights_map if self.hook.offload else None
        if weights is None or role not in weights:
            return None
        found: Tensor = weights[role]
        whole = getattr(weights, "dataset", None)
        in_memory = getattr(whole, "state_dict", whole)
        if isinstance(in_memory, dict):
            in_memory.pop(f"{weights.prefix}{role}", None)
        return found.cpu()

    def put(self, name: str, layer: Linear | Embedding) -> Linear | Embedding:
        """Give a layer a hook in place of that of its placeholder.

        Args:
            name: of the layer in the model.

        Raises:
            ValueError: it belongs on disk, and there is no folder to write it to.
        """
        from accelerate.hooks import AlignDevicesHook, add_hook_to_module
        from accelerate.utils import OffloadedWeightsLoader, PrefixedDataset, offload_state_dict

        options: dict[str, Any] = {
            "execution_device": self.hook.execution_device,
            "io_same_device": self.hook.io_same_device,
            "skip_keys": self.hook.skip_keys,
        }
        if not self.hook.offload:
            add_hook_to_module(layer, AlignDevicesHook(**options))
            return layer
        made, tensors = _with_parts(layer)
        weights: Any = tensors
        if _on_disk(self.hook):
            folder = self.hook.weights_map.dataset.save_folder
            if folder is None:
                raise ValueError(
                    f"mixed_gemm: device_map leaves {name} on disk, packed as no file has it. "
                    "Hint: offload_folder=... of from_pretrained is where it goes"
                )
            place = str(Path(folder) / FOLDER)
            offload_state_dict(place, {f"{name}.{key}": x for key, x in tensors.items()})
            weights = PrefixedDataset(OffloadedWeightsLoader(save_folder=place), f"{name}.")
        hook = AlignDevicesHook(offload=True, weights_map=weights, **options)
        add_hook_to_module(made, hook)
        offloaded: Linear | Embedding = made
        return offloaded


def _on_disk(hook: Any) -> bool:
    """Tell whether the tensors of a placeholder are those of files, and not of memory."""
    prefix: str = getattr(hook.weights_map, "prefix", "")
    index = getattr(getattr(hook.weights_map, "dataset", None), "index", None) or {}
    return any(name.startswith(prefix) for name in index)


def _with_parts(layer: Linear | Embedding) -> tuple[Any, dict[str, Tensor]]:
    """Return (the same with its parts as parameters, those by name)."""
    kind: Any = OffloadedEmbedding if isinstance(layer, Embedding) else OffloadedLinear
    own: Any = own_class(layer) if isinstance(layer, Embedding) else nn.Embedding
    if own is not nn.Embedding:
        kind = kind_for(own, kind)
    made = kind.__new__(kind)
    nn.Module.__init__(made)
    if own is not nn.Embedding:
        take_attributes(made, layer)
    made.__dict__.update(
        {k: v for k, v in layer.__dict__.items() if not k.startswith("_") and k != "weight"}
    )
    made.hold(layer.weight, getattr(layer, "bias", None))
    tensors = {name: x.detach() for name, x in made._parameters.items() if x is not None}
    return made, tensors
