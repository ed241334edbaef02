"""Experts that a model holds in tensors of three dimensions: taken apart into linears before layers
are selected, and put back where none of them is quantized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import nn

from ..nn.base import QuantizedModule
from ..nn.expert import Names
from ..nn.expert_tensors import apart, form_of
from ..nn.experts import Experts

# How an expert's linears are called in the files of a model; None where the one who is asked does
# not know. Integrations add to it.
NAMES_IN_FILES: list[Callable[[nn.Module], Names | None]] = []


@dataclass
class TakenApart:
    """The modules of a model that were replaced.

    Attributes:
        found: name of a module -> (what it was, what is in its place).
    """

    model: nn.Module
    found: dict[str, tuple[nn.Module, Experts]] = field(default_factory=dict)

    def hold_any_of(self, targets: Iterable[str]) -> bool:
        """Tell whether a layer of these is an expert's.

        Args:
            targets: names of layers.
        """
        return any(self._owner(target) for target in targets)

    def put_back(self, targets: Iterable[str] = (), skipped: dict[str, str] | None = None) -> None:
        """Put back the modules that have no linear to quantize.

        Args:
            targets: names of layers that are to be quantized.
            skipped: name of a layer -> why it is left alone. The linears of what is put back are
                replaced there by the tensors that it holds.
        """
        kept = {name for target in targets if (name := self._owner(target))}
        before = {id(new): was for name, (was, new) in self.found.items() if name not in kept}
        # One may hang at several places, as any module may.
        for parent in list(self.model.modules()) if before else ():
            for child, module in list(parent._modules.items()):
                if id(module) in before:
                    setattr(parent, child, before[id(module)])
        for layer in list(skipped or ()):
            name = self._owner(layer)
            if skipped is None or name in ("", layer) or name in kept:
                continue
            reason = skipped.pop(layer)
            for part, parameter in self.found[name][0]._parameters.items():
                if parameter is not None and parameter.dim() == 3:
                    skipped[f"{name}.{part}"] = reason
        self.found = {name: pair for name, pair in self.found.items() if name in kept}

    def settle(self) -> None:
        """Give dense linears that stay storage of their own, so that what they were views of is
        freed, and files take them."""
        for _, new in self.found.values():
            for module in new.modules():
                if not isinstance(module, nn.Linear) or isinstance(module, QuantizedModule):
                    continue
                for parameter in module.parameters(recurse=False):
                    parameter.data = parameter.detach().clone(memory_format=torch.contiguous_format)

    def _owner(self, layer: str) -> str:
        """Return the module that a layer is an expert's of; empty where it is none's."""
        parts = layer.split(".")
        names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        return next((name for name in names if name in self.found), "")


def take_apart(model: nn.Module, names: Names | None = None) -> TakenApart:
    """Replace every module that holds experts in tensors of three dimensions.

    Args:
        model: any, in which the modules are replaced; weights stay where they are.
        names: of the linears of an expert; those of the model's files where None is given.
    """
    done, made = TakenApart(model), dict[int, Experts]()
    told = (found for asked in NAMES_IN_FILES if (found := asked(model)) is not None)
    names = names or next(told, None)
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if id(module) in made:
            model.set_submodule(name, made[id(module)])
        elif name and (form := form_of(module)) is not None:
            done.found[name] = module, made.setdefault(id(module), apart(module, form, names))
            model.set_submodule(name, made[id(module)])
    return done
