"""Section K: escapes that became known."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

from casekit import NAMESPACES, NO_WRITE_TEXT, confined, errno_of, python, repository, says

import sandbox

_TYPE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
request, argument = int(sys.argv[1], 0), ctypes.create_string_buffer(bytes([int(sys.argv[2])]))
if libc.ioctl(0, ctypes.c_ulong(request), argument) < 0:
    raise OSError(ctypes.get_errno(), "")
"""


def case_152_nothing_is_typed_into_the_callers_terminal(w: Path, o: Path) -> None:
    ours, theirs = pty.openpty()
    saved = os.dup(0)
    try:
        for request in (0x5412, 0x100005412, 0xDEADBEEF00005412, 0x541C, 0x10000541C):
            for terminal in (False, True):
                found = errno_of(_TYPE, w, hex(request), ord("x"), stdin=theirs, terminal=terminal)
                assert found in ("EPERM", "ENOTTY"), (hex(request), found)
        # The allowed twin: another request on the same terminal (TIOCGWINSZ).
        code = "import fcntl\nfcntl.ioctl(0, 0x5413, b'0' * 8)"
        assert errno_of(code, w, stdin=theirs) == ""
        os.set_blocking(theirs, False)
        try:
            raise AssertionError(f"in the input queue: {os.read(theirs, 99)!r}")
        except BlockingIOError:
            pass
        assert errno_of("os.open('/dev/tty', os.O_RDWR)", w, stdin=theirs) in ("ENXIO", "EACCES")
    finally:
        for fd in (ours, theirs, saved):
            os.close(fd)


def case_153_no_way_leads_through_a_descriptor(w: Path, o: Path) -> None:
    place = os.open(o, os.O_RDONLY)
    for number in range(3, 21):
        os.dup2(place, number, inheritable=True)
    policy = sandbox.workspace_write(w).with_deny(o)
    for number in range(3, 21):
        try:
            result = sandbox.run(["cat", "file"], policy, cwd=f"/proc/self/fd/{number}")
        except (sandbox.WorkingDirectoryError, sandbox.InvalidArgument):
            continue
        assert result.returncode != 0
        assert "outside" not in result.out
        result = sandbox.run(["cat", f"../..{o}/file"], policy, cwd=f"/proc/self/fd/{number}")
        assert "outside" not in result.out


def case_153_a_directory_that_was_deleted_is_an_error(w: Path, o: Path) -> None:
    gone = w / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    for run in (
        lambda: sandbox.run(["touch", str(w / "ran")], sandbox.workspace_write(w)),
        lambda: sandbox.run(["touch", str(w / "ran")], sandbox.workspace_write(w), cwd=gone),
        lambda: sandbox.run(["pwd"]),
    ):
        try:
            result = run()
        except (sandbox.WorkingDirectoryError, sandbox.PolicyError):
            continue
        raise AssertionError(f"ran in a deleted directory: {result.out!r}")
    assert not (w / "ran").exists()
    os.chdir("/")


def case_153_the_program_is_never_the_helper(w: Path, o: Path) -> None:
    for name in ("/proc/self/exe", "/proc/thread-self/exe", "/proc/self/../self/exe"):
        try:
            result = confined([name], w)
        except (sandbox.InvalidArgument, sandbox.StartError):
            continue
        raise AssertionError(f"{name} ran: {result.outcome}")


_TRACE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, int(sys.argv[1]), 0, 0) < 0:
    raise OSError(ctypes.get_errno(), "")
libc.ptrace(17, int(sys.argv[1]), 0, 0)
"""
_TRACE_CHILD = """
import ctypes, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
pid = os.fork()
if pid == 0:
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        socket.socket(40, 1)
    except OSError as error:
        os._exit(error.errno)
    os._exit(0)
os.waitpid(pid, 0)
libc.ptrace(24, pid, 0, 0)  # to each system call
status = 0
while True:
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status):
        break
    libc.ptrace(24, pid, 0, 0)
print(errno.errorcode[os.WEXITSTATUS(status)])
"""


def case_156_tracing_stays_inside_and_does_not_lift_the_filter(w: Path, o: Path) -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        for target in (child.pid, os.getpid(), os.getppid()):
            assert errno_of(_TRACE, w, target) in ("EPERM", "EACCES", "ESRCH")
    finally:
        child.kill()
        child.wait()
    assert errno_of(_TRACE_CHILD, w) in ("EACCES", "EPERM", "EAFNOSUPPORT")


_MOUNTS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
o = sys.argv[2].encode()
numbers = dict(open_tree=428, move_mount=429, fsopen=430, fsmount=432, mount_setattr=442)
match sys.argv[1]:
    case "mount": r = libc.mount(b"none", o, b"tmpfs", ctypes.c_ulong(0), None)
    case "remount": r = libc.mount(None, o, None, ctypes.c_ulong(32 | 4096), None)
    case "umount": r = libc.umount2(o, 2)
    case "chroot": r = libc.chroot(o)
    case "pivot": r = libc.syscall(155 if os.uname().machine == "x86_64" else 41, o, o)
    case "unshare": r = libc.unshare(0x10000000 | 0x20000)
    case "userns": r = libc.unshare(0x10000000)
    case "mountns": r = libc.unshare(0x20000)
    case "setns": r = libc.setns(os.open("/proc/self/ns/mnt", 0), 0)
    case "clone3": r = libc.syscall(435, 0, 0)
    case "clone":
        nr = 56 if os.uname().machine == "x86_64" else 220
        r = libc.syscall(nr, ctypes.c_ulong(0x10000000 | 17), 0, 0, 0, 0)
        if r == 0: os._exit(0)
    case name: r = libc.syscall(numbers[name], -100, o, 1, 0, 0, 0)
if r < 0:
    raise OSError(ctypes.get_errno(), "")
"""


def case_157_no_mount_and_no_namespace(w: Path, o: Path) -> None:
    kinds = (
        *("mount", "remount", "umount", "chroot", "pivot", "unshare", "userns", "mountns"),
        *("setns", "clone", "clone3", "open_tree", "move_mount", "fsopen", "fsmount"),
        "mount_setattr",
    )
    for kind in kinds:
        assert errno_of(_MOUNTS, w, kind, o) in ("EPERM", "ENOSYS", "EACCES"), kind
    result = confined(f"unshare -Urm sh -c 'touch {o}/x'; nsenter -t 1 -m touch {o}/y", w)
    assert result.returncode != 0
    assert [path.name for path in o.iterdir()] == ["file"]
    if subprocess.run(["unshare", "-Ur", "true"], capture_output=True).returncode == 0:
        program = "import os, sys, errno\n" + _MOUNTS  # the twin: outside it works
        done = subprocess.run([python(), "-c", program, "userns", str(o)], capture_output=True)
        assert done.returncode == 0, done.stderr


_PLANTS = {
    ".vscode/tasks.json": True,
    ".idea/workspace.xml": True,
    ".envrc": True,
    ".mcp.json": True,
    ".git/hooks/post-checkout": True,
    ".claude/settings.json": True,
    "Makefile": False,
    "package.json": False,
    "conftest.py": False,
    "sitecustomize.py": False,
    ".npmrc": False,
    ".gitattributes": False,
}


def case_159_what_the_host_would_run_is_protected_by_name_or_documented(w: Path, o: Path) -> None:
    repository(w)
    for name, is_protected in _PLANTS.items():
        result = confined(f"mkdir -p $(dirname {name}) && echo evil >{name}", w)
        if is_protected:
            assert not (w / name).exists(), name
            assert result.returncode != 0 or result.denials, name
        else:
            assert (w / name).exists(), name
    assert says("SECURITY.md", "makefile", "package.json")


def case_159_the_list_of_protected_names_is_the_policys(w: Path, o: Path) -> None:
    base = sandbox.workspace_write(w)
    names = (*base.protected, "conftest.py", ".npmrc")
    policy = sandbox.SandboxPolicy(entries=base.entries, protected=names)
    for name in ("conftest.py", ".npmrc"):
        result = confined(f"echo evil >{name}", w, policy=policy)
        assert not (w / name).exists()
        assert [denial.what for denial in result.denials] == [str(w / name)]
    (w / "conftest.py").write_text("mine\n")
    confined("echo evil >conftest.py", w, policy=policy)
    assert (w / "conftest.py").read_text() == "mine\n"


def case_160_no_word_of_a_command_widens_what_the_system_enforces(w: Path, o: Path) -> None:
    for command in (
        f"ls; touch {o}/p",
        f"ls && touch {o}/p",
        f"ls | xargs -I% touch {o}/p",
        f"cat <(touch {o}/p)",
        f"git -c alias.z='!touch {o}/p' z",
        f"find . -maxdepth 0 -exec touch {o}/p \\;",
        f"sh -c 'touch {o}/p'",
        f"eval 'to''uch {o}/p'",
    ):
        result = confined(f"touch in; {command}", w)
        assert NO_WRITE_TEXT in result.err, (command, result.text)
        assert (w / "in").exists()
        assert not (o / "p").exists(), command
    said = confined("exec 3<>/dev/tcp/127.0.0.1/1", w).err
    assert ("refused" if NAMESPACES else "not permitted") in said
