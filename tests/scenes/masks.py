"""Masks that stay: the host replaces what is masked, between two commands and during one."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import time
from pathlib import Path

from scenekit import PYTHON, Command, errnos, errors_of, opened, started, until

import sandbox

_DENIED = [errno.EACCES]
_READ_ONLY = [errno.EROFS]
# How long a file may be open after it was replaced. Usual is well below a millisecond; the machine
# of a test may be busy.
_WINDOW_NS = 500_000_000
_EXCHANGE = 2
_libc = ctypes.CDLL(None, use_errno=True)


def save(path: Path, text: str) -> None:
    """As editors do."""
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    os.rename(new, path)


def remake(path: Path, text: str) -> None:
    """Another file, that may have the number of the old one."""
    path.unlink()
    path.write_text(text)


def link(path: Path, text: str) -> None:
    """A link to a file that nobody denies."""
    (path.parent / "shared").write_text(text)
    path.unlink()
    path.symlink_to("shared")


def directory(path: Path, text: str) -> None:
    """A directory in the place of a file."""
    path.unlink()
    path.mkdir()


def exchange(path: Path, text: str) -> None:
    """Both names change their files at once, and the mount goes with the old one."""
    other = path.with_name(path.name + ".other")
    other.write_text(text)
    at = os.fsencode
    assert _libc.renameat2(-100, at(path), -100, at(other), _EXCHANGE) == 0, ctypes.get_errno()


WAYS = (save, remake, link, directory, exchange)


def denying(w: Path, *denied: Path) -> sandbox.SandboxPolicy:
    policy = sandbox.workspace_write(w)
    for path in denied:
        policy = policy.with_deny(path)
    return policy


def between_two_commands(w: Path, o: Path) -> None:
    for way in WAYS:
        secret, rc, free = w / f"{way.__name__}.key", w / ".envrc", w / "free"
        for path in (secret, rc, free):
            if path.is_dir():
                path.rmdir()
            path.unlink(missing_ok=True)
            path.write_text("first")
        with sandbox.Sandbox(denying(w, secret)) as box:
            assert errors_of(box, secret.name, "free") == [*_DENIED, 0]
            assert errors_of(box, ".envrc", "free", flags="O_WRONLY") == [*_READ_ONLY, 0]
            way(secret, "second")
            assert errors_of(box, secret.name, "free") == [*_DENIED, 0], way
            if way not in (link, directory):
                way(rc, "second")
                assert errors_of(box, ".envrc", "free", flags="O_WRONLY") == [*_READ_ONLY, 0], way


def during_a_command(w: Path, o: Path) -> None:
    for way in WAYS:
        secret = w / f"{way.__name__}.key"
        secret.write_text("first")
        with sandbox.Sandbox(denying(w, secret)) as box:
            with opened(box, w, "O_RDONLY", secret.name) as command:
                at = time.monotonic_ns()
                way(secret, "second")
                time.sleep(0.3)
            seen = errnos(command.join())[secret.name]
            assert seen[0][1] == seen[-1][1] == str(errno.EACCES), (way, seen)
            assert seen[-1][0] - at < _WINDOW_NS, (way, seen)


def a_protected_file_during_a_command(w: Path, o: Path) -> None:
    rc = w / ".envrc"
    rc.write_text("first")
    (w / ".vscode").mkdir()
    (w / ".vscode" / "tasks.json").touch()
    names = (".envrc", ".vscode/tasks.json", "free")
    (w / "free").touch()
    with sandbox.Sandbox(denying(w)) as box:
        with opened(box, w, "O_WRONLY", *names) as command:
            at = time.monotonic_ns()
            save(rc, "second")
            shutil.rmtree(w / ".vscode")
            (w / ".vscode").mkdir()
            (w / ".vscode" / "tasks.json").touch()
            time.sleep(0.3)
        seen = errnos(command.join())
        for name in names[:2]:
            assert seen[name][0][1] == seen[name][-1][1] == str(errno.EROFS), seen
            assert seen[name][-1][0] - at < _WINDOW_NS, seen
        assert [answer for _, answer in seen["free"]] == ["open"], seen


def what_was_not_there_is_masked_when_it_comes(w: Path, o: Path) -> None:
    late, deep = w / "late.key", o / "a" / "b" / "deep.key"
    with sandbox.Sandbox(denying(w, late, deep)) as box:
        with opened(box, w, "O_RDONLY", str(late), str(deep), str(o / "free")) as command:
            late.write_text("secret")
            deep.parent.mkdir(parents=True)
            deep.write_text("secret")
            (o / "free").touch()
            time.sleep(0.3)
        seen = errnos(command.join())
        assert [seen[str(path)][-1][1] for path in (late, deep)] == [str(errno.EACCES)] * 2, seen
        assert seen[str(o / "free")][-1][1] == "open", seen
        assert errors_of(box, str(late), str(deep)) == _DENIED * 2


def a_directory_on_the_way_is_replaced(w: Path, o: Path) -> None:
    secret = o / "a" / "b" / "key"
    secret.parent.mkdir(parents=True)
    secret.write_text("first")
    with sandbox.Sandbox(denying(w, secret)) as box:
        with opened(box, w, "O_RDONLY", str(secret)) as command:
            for round in range(3):
                (o / "a").rename(o / f"old-{round}")
                secret.parent.mkdir(parents=True)
                secret.write_text("second")
                time.sleep(0.1)
                (o / "a" / "b").rename(o / "a" / "c")
                secret.parent.mkdir()
                save(secret, "third")
                time.sleep(0.2)
        seen = errnos(command.join())[str(secret)]
        assert seen[0][1] == seen[-1][1] == str(errno.EACCES), seen


def in_all_lanes(w: Path, o: Path) -> None:
    secret = w / "key"
    secret.write_text("first")
    wait = "touch $0; while [ ! -e go ]; do sleep 0.01; done; cat key; echo $?"
    with sandbox.Sandbox(denying(w, secret)) as box:
        commands = [Command(box, ["/bin/sh", "-c", wait, f"at-{i}"]) for i in range(3)]
        until(lambda: all((w / f"at-{i}").exists() for i in range(3)))
        save(secret, "second")
        time.sleep(0.2)
        (w / "go").touch()
        for command in commands:
            result = command.join()
            assert (result.out, "Permission denied" in result.err) == ("1\n", True), result


def a_link_on_the_way_ends_the_sandbox(w: Path, o: Path) -> None:
    secret = o / "a" / "key"
    secret.parent.mkdir()
    secret.write_text("secret")
    with sandbox.Sandbox(denying(w, secret)) as box:
        with started(box, w, "/bin/sh", "-c", "touch ready; sleep 20") as command:
            (o / "a").rename(o / "b")
            (o / "b" / "key").unlink()
            (o / "b" / "key").write_text("another")
            (o / "a").symlink_to("b")
            until(lambda: command.error, 10)
        assert isinstance(command.error, sandbox.SandboxLost), command.error
        assert errors_of(box, str(secret), str(o / "b" / "key")) == _DENIED * 2


def a_command_may_move_directories_and_leave_links(w: Path, o: Path) -> None:
    (w / "d").mkdir()
    (w / "d" / "free").touch()
    with sandbox.Sandbox(denying(w, w / "d" / "late.key")) as box:
        result = box.run("mv d e && ln -s e d && sleep 0.2; cat d/free")
        assert result.ok, result


def what_holds_a_masked_file_cannot_be_renamed(w: Path, o: Path) -> None:
    secret = w / "a" / "b" / "key"
    secret.parent.mkdir(parents=True)
    (w / "free").mkdir()
    secret.write_text("secret")
    code = "import os, sys\ntry: os.rename(*sys.argv[1:])\nexcept OSError as e: print(e.errno)"
    with sandbox.Sandbox(denying(w, secret)) as box:
        for name, why in (("a", errno.EBUSY), ("a/b", errno.EXDEV)):
            assert box.run([PYTHON, "-c", code, name, "c"]).out == f"{why}\n"
        assert box.run([PYTHON, "-c", code, "a/b", "a/c"]).out == f"{errno.EBUSY}\n"
        assert box.run([PYTHON, "-c", code, "free", "c"]).out == ""
        assert errors_of(box, "a/b/key") == _DENIED


def a_flood_of_names_hides_nothing(w: Path, o: Path) -> None:
    secret = w / "key"
    secret.write_text("first")
    flood = (
        "touch ready; while [ ! -e stop ]; do for i in 1 2 3 4 5 6; do : >x$i; rm x$i; done; done"
    )
    with sandbox.Sandbox(denying(w, secret)) as box:
        with started(box, w, "/bin/sh", "-c", flood), Watcher(box, w, secret.name) as seen:
            for _ in range(20):
                save(secret, "second")
                time.sleep(0.02)
            time.sleep(0.3)
        assert seen.answers()[-1] == str(errno.EACCES), seen.answers()


class Watcher:
    """As `opened`, beside another command: it ends with its own file."""

    def __init__(self, box: sandbox.Sandbox, w: Path, name: str) -> None:
        code = (
            "import os, sys\n"
            "while not os.path.exists('enough'):\n"
            "    try: os.close(os.open(sys.argv[1], os.O_RDONLY)); print('open')\n"
            "    except OSError as error: print(error.errno)\n"
        )
        self._w = w
        self._command = Command(box, [PYTHON, "-c", code, name])

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        (self._w / "enough").touch()
        self._result = self._command.join()

    def answers(self) -> list[str]:
        return self._result.out.split()


def where_a_directory_cannot_be_read_it_is_said(w: Path, o: Path) -> None:
    """`o` may be passed, and not be listed, by this user."""
    with sandbox.Sandbox(denying(w)) as box:
        assert "masks" not in {part.part for part in box.enforcement.weaker}
        assert errors_of(box, str(o / "key")) == [0]
    with sandbox.Sandbox(denying(w, o / "key")) as box:
        assert "masks" in {part.part for part in box.enforcement.weaker}
        assert errors_of(box, str(o / "key")) == _DENIED
