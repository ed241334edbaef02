"""A .gguf file as a model of transformers: its linear layers keep the integers of the file, the
rest is dense.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...formats.gguf_file import begins_as_gguf
from ...formats.gguf_tensors import METHOD as GGUF
from ...formats.index import TensorIndex
from .arguments import configuration_of, file_options
from .registration import METHOD, not_quantized


def local_gguf(path: str, gguf_file: str | None, hub: dict[str, Any]) -> Path | None:
    """Find the .gguf file that is meant; None where none is.

    Args:
        path: of a file; or a folder or hub id, in which ``gguf_file`` is.
        hub: options for the hub.

    Raises:
        OSError: there is no such file.
    """
    if gguf_file is not None:
        from transformers.utils import cached_file

        return Path(cached_file(path, gguf_file, **file_options(hub)))
    file = Path(path)
    if file.suffix == ".gguf" and not file.is_dir():
        return file  # where there is none, opening it says so; as the id of a hub it would not
    return file if file.is_file() and begins_as_gguf(file) else None


def load(
    file: Path, model_class: Any, config: Any, options: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Load the model; return it and what transformers says of loading it.

    Args:
        file: the .gguf file. model_class: that of its architecture when None.
        config: of the model; from the metadata of the file when None.
        options: for transformers.

    Raises:
        CheckpointError: the file is not read. ValueError: it is to be quantized once more, or is
            not and nothing says how to.
    """
    import transformers

    index = TensorIndex(file)
    found = {**index.config}
    is_quantized = found.pop("quantization_config", None) is not None
    if is_quantized == (options.get("quantization_config") is not None):
        raise ValueError(
            f"mixed_gemm.from_pretrained: {file} is quantized: quantization_config must be None"
            if is_quantized
            else not_quantized(file)
        )
    config, options = configuration_of(found, config, options)
    if model_class is None:
        model_class = getattr(transformers, found["architectures"][0])
    elif (classes := getattr(model_class, "_model_mapping", None)) is not None:
        model_class = classes[type(config)]  # an Auto class wants a folder
    if is_quantized:
        # The quantizer opens the file again: transformers copies a config, and writes it as JSON.
        source = {"quant_method": GGUF, "file": str(file)}
        config.quantization_config = {"quant_method": METHOD, "source": source}
    # Experts read their own parts, one after the other.
    state = {name: index.load(name) for name in index.names() if not index.is_part(name)}
    loaded: tuple[Any, dict[str, Any]] = model_class.from_pretrained(
        None, config=config, state_dict=state, output_loading_info=True, **options
    )
    return loaded


def file_of(source: dict[str, Any]) -> Path | None:
    """Return the .gguf file that the source of a configuration names, if it is one of
    :func:`load`."""
    if source.get("quant_method") != GGUF or not isinstance(source.get("file"), str):
        return None
    return Path(source["file"])
