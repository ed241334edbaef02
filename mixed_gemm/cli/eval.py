"""``mixed-gemm eval``: perplexity of a model on texts and scores on tasks, quantized or not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Device, DType, GroupSize, Json, device_text, parse_device
from .output import note, print_json, reports_errors, say

if TYPE_CHECKING:
    import torch

DEFAULT_WINDOW = 2048  # mixed_gemm.quantization.evaluate's own
_PROBE = 8  # tokens


def load(model: str, dtype: DType | None, device: torch.device, bits: int, group_size: int) -> Any:
    """Load the model as its files are, or quantize it to ``bits`` while it loads."""
    from mixed_gemm.formats.index import TensorIndex
    from mixed_gemm.integrations.transformers import pretrained
    from mixed_gemm.integrations.transformers.config import MixedGemmConfig
    from mixed_gemm.quantization.foreign import naming

    options: dict[str, Any] = {"dtype": "auto" if dtype is None else dtype.torch}
    if device.type == "cuda":
        options["device_map"] = {"": device}
    if bits:
        options["quantization_config"] = MixedGemmConfig(
            bits=bits, group_size=group_size, ragged=False
        )
    with naming(model, "cannot be loaded"):
        try:
            loaded, _ = pretrained.load(model, kwargs=options)
            return loaded.eval()
        except Exception:
            if (Path(model) / "config.json").is_file():
                TensorIndex(Path(model))  # says which file is broken, where that is the reason
            raise


def tokenizer_of(model: str) -> Any:
    """Return the tokenizer of a folder, a file or a hub id; for an adapter without one that of its
    model."""
    import transformers

    from mixed_gemm.integrations.transformers.adapters import find_adapter
    from mixed_gemm.integrations.transformers.gguf import local_gguf

    if (file := local_gguf(model, None, {})) is not None:
        # transformers reads it from the metadata, with the gguf package
        return transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    adapter = find_adapter(model, {}, {})
    if adapter is not None and not (adapter.file.parent / "tokenizer_config.json").exists():
        model = adapter.base
    return transformers.AutoTokenizer.from_pretrained(model)


def tokens_of(model: str, text: Path, vocabulary: int, limit: int | None) -> torch.Tensor:
    """Return the tokens of a text, int64 ``[T]``, two at least."""
    from mixed_gemm.quantization.foreign import naming
    from mixed_gemm.quantization.text import read_text

    content = read_text(text)
    with naming(model, "its tokenizer cannot be used"):
        # verbose: it would warn that the text is longer than the window
        encoded = tokenizer_of(model)(content, return_tensors="pt", verbose=False)
    tokens: torch.Tensor = encoded.input_ids[0, :limit].long()
    if tokens.numel() < 2:
        raise ValueError(f"{text} must have two tokens or more, got {tokens.numel()}")
    if int(tokens.max()) >= vocabulary:
        raise ValueError(
            f"the tokenizer of {model} gives id {int(tokens.max())}, and the model has "
            f"{vocabulary} embeddings. Hint: they belong to different models"
        )
    return tokens


def runner_of(model: Any, name: str, made_for: int | None) -> Callable[[torch.Tensor], Any]:
    """Return the model as a function of ids ``[1, L]``, whose errors say what it was given."""
    from mixed_gemm.quantization.foreign import naming

    def run(ids: torch.Tensor) -> Any:
        count = ids.shape[1]
        too_long = made_for is not None and count > made_for
        hint = f"it was made for {made_for}: --window {made_for}" if too_long else ""
        with naming(name, f"{type(model).__name__} does not run on {count} tokens", hint):
            return model(ids)

    return run


def refuse_foresight(
    run: Callable[[torch.Tensor], Any], tokens: torch.Tensor, vocabulary: int, model: str
) -> None:
    """Raise ValueError for a model whose outputs depend on later tokens, as encoders have it: it
    would be asked for tokens that it sees. Rounding alone, which another last token may change in
    experts, is below 1 % of what the last output changes by."""
    import torch

    ids = tokens[:_PROBE]
    other = ids.clone()
    other[-1] = (ids[-1] + 1) % vocabulary
    with torch.no_grad():
        first, second = (run(x.unsqueeze(0)).logits[0].float() for x in (ids, other))
    change = (first - second).abs().amax(-1)
    if float(change[:-1].max()) > 0.01 * float(change[-1]):
        raise ValueError(
            f"{model} is no causal language model: its outputs depend on later tokens, so that "
            "a perplexity would say nothing"
        )


def scores(model: Any, name: str, tasks: list[str], limit: int | None) -> dict[str, Any]:
    """Return task -> metric -> value, as lm-eval measures it.

    Raises:
        ImportError: lm-eval is not installed. ValueError: it has no such task.
    """
    try:
        from lm_eval import simple_evaluate
        from lm_eval.models.huggingface import HFLM
        from lm_eval.tasks import TaskManager
    except ImportError as error:
        raise ImportError(f"--tasks needs lm-eval ({error}). Hint: pip install lm-eval") from error
    from mixed_gemm.quantization.foreign import naming

    manager = TaskManager()
    if unknown := [x for x in tasks if x not in manager.all_tasks and not Path(x).exists()]:
        raise ValueError(
            f"lm-eval has no task {', '.join(unknown)}. Hint: lm-eval ls tasks lists them"
        )
    with naming(name, f"the tasks {', '.join(tasks)} cannot be run"):
        wrapped = HFLM(pretrained=model, tokenizer=tokenizer_of(name))
        found = simple_evaluate(model=wrapped, tasks=list(tasks), task_manager=manager, limit=limit)
    results: dict[str, Any] = found["results"]
    return results


@reports_errors
def command(
    model: Annotated[
        str, typer.Argument(help="A model folder with a tokenizer, a .gguf file, or a hub id.")
    ],
    texts: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="UTF-8 text files.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    tasks: Annotated[
        str, typer.Option("--tasks", help="Of lm-eval, with commas: piqa,arc_easy.")
    ] = "",
    limit: Annotated[
        int | None, typer.Option("--limit", help="Only the first questions of a task.", min=1)
    ] = None,
    bits: Annotated[
        int, typer.Option("--bits", help="Quantize a dense model to 4 or 8; 0: as its files are.")
    ] = 0,
    group_size: GroupSize = 128,
    window: Annotated[
        int | None,
        typer.Option(
            "--window",
            help="Tokens the model sees at once.",
            min=2,
            show_default=f"{DEFAULT_WINDOW}, or what the model was made for",
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride", help="By how many the window moves.", show_default="half the window"
        ),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Only the first of a text.", min=2)
    ] = None,
    dtype: Annotated[
        DType | None,
        typer.Option("--dtype", help="Of the activations.", show_default="as the model says"),
    ] = None,
    device: Device = "",
    fuse: Annotated[
        bool,
        typer.Option("--fuse", help="Run layers that read the same tensor as one product."),
    ] = False,
    json: Json = False,
) -> None:
    """Perplexity of a model on texts, by a sliding window, and its scores on tasks of lm-eval.

    Reads quantized checkpoints of every format, and dense ones: with --bits to see what rounding
    costs, in groups by the rule of mixed-gemm quantize. A model with missing weights is refused.
    Needs transformers and accelerate; --tasks needs lm-eval, too.
    """
    if not model:
        raise typer.BadParameter("MODEL must name a folder, a file or a hub id, got an empty text")
    names = [x for x in tasks.split(",") if x]
    if not (texts or names):
        raise typer.BadParameter("give a TEXT, or --tasks")
    device_text(device)
    import mixed_gemm
    from mixed_gemm.integrations.transformers.registration import require_transformers

    require_transformers()
    from mixed_gemm.quantization.positions import longest_input

    where = parse_device(device)
    loaded = load(model, dtype, where, bits, group_size)
    products = mixed_gemm.fuse_(loaded) if fuse else None
    made_for = longest_input(loaded.config)
    run = runner_of(loaded, model, made_for)
    vocabulary = loaded.get_input_embeddings().num_embeddings
    linears = [module for module in loaded.modules() if isinstance(module, mixed_gemm.Linear)]
    about = {
        "model": model, "quantized_layers": len(linears), "dtype": str(loaded.dtype)[6:],
        "device": str(where),
    }  # fmt: skip
    if products is not None:
        about |= {"fused_layers": len(products.fused), "products": len(products.sets)}
        note(f"{len(products.fused)} layers run as {len(products.sets)} products")
    others = [x.group_size for x in linears if bits and x.group_size != group_size]
    for size, count in Counter(others).items():
        fits = f"groups of {size}" if size != -1 else "one group for each channel"
        note(f"{count} layers have {fits}, since {group_size} does not divide their K")
    found: dict[str, dict[str, Any]] = {}
    for text in texts or ():
        tokens = tokens_of(model, text, vocabulary, max_tokens)
        refuse_foresight(run, tokens.to(where), vocabulary, model)
        start = time.perf_counter()
        value = mixed_gemm.quantization.perplexity(
            run, tokens, window=window or min(DEFAULT_WINDOW, made_for or DEFAULT_WINDOW),
            stride=stride, device=where,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        found[str(text)] = {**vars(value), "seconds": seconds}
        if not json:
            note(
                f"{len(linears)} quantized layers on {where}; {value.tokens / seconds:.0f} tokens "
                "a second"
            )
            say(str(value) if len(texts or ()) == 1 else f"{text}: {value}")
    results = scores(loaded, model, names, limit) if names else {}
    if json:
        print_json({**about, "texts": found, "tasks": results})
        return
    for task, metrics in results.items():
        numbers = {k: v for k, v in metrics.items() if isinstance(v, float)}
        say(f"{task}: " + ", ".join(f"{k.split(',')[0]} {v:.4f}" for k, v in numbers.items()))
