"""An engine where there is no compiled one: a thread for each command that runs."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from sandbox.backends.base import ConfinementLost, Outcome

__all__ = ["ThreadEngine", "ThreadJob"]


class ThreadJob:
    """See ``Job``."""

    at_once = False

    def __init__(self, token: Any, kill: Callable[[], None]) -> None:
        self.token = token
        self.kill = kill
        self.outcome: Outcome | None = None
        self.lost: str | None = None
        self.error: BaseException | None = None


class ThreadEngine:
    """See ``Engine``. Each job that is over is one byte in a pipe."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self._over: deque[ThreadJob] = deque()
        self._going: set[ThreadJob] = set()

    def __len__(self) -> int:
        return len(self._going)

    def fileno(self) -> int:
        """See ``Engine.fileno``."""
        return self._read

    def start(
        self, finish: Callable[[], Outcome], kill: Callable[[], None], token: Any
    ) -> ThreadJob:
        """Waits, in a thread, for a command that was started. ``finish`` gives its outcome."""
        job = ThreadJob(token, kill)
        self._going.add(job)
        threading.Thread(target=self._wait, args=(job, finish), daemon=True).start()
        return job

    def _wait(self, job: ThreadJob, finish: Callable[[], Outcome]) -> None:
        try:
            job.outcome = finish()
        except ConfinementLost as lost:
            job.lost = str(lost)
        except BaseException as error:  # for whoever takes it: there is nobody above here
            job.lost, job.error = str(error), error
        self._over.append(job)
        os.write(self._write, b"\0")

    def take(self, timeout: float | None = 0.0, /) -> list[ThreadJob]:
        """See ``Engine.take``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._going and not self._over:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            select.select([self._read], [], [], left)
        found = []
        while self._over:
            job = self._over.popleft()
            self._going.discard(job)
            found.append(job)
        self._drain(len(found))
        return found

    def _drain(self, count: int) -> None:
        """Takes a byte for each; one that is not there yet is on its way."""
        while count:
            select.select([self._read], [], [])
            count -= len(os.read(self._read, count))

    def kill(self, job: ThreadJob, /) -> None:
        """See ``Engine.kill``."""
        if job in self._going:
            job.kill()

    def close(self) -> None:
        """See ``Engine.close``."""
        if self._read < 0:
            return
        for job in list(self._going):
            job.kill()
        while self._going:
            self.take(None)
        os.close(self._read)
        os.close(self._write)
        self._read = self._write = -1
