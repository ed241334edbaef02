"""Mixtures have tens of thousands of linears: what is done for a linear must not depend on how many
others there are, and what is the same for all of them is done once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.many_calls import calls, growth
from support.tiny_models import registered, some, tiny_config
from torch import nn

import mixed_gemm
from mixed_gemm.formats.bnb_encode import are_told_apart
from mixed_gemm.formats.inside import is_inside
from mixed_gemm.integrations.transformers.pending import PendingLinear
from mixed_gemm.nn.followed import FollowsWeight
from mixed_gemm.weights.packed import PackedWeight

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")

EXPERTS, LINEARS = 8, 8 * 3 + 4  # of a layer
# Calls that functions of mixed_gemm make for a linear more in w4a16, to which a tenth was added.
MOST = {
    "quantize_": 1000,
    "save_pretrained": 510,
    "from_pretrained": 1550,
    "MixedGemmConfig": 870,
}


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


def mixture(layers: int = 1) -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, moe_intermediate_size=32,
        num_hidden_layers=layers, num_attention_heads=2, num_key_value_heads=2, head_dim=32,
        num_experts=EXPERTS, num_experts_per_tok=2,
    )  # fmt: skip
    return transformers.Qwen3MoeForCausalLM(config).to(torch.bfloat16)


def quantized(model: Any, scheme: str = "w4a16") -> Any:
    mixed_gemm.quantize_(model, scheme, group_size=32, progress=False)
    return model


def steps(layers: int, scheme: str, folder: Path) -> dict[str, Callable[[], Any]]:
    """Name -> what is done to a model in a folder, in this order."""
    model = mixture(layers)
    model.save_pretrained(folder / "dense")
    asked = mixed_gemm.MixedGemmConfig(group_size=32)
    return {
        "quantize_": lambda: quantized(model, scheme),
        "save_pretrained": lambda: model.save_pretrained(folder / "packed"),
        "from_pretrained": lambda: mixed_gemm.from_pretrained(folder / "packed"),
        "MixedGemmConfig": lambda: mixed_gemm.from_pretrained(
            folder / "dense", quantization_config=asked
        ),
    }


@pytest.mark.parametrize("scheme", ["w4a16", "nf4"])  # compressed-tensors, bitsandbytes
def test_calls_grow_as_the_number_of_linears_does(tmp_path: Path, scheme: str) -> None:
    counts = defaultdict[str, list[int]](list)
    for number, layers in enumerate((1, 1, 2, 3)):  # the first has to fill what is remembered
        for name, step in steps(layers, scheme, tmp_path / str(number)).items():
            counts[name].append(calls(step))
    found = {name: growth(found[1:]) for name, found in counts.items()}
    assert max(map(abs, found.values())) < 0.001, found
    each = {name: (found[3] - found[2]) / LINEARS for name, found in counts.items()}
    assert all(each[name] <= MOST[name] for name in each), each


def test_transformers_makes_a_renaming_for_each_tensor_that_is_written_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.core_model_loading import WeightTransform

    made, init = [], WeightTransform.__init__

    def count(self: Any, *args: Any, **kwargs: Any) -> None:
        made.append(self)
        init(self, *args, **kwargs)

    monkeypatch.setattr(WeightTransform, "__init__", count)
    model = quantized(mixture())
    assert len(made) < 40  # the conversions of the model, each time they are asked for
    made.clear()
    model.save_pretrained(tmp_path)
    tensors = 3 * LINEARS + len(mixture().state_dict())
    assert LINEARS < len(made) < tensors + 40


def test_codes_are_unpacked_once_for_all_linears_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked, before = [], PackedWeight.unpacked

    def count(self: Any, name: str = "") -> Any:
        unpacked.append(name)
        return before(self, name)

    monkeypatch.setattr(PackedWeight, "unpacked", count)
    quantized(mixture(2))
    shapes = {(32, 64), (64, 32), (64, 64)}  # of experts, and q, k, v and o
    assert len(unpacked) == len(shapes)


def test_zero_points_are_looked_at_in_each_linear(tmp_path: Path) -> None:
    """Those that are no integers are for this library alone, which the folder says of each."""
    model = mixture()
    mixed_gemm.quantize_(
        model,
        mixed_gemm.Scheme.weight_only(4, 32, "add"),
        skip=["experts", *mixed_gemm.quantization.names.DEFAULT_SKIP],
        progress=False,
    )
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight.zeros += 0.01
    model.save_pretrained(tmp_path)
    assert set(model.hf_quantizer.own) == {"model.layers.0.self_attn.k_proj"}


def test_a_linear_that_is_made_is_followed_once_for_its_weight_and_once_for_its_bias(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    followed, before = [], FollowsWeight.follow_weight

    def count(self: Any) -> None:
        followed.append(self)
        before(self)

    monkeypatch.setattr(FollowsWeight, "follow_weight", count)
    made = mixed_gemm.Linear.from_float(nn.Linear(64, 64), "w8a16")
    assert len(followed) == 3  # the weight; no bias, until it takes that of the dense one
    assert made.plain_bias is made.bias and made.plain_weight is not None
    followed.clear()
    made.bias = None
    assert len(followed) == 1 and made.plain_bias is None


def test_a_layer_is_described_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mixed_gemm.formats.compressed_tensors import CompressedTensors

    quantized(mixture()).save_pretrained(tmp_path)
    described, before = [], CompressedTensors.describe

    def count(self: Any, layer: Any) -> Any:
        described.append(layer.name)
        return before(self, layer)

    monkeypatch.setattr(CompressedTensors, "describe", count)
    mixed_gemm.from_pretrained(tmp_path)
    assert len(described) == len(set(described)) == LINEARS


def test_placeholders_are_let_go_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all tensors of the files are there until the last layer is packed."""
    import weakref

    quantized(mixture()).save_pretrained(tmp_path)
    waiting: list[weakref.ref[Any]] = []
    most, before = [0], PendingLinear.finish

    def finish(self: Any) -> Any:
        waiting.append(weakref.ref(self))
        most.append(sum(x() is not None for x in waiting))
        return before(self)

    monkeypatch.setattr(PendingLinear, "finish", finish)
    mixed_gemm.from_pretrained(tmp_path)
    assert len(waiting) == LINEARS and max(most) <= 2


class Looked(dict[str, int]):
    """Names, and how often one of them was looked up; nobody may go through all."""

    lookups = 0

    def __contains__(self, name: object) -> bool:
        self.lookups += 1
        return super().__contains__(name)

    def __iter__(self) -> Any:
        raise AssertionError("goes through all modules")


def test_the_module_of_a_tensor_is_looked_up() -> None:
    modules = Looked({f"layers.{i}.proj": i for i in range(1000)})
    assert is_inside("layers.999.proj.weight", modules) and modules.lookups <= 3
    assert not is_inside("layers.1000.proj.weight", modules) and modules.lookups <= 6
    assert not is_inside("layers.1.proj", modules)  # the module itself
    assert not is_inside("layers.1.projection.weight", modules)


class Name(str):
    """The name of a tensor, which counts the prefixes that it is tried against."""

    tried = 0

    def startswith(self, prefix: Any, *more: Any) -> bool:
        Name.tried += len(prefix) if isinstance(prefix, tuple) else 1
        return super().startswith(prefix, *more)


def test_tensors_of_a_model_are_not_tried_against_its_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mixed_gemm.integrations.transformers.saving import what_is_saved

    model = quantized(mixture())
    state = {Name(name): x for name, x in model.state_dict().items()}
    monkeypatch.setattr(model, "state_dict", lambda: dict(state))
    monkeypatch.setattr(Name, "tried", 0)
    what_is_saved(model)
    mixed_gemm.save_checkpoint(model, tmp_path / "packed")
    assert Name.tried <= 4 * len(state)


@pytest.mark.parametrize(
    ("dense", "are_apart"),
    [
        (["lm_head"], True),
        (["q_proj"], False),  # what ends in it
        (["model.layers.1"], False),  # what is inside of it
        (["model.layers.1.self_attn.q_proj"], False),
        (["model.layers.1.self_attn.q"], True),
        (["model_layers"], True),
        (["a.b"], False),  # its dots stand for any character, at the beginning of a name
        (["x.b"], True),
        ([], True),
    ],
)
def test_dense_linears_are_told_apart_as_transformers_matches_them(
    dense: Iterable[str], are_apart: bool
) -> None:
    layers = ["model.layers.1.self_attn.q_proj", "model.layers.10.mlp.up_proj", "a_b.c"]
    assert are_told_apart(layers, dense) is are_apart


@pytest.mark.filterwarnings("ignore")  # of what transformers says of odd configurations
def test_names_in_files_are_those_that_transformers_gives() -> None:
    from transformers.core_model_loading import revert_weight_conversion
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    from mixed_gemm.integrations.transformers.names import file_names

    renamed = refused = 0
    for _, config_class, model_class in some(registered(MODEL_MAPPING), 60):
        config, reason = tiny_config(model_class, config_class)
        if reason:
            continue
        with torch.device("meta"):
            model = model_class(config)
        linears = [name for name, x in model.named_modules() if isinstance(x, nn.Linear)]
        found = file_names(model, linears)
        if found is None:
            refused += 1
            continue
        marks = {
            f"{name}.{part}": torch.empty(1, device="meta")
            for name in linears
            for part in ("weight_scale", "weight", "bias")
        }
        again = {id(x): key for key, x in revert_weight_conversion(model, marks).items()}
        for name, given in found.items():
            assert again[id(marks[f"{name}.weight_scale"])] == f"{given}.weight_scale"
            renamed += name != given
    assert renamed
