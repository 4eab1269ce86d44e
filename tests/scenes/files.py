"""Files of a sandbox for its caller: what works, what is refused, and what hostile commands try.

The workspace `w` is writable, the directory `o` is not named by the policy. Each refusal has a
control: the caller itself, whose rights the sandbox must not lend.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import resource
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scenekit import PYTHON, open_fds, until

import sandbox
from sandbox import Limits, Sandbox, SandboxPolicy, workspace_write

ISOLATION = os.environ["SANDBOX_ISOLATION"].replace("auto", "namespaces")
SECRET = b"the secret\n"


@contextmanager
def box_in(w: Path, policy: SandboxPolicy | None = None) -> Iterator[Sandbox]:
    """A sandbox in the isolation of this run."""
    with Sandbox(policy if policy is not None else workspace_write(w)) as box:
        assert box.isolation == ISOLATION, box.isolation
        yield box


def refused(act: Callable[[], Any], path: object, *kinds: type[OSError]) -> OSError:
    """The error that an act raises, which is one of these and has the path."""
    with pytest.raises(kinds) as caught:
        act()
    error: OSError = caught.value
    assert os.fspath(error.filename) == str(path), (error.filename, path)
    assert str(path) in str(error)
    return error


def what_is_written_is_read(w: Path, o: Path) -> None:
    big = random.randbytes(3 << 20)
    contents = {
        "text": b"hi\n",
        "empty": b"",
        "binary": bytes(range(256)),
        "with blank": b"x",
        "\u00fcml\u00e4ut \U0001f600": "\u00fc\U0001f600".encode(),
        "deep/er/est": b"deep",
        "sixteen": b"a" * 16384,
        "more": b"a" * 16385,
        "big": big,
    }
    with box_in(w) as box:
        for name, data in contents.items():
            box.write_file(name, data, parents=True)
            assert box.read_file(name) == box.read_file(str(w / name)) == data
            assert (w / name).read_bytes() == data
        box.write_file(w / "text", "shorter by \u00fc")
        assert (w / "text").read_text() == "shorter by \u00fc"
        box.write_file("big", memoryview(b"abcd")[1:])
        assert (w / "big").read_bytes() == b"bcd"
        box.write_file("big", bytearray(b"e"), append=True)
        assert box.read_file("big") == b"bcde"
        box.write_file("made", "x", append=True)
        box.write_file("made", b"")
        assert box.read_file(w / "made") == b""
        assert box.run(["cat", "text"]).out == "shorter by \u00fc"
        box.run("echo from a command > said")
        assert box.read_file("said") == b"from a command\n"
        assert box.read_file("/etc/passwd") == Path("/etc/passwd").read_bytes()


def directories_are_made_listed_and_removed(w: Path, o: Path) -> None:
    with box_in(w) as box:
        box.mkdir("a")
        box.mkdir("b/c/d", parents=True)
        box.mkdir("b/c", exist_ok=True)
        refused(lambda: box.mkdir("b/c"), "b/c", FileExistsError)
        refused(lambda: box.mkdir("x/y"), "x/y", FileNotFoundError)
        box.mkdir("n/../m", parents=True)
        assert sorted(os.listdir(w)) == ["a", "b", "m", "n"]
        box.write_file("b/file", b"12345", mode=0o600)
        os.symlink("file", w / "b" / "link")
        os.mkfifo(w / "b" / "fifo")
        found = box.list("b")
        assert [(one.name, one.kind, one.size) for one in found if one.kind == "file"] == [
            ("file", "file", 5)
        ]
        kinds = {one.name: one.kind for one in found}
        assert kinds == {"c": "directory", "file": "file", "link": "link", "fifo": "other"}
        assert [one.name for one in box.list()] == ["a", "b", "m", "n"]
        facts, real = box.stat("b/file"), os.stat(w / "b" / "file")
        assert (facts.kind, facts.size, facts.mode) == ("file", 5, 0o600)
        assert (facts.mtime_ns, facts.uid, facts.gid) == (
            real.st_mtime_ns,
            real.st_uid,
            real.st_gid,
        )
        assert box.stat("b/link").kind == "file"
        assert box.stat("b/link", follow=False).kind == "link"
        assert box.stat("b/fifo").kind == "other"
        assert box.stat("b").kind == "directory"
        box.remove("b/link")
        assert (w / "b" / "file").exists()
        box.remove("b/file")
        box.remove("a")
        error = refused(lambda: box.remove("b"), "b", OSError)
        assert error.errno == errno.ENOTEMPTY
        refused(lambda: box.remove("."), ".", OSError)
        refused(lambda: box.remove("nothing"), "nothing", FileNotFoundError)


def errors_are_of_their_kind_and_name_the_path(w: Path, o: Path) -> None:
    (w / "dir").mkdir()
    (w / "file").write_text("x")
    (w / "loop").symlink_to("loop")
    (w / "dangling").symlink_to("nowhere")
    with box_in(w) as box:
        refused(lambda: box.read_file("none"), "none", FileNotFoundError)
        refused(lambda: box.read_file("dir"), "dir", IsADirectoryError)
        refused(lambda: box.read_file("file/x"), "file/x", NotADirectoryError)
        refused(lambda: box.list("file"), "file", NotADirectoryError)
        refused(lambda: box.stat("none"), "none", FileNotFoundError)
        refused(lambda: box.write_file("dir", b""), "dir", IsADirectoryError)
        refused(lambda: box.write_file("none/x", b""), "none/x", FileNotFoundError)
        for name in (".", "..", "dir/", "dir/.."):
            refused(lambda name=name: box.write_file(name, b""), name, IsADirectoryError)  # type: ignore[misc]
        refused(lambda: box.write_file("file", b"", exclusive=True), "file", FileExistsError)
        for name in ("loop", "dangling", "dir"):
            refused(
                lambda name=name: box.write_file(name, b"", exclusive=True),  # type: ignore[misc]
                name,
                FileExistsError,
            )
        refused(lambda: box.write_file("dangling", b""), "dangling", FileNotFoundError)
        refused(
            lambda: box.write_file("dangling", b"", parents=True), "dangling", FileNotFoundError
        )
        assert refused(lambda: box.read_file("loop"), "loop", OSError).errno == errno.ELOOP
        long = "x" * 256
        assert refused(lambda: box.read_file(long), long, OSError).errno == errno.ENAMETOOLONG
        long = "x/" * 3000
        assert refused(lambda: box.read_file(long), long, OSError).errno == errno.ENAMETOOLONG
        for bad in ("", "a\0b", 3, None, "\ud800"):
            with pytest.raises(sandbox.InvalidArgument):
                box.read_file(bad)
        for how in ({"mode": 0o4755}, {"mode": -1}, {"append": True, "exclusive": True}):
            with pytest.raises(sandbox.InvalidArgument):
                box.write_file("x", b"", **how)  # type: ignore[arg-type]
        for data in (3, None, ["x"], "\ud800"):
            with pytest.raises(sandbox.InvalidArgument):
                box.write_file("x", data)  # type: ignore[arg-type]
        with pytest.raises(sandbox.InvalidArgument):
            box.read_file("file", max_bytes=-1)
    assert not (w / "nowhere").exists() and not (w / "x").exists()


def what_is_no_file_is_neither_opened_nor_waited_for(w: Path, o: Path) -> None:
    os.mkfifo(w / "fifo")
    (w / "to-fifo").symlink_to("fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(w / "socket"))
    waited = threading.Event()

    def write() -> None:
        fd = os.open(w / "fifo", os.O_WRONLY)  # waits for a reader
        waited.set()
        os.close(fd)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    with box_in(w) as box:
        for name in ("fifo", "to-fifo", "socket", "/dev/null", "/dev/zero", "/dev/tty"):
            began = time.monotonic()
            refused(lambda name=name: box.read_file(name), name, PermissionError)  # type: ignore[misc]
            refused(lambda name=name: box.write_file(name, b"x"), name, PermissionError)  # type: ignore[misc]
            assert time.monotonic() - began < 5
        assert not waited.wait(0.2)
    os.close(os.open(w / "fifo", os.O_RDONLY))  # the control: a reader does wake it
    assert waited.wait(5)
    thread.join()


def nothing_is_opened_in_proc(w: Path, o: Path) -> None:
    names = [
        "/proc/self/mem",
        "/proc/self/environ",
        "/proc/self/maps",
        "/proc/self/fd/3",
        "/proc/thread-self/fd/0",
        "/proc/1/environ",
        "/proc/1/root/etc/passwd",
        "/proc/self/cwd/etc/passwd",
        "/proc/self/task/1/mem",
        "/proc/cpuinfo",
        "/dev/fd/3",
        "/dev/stdin",
    ]
    for index, name in enumerate(names):
        (w / f"link{index}").symlink_to(name)
    with box_in(w) as box:
        for path in [*names, *(f"link{index}" for index in range(len(names)))]:
            refused(lambda path=path: box.read_file(path), path, OSError)  # type: ignore[misc]
            refused(lambda path=path: box.write_file(path, b"x"), path, OSError)  # type: ignore[misc]
            refused(lambda path=path: box.write_file(path, b"x", append=True), path, OSError)  # type: ignore[misc]
        for path in ("/proc", "/proc/self/fd", "/proc/self", "/dev/fd"):
            refused(lambda path=path: box.list(path), path, OSError)  # type: ignore[misc]
    # The control: the caller's own are there.
    assert Path("/proc/self/environ").read_bytes() and Path("/proc/cpuinfo").read_bytes()
    assert os.listdir("/proc/self/fd")


def denied_places_are_denied_by_every_name(w: Path, o: Path) -> None:
    key = Path.home() / ".ssh" / "id_ed25519"
    key.parent.mkdir()
    key.write_bytes(SECRET)
    (w / "key").symlink_to(key)
    (w / "ssh").symlink_to(key.parent)
    (o / "mine").write_bytes(SECRET)
    policy = workspace_write(w, deny=[o])
    up = os.path.relpath(key, w)
    with box_in(w, policy) as box:
        for path in ("key", "ssh/id_ed25519", str(key), up, str(o / "mine")):
            refused(lambda path=path: box.read_file(path), path, PermissionError, FileNotFoundError)  # type: ignore[misc]
            refused(
                lambda path=path: box.write_file(path, b"x"),  # type: ignore[misc]
                path,
                PermissionError,
                FileNotFoundError,
            )
        if ISOLATION == "namespaces":
            for path in ("ssh", str(o)):
                refused(lambda path=path: box.list(path), path, PermissionError)  # type: ignore[misc]
    assert key.read_bytes() == (w / "key").read_bytes() == (o / "mine").read_bytes() == SECRET


def nothing_outside_is_written(w: Path, o: Path) -> None:
    target = o / "file"
    before = target.read_bytes()
    (w / "link").symlink_to(target)
    (w / "new").symlink_to(o / "new")
    (w / "dir").symlink_to(o)
    up = os.path.relpath(target, w)
    with box_in(w) as box:
        for path in (str(target), "link", "dir/file", up):
            for append in (False, True):
                refused(
                    lambda path=path, append=append: box.write_file(path, b"x", append=append),  # type: ignore[misc]
                    path,
                    PermissionError,
                )
            assert box.read_file(path) == before
        for path in ("dir/new", str(o / "new"), "new", "/etc/sandbox-new", "dir/a/b"):
            for parents in (False, True):
                refused(
                    lambda path=path, parents=parents: box.write_file(path, b"", parents=parents),  # type: ignore[misc]
                    path,
                    PermissionError,
                    FileNotFoundError,
                )
        refused(lambda: box.mkdir("dir/sub"), "dir/sub", PermissionError)
        refused(lambda: box.remove("dir/file"), "dir/file", PermissionError)
        refused(lambda: box.remove(target), target, PermissionError)
    assert os.listdir(o) == ["file"] and target.read_bytes() == before
    (w / "link").write_bytes(before + b"more")  # the control
    assert target.read_bytes() == before + b"more"


def protected_names_are_refused_by_every_spelling(w: Path, o: Path) -> None:
    (w / ".git" / "hooks").mkdir(parents=True)
    (w / ".git" / "config").write_text("[core]\n")
    (w / "sub").mkdir()
    (w / "git").symlink_to(".git")
    (w / "here").symlink_to(".")
    (w / "config").symlink_to(".git/config")
    (w / "rc").symlink_to(".envrc")
    os.utime(w / ".git" / "config", (1, 1))
    there = (".git/config", "./.git/config", "git/config", "sub/../.git//config", "config")
    there = (*there, "here/.git/config", str(w / ".git" / "config"))
    new = (".git/hooks/pre-commit", "git/hooks/pre-commit", "here/git/x", ".envrc", "./.envrc")
    new = (*new, "sub/../.envrc", "here/.envrc", ".vscode", ".vscode/a", "here/.idea/b", "rc")
    with box_in(w) as box:
        for path in (*there, *new):
            for how in ({}, {"append": True}, {"parents": True}):
                refused(
                    lambda path=path, how=how: box.write_file(path, b"evil", **how),  # type: ignore[misc]
                    path,
                    PermissionError,
                    FileNotFoundError,
                )
        for path in (".vscode", "here/.vscode", ".idea/x", "git/new"):
            refused(lambda path=path: box.mkdir(path, parents=True), path, PermissionError)  # type: ignore[misc]
        for path in (".git/config", "git/config", ".git/hooks"):
            refused(lambda path=path: box.remove(path), path, PermissionError)  # type: ignore[misc]
        assert box.read_file(".git/config") == b"[core]\n"
        # The twins: names that are like them.
        for path in ("sub/.gitignore", ".github", "sub/envrc", "envrc"):
            box.write_file(path, b"fine")
    assert (w / ".git" / "config").stat().st_mtime == 1
    assert os.listdir(w / ".git" / "hooks") == []
    assert not {".envrc", ".vscode", ".idea"} & set(os.listdir(w))
    (w / "git" / "config").write_text("mine\n")  # the control
    assert (w / ".git" / "config").read_text() == "mine\n"


def a_hard_link_is_no_way_to_a_protected_file(w: Path, o: Path) -> None:
    (w / ".git" / "hooks").mkdir(parents=True)
    hook = w / ".git" / "hooks" / "post-merge"
    hook.write_text("harmless\n")
    time.sleep(0.05)
    with box_in(w) as box:
        linked = box.run(["ln", ".git/hooks/post-merge", "report"])
        if ISOLATION == "namespaces":
            assert not linked.ok  # another mount
            os.link(hook, w / "report")
        assert os.stat(w / "report").st_nlink == 2
        if ISOLATION == "landlock":
            refused(lambda: box.write_file("report", b"evil\n"), "report", PermissionError)
            assert hook.read_text() == "harmless\n"
            found = box.run(["true"]).denials
            assert [(one.change, one.what) for one in found] == [("changed", str(hook))], found
        box.write_file("other", b"fine\n")


def a_swap_never_gives_what_may_not_be_read(w: Path, o: Path) -> None:
    secret = o / "secret"
    secret.write_bytes(SECRET)
    (w / "plain").write_bytes(b"plain")
    program = """
import os, sys
os.symlink(sys.argv[1], "evil")
os.mkfifo("fifo")
os.symlink("/proc/self/environ", "proc")
open("started", "w").close()
while not os.path.exists("stop"):
    for name in ("evil", "fifo", "proc", "plain"):
        try:
            os.link(name, "next", follow_symlinks=False)
            os.rename("next", "it")
        except OSError:
            pass
"""
    answers: dict[str, int] = {}
    with (
        box_in(w, workspace_write(w, deny=[o])) as box,
        box.popen([PYTHON, "-c", program, str(secret)], timeout=60) as command,
    ):
        until(lambda: (w / "started").exists() and (w / "it").exists())
        end = time.monotonic() + 3
        while time.monotonic() < end:
            began = time.monotonic()
            try:
                answer = box.read_file("it").decode()
            except OSError as error:
                answer = errno.errorcode[error.errno or 0]
            assert time.monotonic() - began < 2
            answers[answer] = answers.get(answer, 0) + 1
        (w / "stop").touch()
        command.wait(10)
    assert answers.pop("plain", 0) > 20, answers
    assert sum(answers.values()) > 20 and set(answers) <= {"EACCES", "EPERM", "ELOOP", "ENOENT"}
    assert (w / "evil").read_bytes() == SECRET  # the control


def a_swap_never_writes_outside(w: Path, o: Path) -> None:
    program = """
import os, sys
os.symlink(sys.argv[1], "evil")
os.mkdir("real")
open("started", "w").close()
while not os.path.exists("stop"):
    for one, other in (("evil", "real"), ("real", "evil")):
        os.rename(one, "it")
        os.rename("it", one)
"""
    written = tried = 0
    with box_in(w) as box, box.popen([PYTHON, "-c", program, str(o)], timeout=60) as command:
        until((w / "started").exists)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            tried += 1
            try:
                box.write_file(f"it/{tried % 7}", b"x", parents=False)
                written += 1
            except (FileNotFoundError, PermissionError):
                pass
        (w / "stop").touch()
        command.wait(10)
    assert tried > written > 0
    assert os.listdir(o) == ["file"]


def limits_hold_for_what_grows_and_for_what_is_huge(w: Path, o: Path) -> None:
    with open(w / "huge", "wb") as file:
        file.truncate(1 << 42)
    (w / "ten").write_bytes(b"0123456789")
    with box_in(w) as box:
        for name, most in (("huge", 100 << 20), ("ten", 9), ("ten", 0)):
            error = refused(
                lambda name=name, most=most: box.read_file(name, max_bytes=most),  # type: ignore[misc]
                name,
                OSError,
            )
            assert error.errno == errno.EFBIG and f"limit of {most} bytes was exceeded" in str(
                error
            )
        assert refused(lambda: box.read_file("huge"), "huge", OSError).errno == errno.EFBIG
        assert box.read_file("ten", max_bytes=10) == b"0123456789"
        grow = (
            "echo > grows; touch started; while [ ! -e stop ]; do cat /usr/bin/env >> grows; done"
        )
        with box.popen(grow, timeout=60) as command:
            until((w / "started").exists)
            sizes = []
            for _ in range(200):
                try:
                    sizes.append(len(box.read_file("grows", max_bytes=2_000_000)))
                except OSError as error:
                    assert error.errno == errno.EFBIG
                    break
            assert all(size <= 2_000_000 for size in sizes)
            until(lambda: (w / "grows").stat().st_size > 2_000_000, 30)
            error = refused(lambda: box.read_file("grows", max_bytes=2_000_000), "grows", OSError)
            (w / "stop").touch()
            command.wait(10)
        for index in range(12):
            (w / f"n{index}").touch()
        error = refused(lambda: box.list(max_names=5), ".", OSError)
        assert error.errno == errno.EOVERFLOW
    with box_in(w, workspace_write(w).with_limits(replace(Limits(), file_size=8))) as box:
        box.write_file("small", b"12345678")
        for how in ({"data": b"123456789"}, {"data": b"9", "append": True}):
            error = refused(lambda how=how: box.write_file("small", **how), "small", OSError)  # type: ignore[misc]
            assert error.errno == errno.EFBIG
        assert (w / "small").read_bytes() == b"12345678"


def a_lease_makes_nobody_wait(w: Path, o: Path) -> None:
    (w / "leased").write_bytes(b"x")
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fd = os.open(w / "leased", os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    with box_in(w) as box:
        began = time.monotonic()
        refused(lambda: box.write_file("leased", b"y"), "leased", BlockingIOError)
        assert time.monotonic() - began < 5
        os.close(fd)
        box.write_file("leased", b"y")
        taken = box.run(
            [PYTHON, "-c", "import fcntl; fcntl.fcntl(open('leased'), fcntl.F_SETLEASE, 0)"]
        )
        assert "PermissionError" in taken.err


def new_files_are_as_a_command_makes_them(w: Path, o: Path) -> None:
    os.umask(0o027)
    with box_in(w) as box:
        box.write_file("d/ours", b"", parents=True, mode=0o666)
        box.write_file("usual", b"")
        box.write_file("tool", b"#!/bin/sh\necho ran\n", mode=0o755)
        box.run("umask 027; mkdir e; touch e/theirs")
        for one, other in (("d/ours", "e/theirs"), ("d", "e")):
            ours, theirs = os.stat(w / one), os.stat(w / other)
            assert (ours.st_mode, ours.st_uid, ours.st_gid) == (
                theirs.st_mode,
                theirs.st_uid,
                theirs.st_gid,
            )
        assert stat.S_IMODE(os.stat(w / "usual").st_mode) == 0o640
        assert stat.S_IMODE(os.stat(w / "tool").st_mode) == 0o750
        assert box.run(["./tool"]).out == "ran\n"
        (w / "tool").chmod(0o700)
        box.write_file("tool", b"#!/bin/sh\necho other\n", mode=0o600)
        assert stat.S_IMODE(os.stat(w / "tool").st_mode) == 0o700
        for name in ("set-id", "sent", "control"):
            (w / name).touch()
            (w / name).chmod(0o6755)
        (w / "control").write_bytes(b"x")
        keeps = os.getuid() == 0  # who may keep the bits would
        assert bool(os.stat(w / "control").st_mode & 0o6000) == keeps
        box.write_file("set-id", b"x")
        box.upload(o / "file", "sent")
        for name in ("set-id", "sent"):
            assert stat.S_IMODE(os.stat(w / name).st_mode) == 0o755


def a_root_caller_lends_no_rights(w: Path, o: Path) -> None:
    """Where the caller is an ordinary user this is about files that the user has closed."""
    foreign = w / "foreign"
    foreign.write_bytes(SECRET)
    closed = w / "closed"
    closed.mkdir()
    (closed / "in").write_bytes(SECRET)
    foreign.chmod(0o600)
    if os.getuid() == 0:
        for path in (foreign, closed, closed / "in"):
            os.chown(path, 1000, 1000)
        closed.chmod(0o700)
        assert foreign.read_bytes() == (closed / "in").read_bytes() == SECRET  # the control
    else:
        foreign.chmod(0)
        closed.chmod(0o444)
    with box_in(w) as box:
        refused(lambda: box.read_file("foreign"), "foreign", PermissionError)
        refused(lambda: box.write_file("foreign", b""), "foreign", PermissionError)
        refused(lambda: box.read_file("closed/in"), "closed/in", PermissionError)
        refused(lambda: box.list("closed"), "closed", PermissionError)
        refused(lambda: box.stat("closed/in"), "closed/in", PermissionError)
        assert box.stat("foreign").kind == "file"
    closed.chmod(0o700)


def fds_are_not_leaked(w: Path, o: Path) -> None:
    os.mkfifo(w / "fifo")
    (w / "file").write_bytes(b"x")
    (w / "dir").mkdir()
    (w / ".git").mkdir()
    with box_in(w) as box:
        acts: list[Callable[[], object]] = [
            lambda: box.read_file("file"),
            lambda: box.write_file("file", b"xy"),
            lambda: box.write_file("file", b"xy", exclusive=True),
            lambda: box.write_file("dir/none/x", b"x"),
            lambda: box.write_file(".git/x", b"x", parents=True),
            lambda: box.write_file(".envrc", b"x"),
            lambda: box.read_file("fifo"),
            lambda: box.read_file("file", max_bytes=0),
            lambda: box.list("dir"),
            lambda: box.list("file"),
            lambda: box.stat("dir"),
            lambda: box.mkdir("dir", exist_ok=True),
            lambda: box.mkdir(".vscode/x", parents=True),
            lambda: box.remove("none"),
            lambda: box.read_file("/proc/self/environ"),
        ]

        def all_of() -> None:
            for act in acts:
                with suppress(OSError):
                    act()

        all_of()
        before = open_fds()
        for _ in range(1100):  # more than a lane may have open
            all_of()
        assert open_fds() == before
        assert box.run(["ls", "/proc/self/fd"]).out.split() == ["0", "1", "2", "3"]


def it_works_beside_commands_after_a_fork_and_not_after_the_end(w: Path, o: Path) -> None:
    with box_in(w) as box:
        with box.popen(["sleep", "60"]):
            box.write_file("beside", b"x")
            assert box.read_file("beside") == b"x"
        child = os.fork()
        if child == 0:
            status = 1
            try:
                box.write_file("child", b"from the child")
                status = 0 if box.read_file("beside") == b"x" else 2
                box.close()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert box.read_file("child") == b"from the child"
        errors: list[BaseException] = []

        def many(index: int) -> None:
            try:
                for turn in range(100):
                    box.write_file(f"t{index}", f"{index} {turn}")
                    assert box.read_file(f"t{index}") == f"{index} {turn}".encode()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=many, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
    with pytest.raises(sandbox.InvalidArgument):
        box.read_file("beside")


def a_lane_that_was_killed_is_a_lost_sandbox(w: Path, o: Path) -> None:
    (w / "file").write_bytes(b"x")
    with box_in(w) as box:
        box.read_file("file")
        helper = box._boundary.current()._helper.pid  # type: ignore[attr-defined]
        below = Path(f"/proc/{helper}/task/{helper}/children").read_text().split()
        assert below
        for pid in below:
            os.kill(int(pid), signal.SIGSTOP)  # it does not answer, and its root ends all
        lost = 0
        for _ in range(100):
            try:
                assert box.read_file("file") == b"x"
            except sandbox.SandboxLost:
                lost += 1
        assert lost <= 1
        assert box.read_file("file") == b"x"


def a_directory_comes_out_as_files_and_directories_only(w: Path, o: Path) -> None:
    tree = w / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").write_bytes(b"1234")
    (tree / "tool").write_bytes(b"#!/bin/sh\n")
    (tree / "tool").chmod(0o4755)
    (tree / "a" / "link").symlink_to(o / "file")
    (tree / "dir").symlink_to(o)
    (tree / "abs").symlink_to("/etc/passwd")
    os.mkfifo(tree / "fifo")
    (tree / "closed").write_bytes(SECRET)
    (tree / "closed").chmod(0)
    target = o / "got"
    with box_in(w) as box:
        done = box.download("tree", target)
        found = {str(path.relative_to(target)) for path in target.rglob("*")}
        readable = {"closed"} if os.getuid() == 0 else set()
        assert found - readable == {"a", "a/b", "a/file", "tool"}
        assert set(done.skipped) | {f"tree/{name}" for name in readable} == {
            "tree/a/link",
            "tree/abs",
            "tree/closed",
            "tree/dir",
            "tree/fifo",
        }
        assert done.files in (2, 3) and done.bytes >= 14
        assert stat.S_IMODE((target / "tool").stat().st_mode) & 0o7700 == 0o700
        assert (target / "a" / "file").read_bytes() == b"1234"
        refused(lambda: box.download("tree", target), target, FileExistsError)
        # Into a place that a command has prepared.
        (w / "out").symlink_to(o / "file")
        before = (o / "file").read_bytes()
        with pytest.raises(OSError):
            box.download("tree/a/file", w / "out")
        assert (o / "file").read_bytes() == before
        one = box.download("tree/a/file", o / "one")
        assert one == (1, 4, ()) and (o / "one").read_bytes() == b"1234"
        (o / "one").write_bytes(b"longer than that")
        box.download("tree/a/file", o / "one")
        assert (o / "one").read_bytes() == b"1234"
        for how in ({"max_bytes": 5}, {"max_files": 3}):
            with pytest.raises(OSError) as caught:
                box.download("tree", o / f"less-{len(os.listdir(o))}", **how)
            assert caught.value.errno in (errno.EFBIG, errno.EOVERFLOW)
        deep = "/".join(["d"] * 80)
        (w / "deep" / deep).mkdir(parents=True)
        with pytest.raises(OSError) as caught:
            box.download("deep", o / "deep")
        assert caught.value.errno == errno.ENAMETOOLONG
        refused(lambda: box.download("none", o / "none"), "none", FileNotFoundError)
        refused(lambda: box.download("/proc/self", o / "none"), "/proc/self", OSError)
    assert not (o / "none").exists()


def a_directory_goes_in_without_links_and_protected_names(w: Path, o: Path) -> None:
    tree = o / "tree"
    (tree / "sub" / ".git").mkdir(parents=True)
    (tree / ".envrc").write_text("evil")
    (tree / ".git").mkdir()
    (tree / ".git" / "config").write_text("evil")
    (tree / "sub" / "file").write_bytes(b"1234")
    (tree / "sub" / "link").symlink_to("/etc/passwd")
    os.mkfifo(tree / "fifo")
    secret = o / "secret"
    secret.write_bytes(SECRET)
    (w / "trap").symlink_to(secret)
    with box_in(w) as box:
        done = box.upload(tree, "in/side", parents=True)
        assert (w / "in" / "side" / "sub" / "file").read_bytes() == b"1234"
        assert (done.files, done.bytes) == (3, 12)  # protected at the top of the workspace only
        assert set(done.skipped) == {str(tree / "fifo"), str(tree / "sub" / "link")}
        done = box.upload(tree, ".")
        assert {str(tree / ".envrc"), str(tree / ".git")} < set(done.skipped)
        assert not {".envrc", ".git"} & set(os.listdir(w))
        (tree / "sub" / "file").write_bytes(b"12")
        box.upload(tree / "sub" / "file", "sub/file")
        assert (w / "sub" / "file").read_bytes() == b"12"
        # What a command puts where the caller looks, and where it writes.
        with pytest.raises(OSError):
            box.upload(w / "trap", "stolen")
        (w / "sub" / "file").unlink()
        (w / "sub" / "file").symlink_to(secret)
        with pytest.raises(OSError):
            box.upload(tree / "sub", "sub")
        refused(lambda: box.upload(tree / "sub" / "file", ".envrc"), ".envrc", PermissionError)
        refused(lambda: box.upload(tree, ".vscode"), ".vscode", PermissionError)
        (w / ".idea").mkdir()
        (w / "idea").symlink_to(".idea")
        refused(lambda: box.upload(tree, "idea"), "idea", PermissionError)
        assert os.listdir(w / ".idea") == []
        refused(lambda: box.upload(tree / "fifo", "fifo"), tree / "fifo", PermissionError)
        refused(lambda: box.upload(tree / "none", "none"), tree / "none", FileNotFoundError)
        with pytest.raises(OSError) as caught:
            box.upload(tree, "again", max_bytes=5)
        assert caught.value.errno == errno.EFBIG
    assert secret.read_bytes() == SECRET and not (w / "stolen").exists()


def its_own_tmp_is_reached_where_there_is_one(w: Path, o: Path) -> None:
    with box_in(w) as box:
        if ISOLATION == "namespaces":
            box.write_file("/tmp/ours", b"x")
            assert box.run(["cat", "/tmp/ours"]).out == "x"
            assert not os.path.exists("/tmp/ours")
            home = Path(os.environ["HOME"])  # shown, wherever it is
            shown = {home.relative_to("/tmp").parts[0]} if home.is_relative_to("/tmp") else set()
            assert {one.name for one in box.list("/tmp")} == {"ours"} | shown
        else:
            refused(lambda: box.write_file("/tmp/ours", b"x"), "/tmp/ours", PermissionError)


def without_confinement_all_is_the_callers(w: Path, o: Path) -> None:
    with Sandbox(sandbox.full_access(), workspace=w) as box:
        assert box.isolation == "none"
        box.write_file(o / "new", b"x")
        box.write_file(w / ".envrc", b"x")
        assert box.read_file(o / "new") == (w / ".envrc").read_bytes() == b"x"
        refused(lambda: box.read_file("/proc/self/environ"), "/proc/self/environ", PermissionError)


@contextmanager
def fds_in_flight(count: int) -> Iterator[None]:
    """So many are sent and not received, by this user: beyond a process's limit it sends none."""
    near, far = socket.socketpair()
    with near, far:
        for _ in range(0, count, 100):
            socket.send_fds(near, [b"x"], [near.fileno()] * 100)
        yield


def a_user_who_has_too_many_fds_in_flight_is_told_at_once(w: Path, o: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        with box_in(w) as box:
            box.write_file(w / "file", SECRET)
            resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
            with fds_in_flight(300):
                began = time.monotonic()
                error = refused(lambda: box.read_file(w / "file"), w / "file", OSError)
                assert error.errno == errno.EMFILE
                assert time.monotonic() - began < 10
            assert box.read_file(w / "file") == SECRET
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
