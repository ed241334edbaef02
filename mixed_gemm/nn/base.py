"""The base of the modules here: a quantized weight whose parts are plain tensors in a state_dict,
beside a tag that says how to read them. A state_dict is checked before anything is copied from it.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from ..ops.errors import dtype_name, wrong_value
from ..weights import shards
from ..weights.scheme import Scheme
from ..weights.tensor import PART_NAMES, QuantizedTensor
from ..weights.values import encode_tag, refuse_bad_permutation, refuse_non_finite, tag_problem
from .cloning import DenseUnlessAsked
from .followed import FollowsWeight
from .offloading import HookSeat
from .tracing import LeafOfGraphs

Dense = TypeVar("Dense", nn.Linear, nn.Conv2d)
Module = TypeVar("Module", bound=nn.Module)


class QuantizedModule(FollowsWeight, DenseUnlessAsked, LeafOfGraphs):
    """The base of our modules, named before the class of torch that each subclasses."""

    title: ClassVar[str]  # in errors
    weight: QuantizedTensor
    _hf_hook = HookSeat()

    def set_weight(self, weight: QuantizedTensor) -> None:
        """Take ``weight`` as the frozen parameter of that name, in the shape of the module's dense
        weight."""
        self.weight = nn.Parameter(weight, requires_grad=False)  # type: ignore[assignment]
        self._scheme = weight.scheme

    def make_bias(self, count: int | None, dtype: torch.dtype, device: Any) -> None:
        """Take zeros as the parameter ``bias``, or have none.

        Args:
            count: ``[count]`` of them; None is no bias.
            dtype, device: of the zeros.
        """
        zeros = None if count is None else torch.zeros(count, device=device, dtype=dtype)
        self.register_parameter("bias", None if zeros is None else nn.Parameter(zeros))

    @property
    def scheme(self) -> Scheme:
        """How the weight is stored. For a convolution, a group is a block of input channels, and
        offsets are zero_mode "add"."""
        found: Scheme | None = getattr(self.weight, "scheme", None)
        return self._scheme if found is None else found  # a DTensor has none

    @property
    def bits(self) -> int:
        """Width of the stored weights: 4 or 8."""
        return self.scheme.bits

    @property
    def is_quantized(self) -> bool:
        """Whether the weight is quantized, or a shard of one that is: ``layer.weight =
        nn.Parameter(dense)`` puts a dense one in its place, which is multiplied by and saved as a
        dense layer's."""
        return self._quantized() is not None or self._sharded() is not None

    def _dense_value(self, dtype: torch.dtype | None = None) -> Tensor:
        """The weight in ``dtype``, its own when None, also where a dense one is in its place."""
        if self.is_quantized:
            return self.weight.dequantize(dtype)
        dense = self.weight.detach()
        return dense if dtype is None else dense.to(dtype)

    def _refuse_dense(self, method: str) -> None:
        """Raise ``ValueError`` where a dense weight is in the place of the quantized one."""
        if not self.is_quantized:
            kind = f"{type(self.weight).__name__} of {dtype_name(self.weight.dtype)}"
            hint = f"{self.title}.from_float(layer.to_float(), ...) quantizes it again"
            wrong_value(f"{self.title}.{method}", "weight", "be quantized", f"a {kind}", "", hint)

    def _quantized(self) -> QuantizedTensor | None:
        """The weight, unless it was replaced by another one (dense, or sharded)."""
        weight = self._parameters.get("weight")
        return weight if isinstance(weight, QuantizedTensor) else None

    def _sharded(self) -> Any:
        """The weight where it is a DTensor of quantized shards, else None."""
        weight = self._parameters.get("weight")
        shard = getattr(weight, "_local_tensor", None)
        return weight if isinstance(shard, QuantizedTensor) else None

    def __getattr__(self, name: str) -> Any:
        """Return a part of the weight by its name in a state_dict, which
        ``torch.distributed.checkpoint.state_dict`` looks up. Of a sharded weight this is the
        part of this rank."""
        if name not in PART_NAMES:  # dynamo follows what torch does of a name that is missing
            return super().__getattr__(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            weight = self.__dict__.get("_parameters", {}).get("weight")
            shard = getattr(weight, "_local_tensor", weight)
            part = shard.stored().get(name) if isinstance(shard, QuantizedTensor) else None
            if part is None:
                raise
            return part

    def reset_parameters(self) -> None:
        """Refused: integers cannot be drawn at random into something useful.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"{self.title}: a quantized weight cannot be re-initialised. Hint: initialise the "
            "module of torch.nn, then from_float"
        )

    def _in_place_of(self: Module, dense: nn.Linear | nn.Conv2d) -> Module:
        """Share the bias of ``dense`` with this module, which takes its mode, and return it."""
        if dense._parameters["bias"] is not self._parameters.get("bias", self):
            self.register_parameter("bias", dense._parameters["bias"])
        return self.train(dense.training)

    def _like(self, dense: Dense) -> Dense:
        """Give ``dense`` the dequantized weight and our bias, which is shared, and return it."""
        dense.weight = nn.Parameter(self._dense_value())
        dense.register_parameter("bias", self._parameters["bias"])
        return dense.train(self.training)

    # --- state ---------------------------------------------------------------------------------

    def get_extra_state(self) -> Tensor:
        """The layout version, shape and scheme, as JSON bytes in a uint8 tensor: safetensors and
        ``torch.load(weights_only=True)`` take tensors."""
        return encode_tag(self._tag())

    def _tag(self) -> dict[str, Any]:
        """The tag of the whole weight, also where this rank holds a shard of it."""
        sharded, weight = self._sharded(), self._quantized()
        if sharded is not None:
            shard = sharded._local_tensor
            permuted = getattr(shard, "permutation", None) is not None
            tag: dict[str, Any] = shard.tag_of(tuple(sharded.shape), self.scheme, permuted)
            return tag
        return {} if weight is None else weight.tag()

    def set_extra_state(self, state: Any) -> None:
        """Check what :meth:`get_extra_state` wrote.

        Args:
            state: a uint8 tensor.

        Raises:
            RuntimeError: the packed weight is of another layout version, shape or scheme.
        """
        tag = self._tag()
        if tag and (problem := tag_problem(tag, state, self.title)):
            raise RuntimeError(problem)

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        weight, sharded = self._quantized(), self._sharded()
        if weight is None and sharded is None:
            return
        del destination[f"{prefix}weight"]
        stored = shards.state_of(sharded, self.scheme) if weight is None else weight.stored()
        for name, tensor in stored.items():
            # Columns of a larger part, as of layers that are fused, are refused by safetensors.
            destination[prefix + name] = tensor if keep_vars else tensor.detach().contiguous()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        weight, sharded = self._quantized(), self._sharded()
        rest = state_dict
        if weight is None and sharded is not None:
            rest = self._fill_shard(sharded, state_dict, prefix, strict, missing_keys, error_msgs)
            if error_msgs:
                return
        if weight is not None:
            # Checked before anything is copied: a refused checkpoint leaves the module as it was.
            given = {k[len(prefix) :]: v for k, v in state_dict.items() if k.startswith(prefix)}
            mine = weight.renamed(given, tuple(weight.shape))
            problems = weight.refuse_parts(mine)
            if "_extra_state" in mine:
                problem = tag_problem(weight.tag(), mine["_extra_state"], self.title)
                problems = [problem, *problems] if problem else problems
            if problems:
                error_msgs.extend(prefix + problem for problem in problems)
                return
            finite = tuple(part.name for part in weight.parts if part.finite)
            refuse_non_finite(mine, f"{prefix}{self.title}", finite)
            refuse_bad_permutation(mine.get("permutation"), f"{prefix}{self.title}")
            taken = {prefix + name for name in weight.stored()}
            renamed = {prefix + name for name in given.keys() - mine.keys()}
            rest = {k: v for k, v in state_dict.items() if k not in taken | renamed}
            if "_extra_state" in mine:
                rest[f"{prefix}_extra_state"] = mine["_extra_state"]
            if rest.pop(f"{prefix}weight", None) is not None and strict:
                unexpected_keys.append(f"{prefix}weight")
            if strict:
                missing_keys.extend(key for key in taken if key[len(prefix) :] not in mine)
            self._take_parts(weight, mine, local_metadata, prefix)
        known = list(missing_keys)
        super()._load_from_state_dict(
            rest, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if weight is not None or sharded is not None:
            missing_keys[:] = known + [
                key for key in missing_keys[len(known) :] if key != f"{prefix}weight"
            ]

    def _fill_shard(
        self,
        sharded: Any,
        state_dict: dict[str, Any],
        prefix: str,
        strict: bool,
        missing_keys: list[str],
        error_msgs: list[str],
    ) -> dict[str, Any]:
        """Copy this rank's shard of the parts, and return the rest of the state_dict."""
        local = sharded._local_tensor
        names = list(local.stored())
        given = {k[len(prefix) :]: v for k, v in state_dict.items() if k.startswith(prefix)}
        found = local.renamed(given, tuple(sharded.shape))
        mine = {x: found[x] for x in names if x in found}
        tag = found.get("_extra_state")
        problem = "" if tag is None else tag_problem(self._tag(), tag, self.title)
        problems = [problem] if problem else shards.fill(sharded, self.scheme, mine) if mine else []
        error_msgs.extend(prefix + x for x in problems)
        if strict:
            missing_keys.extend(prefix + x for x in names if x not in mine)
        taken = {prefix + x for x in names} | {prefix + x for x in given.keys() - found.keys()}
        rest = {k: v for k, v in state_dict.items() if k not in taken}
        if tag is not None:
            rest[f"{prefix}_extra_state"] = tag
        bias, key = self._parameters.get("bias"), f"{prefix}bias"
        if hasattr(bias, "placements") and key in rest and not hasattr(rest[key], "placements"):
            rest[key] = shards.slice_like(rest[key], bias)
        return rest

    def _take_parts(
        self,
        weight: QuantizedTensor,
        given: dict[str, Any],
        local_metadata: dict[str, Any],
        prefix: str,
    ) -> None:
        found = {name: given[name] for name in weight.stored() if name in given}
        if local_metadata.get("assign_to_params_buffers", False):
            parts = {**weight.stored(), **found}
            follows = [x.name for x in weight.parts if x.follows and x.name in found]
            dtype = parts[follows[0]].dtype if follows else weight.dtype
            self.set_weight(type(weight)(parts, weight.scheme, weight.shape, dtype))
            return
        for name, tensor in found.items():
            target = getattr(weight, name)
            if target.is_meta and not tensor.is_meta:
                warnings.warn(
                    f"for {prefix}{name}: copying from a non-meta tensor in the checkpoint to a "
                    "meta tensor in the current model, which is a no-op. (Did you mean to pass "
                    "assign=True?)",
                    stacklevel=2,
                )
            with torch.no_grad():
                target.copy_(tensor)
        weight.derive_again()
