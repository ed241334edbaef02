"""Calibration runs models and blocks many times, and no run may see what another left behind: the
weights are those of a model that leaves nothing behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support import decoders
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.quantization import methods
from mixed_gemm.quantization.state import Runs, State, fresh, same

transformers = pytest.importorskip("transformers")

T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
}  # fmt: skip
GRIFFIN = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "lru_width": 32, "attention_window_size": 16,
}  # fmt: skip
MAMBA2 = {
    "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 16,
    "n_groups": 1, "chunk_size": 8,
}  # fmt: skip


class Own(nn.Module):
    """A language model inside a module that has no configuration."""

    def __init__(self, inner: nn.Module, **options: Any) -> None:
        super().__init__()
        self.inner, self.options = inner, options

    def forward(self, **batch: Any) -> Any:
        return self.inner(**batch, **self.options)


def built(kind: str, options: dict[str, Any]) -> Any:
    config = getattr(transformers, kind.split("For")[0] + "Config")
    return getattr(transformers, kind)(config(vocab_size=100, **options))


def llama() -> Any:
    return decoders.decoder(layers=2)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "T5": lambda: built("T5ForConditionalGeneration", {**T5, "decoder_start_token_id": 0}),
    "UMT5": lambda: built("UMT5ForConditionalGeneration", {**T5, "decoder_start_token_id": 0}),
    "BART": lambda: built("BartForConditionalGeneration", BART),
    "RecurrentGemma": lambda: built("RecurrentGemmaForCausalLM", GRIFFIN),
    "Mamba2": lambda: built("Mamba2ForCausalLM", MAMBA2),
    "Llama": llama,
    "own": lambda: Own(llama()),
    "own twice": lambda: Own(Own(llama())),
}


def batches(model: nn.Module, **more: Any) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(5)
    found = [{"input_ids": torch.randint(3, 90, (2, 8), generator=generator)} for _ in range(2)]
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        for batch in found:
            batch["decoder_input_ids"] = torch.randint(3, 90, (2, 5), generator=generator)
    return [{**batch, **more} for batch in found]


def configured(model: nn.Module, use_cache: bool) -> nn.Module:
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "use_cache"):
            config.use_cache = use_cache  # type: ignore[union-attr]
    return model


def weights(model: nn.Module, data: Any, method: Any, **options: Any) -> dict[str, Tensor]:
    options = {"bits": 4, "group_size": 16, **options}
    mixed_gemm.quantize_(model, method=method, calibration=data, progress=False, **options)
    return {
        name: module.weight.dequantize(torch.float32)
        for name, module in model.named_modules()
        if isinstance(module, mixed_gemm.Linear)
    }


def assert_alike(mine: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert mine and list(mine) == list(wanted)
    assert [name for name in wanted if not torch.equal(mine[name], wanted[name])] == []


BY_BLOCKS = [methods.GPTQ(passes=0), methods.AWQ(), methods.AutoRound(steps=3)]


@pytest.mark.parametrize(
    ("kind", "method"),
    [(kind, BY_BLOCKS[0]) for kind in MODELS]
    + [(kind, method) for kind in ("UMT5", "own") for method in BY_BLOCKS[1:]],
    ids=str,
)
def test_keys_and_values_of_other_runs_are_not_seen(kind: str, method: Any) -> None:
    found = []
    for cached, more in ((False, {}), (True, {}), (True, {"use_cache": True})):
        torch.manual_seed(0)
        model = configured(MODELS[kind]().eval(), cached)
        found.append(weights(model, batches(model, **more), method))
        assert all(
            module.config.use_cache is cached
            for module in model.modules()
            if hasattr(getattr(module, "config", None), "use_cache")
        )
    assert_alike(found[1], found[0])
    assert_alike(found[2], found[0])


WAYS: dict[str, dict[str, Any]] = {
    "distilled": {"method": methods.Distilled(methods.GPTQ(passes=0), steps=4)},
    "average": {"method": None, "average_bits": 5},
    "smoothquant": {"method": "smoothquant+gptq", "scheme": "w8a8", "bits": None},
    "static": {
        "method": None, "scheme": "w8a8", "bits": None, "activations": "static",
    },
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["T5", "RecurrentGemma"])
def test_every_way_to_calibrate_starts_from_nothing(kind: str, way: str) -> None:
    found = []
    for cached in (False, True):
        torch.manual_seed(0)
        model = configured(MODELS[kind]().eval(), cached)
        options = dict(WAYS[way])
        if "scheme" in options:
            options["group_size"] = None
        found.append(weights(model, batches(model), options.pop("method"), **options))
    assert_alike(found[1], found[0])


def test_a_model_that_asks_for_a_cache_itself() -> None:
    wanted = weights(Own(llama(), use_cache=False), batches(llama()), BY_BLOCKS[0])
    mine = weights(Own(llama(), use_cache=True), batches(llama()), BY_BLOCKS[0])
    assert_alike(mine, wanted)


@pytest.mark.parametrize("kind", ["DynamicCache", "StaticCache"])
def test_a_cache_in_a_batch_is_the_same_for_every_run(kind: str) -> None:
    """Three tokens are in it before; those who read them as part of the text compute the same."""
    model = llama()
    text = batches(model)[0]["input_ids"]
    caches = []
    for _ in range(2):
        options = {"config": model.config} | ({"max_cache_len": 16} if "Static" in kind else {})
        cache = getattr(transformers, kind)(**options)
        with torch.no_grad():
            model(text[:, :3], past_key_values=cache)
        caches.append(cache)
    data = [{"input_ids": text[:, 3:], "past_key_values": cache} for cache in caches]
    with torch.no_grad():
        wanted = model(**fresh(data[0])).logits
    seen: list[Tensor] = []
    model.register_forward_hook(lambda module, args, out: seen.append(out.logits))
    mixed_gemm.quantize_(
        model, "w8a8", activations="static", calibration=[*data, *data], progress=False
    )
    assert len(seen) == 4 and all(torch.equal(x, wanted) for x in seen)
    model = llama()
    found = weights(model, data, BY_BLOCKS[0])
    assert [int(cache.get_seq_length()) for cache in caches] == [3, 3]
    assert_alike(weights(llama(), fresh(data), BY_BLOCKS[0]), found)


# --- modules that keep something themselves -----------------------------------------------------


class Keeper(nn.Module):
    """A block that adds to what it computes whatever earlier runs left behind; ``forgets``: the
    same of one that was never run before."""

    forgets = False

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.start()

    def start(self) -> None:
        pass

    def left(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        if self.forgets:
            self.start()
        return x + self.linear(x + self.left(x))


class KeepsABuffer(Keeper):
    """Running statistics that are written in eval mode, too."""

    def start(self) -> None:
        self.register_buffer("mean", torch.zeros(32))

    def left(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.5).add_(x.mean(0) / 2)
        return self.mean


class KeepsAnotherBuffer(Keeper):
    def start(self) -> None:
        self.register_buffer("mean", torch.zeros(32))

    def left(self, x: Tensor) -> Tensor:
        self.mean = self.mean + x.mean(0)
        return self.mean


class NormInTraining(Keeper):
    """A batch norm whose forward ignores the mode of the module."""

    def start(self) -> None:
        self.norm = nn.BatchNorm1d(32)

    def left(self, x: Tensor) -> Tensor:
        norm = self.norm
        nn.functional.batch_norm(x, norm.running_mean, norm.running_var, training=True)
        assert norm.running_mean is not None
        return norm.running_mean


class KeepsAList(Keeper):
    def start(self) -> None:
        self.past: list[Tensor] = []

    def left(self, x: Tensor) -> Tensor:
        self.past.append(x.mean(0))
        return torch.stack(self.past).sum(0)


class KeepsACount(Keeper):
    def start(self) -> None:
        self.count = 0

    def left(self, x: Tensor) -> Tensor:
        self.count += 1
        return torch.full((32,), float(self.count))


class KeepsSomethingNew(Keeper):
    """An attribute that the first run makes."""

    def start(self) -> None:
        self.__dict__.pop("last", None)

    def left(self, x: Tensor) -> Tensor:
        last = getattr(self, "last", x)
        self.last = x + 1
        return last


class Memory:
    def __init__(self) -> None:
        self.rows = torch.zeros(32)


class KeepsAnObject(Keeper):
    def start(self) -> None:
        self.memory = Memory()

    def left(self, x: Tensor) -> Tensor:
        self.memory.rows += x.mean(0)
        return self.memory.rows


class KeepsACache(Keeper):
    """Keys of transformers' static cache as the memory."""

    def start(self) -> None:
        config = transformers.LlamaConfig(
            num_hidden_layers=1, hidden_size=32, num_attention_heads=1, num_key_value_heads=1
        )
        self.cache = transformers.StaticCache(config, max_cache_len=512)

    def left(self, x: Tensor) -> Tensor:
        keys, _ = self.cache.update(x.mean(0)[None, None, None], x.mean(0)[None, None, None], 0)
        return keys.sum((0, 1, 2))


class WritesToItsArgument(Keeper):
    def left(self, x: Tensor) -> Tensor:
        return x if self.forgets else x.add_(0)

    def forward(self, x: Tensor) -> Tensor:
        if self.forgets:
            x = x.clone()
        x.mul_(1.5)
        return x + self.linear(x)


KEEPERS = [
    KeepsABuffer, KeepsAnotherBuffer, NormInTraining, KeepsAList, KeepsACount, KeepsSomethingNew,
    KeepsAnObject, KeepsACache, WritesToItsArgument,
]  # fmt: skip


class Stack(nn.Module):
    def __init__(self, kind: type[Keeper]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(kind() for _ in range(3))
        self.head = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def rows() -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(24, 32, generator=generator) for _ in range(3)]


@pytest.mark.parametrize(
    "options",
    [
        *({"method": method} for method in BY_BLOCKS),
        {"method": None, "scheme": "w8a8", "bits": None, "group_size": None, "smooth": 0.5},
        {"method": None, "average_bits": 5},
    ],
    ids=["gptq", "awq", "autoround", "smooth", "average"],
)
@pytest.mark.parametrize("kind", KEEPERS)
def test_what_modules_keep_is_not_seen(kind: Any, options: dict[str, Any]) -> None:
    forgetful = type("Forgetful", (kind,), {"forgets": True})
    data, model = rows(), Stack(kind).eval()
    found = weights(model, data, **{"skip": (), **options})
    assert_alike(found, weights(Stack(forgetful).eval(), rows(), **{"skip": (), **options}))
    assert all(torch.equal(mine, given) for mine, given in zip(data, rows(), strict=True))


@pytest.mark.parametrize("kind", KEEPERS)
def test_the_model_keeps_what_it_had(kind: Any) -> None:
    """The caller's own objects, as they were, and random numbers go on as if nothing had run."""
    model = Stack(kind).eval()
    model(rows()[0].clone())
    block = model.blocks[1]
    held = {**block.__dict__, **block._buffers}
    before, numbers = fresh(held), torch.get_rng_state()
    with torch.no_grad(), Runs(model) as runs:
        for batch in rows():
            runs(batch)
    after = {**block.__dict__, **block._buffers}
    assert list(after) == list(held) and all(after[x] is held[x] for x in held)
    assert same(before["_buffers"], held["_buffers"])
    assert all(same(before[x], held[x]) for x in held if x in ("past", "count", "last", "memory"))
    assert torch.equal(torch.get_rng_state(), numbers)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = torch.Generator().manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        own = torch.rand(3, generator=self.own)
        return x + torch.rand(3) + random.random() + np.random.rand() + own


def test_random_numbers_are_the_same_in_every_run() -> None:
    model = Noisy()
    with Runs(model) as runs:
        outputs = [runs(torch.zeros(3)) for _ in range(3)]
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2])
    assert not torch.equal(model(torch.zeros(3)), model(torch.zeros(3)))


class ScalesOnce(nn.Module):
    """The first run scales the weight and notes that it did, as RWKV does."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.is_scaled = nn.Linear(32, 32), False

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_scaled:
            with torch.no_grad():
                self.linear.weight.div_(2)
            self.is_scaled = True
        return self.linear(x)


def test_weights_that_the_first_run_writes_stay_written() -> None:
    model, wanted = ScalesOnce(), ScalesOnce().linear.weight / 2
    with Runs(model) as runs:
        for batch in rows():
            runs(batch)
    assert model.is_scaled and torch.equal(model.linear.weight, wanted)
    model = ScalesOnce()
    weights(model, rows(), None, average_bits=8)
    error = (model.linear.weight.dequantize(torch.float32) - wanted).abs().max()
    assert error < 0.01 and model.is_scaled


def test_lists_that_blocks_share_stay_shared() -> None:
    first, second = nn.Module(), nn.Module()
    first.seen = second.seen = [torch.zeros(2)]
    with State([first, second]) as state:
        for _ in range(2):
            with state.run():
                first.seen.append(torch.ones(2))
                assert second.seen is first.seen and len(second.seen) == 2
    assert len(first.seen) == 1 and first.seen is second.seen


def test_copies_have_the_strides_of_what_is_copied() -> None:
    base = torch.arange(24.0).view(4, 6)
    given = {
        "expanded": base[:1].expand(5, 6), "columns": base[:, 1:4], "turned": base.t(),
        "empty": base[:0], "scalar": torch.tensor(2.0), "same": base,
    }  # fmt: skip
    found = fresh(given)
    for name, tensor in given.items():
        assert torch.equal(found[name], tensor) and found[name].stride() == tensor.stride(), name
        assert tensor.numel() == 0 or found[name].data_ptr() != tensor.data_ptr()
    pair = fresh([base, (base, {"x": base}), nn.Linear(2, 2)])
    assert pair[0] is pair[1][0] is pair[1][1]["x"] and pair[0] is not base


def test_what_is_shared_and_what_is_copied() -> None:
    module, config = nn.Linear(2, 2), transformers.LlamaConfig()
    given = [module, module.forward, config, torch.float16, torch.nn.functional.gelu, module.weight]
    assert all(mine is its for mine, its in zip(fresh(given)[:3:2], given[:3:2], strict=True))
    assert fresh(given)[5] is module.weight and fresh(given)[3] is torch.float16
    assert fresh(given)[1].__self__ is module
    assert same(fresh(Memory()), Memory()) and not same(Memory(), object())
    assert not same([torch.zeros(2)], [torch.ones(2)]) and not same({"a": 1}, {"b": 1})
    assert not same(torch.zeros(2), torch.zeros(2, dtype=torch.int32)) and not same([1], [1, 2])


@pytest.mark.parametrize(
    "options",
    [
        {"method": "gptq"},
        {"method": methods.Distilled(methods.GPTQ(passes=0), steps=2)},
        {"average_bits": 5},
        {"scheme": "w8a8", "group_size": None, "activations": "static"},
        {"evaluate": torch.arange(40), "calibration": None},
    ],
    ids=["gptq", "distilled", "average", "static", "evaluate"],
)
def test_every_module_keeps_its_mode(options: dict[str, Any]) -> None:
    """Some are in training and some are not, and dropout is never drawn."""
    found = []
    for training in (False, True):
        model = llama().train(training)
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.5
        model.model.layers[1].eval()
        modes = {name: module.training for name, module in model.named_modules()}
        options = {"group_size": 16, "calibration": batches(model), "progress": False, **options}
        report = mixed_gemm.quantize_(model, **options)
        after = {name: module.training for name, module in model.named_modules()}
        assert {x: after[x] for x in modes if x not in report.quantized} == {
            x: modes[x] for x in modes if x not in report.quantized
        }
        found.append(decoders.logits(model.eval()))
    assert torch.equal(found[0], found[1])


def test_attributes_that_cannot_be_copied_stay() -> None:
    import threading

    model = nn.Linear(2, 2)
    model.lock, model.past = [threading.Lock()], [torch.zeros(2)]
    lock = model.lock[0]
    with Runs(model) as runs:
        runs(torch.zeros(2))
        assert model.lock[0] is lock
        model.past.append(torch.ones(2))
        runs(torch.zeros(2))
        assert len(model.past) == 1
    assert model.lock[0] is lock


def test_handles_of_hooks_stay_those_of_the_hooks() -> None:
    """A copy of one knows no dictionary any more, and cannot be copied again or removed."""
    model = nn.Linear(2, 2)
    model.handles = [model.register_forward_hook(lambda module, args, output: output + 1)]
    with Runs(model) as runs:
        for _ in range(2):
            runs(torch.zeros(2))
    model.handles[0].remove()
    assert not model._forward_hooks
