"""Every argument of transformers' ``from_pretrained``: a quantized folder takes it as the dense one
with the same values does, through ``mixed_gemm.from_pretrained`` and through the Auto class.

Folders are made so that an argument which is not applied shows: the file has another name, lies
elsewhere, or the model says what it was given.
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._pytree import tree_map_only

import mixed_gemm
from mixed_gemm.formats import CheckpointError, open_checkpoint

transformers = pytest.importorskip("transformers", minversion="5.17", reason="optional: hf extra")
pytest.importorskip("accelerate", reason="optional: hf extra, for device_map")

IDS = torch.randint(3, 90, (2, 7), generator=torch.Generator().manual_seed(0))
SIZES: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}  # fmt: skip
OTHER_NAMES = {r"^transformer\.blocks": "model.layers"}
ON_DISK = {
    "model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk",
    "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu",
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(quantized, dense with the same values)."""
    root = tmp_path_factory.mktemp("arguments")
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()
    mixed_gemm.quantize_(model, "w4a16", group_size=32, progress=False)
    model.save_pretrained(root / "quantized")
    for name, module in list(model.named_modules()):
        if isinstance(module, mixed_gemm.Linear):
            model.set_submodule(name, module.to_float())
    del model.config.quantization_config
    transformers.LlamaForCausalLM(model.config).save_pretrained(root / "dense")
    save_file(
        {name: x.clone().contiguous() for name, x in model.state_dict().items()},
        root / "dense" / "model.safetensors",
        metadata={"format": "pt"},
    )
    return root / "quantized", root / "dense"


# --- folders that need an argument ---------------------------------------------------------------


def as_it_is(folder: Path, at: Path) -> Any:
    return folder


def changed(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Callable[..., Any]:
    def prepare(folder: Path, at: Path) -> Any:
        shutil.copytree(folder, at / "changed")
        file = at / "changed" / "model.safetensors"
        tensors = change(load_file(file))  # all of it is read before the file is written
        save_file({k: v.clone() for k, v in tensors.items()}, file, metadata={"format": "pt"})
        return at / "changed"

    return prepare


renamed = changed(lambda x: {k.replace("model.layers", "transformer.blocks"): x[k] for k in x})
with_wider_head = changed(lambda x: {**x, "lm_head.weight": torch.ones(120, 64)})


def inside(folder: Path, at: Path) -> Any:
    shutil.copytree(folder, at / "outer" / "inner")
    return at / "outer"


def as_variant(folder: Path, at: Path) -> Any:
    shutil.copytree(folder, at / "variant")
    (at / "variant" / "model.safetensors").rename(at / "variant" / "model.fp16.safetensors")
    return at / "variant"


def as_pickle(folder: Path, at: Path) -> Any:
    shutil.copytree(folder, at / "pickle")
    torch.save(load_file(folder / "model.safetensors"), at / "pickle" / "pytorch_model.bin")
    (at / "pickle" / "model.safetensors").unlink()
    return at / "pickle"


def in_a_cache(folder: Path, at: Path) -> Any:
    """A cache of the hub whose "main" is broken, and whose "v2" is the folder."""
    repository = at / "cache" / "models--somebody--model"
    for name, commit in (("main", "a" * 40), ("v2", "b" * 40)):
        shutil.copytree(folder, repository / "snapshots" / commit)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / name).write_text(commit)
    (repository / "snapshots" / ("a" * 40) / "model.safetensors").write_bytes(b"")
    return "somebody/model"


class Bar:
    """What tqdm is to transformers."""

    made: ClassVar[int] = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        from tqdm import tqdm

        cls.made += 1
        return tqdm(*args, **{**kwargs, "disable": True})


# --- cases ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """How one argument is tried.

    Attributes:
        options: f(folder, an empty folder) -> keyword arguments.
        prepare: f(folder, an empty folder) -> what is loaded.
        says: part of the error of both, the dense folder and the quantized one; "" is none.
    """

    options: Callable[[Path, Path], dict[str, Any]]
    prepare: Callable[[Path, Path], Any] = as_it_is
    says: str = ""


def given(says: str = "", prepare: Callable[[Path, Path], Any] = as_it_is, **options: Any) -> Case:
    return Case(lambda folder, at: options, prepare, says)


CASES: dict[str, Case] = {
    "config": Case(lambda f, at: {
        "config": transformers.AutoConfig.from_pretrained(f, max_position_embeddings=48)}),
    "config, a folder": Case(lambda f, at: {"config": str(f)}),
    "cache_dir": Case(lambda f, at: {"cache_dir": at / "cache", "revision": "v2"}, in_a_cache),
    "revision": Case(lambda f, at: {"cache_dir": at / "cache", "revision": "b" * 40}, in_a_cache),
    "code_revision": Case(
        lambda f, at: {"cache_dir": at / "cache", "revision": "v2", "code_revision": "v2"},
        in_a_cache),
    "local_files_only": given(local_files_only=True),
    "force_download": given(force_download=True),
    "proxies": given(proxies={"http": "localhost:1"}),
    "token": given(token="none"),
    "trust_remote_code": given(trust_remote_code=True),
    "tqdm_class": given(tqdm_class=Bar),
    "subfolder": given(prepare=inside, subfolder="inner"),
    "variant": given(prepare=as_variant, variant="fp16"),
    "use_safetensors": given(prepare=as_pickle, use_safetensors=False),
    "use_safetensors, where there are none": given(
        "model.safetensors", as_pickle, use_safetensors=True),
    "weights_only": given(prepare=as_pickle, weights_only=True),
    "disable_mmap": given(disable_mmap=True),
    "ignore_mismatched_sizes": given(prepare=with_wider_head, ignore_mismatched_sizes=True),
    "ignore_mismatched_sizes, False": given("ignore_mismatched_sizes", with_wider_head),
    "output_loading_info": given(output_loading_info=True),
    "output_loading_info, mismatched": given(
        prepare=with_wider_head, output_loading_info=True, ignore_mismatched_sizes=True),
    "state_dict": given("`state_dict` cannot be passed together", state_dict={}),
    "key_mapping": given(prepare=renamed, key_mapping=OTHER_NAMES),
    "key_mapping, on disk": Case(
        lambda f, at: {"key_mapping": OTHER_NAMES, "device_map": ON_DISK,
                       "offload_folder": at / "disk"}, renamed),
    "key_mapping, of nothing": given(key_mapping={"^nothing": "else"}),
    "dtype": given(dtype=torch.bfloat16),
    "dtype, a name": given(dtype="float16"),
    "dtype, auto": given(dtype="auto"),
    "torch_dtype": given(torch_dtype=torch.bfloat16),
    "device_map": given(device_map="cpu"),
    "device_map, auto": given(device_map="auto"),
    "max_memory": Case(lambda f, at: {
        "device_map": "auto", "max_memory": {"cpu": 60000}, "offload_folder": at / "disk"}),
    "offload_folder": Case(lambda f, at: {"device_map": ON_DISK, "offload_folder": at / "disk"}),
    "offload_buffers": Case(lambda f, at: {
        "device_map": ON_DISK, "offload_folder": at / "disk", "offload_buffers": True}),
    "attn_implementation": given(attn_implementation="eager"),
    "experts_implementation": given(experts_implementation="eager"),
    "an attribute of the configuration": given(max_position_embeddings=32, use_cache=False),
    "what it answers with": given(attn_implementation="eager", output_attentions=True),
    "no attribute": given("unexpected keyword argument 'no_such'", no_such=1),
    "generation_config": Case(lambda f, at: {
        "generation_config": transformers.GenerationConfig(max_new_tokens=7)}),
    "fusion_config": given(fusion_config={"patch_embeddings": True}),
    "use_kernels": given(use_kernels=True),  # refused where the package kernels is missing
    "kernel_config": given("", kernel_config=None),
    "allow_all_kernels": given(allow_all_kernels=True),
    "adapter_kwargs": given(adapter_kwargs={}),
    "adapter_name": given(adapter_name="mine"),
    "tp_plan": given(tp_plan="auto"),
    "tp_size": given(tp_size=1),
    "device_mesh": given(device_mesh=None),
    "distributed_config": given(distributed_config=None),
    "gguf_file": given("no.gguf", gguf_file="no.gguf"),
    "low_cpu_mem_usage": given(low_cpu_mem_usage=True),
    "offload_state_dict": given(offload_state_dict=True),
    "mirror": given(mirror="none"),
    "from_tf": given(from_tf=False),
    "from_flax": given(from_flax=False),
}  # fmt: skip
ELSEWHERE = {
    "pretrained_model_name_or_path": "every case",
    "quantization_config": "test_transformers.py, and below",
    "model_args": "positional, for the constructor of a class: refused by Python",
    "kwargs": "the attributes of a configuration",
}


def arguments() -> set[str]:
    """What the installed transformers takes: its signature, its documentation and what it takes
    out of its keyword arguments. Names with an underscore are between its own functions."""
    of_models = transformers.PreTrainedModel.from_pretrained
    of_auto = transformers.AutoModelForCausalLM.from_pretrained
    found = set(inspect.signature(of_models).parameters)
    found |= set(re.findall(r"^ {12}(\w+) ?\(`", of_models.__doc__ or "", re.M))
    for function in (of_models, of_auto):
        source = inspect.getsource(function)
        found |= set(re.findall(r'kwargs\.(?:pop|get)\(\s*"(\w+)"', source))
        found |= set(re.findall(r'"(\w+)" in kwargs', source))
        for listed in re.findall(r"for name in \[(.*?)\]", source, re.S):
            found |= set(re.findall(r'"(\w+)"', listed))
    return {name for name in found if not name.startswith("_")}


def test_every_argument_of_transformers_has_a_case() -> None:
    tried = {name.partition(",")[0] for name in CASES}
    assert not arguments() - tried - ELSEWHERE.keys()
    assert {"key_mapping", "output_loading_info", "variant", "mirror", "device_map"} <= arguments()


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(IDS).logits
    return found


def outcome(load: Any, folder: Path, case: Case, at: Path) -> Any:
    """(what the model says of itself, its logits, the loading info), or the error."""
    at.mkdir()
    options = {"dtype": torch.float32, **case.options(folder, at)}
    if "torch_dtype" in options:
        del options["dtype"]
    before = Bar.made
    try:
        model = load(case.prepare(folder, at), **options)
    except Exception as error:
        return error
    info = None
    if options.get("output_loading_info"):
        model, info = model
    config = model.config
    told = {
        "attention": config._attn_implementation,
        "attributes": (config.use_cache, config.max_position_embeddings, config.output_attentions),
        "tokens": model.generation_config.max_new_tokens,
        "dtypes": (model.model.norm.weight.dtype, model.lm_head.weight.dtype),
        "answers in": logits(model).dtype,
        "attentions": getattr(model(IDS), "attentions", None) is not None,
        "bars": Bar.made > before,
        "training": model.training,
        "on disk": "disk" in set(getattr(model, "hf_device_map", {}).values()),
    }
    # A head of another shape is random.
    found = None if options.get("ignore_mismatched_sizes") else logits(model)
    layers = [x for x in model.modules() if isinstance(x, mixed_gemm.Linear)]
    return told, found, info, len(layers)


@pytest.mark.parametrize("name", CASES)
def test_an_argument_does_what_it_does_to_a_dense_model(
    name: str, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    quantized, dense = folders
    auto, case = transformers.AutoModelForCausalLM.from_pretrained, CASES[name]
    wanted = outcome(auto, dense, case, tmp_path / "dense")
    if name == "config, a folder":  # the Auto class does not look at it
        wanted = outcome(
            transformers.LlamaForCausalLM.from_pretrained, dense, case, tmp_path / "class"
        )
    for load in (mixed_gemm.from_pretrained, auto):
        at = tmp_path / ("ours" if load is mixed_gemm.from_pretrained else "auto")
        found = outcome(load, quantized, case, at)
        if isinstance(wanted, Exception):
            assert case.says in str(wanted) and case.says in str(found)
            assert type(found) is type(wanted) and (case.says or name == "use_kernels")
            continue
        assert not isinstance(found, Exception) and not case.says, found
        assert found[0] == wanted[0] and found[3] == 14
        assert tree_map_only(set, sorted, found[2]) == tree_map_only(set, sorted, wanted[2])
        if wanted[1] is not None:
            # Half an eps in each of a dozen operations in a row, and sums in another order.
            bound = 8 * torch.finfo(wanted[1].dtype).eps
            apart = (found[1] - wanted[1]).double().norm() / wanted[1].double().norm()
            assert apart <= bound


def test_a_quantized_layer_of_another_shape_is_refused_all_the_same(
    folders: tuple[Path, Path],
) -> None:
    with pytest.raises(CheckpointError, match=r"is a weight of \(64, 128\), and the model has"):
        mixed_gemm.from_pretrained(folders[0], intermediate_size=96, ignore_mismatched_sizes=True)


def test_weights_that_are_missing_are_refused_all_the_same(folders: tuple[Path, Path]) -> None:
    with pytest.raises(CheckpointError, match=r"does not fill .*score\.weight"):
        mixed_gemm.from_pretrained(
            folders[0],
            model_class=transformers.AutoModelForSequenceClassification,
            ignore_mismatched_sizes=True,
            num_labels=5,
        )


def test_a_configuration_that_is_given_keeps_what_it_says(folders: tuple[Path, Path]) -> None:
    config = transformers.AutoConfig.from_pretrained(folders[0])
    before = config.to_dict()
    mixed_gemm.from_pretrained(folders[0], config=config)
    assert config.to_dict() == before


def test_a_state_dict_is_quantized_on_the_way(folders: tuple[Path, Path]) -> None:
    dense = transformers.AutoModelForCausalLM.from_pretrained(folders[1])
    options = {"config": dense.config, "state_dict": dense.state_dict()}
    asked = mixed_gemm.MixedGemmConfig("w4a16", group_size=32)
    model = mixed_gemm.from_pretrained(None, quantization_config=asked, **options)
    assert isinstance(model.model.layers[0].mlp.up_proj, mixed_gemm.Linear)
    # Values that are on the grid of the scheme already.
    eps = torch.finfo(torch.float32).eps
    assert (logits(model) - logits(dense)).norm() <= 8 * eps * logits(dense).norm()
    with pytest.raises(ValueError, match="path_or_id is None, so config, state_dict and"):
        mixed_gemm.from_pretrained(None, **options)


@pytest.mark.parametrize("form", ["awq_gemm", "gptq_v2_4bit_act_order", "ct_pack_8bit_channel"])
def test_key_mapping_of_other_formats(form: str, repository: Path, tmp_path: Path) -> None:
    folder = repository / "tests" / "data" / form
    found = mixed_gemm.from_pretrained(
        renamed(folder, tmp_path), dtype=torch.float32, key_mapping=OTHER_NAMES
    )
    wanted = mixed_gemm.from_pretrained(folder, dtype=torch.float32)
    prompt = IDS % wanted.config.vocab_size
    assert torch.equal(found(prompt).logits, wanted(prompt).logits)


def test_what_was_renamed_is_saved_as_the_dense_model_is(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """Under the names of its files, which transformers keeps; ``save_checkpoint`` writes those of
    the model."""
    options = {"dtype": torch.float32, "key_mapping": OTHER_NAMES}
    model = mixed_gemm.from_pretrained(renamed(folders[0], tmp_path), **options)
    wanted = logits(model)
    model.save_pretrained(tmp_path / "again")
    again = mixed_gemm.from_pretrained(tmp_path / "again", **options)
    assert torch.equal(logits(again), wanted)
    mixed_gemm.save_checkpoint(model, tmp_path / "ours")
    assert "model.layers.0.mlp.up_proj" in {x.name for x in open_checkpoint(tmp_path / "ours")}
    ours = mixed_gemm.from_pretrained(tmp_path / "ours", dtype=torch.float32)
    assert torch.equal(logits(ours), wanted)


@pytest.mark.parametrize("on_the_way", [False, True])
def test_an_adapter_alone_is_put_on_the_base_that_it_names(
    folders: tuple[Path, Path], tmp_path: Path, on_the_way: bool
) -> None:
    peft = pytest.importorskip("peft", reason="optional: hf extra")
    options: dict[str, Any] = {"dtype": torch.float32}
    if on_the_way:
        options["quantization_config"] = mixed_gemm.MixedGemmConfig("w4a16", group_size=32)
    base = mixed_gemm.from_pretrained(folders[on_the_way], **options)
    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(base, config)
    adapted.save_pretrained(tmp_path / "adapter")
    found = mixed_gemm.from_pretrained(tmp_path / "adapter", adapter_name="mine", **options)
    assert list(found.peft_config) == ["mine"]
    assert torch.equal(logits(found), logits(adapted.eval()))

    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(file.read_text().replace(f'"{folders[on_the_way]}"', "null"))
    with pytest.raises(CheckpointError, match="base_model_name_or_path: must name the model"):
        mixed_gemm.from_pretrained(tmp_path / "adapter", **options)


def test_a_transformers_that_names_no_renamings_is_refused(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every quantized layer would be left random, and dense."""
    place, name = transformers.modeling_utils, "get_model_conversion_mapping"
    mapping = getattr(place, name)
    monkeypatch.setattr(place, name, lambda model, key_mapping, quantizer: mapping(model))
    with pytest.raises(RuntimeError, match="did not say how it renames the keys of the files"):
        mixed_gemm.from_pretrained(folders[0])
