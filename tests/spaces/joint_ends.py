"""How children of the caller's own end that have joined a sandbox, and what they leave."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess as plain
import sys
import time
from pathlib import Path
from typing import Any

from lanekit import exists, wait_for
from spacekit import MARK, PYTHON, helpers, marked, new_mark, space

import sandbox
from sandbox import Limits, subprocess, workspace_write
from spaces.joint import shell

TREE = "setsid setsid sleep 301 & (trap '' TERM HUP; sleep 302) & (sleep 303 &) ; "


def closing_ends_all_that_has_joined(w: Path, o: Path) -> None:
    """With what its children have left behind, waited for or not; and in no time."""
    mark = new_mark()
    with space(w) as box:
        environment = {**os.environ, MARK: mark}
        how: Any = {"shell": True, "sandbox": box, "env": environment}
        running = subprocess.Popen(TREE + "exec sleep 300", **how)
        ended = subprocess.Popen(TREE + "exit 3", **how)
        assert ended.wait() == 3
        forgotten = subprocess.Popen(TREE + "exit 4", **how)
        wait_for(lambda: len(marked(mark)) >= 9)
        time.sleep(0.1)
        began = time.monotonic()
        box.close()
        assert time.monotonic() - began < 2
        assert marked(mark) == []
        assert (running.wait(), forgotten.wait()) == (-9, 4)
        wait_for(lambda: helpers() == [])


CALLER = """
import os, sys, time
from sandbox import Sandbox, subprocess, workspace_write
work, mark, tree = sys.argv[1:]
box = Sandbox(workspace_write(work))
env = {**os.environ, %r: mark}
words = f"echo evil > {work}/.envrc; {tree} exec sleep 300"
subprocess.Popen(words, shell=True, sandbox=box, env=env)
time.sleep(30)
"""


def kill_a_caller(w: Path, slow: bool = False) -> list[int]:
    """One to whose sandbox children have joined; its helper processes, the root first."""
    mark = new_mark()
    words = ["-W", "ignore", "-c", CALLER % MARK, str(w), mark, TREE]
    caller = plain.Popen([sys.executable, *words])
    try:
        wait_for(lambda: len(marked(mark)) >= 4, 20)
        mine = helpers(caller.pid)
        assert len(mine) >= 4
        if slow:
            os.kill(mine[0], signal.SIGSTOP)
    finally:
        caller.kill()
        caller.wait()
    wait_for(lambda: not marked(mark))
    if slow:
        time.sleep(2.5)
        os.kill(mine[0], signal.SIGCONT)
    return mine


def a_killed_caller_ends_all_that_has_joined(w: Path, o: Path) -> None:
    for _ in range(3):
        pids = kill_a_caller(w)
        wait_for(lambda pids=pids: not any(map(exists, pids)))
    assert not (w / ".envrc").exists()
    assert len(planted(w)) == 3


def names_are_put_back_by_a_root_that_is_slow(w: Path, o: Path) -> None:
    """By then all that joined has ended, long ago."""
    kill_a_caller(w, slow=True)
    wait_for(lambda: planted(w))
    assert not (w / ".envrc").exists()


def planted(w: Path) -> list[Path]:
    return [path for path in w.iterdir() if ".envrc.planted-" in path.name]


def a_lost_sandbox_is_lost_for_them_too_and_made_anew(w: Path, o: Path) -> None:
    mark = new_mark()
    with space(w) as box:
        child = subprocess.Popen(
            TREE + "exec sleep 300", shell=True, sandbox=box, env={**os.environ, MARK: mark}
        )
        # Not by the number of a namespace: that of one which has ended is given out again.
        anew = "test -e /tmp/mine || echo anew"
        assert shell(box, f"touch /tmp/mine; {anew}") == ""
        wait_for(lambda: len(marked(mark)) >= 4)
        os.kill(helpers()[0], signal.SIGKILL)
        assert child.wait(10) == -9
        wait_for(lambda: not marked(mark))
        assert shell(box, anew) == "anew\n"
        # So is one whose nursery was killed: that is a child of the caller, and not of the root.
        child = subprocess.Popen(["sleep", "300"], sandbox=box)
        os.kill(_nursery(), signal.SIGKILL)
        with contextlib.suppress(sandbox.SandboxLost):
            shell(box, "echo next")
        assert shell(box, "echo next") == "next\n"
    assert child.wait() == -9


def _nursery() -> int:
    """The helper process of the caller's that has no child of its own."""
    mine = helpers()
    parents = {int(Path(f"/proc/{pid}/stat").read_text().split()[3]) for pid in mine}
    return next(
        pid
        for pid in mine
        if pid not in parents
        and int(Path(f"/proc/{pid}/stat").read_text().split()[3]) == os.getpid()
    )


def a_host_that_changes_moves_nobody(w: Path, o: Path) -> None:
    """The next child joins the sandbox as it is made anew; who runs stays, and ends with it."""
    (o / "secret").write_text("old")
    with space(w, workspace_write(w).with_deny(o / "secret")) as box:
        child = subprocess.Popen(["sh", "-c", "sleep 300; exit 1"], sandbox=box)
        before = shell(box, "readlink /proc/self/ns/mnt")
        (o / "new").write_text("new")
        (o / "new").replace(o / "secret")
        time.sleep(0.1)
        assert shell(box, f"readlink /proc/self/ns/mnt; ! cat {o}/secret") != before
        assert child.poll() is None
    assert child.wait() == -9


def a_planted_name_is_moved_when_the_sandbox_is_closed_and_told(w: Path, o: Path) -> None:
    with space(w) as box:
        shell(box, f"echo evil > {w}/.envrc; echo mine > {w}/file")
    assert not (w / ".envrc").exists() and (w / "file").read_text() == "mine\n"
    aside = [path.name for path in w.iterdir() if path.name.startswith(".envrc.planted-")]
    assert len(aside) == 1
    with space(w) as box:
        denials = box.run("true").denials
        assert [Path(one.what).name for one in denials] == [".envrc"], denials


def limits_hold_for_what_joins(w: Path, o: Path) -> None:
    policy = workspace_write(w).with_limits(Limits(wall=None, processes=320, open_files=50))
    with space(w, policy) as box:
        assert shell(box, "ulimit -n").strip() == "50"
        parts = {one.part: one.cause for one in box.joint().enforcement.weaker}
        assert {"tree-kill", "restore", "processes"} <= set(parts), parts
        code = (
            "import os, time\nmade = 0\n"
            "try:\n"
            "    while os.fork(): made += 1\n"
            "    else: os.close(1); time.sleep(60)\n"
            "except BlockingIOError: print(made)"
        )
        made = int(subprocess.check_output([PYTHON, "-c", code], sandbox=box))
        assert 200 < made <= 320, made
        assert box.run("echo next").out == "next\n"


def the_end_of_a_group_is_not_that_of_who_spawns(w: Path, o: Path) -> None:
    with space(w) as box:
        leader = subprocess.Popen(["sleep", "60"], sandbox=box, process_group=0)
        other = subprocess.Popen(["sleep", "60"], sandbox=box, start_new_session=True)
        follower = subprocess.Popen(["sleep", "60"], sandbox=box, process_group=leader.pid)
        os.killpg(leader.pid, signal.SIGKILL)
        assert leader.wait() == follower.wait() == -9
        assert shell(box, "echo next") == "next\n"
        assert other.poll() is None


def no_place_in_it_has_the_number_of_a_stream(w: Path, o: Path) -> None:
    """What the caller prints would be an order."""
    with space(w) as box:
        for number in (0, 1):
            os.close(number)
        subprocess.Popen(["true"], sandbox=box).wait()
        going_on = box.popen(["sleep", "60"])
        left = [number for number in (0, 1) if os.path.lexists(f"/proc/self/fd/{number}")]
        going_on.kill()
        assert left == [], left
