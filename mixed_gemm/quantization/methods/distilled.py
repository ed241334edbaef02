"""Scales that are learned from the dense model: after another method has found the codes, what the
whole model predicts is brought back to what it predicted, with the codes as they are.

The loss is the Kullback-Leibler divergence of the next token, over the tokens that the dense model
finds likeliest and one class for all others; only these are kept of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..._progress import Progress, track
from ...ops.errors import ArgumentValueError
from ...weights.kinds import kind_of
from ...weights.rounding import nonzero_scale
from ...weights.tensor import QuantizedTensor
from ..select import Target
from ..state import Runs, evaluating
from .base import BlockMethod, Defaults
from .gptq import GPTQ
from .grid import grouped
from .sequential import Sequential

LIKELIEST = 64  # tokens of the dense model's prediction that are kept


@dataclass
class _Wanted:
    """The dense model's prediction for a batch: log probabilities ``[T, LIKELIEST]`` of tokens
    ``index``, and of all others together ``[T]``."""

    index: Tensor
    likeliest: Tensor
    others: Tensor

    @classmethod
    def of(cls, logits: Tensor) -> _Wanted:
        flat = logits.flatten(0, -2).float()
        every = flat.log_softmax(-1)
        likeliest, index = every.topk(min(LIKELIEST, every.shape[-1]), dim=-1)
        return cls(index, likeliest, _rest(likeliest))

    def divergence(self, logits: Tensor) -> Tensor:
        flat = logits.flatten(0, -2).float()
        mine = flat.gather(-1, self.index) - flat.logsumexp(-1, keepdim=True)
        inside = (self.likeliest.exp() * (self.likeliest - mine)).sum(-1)
        outside = self.others.exp() * (self.others - _rest(mine))
        return (inside + outside).mean()


def _rest(likeliest: Tensor) -> Tensor:
    """Return the log of the probability that is left."""
    return torch.log((1 - likeliest.exp().sum(-1)).clamp(min=1e-6))


class _Product(torch.autograd.Function):
    """x @ ((codes - zero) * scale).T, with the weight made again for the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, steps: Tensor, size: int) -> Tensor:
        dtype = torch.get_autocast_dtype(x.device.type) if _autocast(x) else x.dtype
        x = x.to(dtype)
        ctx.save_for_backward(x, scale, steps)
        ctx.size = size
        return x @ _dense(scale, steps, size, dtype).t()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, scale, steps = ctx.saved_tensors
        of_x = grad @ _dense(scale, steps, ctx.size, grad.dtype)
        of_weight = grad.flatten(0, -2).t() @ x.flatten(0, -2)
        of_scale = grouped(of_weight.float() * steps, ctx.size).sum(-1)
        return of_x, of_scale, None, None


def _autocast(x: Tensor) -> bool:
    return torch.is_autocast_enabled(x.device.type)


def _dense(scale: Tensor, steps: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    expanded = scale.repeat_interleave(size, 1)[:, : steps.shape[1]]
    return (steps * expanded).to(dtype)


class _Learner(nn.Linear):
    """A layer whose scales are those of its weight times factors that are learned."""

    def __init__(self, layer: nn.Linear, weight: QuantizedTensor) -> None:
        found = weight.unpacked()
        n, k = found.shape
        super().__init__(k, n, bias=False, device="meta")
        self.bias = layer.bias
        size = k if found.group_size == -1 else found.group_size
        zeros: Any = 0.0
        if found.zeros is not None:
            real = found.zeros.float()
            zeros = real if found.zero_mode == "sub" else -real / found.scales.float()
            zeros = zeros.t().repeat_interleave(size, 1)[:, :k]
        self.found, self.size = found, size
        self.steps = found.q.float() - zeros
        self.start = found.scales.float().t()
        self.factors = nn.Parameter(torch.ones_like(self.start))

    def forward(self, x: Tensor) -> Tensor:
        product: Callable[..., Tensor] = _Product.apply
        out = product(x, self.start * self.factors, self.steps, self.size)
        return out if self.bias is None else out + self.bias

    def learned(self, name: str, target: Target) -> QuantizedTensor:
        found, scheme = self.found, target.scheme
        dtype = found.scales.dtype
        scales = nonzero_scale((self.start * self.factors.detach()).t().contiguous(), dtype)
        zeros = found.zeros
        if zeros is not None and found.zero_mode == "add":
            zeros = (zeros.float() * scales / found.scales.float()).to(dtype)
        kind: Any = kind_of(name, scheme, found.shape)
        made: QuantizedTensor = kind.from_quantized(
            found.q, scales.to(dtype), zeros, **scheme.gemm_options
        )
        return made


@dataclass
class Distilled(Defaults):
    """Another method, then scales that are learned from the dense model's predictions. The whole
    model is in memory, with gradients.

    Args:
        method: that finds the codes. steps: batches that are learned from, in all.
        rate: of Adam, relative to the scales; falls to 0. seed: of the order of batches.
        progress: see ``quantize_``.
    """

    method: BlockMethod = field(default_factory=GPTQ)
    steps: int = 60
    rate: float = 2e-3
    seed: int = 0
    progress: Progress = True

    reads_calibration = True

    def prepare(
        self, model: nn.Module, targets: Mapping[str, Target], calibration: Iterable[Any] | None
    ) -> None:
        """Find the codes, then learn the scales; the model is left as by ``Sequential``.

        Args:
            model: of transformers: its output has ``logits``. targets: name -> layer.
            calibration: batches.

        Raises:
            ValueError: calibration is None or empty, or does not reach a layer.
        """
        batches = None if calibration is None else list(calibration)
        inner = Sequential(self.method, self.progress)
        wanted: list[_Wanted] = []
        if batches:
            with torch.no_grad(), evaluating(model), Runs(model) as runs:
                wanted = [_Wanted.of(_logits(model, runs(x))) for x in batches]
        inner.prepare(model, targets, batches)
        assert batches is not None
        self._inner, self._weights = inner, {}
        linears = {name: t for name, t in targets.items() if isinstance(t.layer, nn.Linear)}
        learners = {name: _Learner(t.layer, inner.weight(name, t)) for name, t in linears.items()}
        try:
            with (
                evaluating(model),
                _in_places(linears, learners),
                Runs(model) as runs,
                torch.enable_grad(),
            ):

                def logits(i: int) -> Tensor:
                    return _logits(model, runs(batches[i]))

                self._learn(list(learners.values()), logits, wanted)
        except BaseException:
            inner.take_back()
            raise
        self._weights = {name: x.learned(name, linears[name]) for name, x in learners.items()}

    def _learn(
        self, learners: list[_Learner], logits: Callable[[int], Tensor], wanted: list[_Wanted]
    ) -> None:
        optimizer = torch.optim.Adam([x.factors for x in learners], lr=self.rate)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        generator = torch.Generator().manual_seed(self.seed)
        order: list[int] = []
        for _ in track(range(self.steps), "distil", self.progress):
            order = order or torch.randperm(len(wanted), generator=generator).tolist()
            i = order.pop()
            optimizer.zero_grad()
            torch.autograd.backward(wanted[i].divergence(logits(i)))
            optimizer.step()
            falling.step()

    def weight(self, name: str, target: Target) -> QuantizedTensor:
        """Return the weight that :meth:`prepare` found.

        Args:
            name: of the layer. target: the layer and its scheme.

        Raises:
            ValueError: the weight of a filter holds NaN or Inf.
        """
        found = self._weights.get(name)
        return self._inner.weight(name, target) if found is None else found

    @property
    def calibrated(self) -> dict[str, str]:
        """The calibrated blocks of the method that found the codes."""
        return self._inner.calibrated

    def output_error(self, name: str) -> float | None:
        """Return the relative error of the output of the layer ``name`` before scales were
        learned."""
        return self._inner.output_error(name)

    def note(self, name: str) -> str:
        """Tell what was done for the layer ``name`` beyond rounding it."""
        return self._inner.note(name)


def _logits(model: nn.Module, output: Any) -> Tensor:
    out = getattr(output, "logits", None)
    if not isinstance(out, Tensor):
        raise ArgumentValueError(
            "quantize_: distilling needs a model whose output has logits, as those of transformers "
            f"for language have, got a {type(model).__name__}"
        )
    return out


@contextmanager
def _in_places(targets: Mapping[str, Target], learners: Mapping[str, nn.Module]) -> Iterator[None]:
    """Hang the learners in the places of their layers, and let nothing else have gradients."""
    frozen: list[Callable[[bool], Any]] = []
    try:
        for name, target in targets.items():
            for parent, child in target.places:
                setattr(parent, child, learners[name])
        others = {id(x.factors) for x in learners.values() if isinstance(x, _Learner)}
        parents = {id(p): p for t in targets.values() for p, _ in t.places}
        for parent in parents.values():
            for p in parent.parameters():
                if id(p) not in others and p.requires_grad:
                    p.requires_grad_(False)
                    frozen.append(p.requires_grad_)
        yield
    finally:
        for unfreeze in frozen:
            unfreeze(True)
        for target in targets.values():
            for parent, child in target.places:
                setattr(parent, child, target.module)
