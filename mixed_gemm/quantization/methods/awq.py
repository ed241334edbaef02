"""AWQ (Lin et al. 2023, https://arxiv.org/abs/2306.00978): channels whose inputs are large are
multiplied before they are rounded, and the layer that makes these inputs is divided.

Which layer that is, is found by trying: the outputs of a norm or a linear are multiplied by random
factors, and if the inputs of the readers are those factors times what they were, the factors can be
folded there. So it works behind an attention or a gate too, whatever the architecture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..block import CalibrationBlock, InputStatistics
from ..block_layer import BlockLayer, Replaced
from .codes import as_weight
from .gptq import GPTQ
from .grid import Range
from .search import search
from .solve import damped, row_costs

STEPS = 20  # exponents that are tried, from 0 to 1
COARSE = (
    4  # ranges of a group for each: a block of SmolLM2 takes 17 CPU seconds, 60 with all of them
)
# The relative error of the inputs that is allowed where factors pass through: the rounding of each
# dtype stays below.
INPUT_ERROR, INPUT_ERROR_HALF = 1e-4, 2e-2
# The share of the change by factors in the columns alone that may be left. More, and something else
# reads them, too.
OTHERS = 0.1


@dataclass
class Fold:
    """The layer that factors ``[channels]`` of a group's inputs go to: ``module`` is divided by
    them.

    repeat: how many heads read each one's output, of which every run of ``head`` channels takes
    the same factors; 1: each channel has its own.
    """

    name: str
    module: nn.Module
    layer: BlockLayer | None
    repeat: int = 1
    head: int = 1

    def shared(self, factors: Tensor) -> Tensor:
        """Return one factor for all channels that must have the same: their geometric mean."""
        if self.repeat == 1:
            return factors
        heads = factors.log().view(-1, self.repeat, self.head).mean(1, keepdim=True)
        return heads.expand(-1, self.repeat, -1).reshape(-1).exp()

    def of_module(self, factors: Tensor) -> Tensor:
        """Return the factors of the rows of the module: where several heads read the same row, one
        of theirs, which are all alike."""
        if self.repeat == 1:
            return factors
        return factors.view(-1, self.repeat, self.head)[:, 0].reshape(-1)

    def multiply(self, factors: Tensor) -> Callable[[], None]:
        """Multiply the outputs of the module; the result takes it back."""
        by = self.of_module(factors)
        if self.layer is not None:
            kept = self.layer.dense, self.layer.module.bias
            self.layer.rescale(by, 0)
            if kept[1] is not None:
                self.layer.module.bias = nn.Parameter(
                    (kept[1].float() * by).to(kept[1].dtype), False
                )

            def back() -> None:
                assert self.layer is not None
                self.layer.dense, self.layer.module.bias = kept
                self.layer.reset()

            return back
        parameters = [p for p in self.module._parameters.values() if p is not None]
        before = Replaced(parameters)
        for p in parameters:
            p.data.copy_((p.float() * (by[:, None] if p.dim() == 2 else by)).to(p.dtype))
        return before


def _head(block: Any) -> int:
    """Return the channels of a head, as some module of the block says; 0 where none does."""
    modules = block.modules() if isinstance(block, nn.Module) else ()
    return next((x for x in (getattr(m, "head_dim", 0) for m in modules) if x), 0)


def _candidates(block: CalibrationBlock, group: list[BlockLayer]) -> list[Fold]:
    """Find norms and layers whose outputs may be the inputs of the group, up to factors: none that
    other blocks have too, and none whose output a hook sees."""
    k, layers = group[0].dense.shape[1], {id(layer.module): layer for layer in block.layers}
    whole = block.module
    if not isinstance(whole, nn.Module):
        return []
    head, found = _head(whole), []
    for name, module in whole.named_modules():
        if any(module is layer.module for layer in group):
            continue
        if not block.experts.may_fold(group, layers.get(id(module))):
            continue
        own = [p for p in module._parameters.values() if p is not None]
        if any(id(p) in block.shared for p in own) or module._forward_hooks:
            continue
        weight = module._parameters.get("weight")
        layer = layers.get(id(module))
        if weight is None or (layer is None and weight.dim() != 1):
            continue
        rows = weight.shape[0]
        if rows == k:
            found.append(Fold(name, module, layer))
        elif layer is not None and head and rows % head == 0 and k % rows == 0:
            found.append(Fold(name, module, layer, k // rows, head))
    return found


def _relative(x: Tensor, y: Tensor) -> float:
    """Return the relative difference of ``x`` from ``y`` by channel, in the mean: a few channels
    may be a thousand times larger than the others, and a norm over all would see these alone.
    Infinite where they have other shapes: tokens went to other experts."""
    if x.shape != y.shape:
        return float("inf")
    error, size = ((v.float().flatten(0, -2)).norm(dim=0) for v in (x - y, y))
    return float((error / size.clamp(min=1e-30))[size > 0].mean())


@torch.no_grad()
def find_fold(block: CalibrationBlock, group: list[BlockLayer]) -> Fold | None:
    """Find the layer that factors of the inputs of a group may go to without changing what the
    block computes: tried with random ones. None where there is no such layer.

    With the factors in the layer, the inputs of the group must be multiplied by them; and with
    their inverse in the columns of the group, the output of the block must be what it was. That is
    measured by how much the columns alone change it: else a group that a batch does not reach, or
    whose share in the output is small, would fit any layer.
    """
    first, x = group[0], block.given[0]
    given, output = block.inputs(first, 0, x), block.run(x)
    precise = output.dtype == torch.float32 and first.dense.dtype == torch.float32
    allowed = INPUT_ERROR if precise else INPUT_ERROR_HALF
    if not given:
        return None
    generator = torch.Generator().manual_seed(0)
    factors = 0.5 + torch.rand(first.dense.shape[1], generator=generator)
    factors = factors.to(first.dense.device)
    for fold in _candidates(block, group):
        by = fold.shared(factors)
        undo = [layer.rescaled_for_now(1 / by) for layer in group]
        alone = _relative(block.run(x), output)
        undo.append(fold.multiply(by))
        both = _relative(block.run(x), output)
        now = block.inputs(first, 0, x) or [given[0][:0]]
        inputs = _relative(now[0], given[0] * by.to(given[0].dtype))
        for back in reversed(undo):
            back()
        if inputs < allowed and both < OTHERS * alone:
            return fold
    return None


def factors_of(
    group: list[BlockLayer], statistics: InputStatistics, gram: Tensor, bits: int | None, fold: Fold
) -> tuple[Tensor, float]:
    """Find the factors that cost the layers of the group least, and how much of the cost without
    factors that is."""
    mean = (statistics.mean / statistics.tokens).clamp(min=1e-8)
    best, least, none = torch.ones_like(mean), float("inf"), 1.0
    for step in range(STEPS):
        factors = mean.pow(step / STEPS)
        factors = fold.shared((factors / (factors.max() * factors.min()).sqrt()).clamp(1e-4, 1e4))
        cost = 0.0
        for layer in group:
            weight = layer.dense.float()
            of = Range.of(layer.target.scheme, weight.shape[1], layer.dense.dtype, bits)
            scaled = weight * factors
            grid = search(scaled, of, gram.diagonal() / factors.square(), COARSE)
            cost += float(row_costs(grid.values(grid.codes(scaled)) / factors, weight, gram).sum())
        if step == 0:
            none = max(cost, 1e-30)
        if cost < least:
            best, least = factors, cost
    return best, least / none


@dataclass(frozen=True)
class AWQ:
    """Activation-aware scales, folded into the layers before.

    Args:
        then: what rounds the scaled weights; None: to nearest, with searched scales.
        bits: fewer than the scheme stores; None: as many.
        damp: share of the mean of the Hessian's diagonal that is added to the diagonal.
    """

    then: GPTQ | None = None
    bits: int | None = None
    damp: float = 0.01

    needs_outputs = False

    @property
    def needs_reference(self) -> bool:
        """Whether the dense model runs beside the quantized one."""
        return self.then is not None and self.then.needs_reference

    def quantize(self, stage: CalibrationBlock) -> None:
        """Give every layer of a block its result.

        Args:
            stage: the block.

        Raises:
            ValueError: calibration does not reach a layer, or brings NaN or Inf.
        """
        groups = stage.groups()
        for group in groups:
            self._scale(stage, group)
        if self.then is not None:
            self.then.quantize(stage)
            return
        for group, statistics in stage.statistics(groups, reference=False):
            gram = statistics.gram / statistics.tokens
            diagonal = damped(gram, self.damp).diagonal()
            for layer in group:
                weight = layer.dense.float()
                of = Range.of(layer.target.scheme, weight.shape[1], layer.dense.dtype, self.bits)
                grid = search(weight, of, diagonal)
                layer.finish(as_weight(grid.codes(weight), grid, layer), layer.note, gram)

    def _scale(self, block: CalibrationBlock, group: list[BlockLayer]) -> None:
        fold = find_fold(block, group)
        if fold is None:
            for layer in group:
                layer.note = "not scaled: its inputs come from no layer that could be divided"
            return
        statistics = block.input_statistics(group, reference=False)
        gram = damped(statistics.gram / statistics.tokens, self.damp)
        factors, gain = factors_of(group, statistics, gram, self.bits, fold)
        back = fold.multiply(1 / factors)
        # Where the fold is a layer to quantize, only its stand-in has changed.
        if fold.layer is None:
            block.undo.append(back)
            block.changed.append(fold.name)
        for layer in group:
            layer.rescale(factors, 1)
            layer.note = f"folded into {fold.name}: {gain:.3f} of the error"
