"""What rests is known to rest without a look at it, and every change of it is seen at once."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import _sandcore as core
from sandbox.backends import notices
from sandbox.backends.resting import Resting

MORE_THAN_ARE_KEPT = 17_000  # fs.inotify.max_queued_events is 16,384 everywhere


@pytest.fixture(params=["told", "early"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(notices, "_EARLY", -1 if request.param == "told" else 1 << 60)
    return str(request.param)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_EARLY", -1)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """One with a file that is there, and a directory deeper down."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "there").write_text("1")
    (tmp_path / "there").write_text("1")
    return tmp_path


@pytest.fixture
def resting(mode: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Resting:
    """Looked at twice, so that it rests; nothing is looked at because time has passed."""
    monkeypatch.setattr("sandbox.backends.resting._LOOK", 1e9)
    names = ("there", "missing", "a/b/there", "a/b/missing", "x/y/z/missing")
    found = Resting([str(home / name) for name in names])
    assert found.holds() and found.holds()
    return found


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("2")
    other.replace(path)


def swap(path: Path) -> None:
    """A directory for a copy of it."""
    path.rename(path.with_name("away"))
    path.mkdir()


def make_slowly(path: Path, resting: Resting) -> None:
    """A directory at a time, with a look at each."""
    for above in reversed(path.parents):
        if not above.exists():
            above.mkdir()
            assert resting.holds() and resting.holds()
    path.touch()


CHANGES: dict[str, Callable[[Path, Resting], object]] = {
    "made": lambda home, _: (home / "missing").touch(),
    "made as a link": lambda home, _: (home / "missing").symlink_to("there"),
    "made by another name": lambda home, _: os.link(home / "there", home / "missing"),
    "removed": lambda home, _: (home / "there").unlink(),
    "replaced": lambda home, _: replace(home / "there"),
    "replaced further down": lambda home, _: replace(home / "a/b/there"),
    "renamed": lambda home, _: (home / "there").rename(home / "missing"),
    "its directory swapped": lambda home, _: swap(home / "a/b"),
    "a directory above swapped": lambda home, _: swap(home / "a"),
    "a directory above moved": lambda home, _: (home / "a").rename(home / "c"),
    "made in directories that were not there": lambda home, resting: make_slowly(
        home / "x/y/z/missing", resting
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen_at_once(
    change: Callable[[Path, Resting], object], home: Path, resting: Resting
) -> None:
    change(home, resting)
    assert not resting.holds()
    assert not resting.holds()  # and is not forgotten by asking
    assert not resting.holds_now()


def test_what_does_not_matter_changes_nothing(home: Path, resting: Resting) -> None:
    (home / "there").write_text("2")
    (home / "there").chmod(0o600)
    (home / "beside").touch()
    (home / "x").mkdir()
    assert resting.holds() and resting.holds()


def test_after_what_did_not_matter_all_else_is_seen_still(home: Path, resting: Resting) -> None:
    (home / "x").mkdir()
    (home / "a/b/beside").touch()
    assert resting.holds()
    (home / "a/b/missing").touch()
    assert not resting.holds()


def test_a_change_that_nobody_told_of_is_seen_by_a_look(
    told: None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a file system of another machine: here one that is told to nobody."""
    monkeypatch.setattr("sandbox.backends.notices._teller.hear", lambda: None)
    resting = Resting([str(home / "missing")])
    assert resting.holds()
    (home / "missing").touch()
    assert resting.holds() and not resting.holds_now()


def test_all_are_looked_at_when_more_changed_than_the_kernel_remembers(
    told: None, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    busy = tmp_path_factory.mktemp("busy")
    resting = Resting([str(busy / "missing"), str(home / "missing")])
    assert resting.holds()
    for number in range(MORE_THAN_ARE_KEPT):
        os.mknod(busy / str(number))
    (home / "missing").touch()
    assert not resting.holds()


def test_two_who_ask_at_once_both_hear(told: None, home: Path) -> None:
    """What one takes from the kernel is told to the other, also of the same directory."""
    one, other = Resting([str(home / "missing")]), Resting([str(home / "a" / "missing")])
    third = Resting([str(home / "missing")])
    assert one.holds() and other.holds() and third.holds()
    (home / "missing").touch()
    assert other.holds() and not one.holds() and not third.holds()


def test_a_forked_copy_hears_for_itself(told: None, home: Path) -> None:
    """And takes nothing away from its parent."""
    resting = Resting([str(home / "missing")])
    assert resting.holds()
    pid = os.fork()
    if pid == 0:
        own = Resting([str(home / "a" / "missing")])
        seen = own.holds()
        (home / "a" / "missing").touch()
        (home / "missing").touch()
        os._exit(0 if seen and not own.holds() else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert not resting.holds()


def test_a_forked_copy_does_not_rest_on_what_its_parent_was_told(told: None, home: Path) -> None:
    """What the parent knows to rest may have changed before the fork, and not been taken."""
    resting = Resting([str(home / "missing")])
    assert resting.holds()
    (home / "missing").touch()
    pid = os.fork()
    if pid == 0:
        os._exit(1 if resting.holds() else 0)
    assert os.waitpid(pid, 0)[1] == 0
    assert not resting.holds()


def test_one_directory_under_two_names(told: None, home: Path, mode: str) -> None:
    """As a bind mount gives it; here by `..`."""
    resting = Resting([str(home / "missing"), str(home / "a" / ".." / "gone")])
    assert resting.holds()
    (home / "missing").touch()
    assert not resting.holds()


def test_what_a_link_leads_to_is_looked_at(
    told: None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.backends.resting._LOOK", 1e9)
    (home / "link").symlink_to("a")
    resting = Resting([str(home / "link" / "missing")])
    assert resting.holds() and resting.holds()
    (home / "a" / "missing").touch()
    assert not resting.holds()


def watched() -> int:
    """The number of directories of which this process is told."""
    count = 0
    for entry in Path("/proc/self/fdinfo").iterdir():
        try:
            count += entry.read_text().count("inotify wd:")
        except FileNotFoundError:  # that of the listing itself
            continue
    return count


def test_nobody_is_told_of_what_nobody_asks_for_any_more(told: None, home: Path) -> None:
    keep = Resting([str(home / "missing")])
    assert keep.holds()
    before = watched()
    resting = Resting([str(home / "a" / "b" / "missing")])
    assert resting.holds() and watched() > before
    del resting
    gc.collect()
    assert Resting([str(home / "missing")]).holds()
    assert watched() == before


def test_a_directory_that_cannot_be_read_is_looked_at(
    told: None, far: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to own a directory that a user may pass and not read")
    (far / "hidden").mkdir(mode=0o711)
    monkeypatch.setattr("sandbox.backends.resting._LOOK", 1e9)
    far.chmod(0o755)
    pid = os.fork()
    if pid == 0:
        os.setresuid(1000, 1000, 1000)
        resting = Resting([str(far / "hidden" / "missing")])
        seen = resting.holds() and resting.holds()
        os.kill(os.getpid(), 19)  # SIGSTOP: until the other one has made it
        os._exit(0 if seen and not resting.holds() else 1)
    os.waitpid(pid, os.WUNTRACED)
    (far / "hidden" / "missing").touch()
    os.kill(pid, 18)  # SIGCONT
    assert os.waitpid(pid, 0)[1] == 0


@pytest.fixture
def told_of(tmp_path: Path) -> Iterator[tuple[core.Notices, int, Path]]:
    found = core.Notices()
    yield found, found.watch(bytes(tmp_path)), tmp_path


def test_the_kernel_tells_of_names_and_of_the_directory(
    told_of: tuple[core.Notices, int, Path],
) -> None:
    found, number, path = told_of
    assert found.take() == ()
    (path / ("n" * 255)).touch()
    (path / "other").mkdir()
    assert found.take() == [(number, False), (number, False)]
    (path / "other" / "deeper").touch()
    (path / ("n" * 255)).write_text("written")
    assert found.take() == ()
    path.rename(path.with_name("moved"))
    assert found.take() == [(number, True)]
    path.with_name("moved").rename(path)


def test_more_than_one_read_can_take_is_taken(told_of: tuple[core.Notices, int, Path]) -> None:
    found, number, path = told_of
    for at in range(1000):
        (path / f"{at:0250}").touch()
    assert found.take() == [(number, False)] * 1000
    assert found.take() == ()


def test_what_is_no_directory_is_not_watched(told_of: tuple[core.Notices, int, Path]) -> None:
    found, number, path = told_of
    (path / "file").touch()
    (path / "link").symlink_to(path)
    for name in ("file", "link", "missing"):
        with pytest.raises(OSError, match=r"Not a directory|No such file"):
            found.watch(bytes(path / name))
    found.take()
    found.forget(number)
    (path / "more").touch()
    assert [one for one in found.take() if not one[1]] == []
    found.forget(number)
