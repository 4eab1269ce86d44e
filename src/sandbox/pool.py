"""``Pool``: commands handed over one by one, as a ``concurrent.futures.Executor``.

What comes over the number that may run waits in a queue. One thread of the pool's takes what is
over, starts what waits, and wakes whoever waits for a future.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from types import TracebackType
from typing import Any, Unpack

from sandbox.backends.choose import choose
from sandbox.batch import Boxes, Command, concurrency_of
from sandbox.errors import InvalidArgument
from sandbox.flights import Flight, Flights
from sandbox.live import Sandbox
from sandbox.policy import SandboxPolicy
from sandbox.request import Args, RunOptions, check_names
from sandbox.result import Result

__all__ = ["Pool"]


class Pool(Executor):
    """Runs commands, so many at a time: ``submit(args)`` gives a future of a ``Result``.

    Parameters as for ``run_many``: ``policy``, ``workspace`` and ``workspaces``, or ``sandbox``;
    ``concurrency``; and options as for ``Sandbox.run``, for all commands. A context manager: at its
    end all have run, unless an exception ends it, such as Ctrl-C: then they are ended, too. For one
    process: a forked copy has none of its threads.
    """

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        *,
        sandbox: Sandbox | None = None,
        workspace: Any = None,
        workspaces: Any = None,
        concurrency: int | None = None,
        **how: Unpack[RunOptions],
    ) -> None:
        check_names(how)
        self._most = concurrency_of(concurrency)
        self._how = how
        self._boxes = Boxes(policy, sandbox, workspace, workspaces, self._most)
        self._flights = Flights(choose().engine())
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Command, Future[Result]]] = deque()
        self._ending = False
        self._thread = threading.Thread(target=self._serve, name="sandbox.Pool", daemon=True)
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        self.shutdown()

    def submit(  # type: ignore[override]
        self, args: Args | Command, /, workspace: Any = None, **how: Unpack[RunOptions]
    ) -> Future[Result]:
        """Has a command run when there is room; its ``Result``, or what ``Sandbox.run`` raises.

        Raises ``RuntimeError`` after ``shutdown``.
        """
        if isinstance(args, Command):
            if workspace is not None or how:
                raise InvalidArgument("args", "Command(...)", "has its own workspace and options")
            command = args
        else:
            command = Command(args, workspace, how)
        future: Future[Result] = Future()
        with self._changed:
            if self._ending:
                raise RuntimeError("the pool was shut down")
            self._waiting.append((command, future))
            over = self._start()
            self._changed.notify()
        for flight in over:
            _tell(flight)
        return future

    def map(  # type: ignore[override]
        self, commands: Iterable[Args | Command], /, timeout: float | None = None
    ) -> Iterator[Result]:
        """The results of many, in their order. All are handed over at once."""
        futures = [self.submit(command) for command in commands]

        def results() -> Iterator[Result]:
            try:
                for future in futures:
                    yield future.result(timeout)
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more. What waits still runs, or with ``cancel_futures`` never does."""
        with self._changed:
            self._ending = True
            if cancel_futures:
                self._cancel()
            self._changed.notify()
        if wait:
            self._thread.join()

    def kill(self) -> None:
        """Ends what runs, whose results say so, and cancels what waits. Takes more commands."""
        with self._changed:
            self._cancel()
            self._flights.kill_all()

    def _cancel(self) -> None:
        while self._waiting:
            self._waiting.pop()[1].cancel()

    def _start(self) -> list[Flight]:
        """Starts what there is room for. Those that are over at once are to be told of."""
        over = []
        while self._waiting and len(self._flights) < self._most:
            command, future = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                flight = self._boxes.start(self._flights, command, self._how, future)
            except Exception as error:
                future.set_exception(error)
                continue
            if flight.is_over:
                over.append(flight)
        return over

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not len(self._flights):
                    if self._ending and not self._waiting:
                        self._flights.close()
                        self._boxes.close()
                        return
                    self._changed.wait()
            self._flights.wait()
            with self._changed:
                over = self._flights.landed() + self._start()
            for flight in over:
                _tell(flight)


def _tell(flight: Flight) -> None:
    """Not under the lock: whoever waits for a future may be asked to submit."""
    future: Future[Result] = flight.token
    if flight.error is not None:
        future.set_exception(flight.error)
    elif flight.result is not None:
        future.set_result(flight.result)
