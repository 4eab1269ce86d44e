"""Notes in the kernel's key retention service, as `core/keys.c` makes them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ccore import ffi, lib

import _sandcore

_TEXT = b"sandcore-test:a note; with anything in it"


def leave(seconds: int, most: int = 1 << 20) -> tuple[int, Any]:
    note = ffi.new("struct keys_note *")
    return lib.keys_leave(_TEXT, seconds, most, note), note


@pytest.fixture
def note() -> Iterator[Any]:
    error, made = leave(100)
    if error in (-errno.ENOSYS, -errno.EPERM):
        pytest.skip("this host gives no keys")
    assert error == 0
    yield made
    lib.keys_remove(made.key, made.ring)


def rest_of(note: Any) -> str:
    """How long the kernel keeps it yet, in its own words."""
    lines = Path("/proc/keys").read_text().splitlines()
    return next(line.split()[3] for line in lines if int(line.split()[0], 16) == note.key)


def test_a_note_is_found_and_read(note: Any) -> None:
    assert (note.key, _TEXT) in _sandcore.notes(b"sandcore-test:")
    assert _sandcore.notes(b"sandcore-test:another") == []


def test_a_note_has_an_end_that_can_be_put_off(note: Any) -> None:
    assert rest_of(note) in ("1m", "99s", "100s")
    assert lib.keys_renew(note, 7300) == 0
    assert rest_of(note) == "2h"


def test_a_note_is_taken_away_once(note: Any) -> None:
    assert _sandcore.forget(note.key)
    assert not _sandcore.forget(note.key)
    assert _sandcore.notes(b"sandcore-test:") == []


def test_where_there_are_enough_none_is_left(note: Any) -> None:
    error, _ = leave(100, most=1)
    assert error == -errno.EDQUOT


def test_a_list_that_does_not_fit_is_empty(note: Any) -> None:
    assert lib.keys_list(ffi.NULL, 0) >= 1
    other = ffi.new("struct keys_note *")
    assert lib.keys_leave(b"sandcore-test:2", 100, 1 << 20, other) == 0
    assert lib.keys_list(ffi.new("int32_t[1]"), 1) == 0
    lib.keys_remove(other.key, other.ring)
