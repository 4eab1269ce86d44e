"""Whom a command sees, and what of the caller it finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from spacekit import all_of, helpers, inside, new_mark, outside, program, space

SEARCH = """
import json, os, sys
found = []
def look(path):
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError:
        return b""
word = bytes.fromhex(sys.argv[1])
for name in ["self", "thread-self", *filter(str.isdigit, os.listdir("/proc"))]:
    for part in ("environ", "cmdline", "maps", "mountinfo", "cgroup", "comm", "stat", "auxv"):
        if word in look(f"/proc/{name}/{part}").replace(word.hex().encode(), b""):
            found.append(f"{name}/{part}")
    try:
        links = [os.readlink(f"/proc/{name}/fd/{fd}") for fd in os.listdir(f"/proc/{name}/fd")]
    except OSError:
        links = []
    found += [f"{name} has {link}" for link in links if word in os.fsencode(link)]
print(json.dumps(found))
"""


def nothing_of_the_caller_is_inside(w: Path, o: Path) -> None:
    """Its environment, its arguments, its open files, and the names of those."""
    mark = new_mark()
    secret = o / f"secret-{mark}"
    secret.write_text(mark)
    caller = f"""
import os, sys, subprocess
from pathlib import Path
from spacekit import helpers, program, space
for number in (7, 30, 300):
    os.dup2(os.open(sys.argv[1], os.O_RDONLY), number, inheritable=True)
search, word = sys.argv[2:4]
with space(Path({str(w)!r})) as box:
    print(box.run(program(search, word)).check().out.strip())
    print(subprocess.run(program(search, word), capture_output=True, text=True).stdout.strip())
    for pid in helpers():
        for part in ("cmdline", "environ", "fd"):
            try:
                path = f"/proc/{{pid}}/{{part}}"
                if part == "fd":
                    print([os.readlink(f"{{path}}/{{n}}") for n in os.listdir(path)])
                else:
                    print(repr(Path(path).read_bytes()))
            except PermissionError:
                print("refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", caller, str(secret), SEARCH, mark.encode().hex()],
        env=os.environ | {"TOKEN_OF_CALLER": mark}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    in_space, bare, *ours = done.stdout.splitlines()
    assert in_space == "[]"
    assert "environ" in bare and "cmdline" in bare and "has" in bare, bare
    assert len(ours) == 9, ours  # a root, its supervisor and a lane
    lane = ours[8]
    assert os.getuid() != 0 or len(json.loads(lane.replace("'", '"'))) <= 12, lane
    for command, environment, files in zip(ours[::3], ours[1::3], ours[2::3], strict=True):
        assert command == repr(b"sandcore-helper\0"), command
        if os.getuid() == 0:
            assert environment == "b''" and mark not in files, (environment, files)
            # Directories are of the root, which watches what lies over the masks in them.
            names = json.loads(files.replace("'", '"'))
            assert len([name for name in names if not os.path.isdir(name)]) <= 12, files
        else:
            assert (environment, files) == ("refused", "refused")


def processes_of_the_host_are_not_there(w: Path, o: Path) -> None:
    mark = new_mark()
    acts = {
        "signal": "os.kill(int(A[0]), 0)",
        "pidfd": "os.pidfd_open(int(A[0]))",
        "priority": "os.getpriority(os.PRIO_PROCESS, int(A[0]))",
        "processors": "os.sched_getaffinity(int(A[0]))",
        "session": "os.getsid(int(A[0]))",
        "name": "read(f'/proc/{A[0]}/cmdline')",
    }
    victim = subprocess.Popen(["sleep", "60"], env={"WORD": mark})
    try:
        assert outside(acts, victim.pid) == all_of(acts, "ok")
        with space(w) as box:
            # Some number that nobody has in there: theirs begin at 1.
            assert victim.pid > 100
            found = inside(box, acts, victim.pid)
            # The filter lets ask about oneself only; all else finds nobody.
            expected = all_of(acts, "ESRCH") | {"name": "ENOENT"}
            assert all(found[n] in (expected[n], "EPERM") for n in acts), found
            assert found["signal"] == "ESRCH" and found["name"] == "ENOENT"
            code = "import os; print(*sorted(int(n) for n in os.listdir('/proc') if n.isdigit()))"
            pids = box.run(program(code)).check().out.split()
            assert pids[0] == "1" and len(pids) == 2
    finally:
        victim.kill()
        victim.wait()


def a_command_is_not_the_first_process(w: Path, o: Path) -> None:
    """Signals have their usual effect, and somebody reaps orphans."""
    code = """
import os, signal, subprocess, time
print(os.getpid() > 1, os.getpgrp() == os.getsid(0) == os.getpid())
print([l.split()[1] for l in open("/proc/self/status") if l[:6] in ("SigBlk", "SigIgn", "SigPnd")])
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(0.2)
        os._exit(0)
    os._exit(0)
os.wait()
time.sleep(1)
states = []
for name in os.listdir("/proc"):
    if name.isdigit():
        states.append(open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[0])
print("Z" in states)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no child")
"""
    with space(w) as box:
        lines = box.run(program(code)).check().out.splitlines()
    assert lines[0] == "True True"
    # Python itself ignores SIGPIPE and SIGXFSZ.
    assert lines[1] == "['0000000000000000', '0000000000000000', '0000000001001000']"
    assert lines[2:] == ["False", "no child"]


def two_sandboxes_do_not_see_each_other(w: Path, o: Path) -> None:
    mark = new_mark()
    other = w / "other"
    other.mkdir()
    with space(w) as one, space(other) as two:
        for box in (one, two):
            assert box.run(["sh", "-c", f"touch /tmp/{mark} /dev/shm/{mark}"]).ok
            seen = box.run("echo /proc/[0-9]*").check().out.split()
            assert len(seen) == 2, seen
            box.run(f"rm /tmp/{mark}; rm /dev/shm/{mark}").check()
        one.run(f"touch /tmp/{mark} /dev/shm/{mark}").check()
        assert two.run(f"ls /tmp/{mark} /dev/shm/{mark}").returncode != 0
        assert one.run(f"ls /tmp/{mark} /dev/shm/{mark}").ok  # lanes of one sandbox share them
        assert not Path(f"/tmp/{mark}").exists() and not Path(f"/dev/shm/{mark}").exists()
        assert len(helpers()) >= 4
