"""docs/api.md: every public name with the first sentence of its docstring, by package.

A name is public where a package below has it in ``__all__``. One that several packages have is
listed once, in the first.
"""

from __future__ import annotations

import importlib
import inspect
import re

from .page import Page, whole
from .table import table

PACKAGES = {
    "mixed_gemm": "What most programs need; the other packages hold the rest.",
    "mixed_gemm.ops": "The ops; each is also an op of torch, `torch.ops.mixed_gemm.NAME`.",
    "mixed_gemm.weights": "How a weight is stored: schemes, kinds of weights, tensors.",
    "mixed_gemm.nn": "Modules in place of those of torch.nn.",
    "mixed_gemm.formats": "Checkpoints of others, read and written.",
    "mixed_gemm.quantization": "Quantizing models and checkpoints, and what it costs in quality.",
    "mixed_gemm.quantization.methods": "How a dense weight becomes a quantized one.",
    "mixed_gemm.parallel": "Several GPUs, beyond what torch's own styles do.",
    "mixed_gemm.selection": "Which kernel runs, and measuring it.",
    "mixed_gemm.reference": "What an op must compute, in float64, and how far it may be from it.",
    "mixed_gemm.integrations.transformers": "Adapters to transformers.",
}
# Values have no docstring of their own.
CONSTANTS = {
    "mixed_gemm.weights.KINDS": "The kinds of quantized weights; the first that fits a scheme "
    "stores it.",
    "mixed_gemm.weights.SCHEMES": "Name -> scheme, of those that can be asked for by name.",
    "mixed_gemm.quantization.methods.METHODS": "Name -> function without arguments that makes the "
    "method.",
    "mixed_gemm.reference.ACTIVATION_TABLE": "Activation -> (function, largest magnitude of its "
    "derivative).",
    "mixed_gemm.reference.ROUNDING": "Dtype -> (largest relative rounding error, half of the "
    "smallest subnormal number).",
    "mixed_gemm.reference.VALUES": "Weight type -> the value of each code, float64.",
}
# Names whose modules need what need not be installed: package -> name -> (kind, text).
OPTIONAL = {
    "mixed_gemm": {
        "MixedGemmConfig": ("class", "Quantize a dense model while transformers loads it."),
    },
}
HEAD = """\
# The public names

This is the public API; what is not listed may change without a line in the CHANGELOG. Each
docstring has shapes, dtypes, units and errors: `help(mixed_gemm.quantize_)`.

`python -m tools.pages api` writes this page from the first sentences of the docstrings.
"""


def public_objects() -> dict[str, dict[str, object]]:
    """Package -> name -> what it is, each object once; without those of OPTIONAL."""
    seen: dict[int, str] = {}
    found: dict[str, dict[str, object]] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        found[package] = {}
        for name in sorted(module.__all__, key=str.lower):
            if name.startswith("__") or name in OPTIONAL.get(package, {}):
                continue
            thing = getattr(module, name)
            if id(thing) not in seen:
                seen[id(thing)] = package
                found[package][name] = thing
    return found


def first_sentence(thing: object) -> str:
    """Return the docstring up to the first period that ends a sentence, on one line."""
    paragraph = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    sentence = re.match(r"(.+?[.:])(?= [A-Z`]|$)", paragraph)
    text = sentence.group(1) if sentence else paragraph
    text = re.sub(r":(?:func|class|meth):`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    return text.rstrip(":").replace("|", "\\|")


def kind_of(thing: object) -> str:
    if inspect.isclass(thing):
        return "class"
    return "function" if callable(thing) else "constant"


def text() -> str:
    lines = [HEAD]
    for package, names in public_objects().items():
        rows = dict(OPTIONAL.get(package, {}))
        for name, thing in names.items():
            told = CONSTANTS.get(f"{package}.{name}") or first_sentence(thing)
            rows[name] = (kind_of(thing), told)
        if not rows:
            continue
        lines += [f"## {package}", "", PACKAGES[package], ""]
        cells = ([f"`{name}`", *rows[name]] for name in sorted(rows, key=str.lower))
        lines += [table(["name", "kind", "what it is"], cells, tight=True), ""]
    return "\n".join(lines).rstrip() + "\n"


PAGE = Page({"docs/api.md": whole(text)})
