"""What the next start finds when a caller and the root process were killed at once."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scenekit import PYTHON, until
from spacekit import helpers

import sandbox
from scenes.litter import _PLANT, box_of, caller, check_moved, is_gone, names, notes_of

_LIBC = ctypes.CDLL(None, use_errno=True)
_ADD_KEY, _KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
_USER_RING, _JOIN, _UNLINK = -4, 1, 9


def leave(text: bytes, ring: int = _USER_RING) -> int:
    """A key of that name, as any program of the user can make one."""
    return int(_LIBC.syscall(_ADD_KEY, b"user", text, b"-", 1, ring))


def remove(key: int) -> None:
    _LIBC.syscall(_KEYCTL, _UNLINK, key, _USER_RING)


def kill_both(w: Path, command: str = f"{_PLANT}; sleep 60") -> None:
    """A caller and its root are killed, neither of which sees the other's end."""
    one = caller(w, command)
    until(lambda: (w / "ready").exists(), 20)
    root, *rest = helpers(one.pid)
    for victim, number in (
        (one.pid, signal.SIGSTOP),
        (root, signal.SIGKILL),
        (one.pid, signal.SIGKILL),
    ):
        os.kill(victim, number)
    one.wait()
    for pid in (root, *rest):  # lanes end what is below them first
        await_end(pid)


def await_end(pid: int) -> None:
    until(lambda: is_gone(pid), 10)


def start(w: Path) -> sandbox.Result:
    """The first result of a sandbox there."""
    with box_of(w) as box:
        return box.run("true")


def the_next_start_moves_and_tells(w: Path, o: Path) -> None:
    (w / ".mcp.json").write_text("mine")
    kill_both(w)
    assert {".vscode", ".envrc", ".idea", ".codex"} <= names(w)
    assert len(notes_of(w)) >= 1
    with box_of(w) as box:
        first, second = box.run("true"), box.run("true")
    check_moved(w, names(w))
    assert (w / ".mcp.json").read_text() == "mine"
    assert len(first.denials) == 4 and second.denials == ()
    undo = next(denial.undo for denial in first.denials if ".envrc" in denial.undo)
    subprocess.run(undo, shell=True, check=True)
    assert (w / ".envrc").read_text() == "evil\n"
    assert start(w).denials == () and ".envrc" in names(w)
    until(lambda: notes_of(w) == [])


def it_is_told_also_when_a_command_could_not_be_started(w: Path, o: Path) -> None:
    kill_both(w)
    with box_of(w) as box:
        with suppress(sandbox.StartError):
            box.run(["/no/such/program"])
        with suppress(sandbox.StartError):
            box.popen(["/no/such/program"])
        assert len(box.run("true").denials) == 4


@contextmanager
def idle(w: Path, after: str = "pass") -> Iterator[subprocess.Popen[bytes]]:
    """A caller whose command has ended; it is killed at the end."""
    with caller(w, "true", f"{after}; open(sys.argv[1] + '/idle', 'w'); time.sleep(60)") as one:
        try:
            until(lambda: (w / "idle").exists(), 20)
            yield one
        finally:
            one.kill()


def after_an_orderly_end_all_is_the_host_s(w: Path, o: Path) -> None:
    with idle(w, "box.close()"):
        assert notes_of(w) == []
        (w / ".git").mkdir()
    assert start(w).denials == () and ".git" in names(w)


def after_a_caller_that_forgot_to_close(w: Path, o: Path) -> None:
    code = "import sandbox, sys; sandbox.Sandbox(sandbox.workspace_write(sys.argv[1])).run('true')"
    for end in ("", "; import os; os._exit(1)", "; import os; os.kill(os.getpid(), 15)"):
        subprocess.run([sys.executable, "-c", code + end, str(w)], cwd="/")
        until(lambda: notes_of(w) == [], 10)  # also in the time that a caller has to look


def the_living_are_left_alone(w: Path, o: Path) -> None:
    with idle(w):
        (w / ".vscode").mkdir()
        root = int((w / "root").read_text())
        assert start(w).denials == () and ".vscode" in names(w)
        os.kill(root, signal.SIGKILL)  # the caller still is there, and knows what it ran
        await_end(root)
        assert start(w).denials == () and ".vscode" in names(w)
        until(lambda: len(notes_of(w)) == 1)
    assert len(start(w).denials) == 1 and ".vscode" not in names(w)


def a_root_that_was_killed_under_this_process(w: Path, o: Path) -> None:
    """What this process ran it has looked after itself; the rest is the host's."""
    for between in (lambda: start(w), lambda: None):
        with box_of(w) as box:
            box.run("true")
            root = int(notes_of(w)[0][1].split(b":")[6])
            os.kill(root, signal.SIGKILL)
            await_end(root)
            (w / ".vscode").mkdir()
            between()
        assert notes_of(w) == [] and ".vscode" in names(w)
        (w / ".vscode").rmdir()


def another_directory_of_that_name(w: Path, o: Path) -> None:
    place, old = w / "place", w / "old"
    place.mkdir()
    kill_both(place)
    place.rename(old)
    place.mkdir()
    (place / ".vscode").mkdir()
    assert start(place).denials == () and names(place) == {".vscode"}
    assert len(start(old).denials) == 4
    check_moved(old, names(old))


def a_number_that_another_process_has(w: Path, o: Path) -> None:
    """A note counts as one of the dead only where the process with its number began later."""
    with box_of(w):
        fields = notes_of(w)[0][1].split(b":")
    now = int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
    with subprocess.Popen(["sleep", "60"]) as other:
        for left, expected in ((now + 5_000, 0), (now - 5_000, 1)):
            (w / ".git").mkdir()
            head = [*fields[:6], b"%d" % other.pid, b"%d" % other.pid, b"%d" % left]
            key = leave(b":".join([*head, b".git/"]))
            assert key > 0
            assert len(start(w).denials) == expected
            remove(key)
            for path in w.iterdir():
                path.rmdir()
        other.kill()


def the_dead_of_other_process_numbers(w: Path, o: Path) -> None:
    """In another pid namespace the numbers mean other processes, or none."""
    with box_of(w):
        fields = notes_of(w)[0][1].split(b":")
    (w / ".git").mkdir()
    (w / "free").mkdir()
    dead = [b"999999999", b"999999999", b"1", b".git/free/"]
    for space, expected in ((b"1", 0), (fields[5], 1)):
        key = leave(b":".join([*fields[:5], space, *dead]))
        assert len(start(w).denials) == expected
        remove(key)
    assert "free" in names(w)  # no protected name, whatever a note says


_TRY = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
add, ctl = int(sys.argv[1]), int(sys.argv[2])
for call in ((add, b"user", b"sandcore:1:x", b"-", 1, -4), (add + 1, b"user", b"x", None, -4),
             (ctl, 11, -4, None, 0), (ctl, 0, -4, 1)):
    print(0 if libc.syscall(*call) >= 0 else ctypes.get_errno())
"""


def a_command_cannot_leave_one(w: Path, o: Path) -> None:
    words = [PYTHON, "-c", _TRY, str(_ADD_KEY), str(_KEYCTL)]
    with box_of(w) as box:
        result = box.run(words)
    assert result.out.split() == ["1"] * 4, result
    # Outside three of them are granted; the second asks for a key that there is not.
    outside = subprocess.run(words, capture_output=True, text=True).stdout.split()
    remove(leave(b"sandcore:1:x"))
    assert outside == ["0", "126", "0", "0"]


def a_session_without_the_user_s_keyring(w: Path, o: Path) -> None:
    """As services have one: without possession a note could not be given an end."""
    assert _LIBC.syscall(_KEYCTL, _JOIN, None) > 0
    with box_of(w) as box:
        box.run("true")
        ((key, _),) = notes_of(w)
        line = next(
            one for one in Path("/proc/keys").read_text().splitlines() if f"{key:08x}" in one
        )
        assert line.split()[3] in ("23h", "1d", "24h"), line
    until(lambda: notes_of(w) == [])
    kill_both(w)
    assert len(start(w).denials) == 4


def without_room(w: Path, o: Path) -> None:
    """A user's other programs need keys too: there is no note then, and all else works."""
    keys: list[int] = []
    try:
        while len(keys) < 300 and (key := leave(b"sandcore-test:%d" % len(keys))) > 0:
            keys.append(key)
        assert len(keys) > 64
        with box_of(w) as box:
            result = box.run("mkdir .git")
            assert result.ok and len(result.denials) == 1
            assert notes_of(w) == []
    finally:
        for key in keys:
            remove(key)
    until(lambda: _has_note(w))


def _has_note(w: Path) -> bool:
    with box_of(w):
        return notes_of(w) != []


def many_at_once(w: Path, o: Path) -> None:
    """More than there is room for; afterwards nothing is left of them."""
    boxes = [box_of(w) for _ in range(80)]
    assert 0 < len(notes_of(w)) <= 256
    for box in boxes:
        box.close()
    until(lambda: notes_of(w) == [])


def what_the_host_makes_is_its_own(w: Path, o: Path) -> None:
    """Seen before the command after the next one, as the guard looks only where it must."""
    with box_of(w) as box:
        box.run("true")
        (w / ".git").mkdir()
        for _ in range(2):
            assert box.run("true").denials == ()
        until(lambda: all(b".git/" not in text for _, text in notes_of(w)))
