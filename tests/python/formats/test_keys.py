"""What a quantization_config says is read, told or refused, and nothing of it is ignored: every key
that other packages know has a row in the table."""

from __future__ import annotations

import inspect
import json
import shutil
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.config import CompressionFormat, SparsityCompressionConfig
from compressed_tensors.quantization import (
    ActivationOrdering,
    QuantizationArgs,
    QuantizationConfig,
    QuantizationScheme,
    QuantizationStrategy,
    QuantizationType,
)
from compressed_tensors.transform import (
    TransformArgs,
    TransformConfig,
    TransformLocation,
    TransformScheme,
    apply_transform_config,
)
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from support import float8_files, packed
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING
from transformers.utils import quantization_config as of_transformers
from typer.testing import CliRunner

import mixed_gemm
from mixed_gemm.cli.app import app
from mixed_gemm.formats import CheckpointError, CheckpointWarning, open_checkpoint, save_checkpoint
from mixed_gemm.formats.ct_config import FORMATS
from mixed_gemm.formats.key_rows import Use
from mixed_gemm.formats.key_table import TABLE
from mixed_gemm.formats.keys import look_up

DATA = Path(__file__).resolve().parents[2] / "data"
FOLDERS = sorted(x.name for x in DATA.iterdir() if (x / "config.json").exists())
GROUP = "compressed-tensors config_groups.*"
TRANSFORM = "compressed-tensors transform_config"
ROTATED = "the inputs of layers are rotated while the model runs"


def lacking(section: str, keys: Iterable[str]) -> list[str]:
    """Keys without a row. A new one gets a row in key_table.py when it is known what it does."""
    return sorted(set(keys) - TABLE[section].keys())


# --- keys that others know -----------------------------------------------------------------------

TRANSFORMERS = {
    "gptq": of_transformers.GPTQConfig(bits=4),
    "awq": of_transformers.AwqConfig(),
    "auto-round": of_transformers.AutoRoundConfig(),
    "fp8": of_transformers.FineGrainedFP8Config(),
    "compressed-tensors": of_transformers.CompressedTensorsConfig(
        config_groups={"a": {"targets": ["Linear"]}}
    ),
}


@pytest.mark.parametrize("section", TRANSFORMERS)
def test_keys_of_transformers_have_a_row(section: str) -> None:
    config = TRANSFORMERS[section]
    parameters = inspect.signature(type(config).__init__).parameters.values()
    named = [x.name for x in parameters if x.kind is not x.VAR_KEYWORD and x.name != "self"]
    assert len(named) >= 4
    assert lacking(section, [*named, *config.to_dict()]) == []


OF_COMPRESSED_TENSORS = [
    ("compressed-tensors", QuantizationConfig),
    (GROUP, QuantizationScheme),
    (f"{GROUP}.weights", QuantizationArgs),
    (f"{GROUP}.input_activations", QuantizationArgs),
    (TRANSFORM, TransformConfig),
    (f"{TRANSFORM}.config_groups.*", TransformScheme),
    (f"{TRANSFORM}.config_groups.*.apply", TransformArgs),
    ("compressed-tensors sparsity_config", SparsityCompressionConfig),
]


@pytest.mark.parametrize(("section", "model"), OF_COMPRESSED_TENSORS)
def test_keys_of_compressed_tensors_have_a_row(section: str, model: Any) -> None:
    assert lacking(section, model.model_fields) == []
    names = getattr(model, "registered_names", list)()
    for name in names:
        registered = model.get_value_from_registry(name)
        assert lacking(section, registered.model_fields) == []
    if model is SparsityCompressionConfig:
        assert len(names) >= 3


RECORD = json.loads((Path(__file__).parent / "config_keys.json").read_text())


@pytest.mark.parametrize("release", RECORD)
def test_keys_of_packages_that_are_not_installed_have_a_row(release: str) -> None:
    """tools/config_keys.py reads them."""
    for section, keys in RECORD[release].items():
        assert keys and lacking(section, keys) == []


def test_every_method_of_transformers_is_read_or_refused_by_name(tmp_path: Path) -> None:
    methods = {str(getattr(x, "value", x)) for x in of_transformers.QuantizationMethod}
    methods |= set(AUTO_QUANTIZATION_CONFIG_MAPPING)
    refused = methods - TABLE.keys()
    read = {"gptq", "awq", "auto-round", "compressed-tensors", "fp8", "mxfp4"}
    assert read <= methods & TABLE.keys()
    assert {"fbgemm_fp8", "torchao"} <= refused
    layer = packed.gptq(packed.random_layer(64, 64, 32))
    for method in refused:
        folder = packed.write(tmp_path / method, {"l": layer}, {"quant_method": method})
        with pytest.raises(CheckpointError, match=f"the format '{method}' is not read"):
            open_checkpoint(folder)


def test_a_refused_format_names_itself_and_not_a_reader(tmp_path: Path) -> None:
    folder = packed.write(
        tmp_path, {"l": packed.gptq(packed.random_layer(64, 64, 32))}, {"quant_method": "quark"}
    )
    with pytest.raises(CheckpointError, match=r"config\.json: the format 'quark' is not read; awq"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("folder", "options"),
    [
        ("ct_pack_4bit", {"quant_method": "compressed_tensors"}),
        ("gptq_v1_4bit", {"quant_method": None, "method": "GPTQ"}),
        ("gptq_v1_4bit", {"quant_method": "intel/auto-round", "packing_format": "auto_round:gptq"}),
        ("awq_gemm", {"version": None, "checkpoint_format": "gemm"}),
    ],
)
def test_other_names_of_a_method(broken, folder: str, options: dict[str, Any]) -> None:
    found, wanted = open_checkpoint(broken(folder, **options)), open_checkpoint(DATA / folder)
    for weight in wanted:
        assert torch.equal(found.layer(weight.name).dequantize(), weight.dequantize())


def test_the_rows_are_well_formed() -> None:
    for section, rows in TABLE.items():
        for key, row in rows.items():
            assert row.why and (not row.inside or row.inside in TABLE), (section, key)
            assert (row.kept is not None) <= (row.use is Use.TOLD)
            if row.use in (Use.TOLD, Use.REFUSED):
                assert row.fine.words and not row.fine.test("a name that nobody has, of fp9_dq")


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_keys_of_real_packers_are_known(folder: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_checkpoint(DATA / folder)


@pytest.mark.parametrize("scheme", ["w4a16", "w8a8", "w8a8_block", "fp8", "fp8_block"])
def test_the_keys_of_our_files_are_known(tmp_path: Path, scheme: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.Embedding(16, 64))
    mixed_gemm.quantize_(model, scheme, embeddings=True, progress=False)
    save_checkpoint(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    answer = look_up(config, "compressed-tensors")
    assert not (answer.refusals or answer.unknown or answer.notes)


def test_every_field_of_our_own_configuration_is_known() -> None:
    """A state_dict beside config.json is such a folder."""
    config = mixed_gemm.MixedGemmConfig("w4a16", embeddings="w8a16", heads="w8a16")
    answer = look_up(json.loads(config.to_json_string()), "mixed_gemm")
    assert not (answer.refusals or answer.unknown)


UNKNOWN = {
    "gptq": ("gptq_v1_4bit", {"unheard_of": 1}, "unheard_of"),
    "rule": ("gptq_v1_4bit", {"dynamic": {"+:x": {"twist": 2}}}, r"dynamic\.\+:x\.twist"),
    "awq": ("awq_gemm", {"unheard_of": 1, "second": 2}, "unheard_of, second"),
    "ct": ("ct_pack_4bit", {"unheard_of": {"a": 1}}, "unheard_of"),
    "kv": (
        "ct_pack_4bit",
        {"kv_cache_scheme": {"num_bits": 8, "swirl": 1}},
        "kv_cache_scheme.swirl",
    ),
    "transform": (
        "ct_pack_4bit",
        {"transform_config": {"config_groups": {"u": {"type": "hadamard", "shear": 1}}}},
        r"transform_config\.config_groups\.u\.shear",
    ),
    "ours": ("ct_pack_4bit", {"mixed_gemm": {"version": "9", "skew": []}}, r"mixed_gemm\.skew"),
    "native": ("native_8bit", {"unheard_of": 1}, "unheard_of"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_key_is_warned_of_by_its_name(broken, case: str) -> None:
    folder, options, name = UNKNOWN[case]
    text = rf"config\.json: the quantization_config has {name}, which is not known here"
    with pytest.warns(CheckpointWarning, match=text):
        open_checkpoint(broken(folder, **options))


def args(**more: Any) -> dict[str, Any]:
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group"}
    return {"group_0": {"targets": ["Linear"], "weights": {**weights, "group_size": 32, **more}}}


def rotation(location: str) -> dict[str, Any]:
    apply = [{"targets": ["Linear"], "location": location, "inverse": False, "ignore": []}]
    return {"config_groups": {"u": {"type": "hadamard", "apply": apply}}}


# fixture, options of its configuration, what is said
REFUSED = {
    "transform": ("ct_pack_4bit", {"transform_config": rotation("input")},
                  rf"location is \"input\".*{ROTATED}"),
    "sparse": ("ct_pack_4bit", {"sparsity_config": {"format": "sparse-24-bitmask"}},
               r"sparsity_config.format is \"sparse-24-bitmask\", which is not read"),
    "experts": ("ct_pack_4bit", {"moe_sparsity_config": {"method": "prune"}}, "moe_sparsity_conf"),
    "dynamic weights": ("ct_pack_4bit", {"config_groups": args(dynamic=True)},
                        r"weights\.dynamic is true"),
    "float of 4 bits": ("ct_pack_4bit", {"config_groups": args(type="float")},
                        r"floats must have 8 bits, got 4"),
    "scales of a byte": ("ct_pack_4bit", {"config_groups": args(scale_dtype="torch.uint8")},
                         r"scale_dtype must be float16 or .*, got \"torch.uint8\""),
    "no group for it": ("ct_pack_4bit", {"config_groups": {"a": {
        "targets": ["Linear"], "input_activations": {"num_bits": 8}}}},
        "has quantized tensors, but no target of config_groups names it"),
    "preset": ("ct_pack_4bit", {"config_groups": {"W4A16": ["Linear"]}}, "Presets by name"),
    "rotation": ("gptq_v1_4bit", {"rotation": "hadamard"}, rf"rotation is \"hadamard\".*{ROTATED}"),
    "rotated awq": ("awq_gemm", {"rotation": "random"}, ROTATED),
    "rotated rule": ("gptq_v1_4bit", {"dynamic": {"+:x": {"rotation": "random"}}}, ROTATED),
    "autoround": ("gptq_v1_4bit", {"rotation_config": {"algorithm": "hadamard"}}, ROTATED),
    "spinquant": ("gptq_v1_4bit", {"spinquant_config": {"r1": True}}, ROTATED),
    "adapter": ("gptq_v1_4bit", {"adapter": {"name": "lora", "rank": 8}}, "an adapter is added"),
    "marlin": ("gptq_v1_4bit", {"is_marlin_format": True}, "is_marlin_format is true"),
    "marlin by name": ("gptq_v1_4bit", {"checkpoint_format": "marlin"},
                       r"checkpoint_format must be gptq or gptq_v2, got \"marlin\""),
    "planes": ("gptq_v1_4bit", {"checkpoint_format": "gptq_p"}, r"got \"gptq_p\""),
    "words": ("gptq_v1_4bit", {"pack_dtype": "int64"}, r"pack_dtype must be int32, got \"int64\""),
    "double": ("gptq_v1_4bit", {"super_bits": 6}, "scales are quantized once more"),
    "data type": ("gptq_v1_4bit", {"data_type": "nv_fp4"}, "data_type must be a name without"),
    "awq order": ("awq_gemm", {"desc_act": True}, "columns are in another order"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_changes_the_arithmetic_is_refused_by_name(broken, tmp_path: Path, case: str) -> None:
    folder, options, text = REFUSED[case]
    path = broken(folder, **options)
    with pytest.raises(CheckpointError, match=text) as error:
        open_checkpoint(path)
    assert error.value.file == str(path / "config.json")
    with pytest.raises(CheckpointError, match=text) as error:
        mixed_gemm.from_pretrained(path)
    assert error.value.file == str(path / "config.json")


def moved(path: Path, file: str, part: str) -> Path:
    """The quantization_config of a folder put into another file, or another part of config.json."""
    config = json.loads((path / "config.json").read_text())
    said = config.pop("quantization_config")
    found = said if file != "config.json" else {**config, part: {"quantization_config": said}}
    (path / "config.json").write_text(json.dumps(config))
    (path / file).write_text(json.dumps(found))
    return path / file


@pytest.mark.parametrize("file", ["quantize_config.json", "quant_config.json", "config.json"])
def test_it_is_refused_wherever_it_stands(broken, file: str) -> None:
    path = broken("gptq_v1_4bit", rotation="hadamard")
    said_in = moved(path, file, "text_config")
    with pytest.raises(CheckpointError, match=ROTATED) as error:
        open_checkpoint(path)
    assert error.value.file == str(said_in)
    if file != "config.json":  # a Llama of transformers has no part of that name
        with pytest.raises(CheckpointError, match=ROTATED) as error:
            mixed_gemm.from_pretrained(path)
        assert error.value.file == str(said_in)


def test_the_command_refuses_it_and_writes_nothing(broken, tmp_path: Path) -> None:
    path = broken("ct_pack_4bit", transform_config=rotation("input"))
    run = CliRunner().invoke(app, ["convert", str(path), str(tmp_path / "out")])
    assert run.exit_code == 1 and "transform_config" in run.output
    assert not (tmp_path / "out").exists()


FLOAT8 = {
    "divided": ({"weight_scale_semantics": "inverse"}, "divided by weight_scale_inv"),
    "e5m2": ({"fmt": "e5m2"}, r"fmt must be e4m3 or float8_e4m3fn, got \"e5m2\""),
    "experts": ({"expert_dtype": "fp4"}, r"expert_dtype must be fp8, got \"fp4\""),
    "stored experts": ({"store_dtype": "mxfp4"}, "store_dtype is .*experts"),
    "scheme": ({"activation_scheme": "lively"}, "activation_scheme must be 'dynamic' or 'static'"),
}


@pytest.mark.parametrize("case", FLOAT8)
def test_what_changes_float8_files_is_refused_by_name(tmp_path: Path, case: str) -> None:
    options, text = FLOAT8[case]
    folder = float8_files.write("deepseek", tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"].update(options)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=text):
        open_checkpoint(folder)


def test_float8_files_tell_what_is_not_rounded(tmp_path: Path) -> None:
    folder = float8_files.write("autofp8, static", tmp_path / "m")
    before = open_checkpoint(folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"].update(
        scale_fmt="ue8m0", kv_cache_scheme="static", quant_method="FP8", extra_config={"x": {}}
    )
    (folder / "config.json").write_text(json.dumps(config))
    checkpoint = open_checkpoint(folder)
    said = " ".join(checkpoint.notes)
    assert "powers of two" in said and "keys and values" in said
    for weight in before:
        found = checkpoint.layer(weight.name)
        assert found.scheme == weight.scheme
        assert torch.equal(found.dequantize(), weight.dequantize())
    with pytest.warns(CheckpointWarning, match="keys and values"):
        save_checkpoint(checkpoint, tmp_path / "out")


NOTHING = {
    "ct_pack_4bit": [
        {"transform_config": {}},
        {"transform_config": {"config_groups": {}}},
        {"transform_config": None, "sparsity_config": {}},
        {"sparsity_config": {"format": "dense", "global_sparsity": 0.5, "targets": ["Linear"]}},
        {"kv_cache_scheme": None, "quantization_status": "frozen", "run_compressed": True},
        {"config_groups": args(actorder="weight", observer="mse", dynamic=False, zp_dtype=None)},
        {"config_groups": args(scale_dtype="torch.bfloat16", observer_kwargs={})},
    ],
    "gptq_v1_4bit": [
        {"rotation": None, "adapter": None, "activation": None, "pack_dtype": "int32"},
        {"is_marlin_format": False, "static_groups": False, "lm_head": True, "rotation": ""},
        {"modules_in_block_to_quantize": [["self_attn.q_proj"]], "act_bits": 16},
        {"checkpoint_format": "GPTQ", "format": "gptq", "meta": {"fallback": {"threshold": 1}}},
    ],
    "awq_gemm": [{"modules_to_not_convert": ["visual"], "desc_act": False, "do_fuse": True}],
}


@pytest.mark.parametrize("folder", NOTHING)
def test_what_changes_nothing_is_read_without_a_word(broken, tmp_path: Path, folder: str) -> None:
    for options in NOTHING[folder]:
        path = broken(folder, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            checkpoint = open_checkpoint(path)
        assert checkpoint.notes == ()
        for weight in open_checkpoint(DATA / folder):
            assert torch.equal(checkpoint.layer(weight.name).dequantize(), weight.dequantize())
        shutil.rmtree(path)


# fixture, options, a part of the note, whether saving keeps what was asked
TOLD = {
    "activation": ("gptq_v1_4bit", {"activation": "w4afp8"}, "rounded activations", False),
    "act_bits": ("gptq_v1_4bit", {"act_bits": 8, "act_dynamic": True}, "act_bits: 8", False),
    "static kv": ("awq_gemm", {"static_kv_dtype": "fp8"}, "rounded keys and values", False),
    "kv": ("ct_pack_4bit", {"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": True}},
           "rounded keys and values", True),
    "outputs": ("ct_pack_4bit", {"config_groups": {"group_0": {
        **args()["group_0"], "output_activations": {"num_bits": 8}}}}, "rounded outputs", False),
    "attention": ("ct_pack_4bit", {"config_groups": {**args(), "a": {
        "targets": ["LlamaAttention"], "input_activations": {"num_bits": 8, "type": "float"}}}},
        "rounded activations in LlamaAttention", False),
    "w4a8": ("ct_pack_4bit", {"config_groups": {"group_0": {
        **args()["group_0"], "input_activations": {"num_bits": 8, "dynamic": True}}}},
        "asks for int8 activations too", False),
}  # fmt: skip


@pytest.mark.parametrize("case", TOLD)
def test_what_is_not_rounded_here_is_told(broken, tmp_path: Path, case: str) -> None:
    folder, options, text, kept = TOLD[case]
    path = broken(folder, **options)
    checkpoint = open_checkpoint(path)
    assert any(text in note for note in checkpoint.notes), checkpoint.notes
    for weight in open_checkpoint(DATA / folder):
        assert torch.equal(checkpoint.layer(weight.name).dequantize(), weight.dequantize())
    with pytest.warns(CheckpointWarning, match=text):
        mixed_gemm.from_pretrained(path, dtype=torch.float32)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        save_checkpoint(checkpoint, tmp_path / "saved")
    said = [str(x.message) for x in found if text in str(x.message)]
    assert len(said) == (not kept)
    assert bool(open_checkpoint(tmp_path / "saved").notes) == kept


def test_a_nested_configuration_is_not_left_behind(broken, tmp_path: Path) -> None:
    """Readers that look into text_config would find the one of the source."""
    path = broken("awq_gemm")
    config = json.loads((path / "config.json").read_text())
    config["text_config"] = {"quantization_config": config.pop("quantization_config"), "a": 1}
    (path / "config.json").write_text(json.dumps(config))
    save_checkpoint(open_checkpoint(path), tmp_path / "saved")
    written = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert written["text_config"] == {"a": 1}
    assert written["quantization_config"]["quant_method"] == "compressed-tensors"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=True),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(section=st.sampled_from(sorted(TABLE)), data=st.data())
def test_any_json_gets_an_answer(section: str, data: st.DataObject) -> None:
    keys = st.sampled_from(sorted(TABLE[section])) | st.text(max_size=8)
    config = data.draw(st.dictionaries(keys, JSON, max_size=6))
    answer = look_up(config, section)
    assert len(answer.unknown) >= len(config.keys() - TABLE[section].keys())


# --- names that compressed-tensors has -----------------------------------------------------------


def opens(path: Path) -> str:
    """Why it is not read; empty when it is."""
    try:
        open_checkpoint(path)
    except CheckpointError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("where", ["config", "group"])
def test_every_format_of_compressed_tensors_is_read_or_refused(broken, where: str) -> None:
    for name in (x.value for x in CompressionFormat):
        group = {**args()["group_0"], **({"format": name} if where == "group" else {})}
        options = {"config_groups": {"group_0": group}}
        options |= {"format": name if where == "config" else "mixed-precision"}
        path = broken("ct_pack_4bit", **options)
        read = name in (*FORMATS, "dense", "mixed-precision")
        assert read or f"{name} is not read" in opens(path)
        shutil.rmtree(path)


def test_sparse_formats_are_refused_by_their_names(broken) -> None:
    for name in SparsityCompressionConfig.registered_names():
        path = broken("ct_pack_4bit", sparsity_config={"format": name, "targets": ["Linear"]})
        assert opens(path) == "" if name == "dense" else f'format is "{name}"' in opens(path)
        shutil.rmtree(path)


def test_every_location_of_a_transform_is_read_or_refused(broken) -> None:
    for location in TransformLocation:
        path = broken("ct_pack_4bit", transform_config=rotation(location.value))
        assert bool(opens(path)) == location.is_online()
        shutil.rmtree(path)


@pytest.mark.parametrize("field", ["strategy", "type", "actorder"])
def test_every_name_of_an_argument_is_read_or_refused(broken, field: str) -> None:
    names = {
        "strategy": (QuantizationStrategy, ("tensor", "channel", "group", "block")),
        "type": (QuantizationType, ("int",)),  # floats have 8 bits
        "actorder": (ActivationOrdering, ("weight", "static", "group", "dynamic")),
    }
    values, read = names[field]
    for value in (x.value for x in values):
        path = broken("ct_pack_4bit", config_groups=args(**{field: value}))
        assert (opens(path) == "") == (value in read), value
        shutil.rmtree(path)


# --- rotations that are in the weights -----------------------------------------------------------


def small_llama() -> LlamaForCausalLM:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 96}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    config = LlamaConfig(**sizes, **heads, tie_word_embeddings=False)
    return LlamaForCausalLM(config).eval()


def test_rotations_that_are_in_the_weights_are_read_and_kept(tmp_path: Path) -> None:
    """Between v_proj and o_proj, as SpinQuant's R2: what the model computes is the same."""
    model, ids = small_llama(), torch.arange(14).view(2, 7)
    dense = model(ids).logits
    out = TransformArgs(targets=["re:.*v_proj$"], location="weight_output")
    back = TransformArgs(targets=["re:.*o_proj$"], location="weight_input", inverse=True)
    scheme = TransformScheme(type="hadamard", apply=[out, back], head_dim=16)
    transform = TransformConfig(config_groups={"R2": scheme})
    before = model.model.layers[0].self_attn.v_proj.weight.clone()
    apply_transform_config(model, transform)
    assert not torch.equal(before, model.model.layers[0].self_attn.v_proj.weight)
    assert torch.allclose(model(ids).logits, dense, atol=1e-5)

    mixed_gemm.quantize_(model, "w8a16", group_size=32, progress=False)
    rounded = model(ids).logits
    save_checkpoint(model, tmp_path / "a", config=small_llama().config.to_dict())
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    said = transform.model_dump(mode="json")
    config["quantization_config"]["transform_config"] = said
    (tmp_path / "a" / "config.json").write_text(json.dumps(config))

    loaded = mixed_gemm.from_pretrained(tmp_path / "a", dtype=torch.float32)
    assert torch.equal(loaded(ids).logits, rounded)
    save_checkpoint(open_checkpoint(tmp_path / "a"), tmp_path / "b")
    loaded.save_pretrained(tmp_path / "c")
    save_checkpoint(loaded, tmp_path / "d")
    for folder in ("b", "c", "d"):
        written = json.loads((tmp_path / folder / "config.json").read_text())
        assert written["quantization_config"]["transform_config"] == said
        again = mixed_gemm.from_pretrained(tmp_path / folder, dtype=torch.float32)
        assert torch.equal(again(ids).logits, rounded)


# --- tensors that nobody reads -------------------------------------------------------------------


def test_tensors_inside_of_a_layer_that_are_none_of_its_own_are_named(broken, tmp_path) -> None:
    path = broken("ct_pack_4bit")
    file = path / "model.safetensors"
    name = "model.layers.0.self_attn.q_proj"
    tensors = load_file(file)
    tensors |= {f"{name}.u_input.weight": torch.eye(64), f"{name}.output_scale": torch.ones(1)}
    save_file(tensors, file, {"format": "pt"})
    text = rf"{name}\.u_input\.weight are inside of quantized layers"
    with pytest.warns(CheckpointWarning, match=text):
        open_checkpoint(path)
    with pytest.warns(CheckpointWarning, match=text):
        mixed_gemm.from_pretrained(path)


def test_a_float8_matrix_without_a_scale_is_refused(broken) -> None:
    path = broken("ct_pack_4bit")
    file = path / "model.safetensors"
    tensors = load_file(file)
    head = tensors["lm_head.weight"].to(torch.float8_e4m3fn)
    save_file({**tensors, "lm_head.weight": head}, file, {"format": "pt"})
    text = r"lm_head\.weight: is torch\.float8_e4m3fn, and no weight_scale beside it"
    with pytest.raises(CheckpointError, match=text):
        open_checkpoint(path)
    with pytest.raises(CheckpointError, match=text):
        mixed_gemm.from_pretrained(path)
