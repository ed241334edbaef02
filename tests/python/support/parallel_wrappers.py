"""Wrappers of a whole model for several processes, other than FSDP2, around quantized layers; this
runs in one of the processes: torch's first FSDP, DistributedDataParallel, an optimizer whose state
is sharded.

    python -m support.parallel_wrappers RANK STORE

Prints "NAME: ok" or "NAME: " and what is wrong for every case, then "done".
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from support import ranks
from support.parallel_state import HIDDEN, Adapted
from torch import Tensor, nn

import mixed_gemm

STEPS = 2
SCHEMES = ("w4 sub", "w8a8", "fp8")


def packed(model: nn.Module) -> list[Any]:
    return [p for p in model.parameters() if isinstance(p, mixed_gemm.QuantizedTensor)]


def train(model: nn.Module, rows: Tensor, optimizer: Any = None) -> Tensor:
    """The output after training, on all that every rank has."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizer or torch.optim.SGD(trained, 0.1)
    for _ in range(STEPS):
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        found: Tensor = model(batch())
    return found


def batch() -> Tensor:
    torch.manual_seed(7)
    return torch.randn(8, HIDDEN, device=ranks.DEVICE)


def share() -> Tensor:
    dist = torch.distributed
    return batch().chunk(dist.get_world_size())[dist.get_rank()]


def models(scheme: str) -> tuple[nn.Module, nn.Module]:
    """One to wrap, and one for this process alone."""
    model = Adapted(scheme).to(ranks.DEVICE)
    bias: Any = model.base[
        0
    ].bias  # of a quantized layer: one that becomes a slice of a flat tensor
    bias.requires_grad_()
    return model, copy.deepcopy(model)


def first_fsdp(scheme: str, **options: Any) -> None:
    """It trains what it does not ignore, as one process would, and its state is the model's."""
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

    model, alone = models(scheme)
    wrapped = FullyShardedDataParallel(
        model, device_id=torch.device(ranks.DEVICE), ignored_states=packed(model), **options
    )
    with torch.no_grad():
        torch.testing.assert_close(wrapped(batch()), alone(batch()), rtol=0, atol=0)
    wanted = train(alone, batch())
    torch.testing.assert_close(train(wrapped, share()), wanted)
    with FullyShardedDataParallel.state_dict_type(wrapped, StateDictType.FULL_STATE_DICT):
        state = wrapped.state_dict()
    assert state.keys() == alone.state_dict().keys(), state.keys() ^ alone.state_dict().keys()
    again, _ = models(scheme)
    again.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(again(batch()), wanted)


def refused(scheme: str, **options: Any) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model, _ = models(scheme)
    try:
        FullyShardedDataParallel(model, device_id=torch.device(ranks.DEVICE), **options)
    except TypeError as error:
        for word in ("QuantizedTensor for", "fully_shard", "ignored_states="):
            assert word in str(error), str(error)
    else:
        raise AssertionError("took quantized weights")


def replicated(scheme: str, spread: bool) -> None:
    """DistributedDataParallel, with an optimizer whose state is spread over the ranks or not."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model, alone = models(scheme)
    wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer: Any = None
    if spread:  # over all parameters, as Trainer groups them
        optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.SGD, lr=0.1)
    wanted = train(alone, batch())
    torch.testing.assert_close(train(wrapped, share(), optimizer), wanted)
    for found, before in zip(packed(model), packed(alone), strict=True):
        assert torch.equal(found.dequantize(), before.dequantize())


def main(rank: int, store: str) -> None:
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    warnings.simplefilter("ignore")
    ranks.join(rank, store)
    ways: dict[str, dict[str, Any]] = {
        "with the parameters": {"use_orig_params": True},
        "with one flat parameter": {"use_orig_params": False},
        "by layers": {
            "use_orig_params": True,
            "auto_wrap_policy": ModuleWrapPolicy({mixed_gemm.Linear}),
        },
    }
    cases: dict[str, Callable[[], None]] = {}
    for way, options in ways.items():
        cases[f"refused {way}"] = partial(refused, "w8a8", **options)
        for scheme in SCHEMES:
            cases[f"{scheme} {way}"] = partial(first_fsdp, scheme, **options)
    for scheme in SCHEMES:
        cases[f"{scheme} replicated"] = partial(replicated, scheme, False)
        cases[f"{scheme} replicated, spread optimizer"] = partial(replicated, scheme, True)
    ranks.try_all(cases)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
