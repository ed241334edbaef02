"""One place where a mistake is made."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = re.compile(r"\bMUTATED\((\w+)\)")


@dataclass(frozen=True)
class Edit:
    """Lines of a source file, and the lines that stand for them where mistakes can be made.

    file: below csrc/.
    text: whole lines, as they are; they begin with a line break, and are found exactly once.
    mutated: the same, with what is wrong behind ``MUTATED(Name)``.
    """

    file: str
    text: str
    mutated: str

    @property
    def names(self) -> set[str]:
        """The mistakes that are made here."""
        return set(NAME.findall(self.mutated))

    def applied(self, source: str) -> str:
        """A source with the mistakes in it.

        Raises:
            ValueError: the lines are not there, or not only once.
        """
        found = source.count(self.text)
        if found != 1:
            raise ValueError(
                f"csrc/{self.file}: these lines are found {found} times, not once; tools/mutation "
                f"must follow the source:{self.text}"
            )
        return source.replace(self.text, self.mutated)
