"""Modules that tell a watch when somebody starts to hear of their calls, so that a compiled graph
without these calls is left.
"""

from __future__ import annotations

from typing import Any

from torch import nn


class TellsOfHooks(nn.Module):
    """A base of the linears of experts, and of an expert."""

    def _watch_of_hooks(self) -> Any:
        """The watch that is told, or None."""
        return None

    def _told(self, handle: Any) -> Any:
        watch = self._watch_of_hooks()
        if watch is not None:
            watch.may_be_hooked = True
        return handle

    def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
        """As ``nn.Module`` has it.

        Args:
            args, kwargs: those of that.
        """
        return self._told(super().register_forward_hook(*args, **kwargs))

    def register_forward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        """As ``nn.Module`` has it.

        Args:
            args, kwargs: those of that.
        """
        return self._told(super().register_forward_pre_hook(*args, **kwargs))

    def register_full_backward_hook(self, *args: Any, **kwargs: Any) -> Any:
        """As ``nn.Module`` has it.

        Args:
            args, kwargs: those of that.
        """
        return self._told(super().register_full_backward_hook(*args, **kwargs))

    def register_full_backward_pre_hook(self, *args: Any, **kwargs: Any) -> Any:
        """As ``nn.Module`` has it.

        Args:
            args, kwargs: those of that.
        """
        return self._told(super().register_full_backward_pre_hook(*args, **kwargs))
