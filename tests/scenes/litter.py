"""Names that a command plants, when whoever would move them aside is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from scenekit import until

import _sandcore
import sandbox

PR_SET_CHILD_SUBREAPER = 36
_PLANT = (
    "mkdir .vscode && echo evil >.vscode/tasks.json && echo evil >.envrc && ln -s /etc .idea"
    " && mkdir .codex && chmod 0 .codex && echo free >free && touch ready"
)
_NAMES = (".vscode", ".envrc", ".idea", ".codex")


def box_of(w: Path) -> sandbox.Sandbox:
    return sandbox.Sandbox(sandbox.workspace_write(w))


def caller(w: Path, command: str, after: str = "") -> subprocess.Popen[bytes]:
    """A caller that runs a command in a sandbox; it is a leader of its own group."""
    code = (
        "import os, sandbox, sys, time\n"
        "box = sandbox.Sandbox(sandbox.workspace_write(sys.argv[1]))\n"
        "wanted = os.environ['SANDBOX_ISOLATION'].replace('auto', 'namespaces')\n"
        "assert box.isolation == wanted\n"
        "open(sys.argv[1] + '/root', 'w').write(str(box._boundary._confinement._helper.pid))\n"
        f"box.run(sys.argv[2])\n{after}\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(w), command], preexec_fn=os.setpgrp, cwd="/"
    )


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def lanes_of(root: int) -> list[int]:
    return [int(p) for p in os.listdir("/proc") if p.isdigit() and parent_of(int(p)) == root]


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def notes_of(w: Path) -> list[tuple[int, bytes]]:
    """The notes of sandboxes in this directory, not in one that had its number before."""
    stamp = _sandcore.Stamps((), [os.fsencode(w)]).take()
    device, inode, _, birth = (int.from_bytes(stamp[i : i + 8], "little") for i in range(0, 32, 8))
    head = b"sandcore:1:%d:%d:%d:" % (device, inode, birth)
    return [(key, text) for key, text in _sandcore.notes(b"sandcore:1:") if text.startswith(head)]


def names(w: Path) -> set[str]:
    return {path.name for path in w.iterdir()}


def killed(w: Path, lanes: bool = False, slow: bool = False) -> set[str]:
    """What is there when a caller was killed while its command, which has planted, still runs."""
    one = caller(w, f"{_PLANT}; sleep 60")
    until(lambda: (w / "ready").exists(), 20)
    root = int((w / "root").read_text())
    if slow:
        # Its parent then is of this session: the kernel wakes a stopped group that is orphaned.
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        os.kill(root, signal.SIGSTOP)
    for victim in (*(lanes_of(root) if lanes else ()), one.pid):
        os.kill(victim, signal.SIGKILL)
    one.wait()
    if slow:
        time.sleep(3)
        os.kill(root, signal.SIGCONT)
    until(lambda: is_gone(root), 10)
    return names(w)


def check_moved(w: Path, found: set[str]) -> None:
    assert found.isdisjoint(_NAMES), found
    aside = {name.rpartition(".planted-")[0]: name for name in found if ".planted-" in name}
    assert set(aside) == set(_NAMES), found
    assert (w / aside[".vscode"] / "tasks.json").read_text() == "evil\n"
    assert os.readlink(w / aside[".idea"]) == "/etc"
    assert (w / "free").read_text() == "free\n"


def the_caller_is_killed(w: Path, o: Path) -> None:
    check_moved(w, killed(w))
    assert notes_of(w) == []


def the_caller_is_killed_and_the_root_is_slow(w: Path, o: Path) -> None:
    """When it looks the command has ended, longer ago than a caller takes that lives."""
    check_moved(w, killed(w, slow=True))
    assert notes_of(w) == []


def the_caller_and_its_lanes_are_killed(w: Path, o: Path) -> None:
    """The caller sees that it has lost its lanes, and may just be closing: then the next start."""
    found = killed(w, lanes=True)
    if not found.isdisjoint(_NAMES):
        with box_of(w) as box:
            assert {denial.change for denial in box.run("true").denials} == {"planted"}
        found = names(w)
    check_moved(w, found)


def what_was_there_before_stays(w: Path, o: Path) -> None:
    (w / ".envrc").write_text("mine")
    (w / ".git").mkdir()
    one = caller(w, "mkdir .vscode; touch ready; sleep 60")
    until(lambda: (w / "ready").exists(), 20)
    root = int((w / "root").read_text())
    one.kill()
    one.wait()
    until(lambda: is_gone(root), 10)
    found = names(w)
    assert {".envrc", ".git"} <= found and ".vscode" not in found, found
    assert (w / ".envrc").read_text() == "mine"


def what_the_host_makes_between_commands_is_its_own(w: Path, o: Path) -> None:
    one = caller(w, "true", "open(sys.argv[1] + '/ready', 'w'); time.sleep(60)")
    until(lambda: (w / "ready").exists(), 20)
    root = int((w / "root").read_text())
    time.sleep(2.5)  # longer than a caller has to look by itself
    (w / ".vscode").mkdir()
    one.kill()
    one.wait()
    until(lambda: is_gone(root), 10)
    assert ".vscode" in names(w)


def a_caller_that_has_no_time_to_look(w: Path, o: Path) -> None:
    """Killed right after its command has ended, before it has looked."""
    patch = (
        "import os, signal, sys, sandbox\n"
        "from sandbox.backends.guard import Guard\n"
        "Guard.after = lambda self: os.kill(os.getpid(), signal.SIGKILL)\n"
        "box = sandbox.Sandbox(sandbox.workspace_write(sys.argv[1]))\n"
        "open(sys.argv[1] + '/root', 'w').write(str(box._boundary._confinement._helper.pid))\n"
        "box.run(sys.argv[2])\n"
    )
    done = subprocess.run([sys.executable, "-c", patch, str(w), _PLANT], cwd="/")
    assert done.returncode == -signal.SIGKILL
    until(lambda: is_gone(int((w / "root").read_text())), 10)
    check_moved(w, names(w))


def closing_moves_nothing(w: Path, o: Path) -> None:
    """What the caller itself looks after is not looked after twice."""
    box = box_of(w)
    result = box.run(_PLANT)
    assert {denial.change for denial in result.denials} == {"planted"}
    before = names(w)
    (w / ".vscode").mkdir()
    box.close()
    assert names(w) == before | {".vscode"}


def nothing_is_made_for_protection(w: Path, o: Path) -> None:
    """Neither seen by a command, nor by the host meanwhile, nor left when all are killed."""
    (w / "sub").mkdir()
    (w / "sub" / "file").touch()
    one = caller(w, "ls -A . sub >listing; touch ready; sleep 60")
    until(lambda: (w / "ready").exists(), 20)
    own = {"sub", "listing", "ready", "root"}
    assert names(w) == own and names(w / "sub") == {"file"}
    assert (w / "listing").read_text().split() == [".:", "listing", "root", "sub", "sub:", "file"]
    root = int((w / "root").read_text())
    victims = [root, *lanes_of(root), one.pid]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    one.wait()
    until(lambda: all(is_gone(victim) for victim in victims), 10)
    assert names(w) == own and names(w / "sub") == {"file"}
