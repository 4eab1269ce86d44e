"""What a sandbox leaves behind, and sandboxes in sandboxes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from casekit import skip
from scenekit import open_fds
from spacekit import MARK, helpers, marked, new_mark, space

import sandbox
from sandbox import workspace_write

ROOT = Path(sandbox.__file__).resolve().parent.parent
CALLER = """
import sys, threading, time
from pathlib import Path
from spacekit import MARK, space
with space(Path(sys.argv[1])) as box:
    print("up", flush=True)
    env = {MARK: sys.argv[2]}
    for _ in range(2):
        threading.Thread(target=lambda: box.run("setsid sleep 300 & sleep 300", env=env)).start()
    time.sleep(300)
"""


def _state(*places: Path) -> list[str]:
    """Mounts of this namespace, and what lies where something could have been left."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [line.split(" ", 1)[1] for line in lines]
    for place in places:
        found += [str(path) for path in place.rglob("*")]
    return sorted(found)


def _places(o: Path) -> dict[str, str]:
    """The environment in which everything that is temporary lies in `o`: /tmp is everybody's."""
    for name in ("tmp", "run"):
        (o / name).mkdir(mode=0o700)
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(o / "tmp"))
    return os.environ | temporary | {"XDG_RUNTIME_DIR": str(o / "run")}


def a_killed_caller_leaves_nothing(w: Path, o: Path) -> None:
    """At any moment, during the start too."""
    chance = random.Random(3)
    mark = new_mark()
    environment = _places(o)
    before = _state(w, o)
    ran = 0
    for attempt in range(30):
        command = [sys.executable, "-W", "ignore", "-c", CALLER, str(w), mark]
        caller = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert caller.stdout is not None
        if attempt % 3:
            caller.stdout.readline()
            time.sleep(chance.uniform(0, 0.05))
        else:
            time.sleep(chance.uniform(0.05, 0.4))
        mine = helpers(caller.pid)
        ran += bool(marked(mark))
        caller.kill()
        caller.wait()
        end = time.monotonic() + 5
        while (left := marked(mark) + [pid for pid in mine if _is_alive(pid)]) and (
            time.monotonic() < end
        ):
            time.sleep(0.01)
        caller.stdout.close()
        assert not left, left
    assert ran >= 5  # often enough there was somebody to leave behind
    assert _state(w, o) == before


def _is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return "(sandcore-helper)" in text and text.rpartition(")")[2].split()[0] not in "ZX"


def a_killed_root_leaves_nobody_and_is_replaced(w: Path, o: Path) -> None:
    import threading

    mark = new_mark()
    kept: list[BaseException] = []
    with space(w) as box:

        def run() -> None:
            try:
                box.run("setsid sleep 300 & sleep 300", env={MARK: mark}, timeout=30)
            except sandbox.SandboxLost as lost:
                kept.append(lost)

        for victim in (0, 1):  # the root, a lane
            thread = threading.Thread(target=run)
            thread.start()
            while len(marked(mark)) < 2:
                time.sleep(0.01)
            os.kill(helpers()[victim], signal.SIGKILL)
            thread.join(10)
            assert len(kept) == victim + 1 and not thread.is_alive()
            assert marked(mark) == []
            assert box.run("echo next").out == "next\n"


def closing_leaves_nothing(w: Path, o: Path) -> None:
    os.environ.update(_places(o))
    before = _state(w, o)
    descriptors = len(open_fds())
    for _ in range(5):
        with space(w) as box:
            box.run("touch /tmp/f /dev/shm/f").check()
            assert len(helpers()) >= 2
        assert helpers() == []
    assert _state(w, o) == before
    assert len(open_fds()) == descriptors


INNER = """
import sys
sys.path[:0] = [sys.argv[1]]
import warnings
warnings.simplefilter("ignore")
import sandbox
with sandbox.Sandbox(sandbox.workspace_write(sys.argv[2])) as box:
    print(box.enforcement.isolation)
    for part in box.enforcement.weaker:
        if part.part == "namespaces":
            print(part.cause, "|", part.mend)
    print(box.run("touch made; echo inner").out.strip())
    print(box.run("touch ../beside").returncode)
    print(box.run("sleep 300 & setsid sleep 300", timeout=0.3).timed_out)
try:
    sandbox.Sandbox(sandbox.workspace_write(sys.argv[2]).with_require("namespaces"))
except sandbox.Unenforceable as error:
    print(error)
"""


def a_sandbox_in_a_sandbox_is_landlock_and_says_so(w: Path, o: Path) -> None:
    inner = w / "inner"
    inner.mkdir()
    policy = workspace_write(w, read=[ROOT])
    with space(w, policy) as box:
        words = ["/usr/bin/python3", "-B", "-c", INNER, str(ROOT), str(inner)]
        result = box.run(words, timeout=60)
        if "cannot import" in result.err or "No module" in result.err:
            skip(f"no interpreter of ours can start in there: {result.err[-200:]}")
        lines = result.check().out.splitlines()
        assert lines[0] == "landlock"
        assert "sandbox" in lines[1] and "|" in lines[1], lines
        assert lines[2:5] == ["inner", "1", "True"], lines
        assert "namespaces" in lines[5] and "sandbox" in lines[5]
        # What the inner one could not weaken: the outer one.
        assert box.run("touch ../outside/x").returncode != 0
    assert (inner / "made").exists() and not (o / "x").exists()
