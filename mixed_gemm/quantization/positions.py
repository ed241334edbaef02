"""The number of tokens that a language model takes at once. Beyond that, tables of learned
positions have no row, and other positions were never trained.
"""

from __future__ import annotations

from typing import Any

# Names that configurations of transformers have for it.
_NAMES = (
    "max_position_embeddings",
    "max_target_positions",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_sequence_length",
)


def longest_input(config: Any) -> int | None:
    """Return the number of tokens that a model was made for; None where its configuration does not
    say.

    Args:
        config: of transformers, or anything else, which says nothing.
    """
    part = getattr(config, "get_text_config", None)
    text = config if part is None else part()
    found = (getattr(text, name, None) for name in _NAMES)
    return next((x for x in found if isinstance(x, int) and x > 1), None)
