"""Every block of code in the README and in docs/ runs as it stands, in a folder with the models
that it names; of shells, the commands and options exist. What cannot run says why."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support import gguf_files, pages, tiny_llama

import mixed_gemm
from benchmarks import runner
from mixed_gemm.nn.experts import Experts

PAGES = [page for page in pages.names() if page == pages.README or page.startswith("docs/")]
BLOCKS = {block.key: block for page in PAGES for block in pages.blocks(page)}
Names = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """How a block of Python runs.

    check: what must hold of its names afterwards.
    given: what it takes for granted.
    needs: packages that are optional.
    """

    check: Callable[[Names], None]
    given: Callable[[Path], contextlib.AbstractContextManager[Names]] | None = None
    needs: tuple[tuple[str, str | None], ...] = ()


# --- what blocks take for granted ----------------------------------------------------------------


@contextlib.contextmanager
def process_group(folder: Path) -> Iterator[Names]:
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh

    store = distributed.FileStore(str(folder / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    up, down = (mixed_gemm.Linear(*shape, group_size=32) for shape in ((64, 128), (128, 64)))
    block = torch.nn.ModuleDict({"up": up, "down": down})
    try:
        model = torch.nn.Sequential(mixed_gemm.Linear(64, 128, group_size=32))
        mesh, device = init_device_mesh("cpu", (1,)), torch.device("cpu")
        yield {"block": block, "mesh": mesh, "model": model, "device": device}
    finally:
        distributed.destroy_process_group()


@contextlib.contextmanager
def group_and_files(folder: Path) -> Iterator[Names]:
    """A process group, a folder with a quantized block, and an empty one."""
    with process_group(folder) as names:
        mixed_gemm.save_checkpoint(names["block"], folder / "quantized", config={})
        with torch.device("meta"):
            layers = {"up": torch.nn.Linear(64, 128), "down": torch.nn.Linear(128, 64)}
            names["empty"] = torch.nn.ModuleDict(layers)
        yield names


@contextlib.contextmanager
def mixtures(folder: Path) -> Iterator[Names]:
    """A dense folder of Qwen3-MoE, and one of gpt-oss as it is published."""
    from integrations.test_experts import dense, gpt_oss

    dense("Qwen3-MoE", folder / "qwen3-moe")
    gpt_oss(folder / "gpt-oss")
    yield {}


@contextlib.contextmanager
def group_and_mixture(folder: Path) -> Iterator[Names]:
    """A process group, and a quantized mixture."""
    from integrations.test_experts import dense

    with process_group(folder) as names:
        dense("Qwen3-MoE", folder / "qwen3-moe")
        asked = mixed_gemm.MixedGemmConfig(group_size=32)
        model = mixed_gemm.from_pretrained(folder / "qwen3-moe", quantization_config=asked)
        yield {**names, "model": model}


# --- what must hold afterwards -------------------------------------------------------------------


def of_the_readme(names: Names) -> None:
    assert [type(names["model"][i]) for i in (0, 1)] == [mixed_gemm.Linear] * 2
    assert names["y"].shape == (1, 1024)
    assert set(mixed_gemm.open_checkpoint("model-w4a16").layers) == {"0", "1"}


def of_schemes(names: Names) -> None:
    assert (
        type(names["model"][0]) is mixed_gemm.Linear and type(names["model"][2]) is torch.nn.Linear
    )
    assert names["layer"].scheme == names["own"]


def of_activations(names: Names) -> None:
    assert names["model"][1].scheme.activations == "static_azp"
    assert names["report"].smoothed == {"1": "folded into 0"}
    assert names["out"].shape == (16, 256)


def of_floats(names: Names) -> None:
    assert {names["model"][i].weight.kind for i in (0, 2)} == {"float"}
    assert names["layer"].scheme == names["own"]


def of_float8(names: Names) -> None:
    assert {names["model"][i].weight.kind for i in (0, 2)} == {"fp8"}
    assert names["layer"].scheme == names["own"]


def of_convolutions(names: Names) -> None:
    assert names["y"].shape == (1, 64, 32, 32)
    assert isinstance(names["model"][0], mixed_gemm.Conv2d)


def of_int8_convolutions(names: Names) -> None:
    assert [type(names["model"][i]) for i in (0, 2)] == [mixed_gemm.Int8Conv2d] * 2


def of_given_sums(names: Names) -> None:
    without = mixed_gemm.block_quant_gemm(
        names["a"], names["weight"].t(), names["scale"], names["offset"], block_size=128
    )
    assert names["sums"].shape == (4, 256) and torch.equal(names["out"], without)


def of_checkpoints(names: Names) -> None:
    assert isinstance(names["layer"], mixed_gemm.Linear)
    assert set(mixed_gemm.open_checkpoint("model-ct").layers) == set(tiny_llama.LINEARS)


def of_mixtures(names: Names) -> None:
    tokens = torch.arange(5).view(1, 5)
    assert sum("experts" in name for name in names["report"].quantized) == 4 * 3
    assert torch.equal(names["model"](tokens).logits, names["packed"](tokens).logits)
    expert = names["gpt_oss"].model.layers[0].mlp.experts.expert(0)
    assert isinstance(expert.down_proj, mixed_gemm.Linear)
    layers = [x for x in names["model"].modules() if isinstance(x, Experts)]
    assert layers and not any(x.why_one_by_one for x in layers)


def of_fused_moe(names: Names) -> None:
    assert names["y"].shape == (5, 256)
    assert torch.allclose(sum(names["ranks"]), names["y"], atol=1e-4)


def of_transformers(names: Names) -> None:
    assert names["tokens"].shape == (1, 3 + 8)
    layers = [m for m in names["model"].modules() if isinstance(m, mixed_gemm.Linear)]
    assert {(x.bits, x.group_size) for x in layers} == {(4, 32)} and len(layers) == 7
    found = mixed_gemm.open_checkpoint("model-packed").format
    assert found == "compressed-tensors pack-quantized"


def of_gguf(names: Names) -> None:
    assert names["tokens"].shape == (1, 3 + 8)
    assert all(0 < error < 0.01 for error in names["errors"].values())
    assert len(mixed_gemm.open_checkpoint("model-gguf-ct")) == len(names["checkpoint"]) == 14


def of_accelerate(names: Names) -> None:
    assert len(names["weights"]) == 2 and set(names["places"].values()) == {"cpu"}
    assert names["model"][0].weight.is_meta


def of_graphs(names: Names) -> None:
    nodes = names["graph"].graph.nodes
    assert [node.target for node in nodes if node.op == "call_module"] == ["0", "1", "2"]


def of_adapters(names: Names) -> None:
    assert isinstance(names["merged"][0], mixed_gemm.Linear)
    assert names["loss"].requires_grad


def of_tensor_parallelism(names: Names) -> None:
    block = names["block"]
    assert isinstance(block.up.weight.to_local(), mixed_gemm.QuantizedTensor)
    assert block.down(block.up(torch.ones(2, 64))).shape == (2, 64)


def of_loading_shards(names: Names) -> None:
    of_tensor_parallelism({"block": names["empty"]})


def of_shared_experts(names: Names) -> None:
    layers = [x for x in names["model"].modules() if isinstance(x, Experts)]
    assert layers and all(x.spread is not None for x in layers)
    assert names["model"](torch.arange(5).view(1, 5)).logits.isfinite().all()


def of_fusing(names: Names) -> None:
    assert str(names["report"]) + "\n" == BLOCKS["docs/fusing.md", "", 0].text


def of_fsdp(names: Names) -> None:
    assert isinstance(names["model"][0].weight.to_local(), mixed_gemm.QuantizedTensor)


def of_first_fsdp(names: Names) -> None:
    assert isinstance(names["wrapped"].module[0].weight, mixed_gemm.QuantizedTensor)
    assert names["wrapped"](torch.ones(2, 64)).shape == (2, 128)


EXAMPLES = {
    ("README.md", "python", 0): Example(of_the_readme),
    ("docs/schemes.md", "python", 0): Example(of_schemes),
    ("docs/schemes.md", "python", 1): Example(of_activations),
    ("docs/schemes.md", "python", 2): Example(of_floats),
    ("docs/schemes.md", "python", 3): Example(of_float8),
    ("docs/convolution.md", "python", 0): Example(of_convolutions),
    ("docs/convolution.md", "python", 1): Example(of_int8_convolutions),
    ("docs/convolution.md", "python", 2): Example(of_given_sums),
    ("docs/checkpoints.md", "python", 0): Example(of_checkpoints),
    ("docs/checkpoints.md", "python", 1): Example(
        of_transformers, needs=(("transformers", "5.17"), ("accelerate", None))
    ),
    ("docs/checkpoints.md", "python", 2): Example(
        of_gguf, needs=(("transformers", "5.17"), ("accelerate", None))
    ),
    ("docs/checkpoints.md", "python", 3): Example(of_accelerate, needs=(("accelerate", None),)),
    ("docs/adapters.md", "python", 0): Example(of_adapters, needs=(("peft", None),)),
    ("docs/mixtures.md", "python", 0): Example(
        of_mixtures, mixtures, needs=(("transformers", "5.24"), ("accelerate", None))
    ),
    ("docs/mixtures.md", "python", 1): Example(of_fused_moe),
    ("docs/graphs.md", "python", 0): Example(of_graphs),
    ("docs/fusing.md", "python", 0): Example(of_fusing, needs=(("transformers", "5.17"),)),
    ("docs/parallel.md", "python", 0): Example(of_tensor_parallelism, process_group),
    ("docs/parallel.md", "python", 1): Example(of_fsdp, process_group),
    ("docs/parallel.md", "python", 2): Example(of_first_fsdp, process_group),
    ("docs/parallel.md", "python", 3): Example(of_loading_shards, group_and_files),
    ("docs/parallel.md", "python", 5): Example(
        of_shared_experts, group_and_mixture, needs=(("transformers", "5.24"), ("accelerate", None))
    ),
}
# Blocks without a language: of shells, or of something else.
SHELLS = {
    ("README.md", "", 0),
    ("docs/cli.md", "", 0),
    ("docs/speed.md", "", 0),
}
NOT_RUN = {
    ("docs/calibration.md", "python", 0): "needs a model and texts; the example that it names is "
    "it, which test_example_language_model.py runs",
    ("docs/parallel.md", "python", 4): "needs several processes; "
    "tests/python/support/parallel_models.py does it in each of them",
    ("docs/parallel.md", "python", 6): "needs several processes; "
    "tests/python/support/parallel_models.py does it in each of them",
    ("docs/serving.md", "bash", 0): "needs vLLM: tests/vllm/test_server.py runs it",
    ("docs/serving.md", "bash", 1): "needs a GPU: test_carry_vllm.py and test_gpu_results.py run "
    "its commands with stand-ins",
    ("docs/recipes.md", "", 0): "the output of git diff --stat",
    ("docs/recipes.md", "", 1): "the output of git diff --stat",
    ("docs/recipes.md", "", 2): "the output of git diff --stat",
    ("docs/recipes.md", "", 3): "the output of git diff --stat",
    ("docs/recipes.md", "", 4): "the output of git diff --stat",
    ("docs/fusing.md", "", 0): "what the block before it prints, which of_fusing compares",
    ("docs/numerics.md", "", 0): "a formula; mixed_gemm/reference/gemm.py computes it",
}


@pytest.fixture
def folder(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the models that the blocks name; the current one."""
    (tmp_path / "model-AWQ").symlink_to(repository / "tests" / "data" / "awq_gemm")
    dense = tmp_path / "model-dense"
    dense.mkdir()
    tensors = tiny_llama.plain_tensors()
    for name, (n, k) in tiny_llama.LINEARS.items():
        tensors[f"{name}.weight"] = tiny_llama.grid(name, n, k, 4, 32, False).weight().half()
    save_file(tensors, dense / "model.safetensors", {"format": "pt"})
    (dense / "config.json").write_text(json.dumps(tiny_llama.CONFIG))
    gguf_files.tiny(kinds=("Q4_K", "Q6_K")).write(tmp_path / "model.gguf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """enable_transformers changes a table of transformers: not beyond a test."""
    with contextlib.suppress(ImportError):
        from transformers.quantizers import auto

        mapping = auto.AUTO_QUANTIZATION_CONFIG_MAPPING
        monkeypatch.setattr(auto, "AUTO_QUANTIZATION_CONFIG_MAPPING", dict(mapping))


def test_every_block_is_run_or_says_why_not() -> None:
    assert {*EXAMPLES, *SHELLS, *NOT_RUN} == set(BLOCKS)


@pytest.mark.parametrize("key", EXAMPLES, ids=lambda key: f"{key[0]}-{key[2]}")
def test_python_runs(key: tuple[str, str, int], folder: Path, own_tables: None) -> None:
    example = EXAMPLES[key]
    for package, version in example.needs:
        pytest.importorskip(package, minversion=version, reason="optional")
    if example.given in (process_group, group_and_files) and not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    given = contextlib.nullcontext({}) if example.given is None else example.given(folder)
    with given as names:
        exec(compile(BLOCKS[key].text, key[0], "exec"), names)
        example.check(names)


# --- shells --------------------------------------------------------------------------------------


def commands(key: tuple[str, str, int]) -> Iterator[list[str]]:
    """The words of each command."""
    for line in BLOCKS[key].text.splitlines():
        for command in re.split(r"[;|]", line.split("  #")[0]):
            if words := shlex.split(command):
                yield words


def known_options(command: str) -> str:
    pytest.importorskip("typer", reason="the extra cli is not installed: pip install typer rich")
    from typer.testing import CliRunner

    from mixed_gemm.cli.app import app

    return CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout


@pytest.mark.parametrize("key", sorted(SHELLS), ids=lambda key: key[0])
def test_commands_of_shells_exist(key: tuple[str, str, int], repository: Path) -> None:
    for program, first, *rest in commands(key):
        if program == "make":
            assert re.search(rf"^{first}:", (repository / "Makefile").read_text(), re.MULTILINE)
            for variable in rest:
                assert variable.startswith("BENCH_ARGS="), variable
                assert runner.arguments(shlex.split(variable.removeprefix("BENCH_ARGS="))).out
        elif (program, rest) == ("python", ["mixed_gemm.doctor"]):
            assert first == "-m" and (repository / "mixed_gemm/doctor/__main__.py").is_file()
        elif program == "python":  # exits where it does not know an argument
            assert (first, rest[0]) == ("-m", "benchmarks") and runner.arguments(rest[1:]).out
        elif program == "mixed-gemm":
            known = known_options(first)
            assert "Usage" in known, first
            for option in (word for word in rest if word.startswith("--")):
                assert option in known, (first, option)
        elif program == "pip" and rest[0] in ("torch", "mixed_gemm-*.whl"):
            assert first == "install" and rest[1:] == []
        elif program == "pip":
            (extra,) = re.findall(r"\[(\w+)\]", rest[0])
            assert re.search(rf"^{extra} = \[", (repository / "pyproject.toml").read_text(), re.M)
        else:
            script = (repository / program).read_text()
            assert re.search(rf"^\s*{first}\)", script, re.MULTILINE), (program, first)


def test_the_page_of_the_command_has_every_command() -> None:
    pytest.importorskip("typer", reason="the extra cli is not installed: pip install typer rich")
    from mixed_gemm.cli.app import COMMANDS

    named = {words[1] for words in commands(("docs/cli.md", "", 0)) if words[0] == "mixed-gemm"}
    assert named == set(COMMANDS)
