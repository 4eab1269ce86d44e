"""Workspaces that come and go in one sandbox: what a command sees of its own, and of the others.

`w` is the directory that they are in.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from scenekit import PYTHON, errors_of, opened, started, until

import sandbox
from sandbox import Command, Sandbox, SandboxException, WorkspaceRefused, run_many, workspace_write
from sandbox.shared import Shelf
from scenes.litter import is_gone

_DENIED, _READ_ONLY, _MISSING = errno.EACCES, errno.EROFS, errno.ENOENT
_LIBC = ctypes.CDLL(None, use_errno=True)


def made(w: Path, *names: str) -> list[Path]:
    """Workspaces, each with a file that says its name."""
    found = [w / name for name in names or ("one", "two")]
    for path in found:
        path.mkdir()
        (path / "file").write_text(path.name)
    return found


def refused(act: object, *arguments: object) -> SandboxException:
    try:
        act(*arguments)  # type: ignore[operator]
    except SandboxException as error:
        return error
    raise AssertionError("it was not refused")


def helper_of(box: Sandbox) -> int:
    return int(box._boundary._confinement._helper.pid)  # type: ignore[union-attr]


def kill_helper(box: Sandbox) -> None:
    """And all that it has started, which takes a moment."""
    pid = helper_of(box)
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid) and not box._boundary._confinement._idle[0].lane.usable)  # type: ignore[union-attr]


def it_is_written_and_the_others_are_not_there(w: Path, o: Path) -> None:
    one, two = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        assert box.run(f"ls -A {w}").out == ""
        for mine, other in ((one, two), (two, one), (one, two)):
            box.move(mine)
            found = box.run(f"pwd; cat file; echo new > new; ls -A {w}; ls -A ..; cat {other}/file")
            assert found.out == f"{mine}\n{mine.name}{mine.name}\n{mine.name}\n", found
            assert (mine / "new").read_text() == "new\n"
            assert errors_of(box, str(other / "file"), f"../{other.name}/file") == [_MISSING] * 2
            assert errors_of(box, f"/proc/1/root{other}/file")[0] != 0
            wanted = ("file", f"{w}/x", f"{other}/x", "../x", "/etc/x")
            found_errors = errors_of(box, *wanted, flags="O_WRONLY | os.O_CREAT")
            assert found_errors == [0, _READ_ONLY, _MISSING, _READ_ONLY, _READ_ONLY]
            assert errors_of(box, f"{o}/file", flags="O_WRONLY")[0] in (
                _READ_ONLY,
                _MISSING,
                _DENIED,
            )
            assert box.run(["mkdir", f"{w}/beside"]).returncode != 0
            assert box.run(["mv", str(mine), f"{w}/moved"]).returncode != 0
            assert box.run(["rmdir", f"{w}/{mine.name}"]).returncode != 0
    assert sorted(os.listdir(w)) == ["one", "two"]
    if not str(w).startswith("/tmp/"):
        with Sandbox(workspace_write(one)) as box:  # the control
            assert box.run(f"cat {two}/file").out == "two"


def nothing_of_the_last_one_is_found(w: Path, o: Path) -> None:
    """In /tmp, shared memory, System V's, on the network, in abstract names, as a process."""
    one, two = made(w)
    leave = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None)
open("/tmp/left", "w").write("x"); open("/dev/shm/left", "w").write("x"); os.chmod("/tmp", 0o700)
assert libc.shmget(4711, 4096, 0o1600) >= 0
if os.fork() == 0:
    os.setsid()
    port, name = socket.socket(), socket.socket(socket.AF_UNIX)
    port.bind(("127.0.0.1", 4711)); port.listen()
    name.bind("\\0left"); name.listen()
    file = socket.socket(socket.AF_UNIX); file.bind(sys.argv[1] + "/socket"); file.listen()
    open("ready", "w").close()
    while True: pass
while not os.path.exists("ready"): pass
"""
    look = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None)
print(os.listdir("/tmp"), os.listdir("/dev/shm"), oct(os.stat("/tmp").st_mode & 0o7777))
print(libc.shmget(4711, 4096, 0o600) >= 0)
print({int(name) for name in os.listdir("/proc") if name.isdigit()} - {1, os.getpid()})
for address in (("127.0.0.1", 4711), "\\0left", sys.argv[1] + "/socket"):
    kind = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
    try: socket.socket(kind).connect(address); print("connected")
    except OSError as error: print("refused")
"""
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        before = box.run([PYTHON, "-c", look, str(one)]).out.splitlines()[0]
        assert "left" not in before
        result = box.run([PYTHON, "-c", leave, str(one)])
        assert result.ok and result.swept == 1, result
        control = box.popen([PYTHON, "-c", leave + "\nwhile True: pass", str(one)])
        (one / "socket").unlink()
        until(lambda: (one / "socket").exists(), 20)
        seen = box.run([PYTHON, "-c", look, str(one)]).out.splitlines()
        assert seen[-3:] == ["connected"] * 3, seen
        control.kill()
        control.wait()
        box.move(two)
        seen = box.run([PYTHON, "-c", look, str(one)]).out.splitlines()
        assert seen == [before, "False", "set()", *["refused"] * 3], seen


def what_is_protected_in_each_is_its_own(w: Path, o: Path) -> None:
    one, two = made(w)
    (one / ".git" / "hooks").mkdir(parents=True)
    (one / "deep" / "er" / ".git").mkdir(parents=True)
    (one / "deep" / "er" / ".git" / "config").touch()
    (two / ".envrc").write_text("mine")
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        names = (".git/hooks/x", "deep/er/.git/config", "deep/er/x", "free")
        flags = "O_WRONLY | os.O_CREAT"
        assert errors_of(box, *names, flags=flags) == [_READ_ONLY, _READ_ONLY, 0, 0]
        assert box.run("mv deep other || mv deep/er deep/es").returncode != 0
        result = box.run("mkdir .vscode && echo evil > .envrc && echo evil > .vscode/x")
        planted = {os.path.basename(denial.what) for denial in result.denials}
        assert result.ok and planted == {".vscode", ".envrc"}, result
        assert {denial.change for denial in result.denials} == {"planted"}
        box.move(two)
        assert errors_of(box, ".envrc", flags="O_WRONLY") == [_READ_ONLY]
        result = box.run("mkdir -p .git/hooks && echo evil > .git/hooks/x; echo evil > .envrc")
        assert {denial.what for denial in result.denials} >= {str(two / ".git")}
    names_of = {path.name.partition(".planted-")[0] for path in one.iterdir()}
    assert names_of >= {".vscode", ".envrc"} and not (one / ".envrc").exists()
    assert (two / ".envrc").read_text() == "mine" and not (two / ".git").exists()
    assert any(path.name.startswith(".git.planted-") for path in two.iterdir())


def a_pointer_of_git_is_followed(w: Path, o: Path) -> None:
    """Out of the workspace, where all is read-only, and to a place in it."""
    one, two = made(w)
    (one / "kept").mkdir()
    (one / "kept" / "config").touch()
    (one / ".git").write_text("gitdir: kept\n")
    (two / ".git").write_text(f"gitdir: {o}\n")
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        assert errors_of(box, ".git", "kept/config", flags="O_WRONLY") == [_READ_ONLY] * 2
        box.move(two)
        assert errors_of(box, ".git", flags="O_WRONLY") == [_READ_ONLY]
        assert errors_of(box, f"{o}/file", flags="O_WRONLY")[0] in (_READ_ONLY, _MISSING, _DENIED)


def what_the_host_makes_is_protected_from_the_next_command_on(w: Path, o: Path) -> None:
    (one,) = made(w, "one")
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        assert box.run("touch file").ok
        (one / ".git").mkdir()
        (one / ".git" / "config").touch()
        assert errors_of(box, ".git/config", "file", flags="O_WRONLY") == [_READ_ONLY, 0]
        assert box.resolved.workspace == str(one)


def a_protected_file_that_is_replaced_stays_protected(w: Path, o: Path) -> None:
    """While a command tries to write into it; as editors do."""
    (one,) = made(w, "one")
    (one / ".envrc").write_text("0")
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        with opened(box, one, "O_WRONLY", ".envrc") as command:
            for _ in range(50):
                (one / "new").write_text("1")
                (one / "new").replace(one / ".envrc")
                time.sleep(0.002)
            time.sleep(0.2)
            (one / "mark").touch()
            at = time.monotonic_ns()
            time.sleep(0.2)
        seen = [line.split() for line in command.join().out.splitlines()]
        late = {answer for when, _, answer in seen if int(when) > at}
        assert seen[-1][2] == str(_READ_ONLY) and late <= {str(_READ_ONLY)}, seen[-5:]


def another_directory_of_its_name_is_the_workspace_then(w: Path, o: Path) -> None:
    one, two = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        assert box.run("cat file").out == "one"
        one.rename(w / "away")
        two.rename(one)
        assert box.run("cat file").out == "two"
        one.rename(w / "other")
        one.symlink_to(o)
        refused(box.run, "touch there")
        assert sorted(path.name for path in o.iterdir()) == ["file"]
        one.unlink()
        refused(box.run, "true")


def what_is_none_of_them_is_refused(w: Path, o: Path) -> None:
    """Then there is none, until the next one."""
    one, two = made(w)
    (one / "deeper").mkdir()
    (w / "link").symlink_to(o)
    (w / "file").touch()
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        wrong = (o, w, "/", one / "deeper", w / "link", w / "file", w / "gone", w / ".", w / "..")
        for path in (*wrong, one / ".." / ".." / "outside"):
            error = refused(box.move, path)
            assert isinstance(error, sandbox.PolicyError), error
            assert box.run(f"ls {w}; pwd").out == f"{w}\n" and box.resolved.workspace == ""
        (w / "inner").symlink_to("two")
        refused(box.move, w / "inner")
        box.move(o / ".." / w.name / "two")  # another way to write it
        assert box.resolved.workspace == str(two) and box.run("cat file").out == "two"


def it_does_not_move_under_a_command(w: Path, o: Path) -> None:
    one, two = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        with started(
            box, one, "sh", "-c", "touch ready; while ! test -e stop; do :; done; cat file"
        ):
            assert "a command is in another" in str(refused(box.move, two))
        process = box.popen("sleep 60")
        refused(box.move, two)
        process.kill()
        process.wait()
        box.move(two)
        assert box.run("cat file").out == "two"


def several_lanes_have_the_same(w: Path, o: Path) -> None:
    """Those that were there before, and those that come later."""
    one, two = made(w)
    wait = ["sh", "-c", "touch ready; while ! test -e stop; do :; done; cat file"]
    with Sandbox(workspace_write(), workspaces=w) as box:
        for mine in (one, two, one):
            box.move(mine)
            with started(box, mine, *wait) as first:
                with started(box, mine, *wait) as second:
                    assert box.run("cat file").out == mine.name
                assert second.join().out == mine.name
            assert first.join().out == mine.name


def a_new_helper_has_it_too(w: Path, o: Path) -> None:
    one, two = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        kill_helper(box)
        assert box.run("cat file").out == "one"
        kill_helper(box)
        box.move(two)
        assert box.run(f"cat file; ls {w}").out == "twotwo\n"


def it_need_not_be_awaited(w: Path, o: Path) -> None:
    one, two = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        for mine in (one, two) * 20:
            box.move(mine, wait=False)
            assert box.run("cat file").out == mine.name
        box.move(one, wait=False)
        box.move(two, wait=False)
        assert box.read_file(two / "file") == b"two"
        box.move(one, wait=False)
        with box.popen("cat file", stdout=sandbox.PIPE) as process:
            assert process.stdout is not None and process.stdout.read() == b"one"


def a_forked_copy_has_its_own(w: Path, o: Path) -> None:
    one, two = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        pid = os.fork()
        if pid == 0:
            right = box.run("cat file").out == "one"
            box.move(two)
            os._exit(0 if right and box.run("cat file").out == "two" else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert box.run("cat file").out == "one"


def names_are_put_aside_when_the_caller_is_killed(w: Path, o: Path) -> None:
    (one,) = made(w, "one")
    code = (
        "import sandbox, sys\n"
        "box = sandbox.Sandbox(sandbox.workspace_write(), workspaces=sys.argv[1])\n"
        "box.move(sys.argv[1] + '/one')\n"
        "open(sys.argv[1] + '/root', 'w').write(str(box._boundary._confinement._helper.pid))\n"
        "box.run('mkdir .vscode; echo evil > .envrc; touch ready; sleep 60')\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", code, str(w)], cwd="/")
    until(lambda: (one / "ready").exists(), 20)
    assert (one / ".envrc").exists()
    caller.kill()
    caller.wait()
    root = int((w / "root").read_text())
    until(lambda: is_gone(root), 10)
    names = {path.name.partition(".planted-")[0] for path in one.iterdir()}
    assert names == {"file", "ready", ".vscode", ".envrc"}
    assert not (one / ".vscode").exists() and not (one / ".envrc").exists()


def names_are_put_aside_also_where_it_has_left_by_itself(w: Path, o: Path) -> None:
    """The command has ended, and its caller is killed before it hears of that."""
    (one,) = made(w, "one")
    code = (
        "import sandbox, sys\n"
        "text = 'mkdir .vscode; echo evil > .envrc; touch ready; sleep 1; touch over'\n"
        "sandbox.run(text, cwd=sys.argv[1] + '/one', workspaces=sys.argv[1])\n"
    )
    caller = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, str(w)], cwd="/")
    until(lambda: (one / "ready").exists(), 20)
    (root,) = map(int, Path(f"/proc/{caller.pid}/task/{caller.pid}/children").read_text().split())
    os.kill(caller.pid, signal.SIGSTOP)
    until(lambda: (one / "over").exists(), 20)
    until(lambda: not mounted(root, one))
    time.sleep(0.1)
    assert (one / ".envrc").exists()
    caller.kill()
    caller.wait()
    until(lambda: is_gone(root), 10)
    names = {path.name.partition(".planted-")[0] for path in one.iterdir()}
    assert names == {"file", "ready", "over", ".vscode", ".envrc"}
    assert not (one / ".vscode").exists() and not (one / ".envrc").exists()


def mounted(root: int, path: Path) -> bool:
    """Whether a helper has it, where that can be told."""
    with suppress(PermissionError):  # of a user it is not dumpable
        return f" {path} " in Path(f"/proc/{root}/mountinfo").read_text()
    return False


def what_is_for_one_command_leaves_when_that_has_ended(w: Path, o: Path) -> None:
    """By itself; also where no command came, and where another comes that has none."""
    one, two = made(w)
    shelf, policy = Shelf(), workspace_write()
    slot = shelf.borrow_for(policy, str(one), w)
    box, root = slot.sandbox, helper_of(slot.sandbox)
    assert box.run("cat file; echo x > /tmp/left").out == "one"
    until(lambda: not mounted(root, one))
    shelf.give_back(slot)
    assert box.run(f"test -e /tmp/left; echo $?; ls -A {w}").out == "1\n"

    assert shelf.borrow_for(policy, str(two), w) is slot
    shelf.give_back(slot)
    until(lambda: not mounted(root, two))
    assert box.run(f"ls -A {w}").out == ""

    for path in (two, one, one):
        assert shelf.borrow_for(policy, str(path), w) is slot
        assert box.run(f"cat file; ls -A {w}").out == f"{path.name}{path.name}\n"
        shelf.give_back(slot)

    box.move(two)  # and what is not stays
    for _ in range(3):
        assert box.run("cat file").out == "two"
        time.sleep(0.05)
    assert helper_of(box) == root
    shelf.close()


def nothing_grows(w: Path, o: Path) -> None:
    """Mounts and fds of the helper, fds and watches of the caller."""
    made(w, *(f"{number}" for number in range(40)))
    for number in range(0, 40, 2):
        (w / str(number) / ".git").mkdir()

    def sizes(box: Sandbox) -> list[int]:
        root = Path(f"/proc/{helper_of(box)}")
        fds = [len(os.listdir("/proc/self/fd"))]
        with suppress(PermissionError):  # of a user it is not dumpable
            fds.append(len(os.listdir(root / "fd")))
            fds.append(len((root / "mountinfo").read_text().splitlines()))
        return [*fds, int(box.run("wc -l < /proc/self/mountinfo").out)]

    with Sandbox(workspace_write(), workspaces=w) as box:
        for number in range(40):
            box.move(w / str(number))
            assert box.run("cat file").out == str(number)
        box.move(w / "0")
        before = sizes(box)
        for number in range(40):
            box.move(w / str(number))
            box.run("true")
        box.move(w / "2")
        assert sizes(box) == before


def what_is_mounted_since_is_refused_or_seen(w: Path, o: Path) -> None:
    """In a mount namespace of this test's own."""
    one, other = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        assert _LIBC.mount(b"none", bytes(one), b"tmpfs", 0, None) == 0
        (one / "file").write_text("mounted")
        (one / "file").chmod(0o666)
        for wait in (True, False):
            try:
                box.move(one, wait=wait)
                result = box.run("cat file")
            except WorkspaceRefused as error:
                assert "was mounted there" in str(error)
                continue
            raise AssertionError(f"{result.out} was taken for it")
    command = Command(["cat", "file"], one)
    (two,) = run_many([command], workspaces=w, concurrency=1)
    assert two.result is not None and two.result.out == "mounted", two
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        assert box.run("cat file; echo more > more").out == "mounted"
        assert (one / "more").exists()
        (other / "data").mkdir()
        (w.parent / "dataset").mkdir()
        (w.parent / "dataset" / "x").write_text("data")
        source, target = bytes(w.parent / "dataset"), bytes(other / "data")
        assert _LIBC.mount(source, target, None, 4096, None) == 0
        assert isinstance(refused(box.move, other), WorkspaceRefused)
        box.move(one)  # of which nothing was mounted
    boxes = Shelf()
    for _ in range(2):
        slot = boxes.borrow_for(workspace_write(), str(other), w)
        assert slot.sandbox.run("cat data/x", cwd=other).out == "data"
        boxes.give_back(slot)
    assert _LIBC.mount(source, bytes(other), None, 4096, None) == 0
    slot = boxes.borrow_for(workspace_write(), str(other), w)
    assert slot.sandbox.run("cat x", cwd=other).out == "data"
    boxes.close()


def policies_that_mean_something_else_are_refused(w: Path, o: Path) -> None:
    made(w)
    policy = workspace_write()
    home = Path(os.path.expanduser("~"))
    cases = (
        (workspace_write(w), w),
        (sandbox.read_only(), w),
        (policy.with_deny(w / "one" / "secret"), w),
        (policy.with_deny(f"{w}/**/.env"), w),
        (policy.with_deny(f"{w.parent}/**/.env"), w),
        (policy.with_read(w / "one"), w),
        (policy.with_write(w / "one"), w),
        (policy.with_unix_socket(w / "socket"), w),
        (policy, home),
        (policy, home.parent),
        (policy, "/"),
        (policy, "/tmp"),
        (policy, w / "gone"),
    )
    for wrong, dock in cases:
        try:
            Sandbox(wrong, workspaces=dock).close()
            raise AssertionError(f"{dock} was not refused: {wrong}")
        except SandboxException as found:
            error = found
        assert isinstance(error, (sandbox.PolicyError, sandbox.StartError)), (wrong, dock, error)
    error = refused(lambda: Sandbox(policy, workspace=w / "one", workspaces=w))
    assert "both were given" in str(error)
    with Sandbox(workspace_write(w / "one")) as box:
        assert "workspaces=" in str(refused(box.move, w / "two"))


def refusals_are_explained(w: Path, o: Path) -> None:
    one, two = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        result = box.run(["touch", "../x"])
        (denial,) = result.denials
        assert denial.rule == f"workspaces: {w}" and denial.grant is None, denial
        (one / ".git").mkdir()
        (denial,) = box.run(["touch", ".git/x"]).denials
        assert denial.rule == f"protected: {one}/.git"
        box.move(two)
        assert str(one) not in str(box.run(["touch", "/etc/x"]).denials)


def by_the_name_of_a_link_it_is_the_same(w: Path, o: Path) -> None:
    """One that is outside; what is protected is looked after where it leads."""
    (one,) = made(w, "one")
    link = o / "link"
    link.symlink_to(one)
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(link)
        result = box.run("echo evil > .envrc; mkdir .vscode")
        assert {denial.change for denial in result.denials} == {"planted"}
        (one / ".mcp.json").write_text("mine")
        assert errors_of(box, ".mcp.json", flags="O_WRONLY") == [_READ_ONLY]
    assert not (one / ".envrc").exists() and not (one / ".vscode").exists()


def a_link_to_what_is_missing_does_not_open_it(w: Path, o: Path) -> None:
    (one,) = made(w, "one")
    (one / "conf").mkdir()
    (one / ".envrc").symlink_to("conf/envrc")
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        result = box.run("echo evil > conf/envrc")
        assert "planted" in {denial.change for denial in result.denials}, result
    assert not (one / "conf" / "envrc").exists()


def a_pointer_into_what_may_be_written_takes_a_sandbox_of_its_own(w: Path, o: Path) -> None:
    (one,) = made(w, "one")
    cache = o / "cache"
    (cache / "x.git" / "worktrees" / "one").mkdir(parents=True)
    (cache / "x.git" / "config").write_text("mine")
    (one / ".git").write_text(f"gitdir: {cache}/x.git/worktrees/one\n")
    (cache / "x.git" / "worktrees" / "one" / "commondir").write_text("../..\n")
    policy = workspace_write().with_write(cache)
    with Sandbox(policy, workspaces=w) as box:
        assert "a sandbox of its own" in str(refused(box.move, one))
    command = Command(f"echo evil > {cache}/x.git/config; echo free > {cache}/free", one)
    (done,) = run_many([command], policy, workspaces=w)
    assert done.result is not None and (cache / "free").exists(), done
    assert (cache / "x.git" / "config").read_text() == "mine"


def one_that_cannot_be_listed_is_protected_all_the_same(w: Path, o: Path) -> None:
    (one,) = made(w, "one")
    (one / ".git" / "hooks").mkdir(parents=True)
    one.chmod(0o311)
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        flags = "O_WRONLY | os.O_CREAT"
        assert errors_of(box, ".git/hooks/x", "free", flags=flags) == [_READ_ONLY, 0]
        result = box.run("mkdir .vscode")
        assert {denial.change for denial in result.denials} == {"planted"}
    one.chmod(0o755)


def the_way_to_them_stays_where_it_may_be_written(w: Path, o: Path) -> None:
    dock = w / "runs" / "samples"
    for name in ("one", "two"):
        (dock / name).mkdir(parents=True)
        (dock / name / "secret").write_text(name)
    with Sandbox(workspace_write().with_write(w), workspaces=dock) as box:
        box.move(dock / "one")
        script = f"mkdir -p {w}/n/samples/one && mv {w}/runs {w}/x && mv {w}/n {w}/runs"
        assert box.run(script).returncode != 0
        assert errors_of(box, f"{dock}/two/secret", f"{w}/free") == [_MISSING, _MISSING]
        (w / "runs").rename(w / "away")  # the host may; then these are other ones
        (w / "runs").mkdir()
        dock.mkdir()
        refused(box.run, "true")


def many_of_them_take_no_protection_from_others(w: Path, o: Path) -> None:
    made(w, *(f"{number}" for number in range(300)))
    cache = o / "cache"
    (cache / "p" / ".git").mkdir(parents=True)
    with Sandbox(workspace_write().with_write(cache), workspaces=w) as box:
        box.move(w / "7")
        name = f"{cache}/p/.git/config"
        assert errors_of(box, name, flags="O_WRONLY | os.O_CREAT") == [_READ_ONLY]


def one_with_hundreds_of_repositories_takes_a_sandbox_of_its_own(w: Path, o: Path) -> None:
    (one,) = made(w, "one")
    for number in range(240):
        (one / f"repository-{number:040}" / ".git").mkdir(parents=True)
    with Sandbox(workspace_write(), workspaces=w) as box:
        assert "a sandbox of its own" in str(refused(box.move, one))
    command = Command("touch repository-*7/.git/x; touch free", one)
    (done,) = run_many([command], workspaces=w)
    assert done.result is not None and (one / "free").exists(), done
    assert not list(one.glob("*/.git/x"))


def what_is_refused_or_interrupted_leaves_none_and_the_next_one_comes(w: Path, o: Path) -> None:
    one, two = made(w)

    def nothing_lies_there() -> None:
        assert box.resolved.workspace == "" and box.run(f"pwd; ls {w}").out == f"{w}\n"

    with Sandbox(workspace_write(), workspaces=w) as box:
        berth = box._boundary._confinement._berth  # type: ignore[union-attr]
        ask = berth._ask

        def lie(found: Any, encoded: bytes) -> None:
            ask(found._replace(which=os.stat(two)), encoded)

        def interrupt(found: Any, encoded: bytes) -> None:
            ask(found, encoded)
            raise KeyboardInterrupt

        box.move(one)
        berth._ask = lie
        assert "another directory" in str(refused(box.move, one))
        nothing_lies_there()
        box.move(one, wait=False)
        assert "another directory" in str(refused(box.run, "true"))
        nothing_lies_there()
        box.move(one, wait=False)
        berth._ask = ask
        box.move(two)
        assert box.run("cat file").out == "two"
        berth._ask = interrupt
        with suppress(KeyboardInterrupt):
            box.move(one)
            raise AssertionError("it was not interrupted")
        berth._ask = ask
        nothing_lies_there()
        assert isinstance(refused(box.move, o), WorkspaceRefused)
        box.move(one)
        assert box.run("cat file").out == "one"
        box.move(None)
        nothing_lies_there()


def what_is_not_told_of_is_in_the_results(w: Path, o: Path) -> None:
    """Also where nobody waits for the workspace. The helper is made to say so."""
    one, _ = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        berth = box._boundary._confinement._berth  # type: ignore[union-attr]
        settle = berth.settle
        berth.settle = lambda: settle() + 3
        for wait in (True, False):
            box.move(one, wait=wait)
            for _ in range(2):
                parts = {weaker.part for weaker in box.run("true").enforcement.weaker}
                assert "masks" in parts
        berth.settle = settle
        box.move(one)
        assert "masks" not in {weaker.part for weaker in box.run("true").enforcement.weaker}


def who_has_joined_stays(w: Path, o: Path) -> None:
    from sandbox import subprocess as joined

    one, two = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one, wait=False)
        done = joined.run(["cat", "file"], capture_output=True, cwd=one, sandbox=box)
        assert done.stdout == b"one"
        assert "have joined" in str(refused(box.move, two))
        assert box.run("cat file").out == "one"


def threads_may_move_it(w: Path, o: Path) -> None:
    """What each finds is one of them as a whole, whoever came last."""
    one, two = made(w)
    wrong = list[object]()
    with Sandbox(workspace_write(), workspaces=w) as box:

        def work(mine: Path) -> None:
            for _ in range(100):
                try:
                    box.move(mine, wait=False)
                    result = box.run("pwd; cat file; echo; ls ..")
                    where, name = result.out.split()[0], result.out.split()[1:]
                    if name != [os.path.basename(where)] * 2:
                        wrong.append(result)
                except sandbox.InvalidArgument:  # a command is in another
                    continue
                except sandbox.StartError as error:  # it moved between where to start and the start
                    if error.errno != errno.ENOENT:
                        wrong.append(error)

        threads = [threading.Thread(target=work, args=(path,)) for path in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == [], wrong[:3]


def a_dock_that_was_renamed_for_a_moment_shows_no_other(w: Path, o: Path) -> None:
    """What lay there is unmounted by where it is mounted, not by its path."""
    dock = w / "dock"
    dock.mkdir()
    one, two = made(dock)
    for act in ("refused", "none"):
        with Sandbox(workspace_write(), workspaces=dock) as box:
            box.move(one)
            assert box.run("cat file").out == "one"
            dock.rename(w / "away")
            if act == "refused":
                refused(box.move, two)
            else:
                with suppress(SandboxException):
                    box.move(None)
            (w / "away").rename(dock)
            with suppress(SandboxException):
                box.move(two)
                assert box.run(f"ls {dock}; cat {one}/file").out in ("two\n", "")


def a_workspace_that_is_closed_is_no_empty_one(w: Path, o: Path) -> None:
    """Of an ordinary user, whose command takes the permissions of its own workspace."""
    (one,) = made(w, "one")
    (one / ".git").mkdir()
    (one / ".git" / "config").write_text("mine")
    (one / ".envrc").write_text("mine")
    for box in (Sandbox(workspace_write(), workspaces=w), Sandbox(workspace_write(one))):
        with box:
            if box.resolved.dock:
                box.move(one)
            script = "chmod 000 . && touch /tmp/closed; sleep 0.5; chmod 700 ."
            with box.popen(script) as first:
                time.sleep(0.1)
                with suppress(SandboxException):
                    box.run(
                        f"until cd {one}; do :; done; echo evil > .git/config; echo evil > .envrc"
                    )
                first.wait()
            one.chmod(0o755)
            assert (one / ".git" / "config").read_text() == "mine"
            assert (one / ".envrc").read_text() == "mine"


def answers_that_nobody_waits_for_stop_nothing(w: Path, o: Path) -> None:
    one, two = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        for number in range(1200):
            box.move((one, two)[number % 2], wait=False)
            if number % 3 == 0:
                refused(box.move, w / "gone")
        box.move(one)
        assert box.run("cat file").out == "one"


def a_command_that_goes_on_keeps_it_also_when_it_was_confined_anew(w: Path, o: Path) -> None:
    one, two = made(w)
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        with box.popen("echo x > .envrc; touch ready; sleep 60") as process:
            until(lambda: (one / "ready").exists())
            assert box.run("true").ok  # what was planted looks like the host's to it
            assert "a command is in another" in str(refused(box.move, two))
            process.kill()
        box.move(two)
        assert box.run("cat file").out == "two"


def what_the_host_makes_where_a_link_leads_is_protected(w: Path, o: Path) -> None:
    (one,) = made(w, "one")
    (one / "conf").mkdir()
    (one / ".envrc").symlink_to("conf/envrc")
    with Sandbox(workspace_write(), workspaces=w) as box:
        box.move(one)
        assert box.run("true").ok
        (one / "conf" / "envrc").write_text("mine")
        assert errors_of(box, "conf/envrc", flags="O_WRONLY") == [_READ_ONLY]


def the_directory_of_all_may_be_made_anew(w: Path, o: Path) -> None:
    dock = w / "dock"
    for turn in range(3):
        dock.mkdir()
        for path in made(dock):
            (done,) = run_many([Command(["cat", "file"], path)], workspaces=dock)
            assert done.result is not None and done.result.out == path.name, done
            assert sandbox.run(["cat", "file"], cwd=path, workspaces=dock).out == path.name
        dock.rename(w / f"away-{turn}")
