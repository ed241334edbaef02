"""While ``quantize_`` calibrates, every layer reads what it would read in the model whose earlier
units are rounded, bit for bit: compared with plain runs of copies of that model.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mixed_gemm
from mixed_gemm.quantization import methods

transformers = pytest.importorskip("transformers")

from support import architectures, pages, plain_runs  # noqa: E402

import tools.pages.architectures as page_of_all  # noqa: E402

CHAINED, CAPTURED, WHOLE = "units before", "own forward gives", "own forward runs"


def assert_ways(found: dict[str, str], wanted: dict[str, str]) -> None:
    assert {name: next(x for x in (CHAINED, CAPTURED, WHOLE) if x in way)
            for name, way in found.items()} == wanted  # fmt: skip


# --- models of one's own ------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x: Tensor, *others: Any, scale: Tensor | float = 1.0, **named: Any) -> Any:
        for other in (*others, *named.values()):
            x = x + other
        return x + torch.relu(self.linear(self.norm(x)) * scale)


class Blocks(nn.Module):
    """The forward is what each of the models below has of its own."""

    kind: Any = Block

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(self.kind() for _ in range(3))
        self.mix, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class ByName(Blocks):
    """Called by names, with a number and something of the batch; a tuple is returned."""

    class kind(Block):
        def forward(self, *, states: Tensor, **named: Any) -> Any:  # type: ignore[override]
            return super().forward(states, **named), None, "more"

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        for i, block in enumerate(self.blocks):
            x = block(states=x, scale=torch.full((1,), i + 1.0), bias=x.new_zeros(16) + i)[0]
        return self.head(x)


class SideResults(Blocks):
    """The first block makes what the others take, too."""

    class kind(Block):
        def forward(self, x: Tensor, bias: Tensor | None = None) -> Any:  # type: ignore[override]
            bias = torch.tanh(self.linear(x)) if bias is None else bias
            return super().forward(x, bias), bias

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        bias = None
        for block in self.blocks:
            x, bias = block(x, bias)
        return self.head(x)


class Reversed(Blocks):
    def forward(self, x: Tensor, **more: Tensor) -> Any:
        for i in (2, 0, 1):
            x = self.blocks[i](x)
        return self.head(x)


class Twice(Blocks):
    """A tower for two texts: every block runs twice, on its own."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        pair = []
        for start in (x, x.flip(-1)):
            for block in self.blocks:
                start = block(start)
            pair.append(start)
        return self.head(pair[0] * pair[1])


class Repeated(Blocks):
    """The same blocks over what they made of it."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        for block in (*self.blocks, *self.blocks):
            x = block(x)
        return self.head(x)


class SameBlock(Blocks):
    def __init__(self) -> None:
        super().__init__()
        self.blocks[2] = self.blocks[0]


class SameLayer(Blocks):
    def __init__(self) -> None:
        super().__init__()
        self.blocks[2].linear = self.blocks[0].linear


class ForSomeBatches(Blocks):
    """Which blocks run is up to the batch."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        x = self.blocks[0](x)
        if len(x) > 3:
            x = self.blocks[1](x)
        return self.head(self.blocks[2](x))


class UpToTheData(Blocks):
    """Whether a block runs is up to what the one before returns."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        x = self.blocks[0](x)
        if bool(x.sum() > 0):
            x = self.blocks[1](x)
        return self.head(self.blocks[2](x))


class Features(Blocks):
    """The head reads what all blocks return."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        every = []
        for block in self.blocks:
            every.append(x := block(x))
        return self.head(torch.stack(every).mean(0))


class UNet(Blocks):
    """Something is computed between blocks, and a later block takes what an early one returned."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        first = self.blocks[0](x)
        second = self.blocks[1](torch.nn.functional.avg_pool1d(first, 2).repeat(1, 2))
        return self.head(self.blocks[2](second, first))


class WrittenBetween(Blocks):
    """What a block returns is written to before the next one takes it."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
            x.add_(1)
        return self.head(x)


class WrittenBehindTorch(Blocks):
    def forward(self, x: Tensor, **more: Tensor) -> Any:
        for block in self.blocks:
            x = block(x)
            x.data.mul_(1.5)
        return self.head(x)


class TellsByAttribute(Blocks):
    """A block leaves something in itself that the model reads."""

    class kind(Block):
        def forward(self, x: Tensor) -> Any:  # type: ignore[override]
            out = super().forward(x)
            self.seen = out.mean()
            return out

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        scale: Any = 1.0
        for block in self.blocks:
            x = block(x) * scale
            scale = block.seen
        return self.head(x)


class TellsByNumber(Blocks):
    """What the model computes between blocks goes through a number of Python."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        start = x
        for block in self.blocks:
            x = block(x, start * float(x.mean()))
        return self.head(x)


class TellsByList(Blocks):
    def forward(self, x: Tensor, **more: Tensor) -> Any:
        start = x
        for block in self.blocks:
            x = block(x, start * torch.tensor(x.mean(0).tolist()).mean())
        return self.head(x)


class Collects(Blocks):
    """Blocks add to a list that they are given."""

    class kind(Block):
        def forward(self, x: Tensor, past: list[Tensor]) -> Any:  # type: ignore[override]
            out = super().forward(x, *past)
            past.append(out / 2)
            return out

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        past: list[Tensor] = []
        for block in self.blocks:
            x = block(x, past)
        return self.head(x)


class LayersBetween(Blocks):
    """A layer in no block comes first, and between blocks."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        x = self.mix(x)
        for block in self.blocks:
            x = self.mix(block(x))
        return self.head(x)


class Mask(Blocks):
    """A mask that the model makes of the batch, in place, in views."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        mask = torch.zeros(len(x), 16)
        mask[:, ::2] = more["bias"].sum()
        mask.view(-1)[:3].fill_(2)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


class Random(Blocks):
    """Numbers that are drawn between blocks."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        noise = torch.rand(16)
        for block in self.blocks:
            x = block(x, noise)
        return self.head(x + torch.rand(16))


class RandomBlocks(Blocks):
    class kind(Block):
        def forward(self, x: Tensor) -> Any:  # type: ignore[override]
            return super().forward(x, torch.rand(16))


class PastTheHooks(Blocks):
    def forward(self, x: Tensor, **more: Tensor) -> Any:
        for block in self.blocks:
            x = block.forward(x)
        return self.head(x)


class LayerOutside(Blocks):
    """The model calls a layer of a block by itself, too."""

    def forward(self, x: Tensor, **more: Tensor) -> Any:
        return super().forward(self.blocks[1].linear(x))


def _ways(*ways: str) -> dict[str, str]:
    return {f"blocks.{i}": way for i, way in enumerate(ways)}


REST = "the rest of the model"
LAST = {REST: WHOLE}
ALL = {**_ways(CHAINED, CHAINED, CHAINED), **LAST}
LATER = {**_ways(CHAINED, CAPTURED, CAPTURED), **LAST}
FIRST = {REST: WHOLE, **_ways(CAPTURED, CAPTURED, CAPTURED), f"{REST}, part 2": WHOLE}
OWN: dict[type[Blocks], dict[str, str]] = {
    Blocks: ALL,
    ByName: ALL,
    SideResults: ALL,
    Reversed: ALL,
    Twice: ALL,
    Repeated: {**_ways(CAPTURED, CAPTURED, CAPTURED), **LAST},
    SameBlock: {"blocks.0": CAPTURED, "blocks.1": CAPTURED, **LAST},
    SameLayer: {**_ways(WHOLE, CAPTURED), **LAST},
    ForSomeBatches: ALL,
    UpToTheData: LATER,
    Features: ALL,
    UNet: {**_ways(CHAINED, CAPTURED, CHAINED), **LAST},
    WrittenBetween: LATER,
    WrittenBehindTorch: LATER,
    TellsByAttribute: LATER,
    TellsByNumber: LATER,
    TellsByList: LATER,
    Collects: LATER,
    LayersBetween: FIRST,
    Mask: ALL,
    Random: ALL,
    RandomBlocks: {**_ways(WHOLE, WHOLE, WHOLE), **LAST},
    PastTheHooks: {**_ways(WHOLE, WHOLE, WHOLE), **LAST},
    LayerOutside: {},
}


def rows() -> list[dict[str, Tensor]]:
    """Of several forms."""
    generator = torch.Generator().manual_seed(2)
    sizes = (2, 5, 2, 9)
    return [
        {"x": torch.randn(n, 16, generator=generator), "bias": torch.rand(16, generator=generator)}
        for n in sizes
    ]


@pytest.mark.parametrize("kind", OWN)
def test_layers_read_what_the_model_gives_them(kind: type[Blocks]) -> None:
    found = plain_runs.calibrated(kind().eval(), rows())
    if OWN[kind]:
        assert_ways(found, OWN[kind])


# --- transformers -------------------------------------------------------------------------------

# A few of each kind and each way, among those that take a second or two; the tool that writes the
# page walks over all of them.
FEW = (
    "falcon", "gpt2", "bloom", "opt", "mpt", "gemma2", "phi3", "mistral", "llama", "qwen2",
    "mixtral", "rwkv", "mamba", "gpt_neox", "bert", "electra", "albert", "ctrl", "xlm", "t5",
    "umt5", "bart", "whisper", "vit", "swin", "segformer", "dpt", "wav2vec2", "llava", "clip",
)  # fmt: skip


def _row_of(name: str) -> str:
    """How the page says that the blocks of an architecture are calibrated; empty where it does not
    name it."""
    text = pages.text("docs/calibration.md")
    rows = [x.strip("|").split("|") for x in text.splitlines() if x.startswith("| ")]
    return next((x[0].strip() for x in rows if name in x[-1].strip().split(", ")), "")


def checked(name: str) -> None:
    found = page_of_all.found(name, architectures.names()[name])
    assert "wrong" not in found
    assert _row_of(name) == page_of_all.WAYS.get(found.get("way", ""), ""), found


@pytest.mark.parametrize("name", FEW)
def test_architectures_of_transformers(name: str) -> None:
    if name in architectures.names():
        checked(name)


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("MIXED_GEMM_ALL_ARCHITECTURES"), reason="half an hour")
def test_every_architecture_of_transformers() -> None:
    for name in architectures.names():
        checked(name)


def models() -> dict[str, Callable[[], tuple[Any, list[dict[str, Any]]]]]:
    """Tiny models of several kinds, whose sizes fit every method."""

    def t5() -> Any:
        config = transformers.T5Config(
            vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
            decoder_start_token_id=0,
        )  # fmt: skip
        return transformers.T5ForConditionalGeneration(config), ("input_ids", "decoder_input_ids")

    def llava() -> Any:
        vision = transformers.CLIPVisionConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
            image_size=16, patch_size=8,
        )  # fmt: skip
        text = transformers.LlamaConfig(
            vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2,
        )  # fmt: skip
        config = transformers.LlavaConfig(
            vision_config=vision, text_config=text, image_token_id=90, vision_feature_layer=-2
        )
        return transformers.LlavaForConditionalGeneration(config), ("picture",)

    def dpt() -> Any:
        config = transformers.DPTConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
            image_size=32, patch_size=8, backbone_out_indices=[0, 1, 2, 3],
            neck_hidden_sizes=[16, 32, 32, 32], fusion_hidden_size=32, is_hybrid=False,
            reassemble_factors=[4, 2, 1, 0.5],
        )  # fmt: skip
        return transformers.DPTForDepthEstimation(config), ("pixel_values",)

    def albert() -> Any:
        config = transformers.AlbertConfig(
            vocab_size=99, hidden_size=32, embedding_size=16, intermediate_size=64,
            num_hidden_layers=3, num_attention_heads=4,
        )  # fmt: skip
        return transformers.AlbertModel(config), ("input_ids",)

    def made(make: Any) -> Any:
        torch.manual_seed(0)
        model, names = make()
        generator = torch.Generator().manual_seed(4)
        every = []
        for i in range(2):
            values = architectures._values(i, generator)
            values["input_ids"][:, :4] = 90
            if names == ("picture",):
                batch = {"input_ids": values["input_ids"][:1] % 90}
                batch["input_ids"][:, 1:5] = 90
                batch["pixel_values"] = values["pixel_values"][:1, :, :16, :16].contiguous()
            else:
                batch = {name: values[name] for name in names}
            every.append(batch)
        return model.eval(), every

    return {
        make.__name__: lambda make=make: made(make)  # type: ignore[misc]
        for make in (t5, llava, dpt, albert)
    }


BY_BLOCKS = [
    methods.GPTQ(passes=0), methods.AWQ(), methods.AWQ(then=methods.GPTQ(passes=0)),
    methods.AutoRound(steps=2),
]  # fmt: skip


@pytest.mark.parametrize("method", BY_BLOCKS, ids=str)
@pytest.mark.parametrize("kind", ["t5", "llava", "dpt", "albert"])
def test_by_every_method_that_goes_by_blocks(kind: str, method: Any) -> None:
    model, batches = models()[kind]()
    assert plain_runs.calibrated(model, batches, method)


OBSERVING: dict[str, dict[str, Any]] = {
    "smoothquant": {"scheme": "w8a8", "method": "smoothquant"},
    "static": {"scheme": "w8a8", "activations": "static"},
    "average": {"group_size": 16, "average_bits": 5},
}


@pytest.mark.parametrize("way", OBSERVING)
@pytest.mark.parametrize("kind", ["t5", "llava", "dpt", "albert"])
def test_methods_that_observe_the_model(kind: str, way: str) -> None:
    """Every linear reads what it reads in the dense model, once for each batch. Averages that an
    output head has a part in look at the model again then, with rounded layers."""
    model, batches = models()[kind]()
    names = sorted(plain_runs.reached(model, batches))
    wanted = plain_runs.read_in(model, names, batches)
    layers = {name: model.get_submodule(name) for name in names}
    transformers.set_seed(plain_runs.SEED)
    found: dict[str, list[Tensor]] = {name: [] for name in names}

    def watch(module: nn.Module, args: tuple[Any, ...]) -> None:
        name = next((x for x in names if layers[x] is module), None)
        if name is not None:
            found[name].append(args[0].clone())

    handle = nn.modules.module.register_module_forward_pre_hook(watch)
    try:
        mixed_gemm.quantize_(
            model, calibration=batches, progress=False, **OBSERVING[way],
            skip=lambda name, module: name not in names,
        )  # fmt: skip
    finally:
        handle.remove()
    if way == "average":
        found = {name: x[: len(wanted[name])] for name, x in found.items()}
    assert plain_runs.differences(found, wanted) == []
