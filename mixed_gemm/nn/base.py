"""What the state of ``Linear`` and ``Conv2d`` has in common: buffers, plus a tag that says how to
read the packed weight, all of it checked before anything is copied.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..weights.state import QuantizedLayer


class CheckedState(nn.Module):
    """A base to name before the class of torch that is subclassed."""

    def _layer(self) -> QuantizedLayer:
        raise NotImplementedError

    def _refuse_values(self, tensors: dict[str, Any], prefix: str) -> None:
        """Raises for values that a layer must not have; shapes and dtypes are right by then."""
        raise NotImplementedError

    def get_extra_state(self) -> Tensor:
        """The layout version, shape and scheme, as JSON bytes in a uint8 tensor: safetensors and
        ``torch.load(weights_only=True)`` take tensors."""
        return self._layer().encode_tag()

    def set_extra_state(self, state: Any) -> None:
        """Refuse a packed weight of another layout version or scheme."""
        problem = self._layer().tag_problem(state)
        if problem:
            raise RuntimeError(problem)

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
        # Checked before anything is copied: a refused checkpoint leaves the module as it was.
        mine = {k[len(prefix) :]: v for k, v in state_dict.items() if k.startswith(prefix)}
        problems = self._layer().tensor_problems(mine)
        if "_extra_state" in mine and (problem := self._layer().tag_problem(mine["_extra_state"])):
            problems.insert(0, problem)
        if problems:
            error_msgs.extend(prefix + problem for problem in problems)
            return
        self._refuse_values(mine, prefix)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
