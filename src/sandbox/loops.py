"""The event loops that ``aio`` runs on: asyncio (uvloop too) and trio, each by its own means.

Asked of a loop is to wait until a fd may be read or written, to be called when one may be read, a
moment that one task can wait for and another, or a thread, bring about, and a task beside those
that there are. Nothing of a loop is imported before it is seen to run.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

__all__ = ["Loop", "Moment", "current", "in_thread"]

T = TypeVar("T")


class Moment(Protocol):
    """Comes once. One task waits for it."""

    def come(self) -> None:
        """Brings it about. Idempotent; on the loop's own thread."""

    async def wait(self) -> None:
        """Until it has come. A cancellation point."""

    async def outlast(self) -> None:
        """Until it has come, whoever cancels meanwhile; that is raised after it."""


class Loop(Protocol):
    """The event loop that runs now."""

    def once(self, make: Callable[[], T]) -> T:
        """What was made for this loop the first time, by that time's ``make``."""

    def moment(self) -> Moment:
        """A new one."""

    def watch(self, fd: int, act: Callable[[], bool], lost: Callable[[], object] = bool) -> None:
        """Calls ``act`` whenever the fd may be read, until it returns False.

        ``lost``: or until the loop ends, and what is left of it waits in vain.
        """

    def spawn(
        self, act: Callable[[], Awaitable[None]], over: Callable[[BaseException | None], None]
    ) -> Callable[[], object]:
        """Begins ``act`` beside what runs; at its end ``over`` is called. Gives what cancels it."""

    async def rest(self) -> None:
        """Lets others have their turn. A cancellation point."""

    def unwatch(self, fd: int) -> None:
        """Calls nothing for this fd any more; before it is closed. Nothing is awaited."""

    def soon(self, act: Callable[[], object]) -> None:
        """Has the loop call it, from any thread. Nothing where the loop has ended."""

    async def readable(self, fd: int) -> None:
        """Until something may be read, or the other side is gone. For one task at a time."""

    async def writable(self, fd: int) -> None:
        """Until something may be written, or nobody reads it. For one task at a time."""


def current() -> Loop:
    """Raises ``RuntimeError`` outside of a loop."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return _Trio(trio)
    return _Asyncio(asyncio.get_running_loop())


async def in_thread(call: Callable[[], T]) -> T:
    """What a function returns or raises, called in a thread of its own.

    Who is cancelled goes on at once. The thread ends when the function does, and nobody waits for
    that: neither the loop nor the interpreter at its end.
    """
    loop = current()
    over = loop.moment()
    context = contextvars.copy_context()
    returned: list[T] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            returned.append(context.run(call))
        except BaseException as error:
            raised.append(error)
        loop.soon(over.come)

    threading.Thread(target=work, name="sandbox.aio", daemon=True).start()
    await over.wait()
    if raised:
        raise raised.pop()
    return returned.pop()


class _AsyncioMoment:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._come = False
        self._future: asyncio.Future[None] = loop.create_future()

    def come(self) -> None:
        self._come = True
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        if not self._come:
            self._future = self._loop.create_future()
            await self._future

    async def outlast(self) -> None:
        cancelled: asyncio.CancelledError | None = None
        while not self._come:
            try:
                await self.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled


_things: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # of each asyncio loop


class _Asyncio:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def once(self, make: Callable[[], T]) -> T:
        if self._loop not in _things:
            _things[self._loop] = make()
        found: T = _things[self._loop]
        return found

    def moment(self) -> Moment:
        return _AsyncioMoment(self._loop)

    def watch(self, fd: int, act: Callable[[], bool], lost: Callable[[], object] = bool) -> None:
        loop = self._loop  # which goes on as long as anything of it

        def ready() -> None:
            if not act():
                loop.remove_reader(fd)

        loop.add_reader(fd, ready)

    def unwatch(self, fd: int) -> None:
        if not self._loop.is_closed():
            self._loop.remove_reader(fd)

    def soon(self, act: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(act)

    def spawn(
        self, act: Callable[[], Awaitable[None]], over: Callable[[BaseException | None], None]
    ) -> Callable[[], object]:
        async def serve() -> None:
            await act()

        task = self._loop.create_task(serve())
        task.add_done_callback(lambda done: over(None if done.cancelled() else done.exception()))
        return task.cancel

    async def rest(self) -> None:
        await asyncio.sleep(0)

    async def readable(self, fd: int) -> None:
        moment = _AsyncioMoment(self._loop)
        self._loop.add_reader(fd, moment.come)
        try:
            await moment.wait()
        finally:
            self._loop.remove_reader(fd)

    async def writable(self, fd: int) -> None:
        moment = _AsyncioMoment(self._loop)
        self._loop.add_writer(fd, moment.come)
        try:
            await moment.wait()
        finally:
            self._loop.remove_writer(fd)


class _TrioMoment:
    def __init__(self, trio: Any) -> None:
        self._trio = trio
        self._event = trio.Event()

    def come(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    async def outlast(self) -> None:
        with self._trio.CancelScope(shield=True):
            await self._event.wait()
        await self._trio.lowlevel.checkpoint_if_cancelled()


class _Trio:
    def __init__(self, trio: Any) -> None:
        self._trio = trio
        self._token = trio.lowlevel.current_trio_token()

    def once(self, make: Callable[[], T]) -> T:
        if self._token not in _things:
            _things[self._token] = make()
        found: T = _things[self._token]
        return found

    def moment(self) -> Moment:
        return _TrioMoment(self._trio)

    def watch(self, fd: int, act: Callable[[], bool], lost: Callable[[], object] = bool) -> None:
        wait = self._trio.lowlevel.wait_readable

        async def serve() -> None:
            try:
                with suppress(self._trio.ClosedResourceError):
                    await wait(fd)
                    while act():
                        await wait(fd)
            except self._trio.Cancelled:  # generators are ended after this
                lost()
                raise

        self._trio.lowlevel.spawn_system_task(serve, name="sandbox.aio")

    def spawn(
        self, act: Callable[[], Awaitable[None]], over: Callable[[BaseException | None], None]
    ) -> Callable[[], object]:
        scope = self._trio.CancelScope()

        async def serve() -> None:
            failed: BaseException | None = None
            try:
                with scope:
                    await act()
            except self._trio.Cancelled:
                raise
            except BaseException as error:  # which would end all of trio
                failed = error
            finally:
                over(failed)

        lowlevel = self._trio.lowlevel
        lowlevel.spawn_system_task(serve, name="sandbox.aio", context=contextvars.copy_context())
        return scope.cancel  # type: ignore[no-any-return]

    async def rest(self) -> None:
        await self._trio.lowlevel.checkpoint()

    def unwatch(self, fd: int) -> None:
        if self._trio.lowlevel.in_trio_run():
            self._trio.lowlevel.notify_closing(fd)

    def soon(self, act: Callable[[], object]) -> None:
        with suppress(self._trio.RunFinishedError):
            self._token.run_sync_soon(act)

    async def readable(self, fd: int) -> None:
        await self._trio.lowlevel.wait_readable(fd)

    async def writable(self, fd: int) -> None:
        await self._trio.lowlevel.wait_writable(fd)
