"""Ends processes that were started as leaders of a session, with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

# A signal, and how many seconds a process has then.
GENTLY = ((signal.SIGTERM, 30), (signal.SIGKILL, 30))
AT_ONCE = ((signal.SIGKILL, 30),)


def end(
    process: subprocess.Popen[bytes], how: tuple[tuple[signal.Signals, int], ...] = GENTLY
) -> None:
    for sent, seconds in how:
        with suppress(ProcessLookupError):  # all of them are gone
            os.killpg(process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
