"""``from_pretrained``: transformers' own, for quantized files of any format that is read here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...formats.config import LEGACY, legacy_config
from ...formats.errors import CheckpointError
from ...formats.no_model import NoModelError, hint_of
from ...ops.errors import wrong_value
from ...quantization.fuse import fuse_
from ...quantization.fuse_report import warn_unless_fused
from .adapters import base_options, find_adapter
from .arguments import HUB_OPTIONS, configuration, file_options
from .gguf import load as load_gguf
from .gguf import local_gguf
from .registration import FLOAT8, METHOD, not_quantized, require_transformers


def from_pretrained(
    path_or_id: str | Path | None,
    *,
    model_class: Any = None,
    config: Any = None,
    weight_only: bool = False,
    gguf_file: str | None = None,
    float8: str = "keep",
    fuse: bool = False,
    **kwargs: Any,
) -> Any:
    """Load a model with its linear layers as ``mixed_gemm.Linear``.

    Args:
        path_or_id: a folder, or a model on the hub: AWQ, GPTQ, compressed-tensors, bitsandbytes in
            4 bits, ModelOpt, or what ``save_pretrained`` of such a model wrote; or a .gguf file.
            With ``quantization_config=MixedGemmConfig(...)``, an unquantized one; None with a
            ``state_dict``. Of an adapter of peft the model that it names is loaded, and the adapter
            put on it; one that lies beside a model likewise.
        model_class: of transformers, AutoModelForCausalLM when None.
        config: of the model, or where there is one; read from ``path_or_id`` when None.
        weight_only: leave activations in their dtype where the files ask for rounding them (W8A8,
            float8).
        float8: "keep" float8 weights of the files as they are, or round them to "int8" in groups of
            128 with activations in their dtype: for GPUs before 8.9, and few rows at a time.
        gguf_file: name of a .gguf file in the folder, or the model on the hub, ``path_or_id``.
        fuse: run linears that read the same tensor as one product: ``mixed_gemm.fuse_(model)``.
        kwargs: for transformers, all that its ``from_pretrained`` takes: dtype (float16, bfloat16,
            float32 or "auto"), device_map, revision, token, trust_remote_code, key_mapping,
            attributes of the configuration, ... What ``device_map`` leaves on disk is written to
            ``offload_folder``, packed.

    Returns:
        The model, in eval mode; with ``output_loading_info=True`` a pair of it and what
        transformers says of loading it.

    Raises:
        CheckpointError: the files are broken, or do not fill the model: no weight is left random,
            but those of another shape with ``ignore_mismatched_sizes=True``; or an adapter does not
            fit the model.
        ValueError: the model is not quantized, and no quantization_config says how to;
            ``float8`` is neither; ``fuse`` has no example for the model; or layers are to be on
            disk, and there is no ``offload_folder``.
        ImportError: transformers is missing or older than 5.17, or an adapter is to be loaded, and
            peft is missing.
    """
    require_transformers()
    if float8 not in FLOAT8:
        where = "mixed_gemm.from_pretrained"
        wrong_value(where, "float8", f"be one of {FLOAT8}", repr(float8))
    tell = kwargs.pop("output_loading_info", False)
    if path_or_id is None:
        model, info = _from_state(model_class, config, kwargs)
    else:
        options = {"weight_only": weight_only, "float8": float8}
        model, info = load(str(path_or_id), model_class, config, gguf_file, options, kwargs)
    if fuse:
        warn_unless_fused("mixed_gemm.from_pretrained", fuse_(model))
    return (model, info) if tell else model


def load(
    path: str,
    model_class: Any = None,
    config: Any = None,
    gguf_file: str | None = None,
    options: Mapping[str, Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> tuple[Any, Mapping[str, Any]]:
    """Do what :func:`from_pretrained` does, also for a ``path`` that has an adapter alone.

    Args:
        path, model_class, config, gguf_file: as there.
        options: weight_only and float8; None takes a dense model, too, as it is.
        kwargs: for transformers.

    Returns:
        The model, and what transformers says of loading it; of an adapter, of loading its base.
    """
    kwargs = {} if kwargs is None else kwargs
    hub = {x: kwargs[x] for x in HUB_OPTIONS if x in kwargs}
    file = local_gguf(path, gguf_file, hub)
    if file is None:
        _refuse_no_folder(path)
    adapter = None if file is not None else find_adapter(path, hub, kwargs)
    if adapter is None:
        return _load_model(path, file, model_class, config, options, dict(kwargs))
    if adapter.base != path:  # the subfolder, if any, is that of the adapter
        kwargs = {x: value for x, value in kwargs.items() if x != "subfolder"}
    told: dict[str, Any] = {}

    def load_base(base: str) -> Any:
        more = base_options(kwargs, base)
        _refuse_no_folder(base)
        gguf = local_gguf(base, None, hub)
        model, info = _load_model(base, gguf, model_class, config, options, more)
        told.update(info)
        return model

    return adapter.loaded_on(load_base), told


def _load_model(
    path: str,
    file: Path | None,
    model_class: Any,
    config: Any,
    options: Mapping[str, Any] | None,
    kwargs: dict[str, Any],
) -> tuple[Any, Mapping[str, Any]]:
    """Load the model at ``path``, without an adapter; ``file`` is its .gguf file, if it is one."""
    if file is not None:
        path = str(file)
        model, info = load_gguf(file, model_class, config, kwargs)
    else:
        hub = {x: kwargs[x] for x in HUB_OPTIONS if x in kwargs}
        if config is None:
            _refuse_no_config(path, hub)
        config, kwargs = configuration(config, path, hub, kwargs)
        _name_source(config, path, hub, kwargs.get("quantization_config"), options)
        cls = _causal_class(config, path) if model_class is None else model_class
        model, info = cls.from_pretrained(path, config=config, output_loading_info=True, **kwargs)
    refuse_unfilled(model, info, path, bool(kwargs.get("ignore_mismatched_sizes")))
    return model, info


def _causal_class(config: Any, path: str) -> Any:
    """Return AutoModelForCausalLM, which for another model says all the classes that it would
    take."""
    import transformers

    auto = transformers.AutoModelForCausalLM
    names = getattr(config, "architectures", None) or ()
    name = next((x for x in names if hasattr(transformers, x)), "AutoModel")
    own_code = auto.__name__ in (getattr(config, "auto_map", None) or {})
    # For an encoder and a decoder it would load the decoder alone (Whisper, BART).
    both = getattr(config, "is_encoder_decoder", False) and name.endswith("ConditionalGeneration")
    if not own_code and (both or type(config) not in auto._model_mapping):
        kind = f"is a {names[0] if names else type(config).__name__}"
        raise CheckpointError(
            path,
            "",
            f"{kind}, and no causal language model. Hint: mixed_gemm.from_pretrained(..., "
            f"model_class=transformers.{name})",
        )
    return auto


def _refuse_no_folder(path: str) -> None:
    """Raise NoModelError for a path that is no folder and, by its form, no id on the hub."""
    if local_gguf(path, None, {}) is not None or Path(path).is_dir():
        return
    if Path(path).exists():
        raise NoModelError(path, "", "is a file. Hint: name the folder of the model")
    if not _HUB_ID.fullmatch(path):
        raise NoModelError(path, "", "no such file or folder, and no id of a model on the hub")


def _refuse_no_config(path: str, hub: Mapping[str, Any]) -> None:
    """Raise NoModelError for a folder without a config.json, of which transformers says what hardly
    helps."""
    folder = Path(path, hub.get("subfolder", ""))
    if folder.is_dir() and not (folder / "config.json").exists():
        raise NoModelError(folder, "", f"no config.json in this folder{hint_of(folder)}")


def _from_state(model_class: Any, config: Any, options: dict[str, Any]) -> Any:
    """Let transformers make a model of a state_dict; its Auto classes want a folder."""
    import transformers

    if config is None or options.get("quantization_config") is None:
        raise ValueError(
            "mixed_gemm.from_pretrained: path_or_id is None, so config, state_dict and "
            "quantization_config must say what is loaded: a quantized model is read from files"
        )
    cls = transformers.AutoModelForCausalLM if model_class is None else model_class
    if (classes := getattr(cls, "_model_mapping", None)) is not None:
        cls = classes[type(config)]
    return cls.from_pretrained(None, config=config, output_loading_info=True, **options)


def refuse_unfilled(
    model: Any, info: Mapping[str, Any], path: str, other_sizes: bool = False
) -> None:
    """Raise CheckpointError where transformers left a weight random, of which it only warns.

    Args:
        model: as it was loaded. info: its loading info. path: of the files.
        other_sizes: whether weights of another shape than the files have may be random.
    """
    for kind in ("missing_keys", "mismatched_keys", "error_msgs", "conversion_errors"):
        if info.get(kind) and not (other_sizes and kind == "mismatched_keys"):
            some = sorted(map(str, info[kind]))
            raise CheckpointError(
                path,
                "",
                f"does not fill {type(model).__name__}: {len(some)} {kind.replace('_', ' ')}, "
                f"{', '.join(some[:5])}. Hint: model_class=, when the files are of another head",
            )


_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)


def quantization_of(config: Any, path: str, hub: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the model's config, or a quantize_config.json beside it, says; None when it is
    dense.

    Args:
        config: of transformers. path: a folder or hub id. hub: options for the hub.
    """
    text = config.get_text_config()
    found = getattr(config, "quantization_config", None)
    found = getattr(text, "quantization_config", None) if found is None else found
    found = _legacy_config(path, hub) if found is None else found
    if found is None or isinstance(found, dict):
        return found
    as_dict: dict[str, Any] = found.to_dict()
    return as_dict


def _name_source(
    config: Any, path: str, hub: dict[str, Any], asked: Any, options: Mapping[str, Any] | None
) -> None:
    """Put our method into the config, with what the files say as its source."""
    found = quantization_of(config, path, hub)
    if found is None:
        if asked is None and options is not None:
            raise ValueError(not_quantized(path))
        return
    if found.get("quant_method") != METHOD:
        found = {"quant_method": METHOD, "source": found, **(options or {})}
    config.quantization_config = found


def _legacy_config(path: str, hub: dict[str, Any]) -> dict[str, Any] | None:
    from transformers.utils import cached_file

    options = {**file_options(hub), "_raise_exceptions_for_missing_entries": False}
    for name in LEGACY:
        file = cached_file(path, name, **options)
        if file is not None:
            return legacy_config(Path(file))
    return None
