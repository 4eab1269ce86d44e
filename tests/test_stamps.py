"""Stamps: what was created, removed, written, replaced or re-permitted has another."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ccore import ffi, lib
from conftest import AsUser

import _sandcore as core

SIZE = core.Stamps.SIZE
ABSENT = bytes(SIZE)


def stamps(*paths: Path, identities: tuple[Path, ...] = ()) -> core.Stamps:
    return core.Stamps(map(bytes, paths), map(bytes, identities))


def write_same_length(path: Path) -> None:
    before = path.stat()
    path.write_bytes(bytes(reversed(path.read_bytes())))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nothing had happened


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


def by_symlink(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def by_hard_link(path: Path) -> None:
    os.link(path, path.with_name("another name"))


def away_and_back(path: Path) -> None:
    path.rename(path.with_name("away"))
    path.with_name("away").rename(path)


def append_and_truncate(path: Path) -> None:
    size = path.stat().st_size
    with open(path, "ab") as file:
        file.write(b"x")
    os.truncate(path, size)


CHANGES: list[Callable[[Path], object]] = [
    write_same_length,
    replace,
    by_symlink,
    by_hard_link,
    away_and_back,
    append_and_truncate,
    lambda path: path.unlink(),
    lambda path: path.chmod(0o755),
    lambda path: (path.chmod(0o755), path.chmod(0o644)),
    lambda path: os.utime(path, (1, 1)),
    lambda path: os.setxattr(path, "user.x", b"1"),
    lambda path: (path.unlink(), path.mkdir()),
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_every_change_of_a_file_changes_its_stamp_and_utime_restores_none(
    place: Path, change: Callable[[Path], object]
) -> None:
    path, still = place / "file", place / "still"
    for one in (path, still):
        one.write_text("first\n")
        one.chmod(0o644)
    taker = stamps(path, still)
    before = taker.take()
    assert len(before) == 2 * SIZE and before[:SIZE] != ABSENT
    assert taker.take() == before and taker.same(before)
    change(path)
    after = taker.take()
    assert taker.same(after) and not taker.same(before)
    assert after[:SIZE] != before[:SIZE]
    assert after[SIZE:] == before[SIZE:]
    times = path.lstat() if os.path.lexists(path) else None
    if times is not None and not path.is_symlink():
        os.utime(path, ns=(times.st_atime_ns, 0))
        assert taker.take()[:SIZE] != before[:SIZE]


def test_reading_and_looking_change_nothing(place: Path) -> None:
    path = place / "file"
    path.write_text("text\n")
    before = stamps(path, place).take()
    path.read_text()
    list(place.iterdir())
    path.stat()
    assert stamps(path, place).take() == before


def test_a_path_that_comes_to_be_has_a_stamp_and_one_that_goes_has_none(place: Path) -> None:
    path = place / "a" / "b"
    taker = stamps(path)
    assert taker.take() == ABSENT  # not even its directory is there
    (place / "a").write_text("a file on the way\n")
    assert taker.take() == ABSENT
    (place / "a").unlink()
    path.parent.mkdir()
    assert taker.take() == ABSENT
    path.symlink_to("/nowhere")
    assert taker.take() != ABSENT  # a symlink is something, whatever it leads to
    path.unlink()
    assert taker.take() == ABSENT


def test_a_directory_s_stamp_tells_of_its_names_and_not_of_what_lies_deeper(place: Path) -> None:
    (place / "deep").mkdir()
    taker = stamps(place)
    before = taker.take()
    (place / "deep" / "file").write_text("deeper\n")
    assert taker.take() == before
    (place / "file").write_text("here\n")
    assert taker.take() != before


def test_symlinks_are_not_followed(place: Path) -> None:
    (place / "target").write_text("first\n")
    (place / "link").symlink_to("target")
    taker = stamps(place / "link")
    before = taker.take()
    (place / "target").write_text("second\n")
    assert taker.take() == before
    (place / "link").unlink()
    (place / "link").symlink_to("target")
    assert taker.take() != before


def test_an_identity_is_that_of_the_directory_whatever_happens_in_it(place: Path) -> None:
    (place / "root").mkdir()
    taker = stamps(identities=(place / "root",))
    before = taker.take()
    (place / "root" / "file").write_text("new\n")
    (place / "root").chmod(0o700)
    os.utime(place / "root", (1, 1))
    assert taker.take() == before and len(before) == SIZE and before != ABSENT
    (place / "root").rename(place / "old")
    assert taker.take() == ABSENT
    (place / "root").mkdir()
    assert taker.take() not in (before, ABSENT)
    (place / "root").rmdir()
    (place / "old").rename(place / "root")
    assert taker.take() == before


def test_paths_and_identities_stand_in_the_order_they_were_given(place: Path) -> None:
    (place / "a").write_text("a\n")
    (place / "b").mkdir()
    both = stamps(place / "a", place / "no", identities=(place / "b", place / "no"))
    assert len(both) == 4
    taken = both.take()
    assert taken[:SIZE] == stamps(place / "a").take()
    assert taken[SIZE : 2 * SIZE] == taken[3 * SIZE :] == ABSENT
    assert taken[2 * SIZE : 3 * SIZE] == stamps(identities=(place / "b",)).take()
    assert stamps().take() == b"" and len(stamps()) == 0
    assert both.same(taken) and not both.same(taken[:-SIZE]) and not both.same(taken + taken)
    assert stamps().same(b"") and not both.same(b"")


def test_two_writes_in_a_row_are_two_stamps(place: Path) -> None:
    """The change time is finer than the kernel's clock tick, once somebody has asked for it."""
    path = place / "file"
    seen = set()
    for turn in range(200):
        path.write_bytes(b"%03d" % turn)
        seen.add(stamps(path).take())
    if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) < (6, 13):
        pytest.skip("fine change times need Linux 6.13")
    assert len(seen) == 200


def test_what_cannot_be_looked_at_is_neither_absent_nor_unchanged(
    place: Path, as_user: AsUser
) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to own what the user may not see")
    (place / "closed").mkdir()
    (place / "closed" / "file").write_text("x\n")
    (place / "closed").chmod(0o700)
    done = as_user(
        "import sys, _sandcore as core\n"
        "taker = core.Stamps([sys.argv[1].encode()])\n"
        "print(taker.take() != bytes(core.Stamps.SIZE), taker.take() == taker.take())\n",
        str(place / "closed" / "file"),
    )
    assert done.stdout == "True True\n", done.stderr
    loop = place / "loop"
    loop.symlink_to("loop")
    assert stamps(loop / "x").take() != ABSENT


@pytest.mark.parametrize("wrong", [[b"a\0b"], ["text"], [None]])
def test_what_is_no_path_is_refused(wrong: list[object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        core.Stamps(wrong)  # type: ignore[arg-type]


def test_a_usual_number_of_stamps_costs_microseconds(place: Path) -> None:
    for i in range(16):
        (place / str(i)).write_text("x\n")
    taker = stamps(*(place / str(i) for i in range(16)))
    times = []
    for _ in range(300):
        began = time.perf_counter()
        taker.take()
        times.append(time.perf_counter() - began)
    assert sorted(times)[len(times) // 4] < 150e-6


def test_in_c_the_fields_are_those_of_the_file(place: Path) -> None:
    (place / "file").write_text("12345")
    paths = [
        ffi.new("char[]", bytes(one))
        for one in (place / "file", place / "no", place / "file" / "x")
    ]
    found = ffi.new("struct stamp[]", 3)
    lib.stamp_paths(ffi.new("char *[]", paths), 3, found)
    real = (place / "file").stat()
    one = found[0]
    assert (one.inode, one.size, one.mode, one.error) == (real.st_ino, 5, real.st_mode, 0)
    assert (one.device >> 32, one.device & 0xFFFFFFFF) == (
        os.major(real.st_dev),
        os.minor(real.st_dev),
    )
    assert one.change_ns == real.st_ctime_ns
    assert bytes(ffi.buffer(found)[SIZE:]) == 2 * ABSENT
    (place / "l").symlink_to("l")
    lib.stamp_paths(ffi.new("char *[]", [ffi.new("char[]", bytes(place / "l" / "x"))]), 1, found)
    assert (found[0].error, found[0].mode, found[0].inode) == (errno.ELOOP, 0, 0)
