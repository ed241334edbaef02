"""A layer whose tensors transformers loads as they are in the file, and which becomes a
``mixed_gemm.Linear`` when they are all there.
"""

from __future__ import annotations

import functools
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...formats.codec import Codec
from ...formats.errors import CheckpointError, CheckpointWarning
from ...formats.index import TensorIndex
from ...formats.layer import LayerInfo, LayerTensors
from ...formats.load import Wanted
from ...formats.loaded import LoadedTensors
from ...nn.embedding import Embedding
from ...nn.linear import Linear
from ...nn.own_embedding import own_class
from .offload import Place

EXTRA_STATE = "_extra_state"  # as torch.nn names it


def attribute_of(role: str) -> str:
    """Return the name of the parameter for a tensor of a layer: torch takes none with a dot, as
    "weight.absmax" of bitsandbytes has one."""
    return role.replace(".", "__")


STYLE = "_mixed_gemm_style"  # the attribute of a dense layer that is to be sharded over ranks


class PendingLinear(nn.Module):
    """The module that it stands for, to whoever looks at it: of a subclass of its class, with its
    attributes (sizes, flags). Instead of its parameters it has meta parameters with the names,
    shapes and dtypes that the file has for the layer; parameters, since those are what accelerate
    offloads.

    Models of transformers initialise what they have loaded: their parents read ``in_features`` of
    a child, and write to its ``weight``. So what the file has no tensor for is there too, on the
    meta device and marked as initialised.

    :func:`pending` makes it, since its class depends on that of the module.
    """

    is_embedding: bool
    is_multiplied: bool = False  # whether an output head has the weight of this embedding, too
    dtype_of_layer: torch.dtype  # its activations have it
    info: LayerInfo | None = None  # the layer as its tensors in the files say it

    def stand_for(
        self,
        name: str,
        codec: Codec,
        tensors: LayerTensors,
        module: nn.Module,
        weight_only: bool = False,
        float8: str = "keep",
    ) -> None:
        """Take the place of a module; arguments as of :func:`pending`."""
        self.__dict__.update(module.__dict__)
        self._parameters, self._buffers = {}, dict(module._buffers)
        self._weight_only, self._float8 = weight_only, float8
        self._name, self._codec = name, codec
        dense: Any = module.weight
        self.dtype_of_layer = dense.dtype
        self.is_embedding = isinstance(module, nn.Embedding)
        # Whether it reads its tensors itself, since these are parts of tensors of the files.
        anchor, index = tensors.tensor_name(codec.anchor), tensors.index
        self.reads_itself = isinstance(index, TensorIndex) and index.is_part(anchor)
        self._has_bias = getattr(module, "bias", None) is not None
        self._padding_idx = getattr(module, "padding_idx", None)
        # An embedding of a class of its model, in a tuple: torch takes modules for children.
        is_own = isinstance(module, nn.Embedding) and own_class(module) is not nn.Embedding
        self._own_embedding: tuple[Any, ...] = (module,) if is_own else ()
        self._files: dict[str, Path] = {}
        self._said: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        self._index: Any = tensors.index
        self._style: Any = None  # (a style of transformers, mesh) where it is sharded over ranks
        # (model, name in it), for transformers not to miss a place for the tensors of a shard
        self.not_unexpected: tuple[Any, str] | None = None
        self._stand_ins = {
            part: None if parameter is None else stand_in(parameter)
            for part, parameter in module._parameters.items()
        }
        for role in filter(tensors.has, codec.roles):
            dtype = tensors.dtype(role)
            if not isinstance(dtype, torch.dtype):
                raise tensors.error(role, f"is of the dtype {dtype}, which torch does not have")
            self._files[role] = tensors.file(role)
            self._said[role] = tensors.shape(role), dtype
            if role == EXTRA_STATE or self.reads_itself:
                continue
            empty = torch.empty(tensors.shape(role), dtype=dtype, device="meta")
            parameter = nn.Parameter(empty, requires_grad=False)
            # Do nothing: what waits on disk stays as it is here, and nobody may initialise it.
            parameter._is_hf_initialized = True  # type: ignore[attr-defined]
            self.register_parameter(attribute_of(role), parameter)
        self._show_stand_ins()

    def _show_stand_ins(self) -> None:
        """Give it every parameter of the module that the file has no tensor for; not as a
        parameter, or transformers would miss it in the files."""
        for part, parameter in self._stand_ins.items():
            if part in self._parameters:
                continue
            if parameter is None:
                self._parameters[part] = None
            else:
                self.__dict__[part] = parameter

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        raise RuntimeError(f"mixed_gemm: {self._name} is still being loaded")

    def distribute(self, style: Any, mesh: Any) -> None:
        """Have nothing for transformers to load: each rank reads its shard when all is loaded.

        Args:
            style: "colwise" or "rowwise" of transformers; of an expert's linear the rows or columns
                of this rank. mesh: of the ranks.
        """
        self._style = style, mesh
        self._parameters = {}
        self._show_stand_ins()
        if self.not_unexpected is not None:
            model, name = self.not_unexpected
            known = set(model._keys_to_ignore_on_load_unexpected or ())
            model._keys_to_ignore_on_load_unexpected = known | {re.escape(f"{name}.")}

    def _more(self) -> dict[str, Tensor]:
        """Yield tensors that are no parameters."""
        return {}

    def finish(self) -> Linear | Embedding:
        """Return the layer, on the device of its tensors, in the dtype of the module it stands for.

        Raises:
            CheckpointError: a tensor did not arrive, or holds what it must not.
        """
        if self._style is not None:
            shard: Linear = self._finish_shard(*self._style)
            return shard
        if self.reads_itself:
            return self._made_of(LayerTensors(self._index, self._name))
        place, found = Place.of(self), {}
        roles = {attribute_of(role): role for role in self._files}
        for name, tensor in {**dict(self.named_parameters(recurse=False)), **self._more()}.items():
            role = roles.get(name, name)
            fetched = place.fetch(name) if place is not None and tensor.is_meta else None
            arrived = not tensor.is_meta and getattr(tensor, "_is_hf_initialized", False)
            if fetched is None and not arrived:
                raise CheckpointError(
                    self._files[role], f"{self._name}.{role}", "was not loaded by transformers"
                )
            arrived_as = tensor.detach() if fetched is None else fetched
            # float8 codes arrive as float32 where an architecture keeps a layer in that.
            found[role] = arrived_as.to(self._said[role][1]) if role in self._said else arrived_as
        layer = LayerTensors(LoadedTensors(self._name, found, self._files), self._name)
        if any(hasattr(x, "full_tensor") for x in found.values()):
            raise layer.error(
                self._codec.anchor,
                'was cut as if it were dense. Hint: DistributedConfig(tp_plan="auto") of '
                'transformers >= 5.24; rules of your own name "mixed_gemm_colwise" or '
                '"mixed_gemm_rowwise" for quantized layers',
            )
        return self._made_of(layer)

    def _is_as_in_files(self, layer: LayerTensors) -> bool:
        """Whether tensors have the shapes and dtypes of those that ``info`` was made of."""
        return layer.index is self._index or all(
            (layer.shape(role), layer.dtype(role)) == said for role, said in self._said.items()
        )

    def _made_of(self, layer: LayerTensors) -> Linear | Embedding:
        info = self.info
        if info is None or not self._is_as_in_files(layer):
            info = self._codec.describe(layer)
        try:
            wanted = Wanted(
                self.dtype_of_layer, self._weight_only, self._float8, self.is_multiplied
            )
            made = self._codec.load(layer, info, wanted).to_module()
        except ValueError as error:
            raise layer.error(self._codec.anchor, str(error)) from error
        if isinstance(made, Embedding):
            made.padding_idx = self._padding_idx
            for own in self._own_embedding:
                own._buffers = dict(self._buffers)  # which transformers has filled
                made = Embedding.around(made.weight, own)
        elif not self._has_bias and made.bias is not None and not bool(made.bias.any()):
            # AutoGPTQ writes a bias of zeros where the model has none.
            made.register_parameter("bias", None)
        return made.eval()

    def _finish_shard(self, style: Any, mesh: Any) -> Any:
        from ...distributed.layers import read_linear, read_local
        from ...distributed.read import ShardOf
        from ...distributed.told import Elsewhere
        from .sharding import dim_of, install

        options: dict[str, Any] = {
            "dtype": self.dtype_of_layer, "weight_only": self._weight_only, "float8": self._float8,
        }  # fmt: skip
        files = self._index, self._codec, self._name, mesh
        if isinstance(style, ShardOf):
            nothing = style.start == style.stop
            return Elsewhere(self) if nothing else read_local(*files, style, **options).eval()
        made = read_linear(*files, dim_of(style), **options)
        bias: Any = made.bias
        if not self._has_bias and bias is not None and not bool(bias.full_tensor().any()):
            made.register_parameter("bias", None)  # as finish()
        install(style, made, mesh)
        return made.eval()


class TaggedLinear(PendingLinear):
    """A placeholder whose files have a tag, which torch hands over apart from parameters."""

    def stand_for(self, *args: Any, **kwargs: Any) -> None:
        super().stand_for(*args, **kwargs)
        self._tag = torch.empty(0, dtype=torch.uint8, device="meta")

    def get_extra_state(self) -> Tensor:
        return self._tag

    def set_extra_state(self, state: Any) -> None:
        self._tag = state.cpu()
        self._tag._is_hf_initialized = True  # type: ignore[attr-defined]

    def _more(self) -> dict[str, Tensor]:
        return {EXTRA_STATE: self._tag}


def stand_in(parameter: Tensor) -> Tensor:
    """Make a parameter of its shape and dtype on the meta device, with the attributes that others
    hung on it ("_no_reinit"), for transformers to leave as it is."""
    # Making one on the meta device takes torch longer than all else that is done for a layer.
    empty = parameter.detach() if parameter.is_meta else torch.empty_like(parameter, device="meta")
    made = nn.Parameter(empty, requires_grad=False)
    made.__dict__.update(parameter.__dict__)
    made._is_hf_initialized = True  # type: ignore[attr-defined]
    return made


@functools.cache
def _standing_for(kind: Any, tagged: bool) -> type[PendingLinear]:
    """Make a class that is a placeholder, and the class of the module as well."""
    base = TaggedLinear if tagged else PendingLinear
    return type(f"Pending{kind.__name__}", (base, kind), {"__doc__": base.__doc__})


def pending(
    name: str, codec: Codec, tensors: LayerTensors, module: nn.Module, *rest: Any
) -> PendingLinear:
    """Make the placeholder of one layer.

    Args:
        name: of the layer in the file.
        codec: of the file.
        tensors: the layer in the file.
        module: it stands for: nn.Linear, nn.Embedding or Conv1D.
        rest: ``weight_only``, whether activations stay in their dtype, whatever the file asks for;
            ``float8``, "keep", or "int8" to round float8 weights to.
    """
    of: Any = type(module)
    kind = _standing_for(of, EXTRA_STATE in codec.roles)
    made = kind.__new__(kind)
    made.stand_for(name, codec, tensors, module, *rest)
    return made


def warn_of_differences(
    codec: Codec, infos: list[LayerInfo], where: Path, float8: str = "keep"
) -> None:
    """Warn of layers that are loaded as something else than the file says."""
    notes = list(codec.notes)
    count = sum(info.kind == "fp8" for info in infos)
    if count and float8 == "int8":
        notes.append(
            f"{count} layers are float8_e4m3fn and are rounded to int8 in groups of 128 (0.6 % RMS "
            "of the weight)"
        )
    for note in notes:
        warnings.warn(f"{where}: {note}", CheckpointWarning, stacklevel=2)
