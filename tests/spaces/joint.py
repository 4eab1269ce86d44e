"""Children of the caller's own in a live sandbox: confined as its commands, and ended with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess as plain
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spacekit import (
    MARK,
    all_of,
    helpers,
    inside,
    new_mark,
    outside,
    program,
    space,
    words,
)

import sandbox
from sandbox import Limits, Sandbox, subprocess, workspace_write
from spaces.lanes import ATTACKS, FLOOD, SIGNALS

SETNS, UNSHARE, CLONE = 308, 272, 56


def joined(box: Sandbox, acts: Mapping[str, str], *arguments: Any) -> dict[str, str]:
    """What came of each in a child that joins; as `inside` for commands."""
    done = subprocess.run(words(acts, *arguments), sandbox=box, stdout=plain.PIPE, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def shell(box: Sandbox, text: str, **how: Any) -> str:
    out: str = subprocess.check_output(
        ["/bin/sh", "-c", text], sandbox=box, text=True, timeout=30, **how
    )
    return out


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def it_is_the_caller_s_to_wait_for(w: Path, o: Path) -> None:
    """Its status, whatever it is, by every way of the standard library's."""
    with space(w) as box:
        for number in (0, 1, 77, 255):
            assert subprocess.call(["sh", "-c", f"exit {number}"], sandbox=box) == number
        for number in (1, 2, 9, 11, 15, 34, 64):
            assert subprocess.call(["sh", "-c", f"kill -{number} $$"], sandbox=box) == -number
        child = subprocess.Popen(["sleep", "60"], sandbox=box)
        assert Path(f"/proc/{child.pid}/stat").read_text().split()[3] == str(os.getpid())
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        assert os.waitpid(child.pid, 0) == (child.pid, signal.SIGTERM)
        child.returncode = -signal.SIGTERM
        stopped = subprocess.Popen(["sleep", "60"], sandbox=box)
        stopped.send_signal(signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
        stopped.kill()
        assert stopped.wait() == -signal.SIGKILL
        echo = subprocess.run(["cat"], sandbox=box, input=b"x" * 300_000, stdout=plain.PIPE)
        assert echo.stdout == b"x" * 300_000
        try:
            subprocess.run(["no-such-program"], sandbox=box)
        except FileNotFoundError as error:
            assert error.filename == "no-such-program"
        else:
            raise AssertionError("what is not there has run")


def fds_groups_and_sessions_are_as_asked(w: Path, o: Path) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    with space(w) as box:
        open_fds = ["ls", "/proc/self/fd"]
        for passed in ((), (writing,)):
            found = subprocess.run(open_fds, sandbox=box, pass_fds=passed, stdout=plain.PIPE)
            # ls itself has one more, on the directory.
            assert len(found.stdout.split()) == 4 + len(passed)
        shell(box, f"echo x >&{writing}", pass_fds=(writing,))
        assert os.read(reading, 9) == b"x\n"
        children = [
            subprocess.Popen(["sleep", "60"], sandbox=box, **how)
            for how in ({}, {"process_group": 0}, {"start_new_session": True})
        ]
        plainly, leader, session = (child.pid for child in children)
        children.append(subprocess.Popen(["sleep", "60"], sandbox=box, process_group=leader))
        children.append(subprocess.Popen(["sleep", "60"], sandbox=box))
        follower, last = (child.pid for child in children[3:])
        assert [os.getpgid(pid) for pid in (plainly, last)] == [os.getpgrp()] * 2
        assert [os.getpgid(pid) for pid in (leader, follower)] == [leader, leader]
        assert [os.getsid(pid) for pid in (plainly, leader)] == [os.getsid(0)] * 2
        assert os.getpgid(session) == os.getsid(session) == session
        os.killpg(leader, signal.SIGKILL)
        assert children[1].wait() == children[3].wait() == -9
        assert [children[n].poll() for n in (0, 2, 4)] == [None] * 3
    assert [child.wait() for child in children] == [-9] * 5


# What needs no preparation outside succeeds there.
_DENIED = {
    "write": "write(A[0] + '/file')",
    "make": "write(A[0] + '/new', os.O_CREAT)",
    "mode": "os.chmod(A[0] + '/file', 0o600)",
    "secret": "read(A[0] + '/secret')",
    "config": "write(A[1] + '/.git/config')",
    "socket": "socket.socket(socket.AF_UNIX).connect(A[0] + '/s')",
    "abstract": "socket.socket(socket.AF_UNIX).connect(chr(0) + A[2])",
    "port": "socket.create_connection(('127.0.0.1', int(A[3])))",
    "tmp": "read(A[4])",
    "process": "os.kill(int(A[5]), 0)",
    "listing": "os.stat(f'/proc/{A[5]}')",
}
# What an ordinary user may not outside either.
_CLOSED = {
    "user": f"call({UNSHARE}, 0x10000000)",
    "mounts": f"call({UNSHARE}, 0x20000)",
    "sibling": f"call({CLONE}, 0x8000 | 17, 0, 0, 0, 0)",
    **{
        f"into {kind} of {pid}": f"call({SETNS}, os.open('/proc/{pid}/ns/{kind}', 0), 0)"
        for kind in ("user", "mnt", "pid", "net", "ipc")
        for pid in ("1", "self")
    },
    "into": f"call({SETNS}, os.pidfd_open(1), 0x20000)",
    "mount": "call(165, b'none', b'/tmp', b'tmpfs', 0, 0)",
    "nobody": "os.setuid(4321)",
    "memory": "os.open('/dev/mem', os.O_RDONLY)",
}


def it_is_refused_what_commands_are_refused(w: Path, o: Path) -> None:
    import socket

    (o / "secret").write_text("secret")
    (w / ".git").mkdir()
    (w / ".git" / "config").write_text("[core]\n")
    held = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket()]
    name = new_mark()
    hosts = Path(f"/tmp/{name}")
    hosts.write_text("x")
    for server, address in zip(held, (f"{o}/s", f"\0{name}", ("127.0.0.1", 0)), strict=True):
        server.bind(address)
        server.listen()
    port = held[2].getsockname()[1]
    given = (o, w, name, port, hosts, os.getpid())
    try:
        assert outside(_DENIED, *given) == all_of(_DENIED, "ok")
        with space(w, workspace_write(w).with_deny(o / "secret")) as box:
            expected = inside(box, _DENIED, *given)
            assert "ok" not in expected.values(), expected
            assert joined(box, _DENIED, *given) == expected
            expected = inside(box, _CLOSED)
            assert "ok" not in expected.values(), expected
            assert joined(box, _CLOSED) == expected
            status = shell(box, "cat /proc/self/status")
            assert box.run("cat /proc/self/status").out.count("CapBnd:\t0000000000000000") == 1
            for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"):
                assert line in status
            assert "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n" in status
    finally:
        for server in held:
            server.close()
        hosts.unlink()


def it_shares_what_the_sandbox_s_commands_share(w: Path, o: Path) -> None:
    """Workspace, /tmp and network in both directions; neither processes nor System V memory."""
    serve = (
        "import http.server as s\n"
        "s.HTTPServer(('127.0.0.1', {}), s.SimpleHTTPRequestHandler).serve_forever()"
    )
    get = (
        "import socket, sys, time\n"
        "for _ in range(200):\n"
        "    try: socket.create_connection(('127.0.0.1', int(sys.argv[1]))); break\n"
        "    except ConnectionRefusedError: time.sleep(0.05)\n"
        "else: sys.exit(1)"
    )
    with space(w) as box:
        box.run("echo box > /tmp/box; echo box > file").check()
        assert shell(box, f"cat /tmp/box {w}/file; echo joined > /tmp/joined") == "box\nbox\n"
        assert box.run("cat /tmp/joined").out == "joined\n"
        server = box.popen(program(serve.format(8001)), timeout=None)
        child = subprocess.Popen(program(serve.format(8002)), sandbox=box)
        for port in (8001, 8002):
            assert subprocess.call(program(get, port), sandbox=box) == 0
            assert box.run(program(get, port)).ok
        seen = shell(box, "cd /proc; echo [0-9]*").split()
        assert len(seen) == 3 and seen[0] == "1", seen  # the first one, the server, and itself
        assert box.run("cd /proc; echo [0-9]*").out.split() != seen
        spaces = "readlink /proc/self/ns/"
        for kind in ("user", "net", "uts"):
            assert shell(box, spaces + kind) == box.run(spaces + kind).out
        for kind in ("pid", "mnt", "ipc"):
            assert shell(box, spaces + kind) != box.run(spaces + kind).out
        server.kill()
    assert child.wait() == -9


def who_spawns_and_who_ends_are_out_of_reach(w: Path, o: Path) -> None:
    with space(w) as box:
        assert shell(box, "echo $PPID") == "0\n"
        ours = helpers()
        assert len(ours) >= 4  # root and supervisor, a joint, a nursery
        for pid in (*ours, os.getpid()):
            found = joined(box, ATTACKS | {"signal": "os.kill(int(A[0]), 0)"}, pid)
            assert not {"ok"} & set(found.values()), found
            assert found["signal"] == "ESRCH"
        found = joined(box, ATTACKS, 1)
        assert set(found.values()) <= {"EACCES", "EPERM", "EROFS"}, found
        first = subprocess.check_output(program(SIGNALS), sandbox=box, text=True).split()
        assert first[0] == "-9"
        assert shell(box, "readlink /proc/self/ns/pid").split() == first[1:]
        sent, waiting = map(int, subprocess.check_output(program(FLOOD), sandbox=box).split())
        assert sent == 0 and waiting < 100, (sent, waiting)


def signals_to_the_caller_s_group_end_at_the_sandbox(w: Path, o: Path) -> None:
    """It is in that group, has no number for it, and may not: 0 is the group of whoever asks."""
    mark = new_mark()
    neighbour = plain.Popen(["sleep", "60"], env={MARK: mark})
    with space(w) as box:
        beside = subprocess.Popen(["sleep", "60"], sandbox=box)
        assert os.getpgid(beside.pid) == os.getpgrp()
        before = helpers()
        for number in (15, 9):
            # As in any group it reaches itself, and what has joined beside it.
            assert (
                subprocess.call(["sh", "-c", f"kill -{number} 0; exit 5"], sandbox=box) == -number
            )
        assert beside.wait() == -15
        assert helpers() == before and neighbour.poll() is None
        assert not {state(pid) for pid in before} & {"T", "t", "Z", ""}
        assert shell(box, "echo next") == "next\n"
    neighbour.kill()
    neighbour.wait()


def asyncio_waits_for_it(w: Path, o: Path) -> None:
    async def main(box: Sandbox) -> None:
        with subprocess.installed(sandbox=box):
            child = await asyncio.create_subprocess_shell(
                "cat; echo $PPID; kill -10 $$", stdin=plain.PIPE, stdout=plain.PIPE
            )
            assert await child.communicate(b"in\n") == (b"in\n0\n", None)
            assert child.returncode == -10
            left = await asyncio.create_subprocess_exec("sleep", "300")
        box.close()
        assert await left.wait() == -9

    with space(w) as box:
        asyncio.run(main(box))


def what_cannot_be_joined_says_so(w: Path, o: Path) -> None:
    def refused(kind: type[BaseException], word: str, **how: Any) -> None:
        try:
            subprocess.run(["true"], **how)
        except kind as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"not refused: {how}")

    wrong = sandbox.InvalidArgument
    with space(w) as box:
        refused(wrong, "sandbox=", sandbox=box, policy=workspace_write(w))
        refused(wrong, "no Sandbox", sandbox="box")
        pid = os.fork()
        if pid == 0:
            try:
                refused(wrong, "fork", sandbox=box)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert shell(box, "echo still there") == "still there\n"
        box.close()
        refused(wrong, "closed", sandbox=box)
    with space(w, workspace_write(w).with_limits(Limits(wall=5))) as box:
        refused(sandbox.Unenforceable, "limits.wall", sandbox=box)
    os.environ["SANDBOX_ISOLATION"] = "landlock"
    with Sandbox(workspace_write(w)) as box:
        assert box.isolation == "landlock"
        refused(sandbox.Unenforceable, "'landlock' has none", sandbox=box)
    with Sandbox(sandbox.full_access()) as box:
        refused(sandbox.Unenforceable, "'none' has none", sandbox=box)
