"""The event loops on which what is awaited is tested; the fixture ``run`` gives each in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import uvloop

Runner = Callable[[Callable[[], Awaitable[Any]]], Any]


def on_asyncio(body: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(body(), debug=True)  # type: ignore[arg-type]


def on_uvloop(body: Callable[[], Awaitable[Any]]) -> Any:
    return uvloop.run(body())  # type: ignore[arg-type]


def on_trio(body: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(body)


LOOPS: dict[str, Runner] = {"asyncio": on_asyncio, "uvloop": on_uvloop, "trio": on_trio}
