"""A linear layer that may be one of several whose products are one, see ``one_product``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..weights.dependents import has_views
from ..weights.tensor import QuantizedTensor
from .followed import FollowsWeight
from .joint import Joint
from .one_product import Piece

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class JoinedLayer(FollowsWeight):
    """A base of layers that ``fuse_`` joins.

    Attributes:
        joint: the product of all of them; None where the layer is one by itself.
        place: of the layer in it.
        piece: the same while the weight and the bias are those that were joined, else None.
    """

    weight: QuantizedTensor
    joint: Joint | None = None
    place: int = 0
    piece: Piece | None = None

    def why_not_joined(self) -> str:
        """Why the layer has a product of its own whatever others read; empty where nothing says
        so."""
        weight, bias = self._parameters.get("weight"), self._parameters.get("bias")
        if hasattr(weight, "placements"):
            return "its weight is spread over ranks. Hint: each rank runs its shard by itself"
        if any(getattr(self, hooks) for hooks in HOOKS) or hasattr(self, "_hf_hook"):
            return "it has hooks"
        if not isinstance(weight, QuantizedTensor):
            return "its weight is not quantized"
        if weight.plain().is_stacked:
            return "all experts of its layer are multiplied together"
        parts = [*weight.tensors().values(), *([] if bias is None else [bias])]
        if any(x.is_meta for x in parts):
            return "its weight has no storage. Hint: fuse_ when it is loaded"
        if any(type(x) not in (Tensor, torch.nn.Parameter) for x in parts):
            return "its weight is traced"
        if any(x.is_inference() for x in parts):
            return "it was made under torch.inference_mode. Hint: torch.no_grad"
        if weight.piece_of is not None or has_views(weight):
            return "its weight is a slice of another, or has slices"
        return ""

    def joined_product(self, input: Tensor, plain: Any) -> Tensor | None:
        """The product as a part of that of all; None where the layer is to compute its own.

        Args:
            input: ``[..., K]``. plain: what it would multiply by.
        """
        piece = self.piece_that_holds(plain)
        return None if piece is None else piece.of(input)

    def piece_that_holds(self, plain: Any) -> Piece | None:
        """The place of the layer in the product of all, while that is what it would compute.

        Args:
            plain: what it would multiply by.
        """
        piece = self.piece
        if piece is None or self.training or piece.plain is not plain:
            return None
        return piece if piece.bias is self.plain_bias else None

    def leave(self) -> None:
        """Have storage and a product of its own again."""
        joint, self.joint = self.joint, None
        if joint is not None:
            joint.release(self)
        self.follow_weight()

    def follow_weight(self) -> None:
        super().follow_weight()
        joint = self.__dict__.get("joint")
        if not torch.compiler.is_dynamo_compiling():
            self.__dict__["piece"] = None if joint is None else joint.piece(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.joint is not None:
            self.joint.attach(self)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Join the layers again on the other device, or in the other dtype, once all are there."""
        done = super()._apply(fn, recurse)
        self._join_again()
        return done

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self.joint is not None:
            self.follow_weight()
            self._join_again()

    def _join_again(self) -> None:
        if self.joint is not None:
            self.joint.join_again()
