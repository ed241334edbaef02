"""Several processes save, load and train a model with quantized layers; this runs in one of them:
state_dicts, torch.distributed.checkpoint, files of which each reads its share, FSDP2 with adapters.

    python -m support.parallel_state RANK STORE FOLDER

FOLDER: of what ``write`` made, in which each number of ranks leaves "dcp-WORLD". Prints "NAME: ok"
or "NAME: " and what is wrong for every case, then "done".
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from support import ranks
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.formats.checkpoint import open_checkpoint

HIDDEN, WIDE = 256, 768
SCHEMES: dict[str, dict[str, Any]] = {
    "w4 sub": {"bits": 4, "group_size": 96, "symmetric": False},  # which shares of columns cut
    "w4 act-order": {"bits": 4, "group_size": 64},
    "w8 channel": {"bits": 8, "group_size": -1},
    "w8a8": {"scheme": "w8a8", "activations": "dynamic_azp"},
    "w8a8_block": {"scheme": "w8a8_block", "group_size": 96, "symmetric": False},
    "fp8": {"scheme": "fp8"},
    "fp8 block": {"scheme": mixed_gemm.Scheme.fp8(None, strategy="block", block=(64, 96))},
}


def net(scheme: str, seed: int = 0, n: int = WIDE) -> nn.Sequential:
    """up, silu, down, both quantized, the first with a bias."""
    torch.manual_seed(seed)
    up = mixed_gemm.Linear.from_float(nn.Linear(HIDDEN, n), **_fitting(scheme, HIDDEN))
    down = mixed_gemm.Linear.from_float(nn.Linear(n, 80, bias=False), **SCHEMES[scheme])
    weight: Any = down.weight
    if scheme == "w4 act-order":
        weight.permutation = torch.randperm(n)
    return nn.Sequential(up, nn.SiLU(), down)


def _fitting(scheme: str, k: int) -> dict[str, Any]:
    options = SCHEMES[scheme]
    return {**options, "group_size": 64} if options.get("group_size") == 96 else options


def write(folder: Path) -> None:
    """Save in one process: by torch.distributed.checkpoint, and as compressed-tensors."""
    import torch.distributed.checkpoint as dcp

    for scheme in SCHEMES:
        model = net(scheme)
        dcp.save(model.state_dict(), checkpoint_id=folder / f"dcp-1-{scheme}", no_dist=True)
        if scheme != "fp8 block":
            mixed_gemm.save_checkpoint(model, folder / f"files-{scheme}", config={})


def plan(reduce: bool = False) -> dict[str, Any]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    from mixed_gemm import parallel

    return {
        "0": ColwiseParallel(),
        "2": parallel.RowwiseParallel() if reduce else RowwiseParallel(),
    }


def spread(scheme: str, mesh: Any, seed: int = 0, reduce: bool = False) -> nn.Module:
    from torch.distributed.tensor.parallel import parallelize_module

    return parallelize_module(net(scheme, seed).to(ranks.DEVICE), mesh, plan(reduce))


def same(found: nn.Module, exact: nn.Module) -> None:
    for name in ("0", "2"):
        a, b = found.get_submodule(name), exact.get_submodule(name)
        assert isinstance(a, mixed_gemm.Linear) and isinstance(b, mixed_gemm.Linear)
        mine, theirs = a.whole()[0], b.whole()[0]
        assert mine.scheme == theirs.scheme, (mine.scheme, theirs.scheme)
        for part, tensor in theirs.tensors().items():
            assert torch.equal(mine.tensors()[part].cpu(), tensor.cpu()), (name, part)


def our_rowwise(scheme: str, mesh: Any) -> None:
    """As torch's, forward and backward, compiled as one graph."""
    ours, torchs = spread(scheme, mesh, reduce=True), spread(scheme, mesh)
    x = torch.randn(2, 3, HIDDEN).to(ranks.DEVICE)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, want = ours(a), torchs(b)
    torch.testing.assert_close(found, want)
    found.square().sum().backward()
    want.square().sum().backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), want)
    if scheme == "w4 sub":
        torch._dynamo.reset()
        compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), want)


def state_dict(scheme: str, mesh: Any) -> None:
    """The state_dict of a sharded model has the keys and shapes of a whole one, and fills
    either."""
    model, exact = spread(scheme, mesh), net(scheme)
    state, whole = model.state_dict(), exact.state_dict()
    assert state.keys() == whole.keys()
    for name, tensor in whole.items():
        found = state[name]
        found = found.full_tensor() if hasattr(found, "full_tensor") else found
        assert torch.equal(found.cpu(), tensor), name
    other = spread(scheme, mesh, seed=1)
    other.load_state_dict(state)
    same(other, exact)
    other = spread(scheme, mesh, seed=1)
    other.load_state_dict({name: x.to(ranks.DEVICE) for name, x in whole.items()})
    same(other, exact)
    broken = {**state, "0._extra_state": exact[2].get_extra_state()}
    try:
        other.load_state_dict(broken)
    except RuntimeError as error:
        assert "80" in str(error) and "768" in str(error), error
    else:
        raise AssertionError("a tag of another layer was taken")


def checkpoint(scheme: str, mesh: Any, folder: Path) -> None:
    """Load a checkpoint that any number of processes saved."""
    import torch.distributed.checkpoint as dcp

    world = mesh.size()
    dcp.save(spread(scheme, mesh).state_dict(), checkpoint_id=folder / f"dcp-{world}-{scheme}")
    for path in sorted(folder.glob(f"dcp-*-{scheme}")):
        model = spread(scheme, mesh, seed=1)
        state = model.state_dict()
        dcp.load(state, checkpoint_id=path)
        model.load_state_dict(state)
        same(model, net(scheme))


def own_share(scheme: str, mesh: Any, folder: Path) -> None:
    """Each rank reads its share: bytes of the file, counted."""
    from mixed_gemm.distributed import load as loading

    opened: list[Any] = []

    def opening(path: Any) -> Any:
        opened.append(open_checkpoint(path))
        return opened[-1]

    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(HIDDEN, WIDE), nn.SiLU(), nn.Linear(WIDE, 80, bias=False))
    loading.open_checkpoint = opening  # type: ignore[assignment]
    try:
        model = loading.load_parallel(empty, folder / f"files-{scheme}", mesh, plan())
    finally:
        loading.open_checkpoint = open_checkpoint
    same(model, net(scheme))
    x = torch.randn(4, HIDDEN).to(ranks.DEVICE)
    with torch.no_grad():
        torch.testing.assert_close(model(x), spread(scheme, mesh)(x))
    whole = sum(x.nbytes for x in opened[0].layers.values())
    size = sum(file.stat().st_size for file in opened[0].files)
    read, header = opened[0].index.bytes_read, size - whole
    # Scales of channels go to every rank, and a share begins and ends at whole groups.
    share = whole if scheme == "w4 act-order" else 1.15 * whole / mesh.size()
    most = share + 2048
    print(f"# {scheme}: {read - header} of {whole} bytes over {mesh.size()} ranks", flush=True)
    assert read - header <= most, (read, header, whole)


class Adapted(nn.Module):
    """A frozen quantized base with an adapter beside it that trains."""

    def __init__(self, scheme: str) -> None:
        super().__init__()
        self.base = net(scheme).requires_grad_(False)
        self.down, self.up = nn.Linear(HIDDEN, 8, bias=False), nn.Linear(8, 80, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x) + self.up(self.down(x))
        return found


def adapters(mesh: Any, scheme: str) -> None:
    """FSDP2 of a frozen quantized base with adapters that train: steps are those of one process."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        set_model_state_dict,
    )
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(3)
    model = Adapted(scheme).to(ranks.DEVICE)
    exact = copy.deepcopy(model)
    fully_shard(model.base[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    batch = torch.randn(4 * mesh.size(), HIDDEN).to(ranks.DEVICE)
    for module, rows in ((model, batch.chunk(mesh.size())[dist.get_rank()]), (exact, batch)):
        optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.1)
        for _ in range(2):
            module(rows).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    for name in ("down", "up"):
        found: Any = model.get_submodule(name).weight
        torch.testing.assert_close(found.full_tensor(), exact.get_submodule(name).weight)
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    want = exact.state_dict()
    assert full.keys() == want.keys(), full.keys() ^ want.keys()
    for name, tensor in want.items():
        if not name.startswith(("down", "up")):
            assert torch.equal(full[name].cpu(), tensor.cpu()), name
    again = Adapted(scheme).to(ranks.DEVICE)
    again.base.load_state_dict(net(scheme, seed=5).state_dict())
    fully_shard(again, mesh=mesh)
    set_model_state_dict(again, full, options=StateDictOptions(full_state_dict=True))
    with torch.no_grad():
        torch.testing.assert_close(again(batch), exact(batch))


def main(rank: int, store: str, folder: Path) -> None:
    warnings.simplefilter("ignore")
    mesh = ranks.join(rank, store)
    cases: dict[str, Callable[[], None]] = {}
    for name in SCHEMES:
        cases[f"RowwiseParallel, {name}"] = lambda s=name: our_rowwise(s, mesh)  # type: ignore[misc]
        cases[f"state_dict, {name}"] = lambda s=name: state_dict(s, mesh)  # type: ignore[misc]
        cases[f"checkpoint, {name}"] = lambda s=name: checkpoint(s, mesh, folder)  # type: ignore[misc]
        if name != "fp8 block":
            cases[f"files, {name}"] = lambda s=name: own_share(s, mesh, folder)  # type: ignore[misc]
        if mesh.size() > 1 and name != "w4 act-order":
            cases[f"FSDP2, {name}"] = lambda s=name: adapters(mesh, s)  # type: ignore[misc]
    ranks.try_all(cases)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
