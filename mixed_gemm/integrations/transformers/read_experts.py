"""Dense experts that files have in one tensor of a layer: read, and quantized, one at a time while
transformers loads the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.core_model_loading import ConversionOps, WeightConverter, set_param_for_module
from transformers.integrations.accelerate import get_device

from ..._freed import give_back
from ...formats.errors import CheckpointError
from ...formats.index import TensorIndex
from ...nn.expert_tensors import split
from ...nn.experts import Experts
from .config import WHERE
from .convert import is_elsewhere
from .stacked_files import Shapes, keys_in, refuse_other_shape

LOOK = 16 << 20  # bytes that are read between two looks at the heap


class ReadExperts(WeightConverter):
    """A conversion of transformers by which the experts of one layer are read from the files, one
    at a time, and placed in the model; nothing is left to set.

    :func:`read_experts` makes it.
    """

    owner: str
    index: TensorIndex
    keys: Mapping[str, str]  # parameter of the module that held them -> tensor of the files
    devices: Callable[[], Any]
    quantize: Any

    def __deepcopy__(self, memo: dict[int, Any]) -> ReadExperts:
        made = ReadExperts(list(self.source_patterns), list(self.target_patterns), self.operations)
        made.__dict__.update(self.__dict__)
        return made

    def was_used(self) -> bool:
        """Whether it is to be reverted when the model is saved."""
        return False

    def convert(
        self,
        layer_name: str,
        model: Any = None,
        config: Any = None,
        hf_quantizer: Any = None,
        loading_info: Any = None,
    ) -> dict[str, Any]:
        self.collected_tensors.clear()  # transformers reads a tensor as a whole
        experts = model.get_submodule(self.owner)
        device = get_device(self.devices() or {"": "cpu"}, self.owner, valid_torch_device=True)
        readers = {part: self._reader(key) for part, key in self.keys.items()}
        freed = 0
        for number in range(experts.form.count):
            linears = experts.expert(number)._modules
            if all(map(is_elsewhere, linears.values())):
                self._leave(model, number, linears, loading_info)
                continue
            parts = {part: read(number).to(device) for part, read in readers.items()}
            names = experts.expert(number).names
            for name, pair in split(parts, experts.form, names).items():
                self._place(
                    model, f"{self.owner}.{number}.{name}", *pair, hf_quantizer, loading_info
                )
            freed += sum(x.nbytes for x in parts.values())
            if freed >= LOOK:
                freed = 0
                give_back()
        return {}

    def _reader(self, key: str) -> Callable[[int], Tensor]:
        """Return a function that reads one expert of a tensor; of other files than safetensors the
        tensor is read as a whole."""
        index = self.index
        if index.reads_slices(key):
            return lambda number: index.load_slice(key, 0, number, number + 1)[0]
        whole = index.load(key)
        return lambda number: whole[number]

    def _leave(
        self, model: Any, number: int, linears: Mapping[str, Any], loading_info: Any
    ) -> None:
        """Read nothing of an expert that another rank has."""
        for name, linear in linears.items():
            full = f"{self.owner}.{number}.{name}"
            self._quantized(model, full, linear.weight, loading_info)
            loading_info.missing_keys.discard(f"{full}.bias")

    def _place(
        self, model: Any, name: str, weight: Tensor, bias: Tensor | None, quantizer: Any, info: Any
    ) -> None:
        linear: Any = model.get_submodule(name)
        given = {"weight": weight, "bias": bias}
        found = {x: y.to(linear._parameters[x].dtype) for x, y in given.items() if y is not None}
        if quantizer.param_needs_quantization(model, f"{name}.weight"):
            self._quantized(model, name, found.pop("weight"), info)
        for part, x in found.items():  # in storage of its own
            own = x.clone(memory_format=torch.contiguous_format)
            set_param_for_module(model, f"{name}.{part}", own, info, quantizer)

    def _quantized(self, model: Any, name: str, weight: Tensor, info: Any) -> None:
        key = f"{name}.weight"
        try:
            self.quantize.convert(
                {key: weight}, full_layer_name=key, model=model, missing_keys=info.missing_keys
            )
        except ValueError as error:
            where = self.index.file(next(iter(self.keys.values())))
            reason = str(error).removeprefix(f"{name}: ")
            raise CheckpointError(where, name, reason) from error


class _Nothing(ConversionOps):
    """An operation that does nothing: transformers asks for one of every conversion."""

    def convert(self, input_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return input_dict


def read_experts(
    model: Any,
    stacks: Mapping[str, Shapes],
    files: Sequence[Path],
    mapping: Sequence[Any],
    quantize: Any,
    devices: Callable[[], Any],
) -> list[ReadExperts]:
    """A conversion for each layer with experts.

    Args:
        model: whose experts are linears. stacks: of it before. files: that are read.
        mapping: how transformers converts their keys. quantize: an op for weights.
        devices: asked for the device map when experts are read.

    Raises:
        CheckpointError: a tensor has another shape. ValueError: the files have not all of them by
            the names that ``key_mapping`` makes.
    """
    if not stacks:
        return []
    index = TensorIndex(files[0].parent, files)
    keys, made = keys_in(model, stacks, index, mapping), []
    for owner, parts in stacks.items():
        experts = model.get_submodule(owner)
        if not isinstance(experts, Experts):
            continue  # skipped
        of_owner = {part: keys.get(f"{owner}.{part}") for part in parts}
        for part, key in of_owner.items():
            if key is None:
                raise ValueError(
                    f"{WHERE}: {index.path} has no tensor that becomes {owner}.{part}. Hint: load "
                    "the model without key_mapping, then mixed_gemm.quantize_"
                )
            refuse_other_shape(index, key.name, parts[part])
        found = {part: key for part, key in of_owner.items() if key is not None}
        first = next(iter(experts.expert(0)._modules))
        patterns = [f"^{re.escape(key.renamed)}$" for key in found.values()]
        reader = ReadExperts(patterns, [f"{owner}.0.{first}.weight"], [_Nothing()])
        reader.owner, reader.index, reader.quantize = owner, index, quantize
        reader.keys = {part: key.name for part, key in found.items()}
        reader.devices = devices
        made.append(reader)
    return made
