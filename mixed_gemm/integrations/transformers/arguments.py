"""The arguments of ``from_pretrained`` that say something of the configuration of a model, as
transformers' own take them: names of its attributes change it, the rest is for loading.
"""

from __future__ import annotations

import copy
from typing import Any

HUB_OPTIONS = (
    "revision",
    "code_revision",
    "token",
    "proxies",
    "cache_dir",
    "subfolder",
    "local_files_only",
    "force_download",
    "trust_remote_code",
)
# Configurations have attributes of these names, which say what the files hold.
_OF_THE_WEIGHTS = ("dtype", "torch_dtype", "quantization_config")


def file_options(hub: dict[str, Any]) -> dict[str, Any]:
    """Return the options for one file of the hub.

    Args:
        hub: options of ``HUB_OPTIONS``.
    """
    return {x: y for x, y in hub.items() if x not in ("trust_remote_code", "code_revision")}


def configuration(
    given: Any, path: str, hub: dict[str, Any], options: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return (the configuration of the model, what is left of the options).

    Args:
        given: a configuration, which is copied and keeps what it says; a folder or hub id that has
            one; or None: that of ``path``.
        path: a folder or hub id. hub: options for it.
        options: for transformers.
    """
    import transformers

    if isinstance(given, transformers.PreTrainedConfig):
        return copy.deepcopy(given), options
    kept = {x: options[x] for x in (*hub, *_OF_THE_WEIGHTS) if x in options}
    offered = {x: y for x, y in options.items() if x not in kept}
    config, rest = transformers.AutoConfig.from_pretrained(
        path if given is None else str(given), return_unused_kwargs=True, **hub, **offered
    )
    return config, {**{x: y for x, y in rest.items() if x in offered}, **kept}


def configuration_of(
    found: dict[str, Any], given: Any, options: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Do the same as :func:`configuration` for a file that holds its own.

    Args:
        found: what config.json would say. given: a configuration, or None. options: for
            transformers.
    """
    import transformers

    if given is not None:
        return copy.deepcopy(given), options
    kind = type(transformers.AutoConfig.for_model(**found))
    kept = {x: options[x] for x in _OF_THE_WEIGHTS if x in options}
    offered = {x: y for x, y in options.items() if x not in kept}
    config, rest = kind.from_dict(dict(found), return_unused_kwargs=True, **offered)
    return config, {**rest, **kept}
