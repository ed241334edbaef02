"""A folder or a model on the hub that is an adapter of peft: the model that it names, quantized,
and the adapter on top of it.

transformers does the same in ``from_pretrained``, where it then tells of the adapter's weights
alone. Here the model is loaded first, so that a weight which its files lack is told too.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...formats.adapter import ADAPTER, adapter_config, base_of, told
from ...formats.errors import CheckpointError
from ...formats.no_model import NoModelError

CONFIG = "config.json"
# Named as the subfolder of an adapter, it has transformers find none beside a model.
_NOWHERE = ".no-adapter"
_LOADED = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs", "conversion_errors")


@dataclass(frozen=True)
class Adapter:
    """An adapter that was found.

    Attributes:
        path: folder or hub id that it is in. file: its adapter_config.json.
        config: what that says. base: folder or hub id of the model.
        options: of ``load_adapter``.
    """

    path: str
    file: Path
    config: Mapping[str, Any]
    base: str
    options: dict[str, Any] = field(default_factory=dict)

    def put_on(self, model: Any) -> Any:
        """Put the adapter on the model, in eval mode.

        Args:
            model: of transformers, as :attr:`base` has it; changed in place.

        Raises:
            CheckpointError: the adapter does not fit the model, or is of a kind that transformers
                does not load.
        """
        kind = type(model).__name__
        try:
            info = model.load_adapter(self.path, **self.options)
        except Exception as error:  # errors of peft differ by kinds of adapters
            raise self._misfit(
                f"cannot be put on {kind} ({type(error).__name__}: {error})"
            ) from error
        name = self.options.get("adapter_name", "default")
        for what in _LOADED:
            found = sorted(map(str, getattr(info, what, None) or ()))
            if what == "missing_keys":  # transformers takes what has the name anywhere in it
                found = [x for x in found if name in x.split(".")]
            if found:
                raise self._misfit(
                    f"does not fit {kind}: {len(found)} {what.replace('_', ' ')}, "
                    f"{', '.join(found[:5])}"
                )
        return model.eval()

    def loaded_on(self, load: Callable[[str], Any]) -> Any:
        """Load the model from :attr:`base`, with the adapter.

        Raises:
            CheckpointError: also where there is no such model.
            ImportError: peft is missing.
        """
        if importlib.util.find_spec("peft") is None:
            raise ImportError(
                f"{self.path} holds {told(self.config)}, which needs peft. Hint: pip install "
                "'mixed-gemm[hf]'"
            )
        try:
            model = load(self.base)
        except (OSError, NoModelError) as error:
            if self.base == self.path:
                raise
            raise self._error(
                f"names the model {self.base!r}, which cannot be loaded ({error}). Hint: write its "
                "folder (a relative one is looked for from the folder in which the program runs) "
                "or hub id there, or put the files of the adapter beside the model"
            ) from error
        return self.put_on(model)

    def _error(self, reason: str) -> CheckpointError:
        return CheckpointError(self.file, "", reason)

    def _misfit(self, reason: str) -> CheckpointError:
        return self._error(
            f"{reason}. Hint: model_class= where it is for another head (its task_type is "
            f"{self.config.get('task_type')}); kinds that transformers does not load go on the "
            f"model with peft.PeftModel.from_pretrained(model, {self.path!r})"
        )


def find_adapter(path: str, hub: Mapping[str, Any], options: Mapping[str, Any]) -> Adapter | None:
    """Find the adapter that is at ``path``, alone or beside a model; None where there is none.

    Args:
        path: a folder, or an id on the hub. hub: options for the hub.
        options: of ``from_pretrained``: adapter_kwargs and adapter_name count.

    Raises:
        CheckpointError: its configuration cannot be read, names no model, or an adapter.
    """
    from transformers.utils import find_adapter_config_file

    given = {**hub, **(options.get("adapter_kwargs") or {})}
    known = inspect.signature(find_adapter_config_file).parameters
    file = find_adapter_config_file(path, **{x: y for x, y in given.items() if x in known})
    if file is None:
        return None
    named = {"adapter_name": options["adapter_name"]} if options.get("adapter_name") else {}
    own = {
        "adapter_kwargs": {x: given[x] for x in ("subfolder", "token", "revision") if x in given}
    }
    config = adapter_config(Path(file))
    whole = Path(path, CONFIG).is_file()
    base = path if whole else base_of(Path(file), config)
    found = Adapter(path, Path(file), config, base, {**own, **named})
    if Path(base, ADAPTER).is_file() and not Path(base, CONFIG).is_file():
        raise found._error(f"names {base}, which is an adapter, too, and no model")
    return found


def base_options(options: Mapping[str, Any], base: str) -> dict[str, Any]:
    """Return the ``options`` of ``from_pretrained`` for the model alone.

    Args:
        options: as they were given. base: folder or hub id of the model.
    """
    kept = {k: v for k, v in options.items() if k not in ("adapter_kwargs", "adapter_name")}
    beside = Path(base, ADAPTER).is_file()
    return {**kept, "adapter_kwargs": {"subfolder": _NOWHERE}} if beside else kept
