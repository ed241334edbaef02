"""The README.md of a folder that only this library reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .durable import write_new_file

README = "README.md"
_AUTO = "AutoModelForCausalLM"


def how_to_load(own: Mapping[str, str], auto: str = _AUTO) -> str:
    """The text.

    Args:
        own: layer -> why other readers have no place for it; at least one.
        auto: the class of transformers that loads the model.
    """
    name, reason = next(iter(own.items()))
    other = "" if auto == _AUTO else f", model_class=transformers.{auto}"
    imports = "import mixed_gemm" if not other else "import mixed_gemm\nimport transformers"
    return (
        "# How to load this model\n\n"
        f"{len(own)} of its layers have what compressed-tensors has no place for ({name}: "
        f"{reason}), so that other readers refuse it. Load it with mixed_gemm:\n\n"
        f'```python\n{imports}\n\nmodel = mixed_gemm.from_pretrained("this folder"{other})\n```\n\n'
        f"or, once mixed_gemm is imported, with `transformers.{auto}.from_pretrained`.\n"
    )


def write_readme(folder: Path, own: Mapping[str, str], auto: str = _AUTO) -> None:
    """Write it where it is needed and there is none: what somebody wrote stays.

    Args:
        folder: of the model. own, auto: as of :func:`how_to_load`; nothing is written without a
            layer.

    Raises:
        OSError: it cannot be written.
    """
    if own and not (folder / README).exists():
        write_new_file(folder / README, [how_to_load(own, auto).encode()])
