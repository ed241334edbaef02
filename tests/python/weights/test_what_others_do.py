"""What other libraries, and the rest of torch, do with a parameter, on every kind of weight: right,
or a sentence that says what to do instead, and never the end of the process.

Each call runs in a process of its own kind of weight, so that one that ends it is seen and named.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save
from support.weight_kinds import MODULES, module, same_parts
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.optim.swa_utils import AveragedModel

from mixed_gemm import QuantizedTensor

Call = Callable[[Any], Any]


@dataclass(frozen=True)
class As:
    """The outcome of a call is what it gives on the dense value."""


@dataclass(frozen=True)
class Says:
    """The outcome of a call is an error whose text has all of these."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Is:
    """The outcome of a call is what this finds right, of (result, a weight as it was)."""

    right: Callable[[Any, QuantizedTensor], bool]


def parameter(x: Any, before: QuantizedTensor) -> bool:
    """A frozen parameter with the same parts."""
    return isinstance(x, nn.Parameter) and not x.requires_grad and same_parts(x, before)


DENSE = As()
EQUAL = Is(same_parts)
PARAMETER = Is(parameter)
NO_MEMORY = Says(("no memory that holds the elements", "Hint: weight.dequantize()"))
NO_TRAINING = Says(("do not train", "Hint: train an adapter"))
NO_CHANGE = Says(("Hint: weight.data =",))
TORCH_SAYS_NO_GRADIENT = Says(("require",))


def through(write: Callable[[Any, io.BytesIO], Any], **options: Any) -> Call:
    def call(w: Any) -> Any:
        buffer = io.BytesIO()
        write(w, buffer)
        buffer.seek(0)
        return torch.load(buffer, **options)

    return call


def mapped(w: Any) -> Any:
    path = Path(f"/tmp/mixed_gemm_mapped_{os.getpid()}.pt")
    torch.save(w, path)
    try:
        return torch.load(path, mmap=True, weights_only=False)
    finally:
        path.unlink()


def queued(w: Any) -> Any:
    torch.multiprocessing.set_sharing_strategy("file_system")  # descriptors need another thread
    queue = torch.multiprocessing.get_context("fork").SimpleQueue()
    queue.put(w)
    return queue.get()


def swapped(w: Any) -> Any:
    other = nn.Parameter(copy.deepcopy(w.data) * 0, requires_grad=False)
    torch.utils.swap_tensors(w, other)
    return w.sum(), other


def with_grad(w: Any) -> Any:
    w.grad = torch.ones(w.shape)
    return w


def flattened_and_back(w: Any) -> Any:
    (w.data,) = _unflatten_dense_tensors(_flatten_dense_tensors([w]), [w])
    return w


def attribute(name: str) -> Call:
    return lambda w: getattr(w, name)


class Holder(nn.Module):
    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self) -> Any:
        return self.weight + 1


TABLE: dict[str, tuple[Call, As | Says | Is]] = {
    # rebuilt with its class, as accelerate, peft and diffusers do
    "type(p)(p.data, requires_grad=)": (lambda w: type(w)(w.data, requires_grad=False), PARAMETER),
    "type(p)(p.data)": (lambda w: type(w)(w.data), PARAMETER),
    "type(p)(p, **p.__dict__)": (
        lambda w: type(w)(w.data, **{**w.__dict__, "requires_grad": False}), PARAMETER),
    "type(p)(p.to(meta), **p.__dict__)": (
        lambda w: type(w)(w.to("meta"), **w.__dict__), Is(lambda x, w: x.is_meta)),
    "type(p)(dense)": (
        lambda w: type(w)(w.dequantize(), requires_grad=False),
        Says(("does not say how to round it", "Hint: weight.data = tensor"))),
    "type(p)(p, requires_grad=True)": (lambda w: type(w)(w.data, requires_grad=True), NO_TRAINING),
    "type(p)()": (lambda w: type(w)(), Says(("missing", "tensors"))),
    "type(p).__new__(type(p))": (lambda w: type(w).__new__(type(w)), Says(("missing",))),
    "torch.Tensor(p)": (torch.Tensor, EQUAL),
    "nn.Parameter(p)": (nn.Parameter, NO_TRAINING),
    "nn.Parameter(p, False)": (lambda w: nn.Parameter(w, False), PARAMETER),
    "nn.Parameter(p.data, False)": (lambda w: nn.Parameter(w.data, False), PARAMETER),
    "nn.Buffer(p)": (nn.Buffer, EQUAL),
    "as_subclass": (lambda w: w.as_subclass(Tensor), EQUAL),
    # copies
    "copy.copy": (copy.copy, PARAMETER),
    "copy.copy shares": (lambda w: [x.data_ptr() for x in copy.copy(w).tensors().values()]
                         == [x.data_ptr() for x in w.tensors().values()], Is(lambda x, w: x)),
    "deepcopy": (copy.deepcopy, PARAMETER),
    "deepcopy is apart": (lambda w: copy.deepcopy(w).data_ptr() == w.data_ptr(),
                          Is(lambda x, w: not x)),
    "deepcopy of two": (lambda w: [x.data_ptr() for x in copy.deepcopy([w, w])],
                        Is(lambda x, w: x[0] == x[1])),
    "clone": (lambda w: w.clone(), EQUAL),
    "detach": (lambda w: w.detach(), EQUAL),
    "detach_": (lambda w: w.detach_(), EQUAL),
    "data": (attribute("data"), EQUAL),
    "torch.tensor": (lambda w: torch.as_tensor(w), EQUAL),
    "contiguous": (lambda w: w.contiguous(), EQUAL),
    "to the device it is on": (lambda w: w.to("cpu"), PARAMETER),
    "to(copy=True)": (lambda w: w.to("cpu", copy=True), EQUAL),
    "to meta": (lambda w: w.to("meta"), Is(lambda x, w: x.is_meta and x.shape == w.shape)),
    "to meta and back": (lambda w: w.to("meta").to("cpu"), Says(("no data",))),
    "to meta, empty_like": (lambda w: torch.empty_like(w.to("meta"), device="cpu"),
                            Is(lambda x, w: type(x) is type(w) and x.scheme == w.scheme)),
    "half": (lambda w: w.half().dtype, DENSE),
    "double": (lambda w: w.double(), DENSE),
    "long": (lambda w: (1000 * w).long(), DENSE),
    "type": (lambda w: w.type(), DENSE),
    # files
    "pickle": (lambda w: pickle.loads(pickle.dumps(w)), PARAMETER),
    "pickle on meta": (lambda w: pickle.loads(pickle.dumps(w.to("meta"))),
                       Is(lambda x, w: x.is_meta and x.scheme == w.scheme and x.shape == w.shape)),
    "torch.save": (through(torch.save, weights_only=False), PARAMETER),
    "torch.save, old format": (
        through(lambda w, f: torch.save(w, f, _use_new_zipfile_serialization=False),
                weights_only=False), PARAMETER),
    "torch.load to meta": (
        through(torch.save, map_location="meta", weights_only=False), Is(lambda x, w: x.is_meta)),
    "torch.load mmap": (mapped, PARAMETER),
    "torch.load weights_only": (
        through(torch.save, weights_only=True), Says(("weights_only", "allowed global"))),
    "safetensors.save": (lambda w: save({"w": w}), NO_MEMORY),
    # memory
    "data_ptr": (lambda w: (w.data_ptr() == w.detach().data_ptr(), w.data_ptr() != 0),
                 Is(lambda x, w: x == (True, True))),
    "data_ptr as a number": (lambda w: w.data_ptr() + 1, Says(("unsupported operand",))),
    "data_ptr on meta": (lambda w: w.to("meta").data_ptr(), Is(lambda x, w: x == 0)),
    "untyped_storage": (lambda w: w.untyped_storage(), NO_MEMORY),
    "untyped_storage().share_memory_": (lambda w: w.untyped_storage().share_memory_(), NO_MEMORY),
    "storage().data_ptr": (lambda w: w.storage().data_ptr(), NO_MEMORY),
    "storage_type": (lambda w: w.storage_type(), NO_MEMORY),
    "storage_offset": (lambda w: w.storage_offset(), DENSE),
    "t.set_(p.storage)": (
        lambda w: torch.zeros(3).set_(w.untyped_storage(), 0, (3,)).sum(), NO_MEMORY),
    "set_": (lambda w: w.set_(), NO_CHANGE),
    "set_(t)": (lambda w: w.set_(torch.zeros(3)), NO_CHANGE),
    "set_(storage)": (lambda w: w.set_(torch.zeros(3).untyped_storage()), NO_CHANGE),
    "resize_": (lambda w: w.resize_(3, 3), NO_CHANGE),
    "resize_as_": (lambda w: w.resize_as_(torch.zeros(3)), NO_CHANGE),
    "resize_ to its own shape": (lambda w: w.resize_(*w.shape), Is(lambda x, w: same_parts(x, w))),
    "element_size": (lambda w: w.numel() * w.element_size() == w.stored_bytes,
                     Is(lambda x, w: x)),
    "element_size, from the right": (lambda w: w.element_size() * w.numel(),
                                     Is(lambda x, w: type(x) is int and x == w.stored_bytes)),
    "nbytes": (attribute("nbytes"), Is(lambda x, w: x == w.stored_bytes)),
    "itemsize": (lambda w: w.itemsize == w.element_size(), Is(lambda x, w: x)),
    "is_pinned": (lambda w: w.is_pinned(), DENSE),
    "share_memory_": (lambda w: (w.is_shared(), w.share_memory_().is_shared(), w),
                      Is(lambda x, w: x[:2] == (False, True) and same_parts(x[2], w))),
    "a queue of processes": (queued, PARAMETER),
    # other libraries' arrays
    "numpy": (lambda w: w.numpy(), DENSE),
    "numpy(force=True)": (lambda w: w.numpy(force=True), DENSE),
    "numpy, written to": (lambda w: w.numpy().fill(0), Says(("read-only",))),
    "numpy.asarray": (lambda w: np.asarray(w), DENSE),
    "numpy.asarray(dtype=)": (lambda w: np.asarray(w, dtype="float64"), DENSE),
    "numpy.asarray(copy=False)": (lambda w: w.__array__(copy=False), Says(("copy=False",))),
    "tolist": (lambda w: w.tolist(), DENSE),
    "torch.from_dlpack": (torch.from_dlpack, NO_MEMORY),
    "numpy.from_dlpack": (lambda w: np.from_dlpack(w), NO_MEMORY),
    "to_dlpack": (torch.utils.dlpack.to_dlpack, Says(("data pointer",))),
    "frombuffer": (lambda w: torch.frombuffer(w, dtype=torch.float32), Says(("buffer",))),
    # comparisons
    "torch.equal": (lambda w: (torch.equal(w, w.clone()), torch.equal(w, w + 1)), DENSE),
    "torch.allclose": (lambda w: torch.allclose(w, w + 1e-9), DENSE),
    "isclose": (lambda w: torch.isclose(w, w), DENSE),
    "assert_close": (lambda w: torch.testing.assert_close(w, w.clone()), DENSE),
    "==": (lambda w: w == w.clone(), DENSE),
    "in": (lambda w: 1e9 in w, DENSE),
    "len": (len, DENSE),
    "iteration": (lambda w: list(w)[1] + 0, DENSE),
    "bool": (bool, Says(("ambiguous",))),
    # gradients and hooks
    "grad": (attribute("grad"), DENSE),
    "grad =": (lambda w: with_grad(w).grad, DENSE),
    "deepcopy with grad": (
        lambda w: copy.deepcopy(with_grad(w)).grad, DENSE),
    "requires_grad_": (lambda w: w.requires_grad_(), NO_TRAINING),
    "requires_grad_(False)": (lambda w: w.requires_grad_(False), PARAMETER),
    "register_hook": (lambda w: w.register_hook(print), TORCH_SAYS_NO_GRADIENT),
    "register_post_accumulate_grad_hook": (
        lambda w: w.register_post_accumulate_grad_hook(print), TORCH_SAYS_NO_GRADIENT),
    "retain_grad": (lambda w: w.retain_grad(), TORCH_SAYS_NO_GRADIENT),
    "backward": (lambda w: w.sum().backward(), TORCH_SAYS_NO_GRADIENT),
    "is_leaf": (lambda w: (w.is_leaf, w.grad_fn, w._base), DENSE),
    # modules, optimizers, utilities
    "swap_tensors": (swapped, Is(lambda x, w: float(x[0]) == 0.0 and parameter(x[1], w))),
    "an attribute": (lambda w: (setattr(w, "mark", 7), copy.deepcopy(w).mark)[1],
                     Is(lambda x, w: x == 7)),
    "an optimizer without gradients": (
        lambda w: (torch.optim.AdamW([w]).step(), w)[1], PARAMETER),
    "clip_grad_norm_": (lambda w: nn.utils.clip_grad_norm_([w], 1.0), DENSE),
    "parameters_to_vector": (lambda w: nn.utils.parameters_to_vector([w]), DENSE),
    "flattened together": (  # as deepspeed keeps parameters
        lambda w: _flatten_dense_tensors([w, torch.ones(3)]), DENSE),
    "flattened and back": (lambda w: flattened_and_back(w), PARAMETER),
    "vector_to_parameters": (
        lambda w: (nn.utils.vector_to_parameters(0 * nn.utils.parameters_to_vector([w]), [w]),
                   w.sum())[1], DENSE),
    "AveragedModel": (lambda w: AveragedModel(Holder(w)).module.weight, PARAMETER),
    "functional_call": (
        lambda w: torch.func.functional_call(Holder(w * 0), {"weight": w}, ()), DENSE),
    "vmap": (lambda w: torch.vmap(lambda row: row.sum())(w.flatten(1)), DENSE),
    "fake": (lambda w: torch._subclasses.FakeTensorMode().from_tensor(w).shape, DENSE),
    "apply_": (lambda w: (w.apply_(lambda x: 0.0), w)[1].sum(), DENSE),
    "map_": (lambda w: w.map_(w.clone(), lambda x, y: 0.0).sum(), DENSE),
    "repr": (repr, Is(lambda x, w: type(w).__name__ in x)),
    "hash": (lambda w: hash(w) == id(w), DENSE),
}  # fmt: skip


def problem(kind: str, name: str) -> str:
    """What is wrong about a call; empty when nothing is."""
    call, wanted = TABLE[name]
    weight, before = module(kind).weight, module(kind).weight
    try:
        found = call(weight)
    except Exception as error:
        if not isinstance(wanted, Says):
            return "".join(traceback.format_exception(error)[-3:])
        missing = [word for word in wanted.words if word not in str(error)]
        return f"says {str(error)!r}, without {missing}" if missing else ""
    if isinstance(wanted, Says):
        return f"gives {short(found)} where a sentence with {wanted.words} was due"
    if isinstance(wanted, Is):
        return "" if wanted.right(found, before) else f"gives {short(found)}"
    dense = before.dequantize().contiguous()
    expected = call(nn.Parameter(dense, requires_grad=False))
    if alike(found, expected):
        return ""
    return f"gives {short(found)}, the dense value {short(expected)}"


def short(x: Any) -> str:
    return " ".join(repr(x).split())[:200]


def alike(found: Any, expected: Any) -> bool:
    if isinstance(expected, Tensor):
        return type(found) in (Tensor, nn.Parameter) and torch.equal(found, expected)
    if isinstance(expected, np.ndarray):
        return found.dtype == expected.dtype and np.array_equal(found, expected)
    return bool(found == expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", MODULES)
def test_what_others_do(kind: str) -> None:
    """All calls in a child: it tells which one it is at, so that the last is the one it died of."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # OpenMP's threads are not there after a fork
        os.close(read)
        with os.fdopen(write, "w") as told:
            for name in TABLE:
                print(f"\0{name}", file=told, flush=True)
                print(f"\1{problem(kind, name)}", file=told, flush=True)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        calls = told.read().split("\0")[1:]
    _, status = os.waitpid(child, 0)
    answers = {name.strip(): answer for name, _, answer in (x.partition("\1") for x in calls)}
    assert status == 0, f"the process ended with {status} in {list(answers)[-1]!r}"
    assert answers.keys() == TABLE.keys()
    wrong = {name: answer.strip() for name, answer in answers.items() if answer.strip()}
    assert not wrong, "\n".join(f"{name}: {answer}" for name, answer in wrong.items())
