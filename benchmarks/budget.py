"""How long a run may take, where a machine is lent for minutes."""

from __future__ import annotations

import time
from collections.abc import Callable


class Budget:
    """Tell when another point might not fit in ``seconds`` from now: the next may take twice as
    long as the longest so far, since M grows."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start, self._seconds = clock, clock(), seconds
        self._longest, self._last = 0.0, self._start

    def has_room(self) -> bool:
        """Note the time; called before each point."""
        now = self._clock()
        self._longest, self._last = max(self._longest, now - self._last), now
        return now - self._start + 2 * self._longest < self._seconds

    def spent(self) -> float:
        """Return the seconds since the start."""
        return self._clock() - self._start
