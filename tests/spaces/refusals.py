"""Hosts that refuse namespaces, each in its way: what is had then, and what is said.

Each way is made in namespaces or below a filter of the test's own, never on the host.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from casekit import mount, private_mounts, skip
from scenekit import open_fds
from spacekit import program, space

import _sandcore
import sandbox
from sandbox import Sandbox, workspace_write
from sandbox.backends.linux import LinuxBackend

LIBC = ctypes.CDLL(None, use_errno=True)
NEWUSER, NEWPID = 0x10000000, 0x20000000
UNSHARE, CLONE, SOCKET = 272, 56, 41
MOUNT_SETATTR, MOVE_MOUNT, OPEN_TREE, FSOPEN = 442, 429, 428, 430


def _landlock_and(w: Path, o: Path, *expected: str) -> None:
    """It is `landlock`, works, and one message with these words says why, and what to do."""
    with Sandbox(workspace_write(w)) as box:
        assert box.enforcement.isolation == "landlock"
        said = [part for part in box.enforcement.weaker if part.part == "namespaces"]
        assert len(said) == 1, box.enforcement
        cause, mend = said[0].cause, said[0].mend
        for word in expected:
            assert word in f"{cause} | {mend}", (word, cause, mend)
        assert mend
        assert box.run("touch made && echo fine").out == "fine\n"
        assert box.run(["touch", str(o / "made")]).returncode != 0
        assert box.run("sleep 300 & setsid sleep 300", timeout=0.3).timed_out
    for what in (
        workspace_write(w).with_require("namespaces"),
        workspace_write(w).with_network("loopback"),
    ):
        try:
            Sandbox(what, workspace=w)
        except sandbox.Unenforceable as error:
            assert cause in str(error) and mend in str(error), error
        else:
            raise AssertionError("what cannot be had was not refused")


def _own_user_namespace() -> None:
    """Makes this process root of a user namespace in which it may set the limits of those below."""
    before = os.readlink("/proc/self/ns/user")
    uid, gid = os.getuid(), os.getgid()
    if LIBC.unshare(NEWUSER) != 0:
        skip(f"needs a user namespace ({errno.errorcode[ctypes.get_errno()]})")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    assert os.readlink("/proc/self/ns/user") != before


def _refuse(numbers: Sequence[int], error: int, *, flag: int = 0) -> None:
    """A filter that answers these calls with an errno.

    `flag`: only with this bit in the first argument.
    """
    allow, deny = 0x7FFF0000, 0x00050000 | error
    code: list[tuple[int, int, int, int]] = [(0x20, 0, 0, 0)]
    for number in numbers:
        if flag:
            code += [(0x15, 0, 4, number), (0x20, 0, 0, 16), (0x45, 0, 1, flag)]
            code += [(0x06, 0, 0, deny), (0x20, 0, 0, 0)]
        else:
            code += [(0x15, 0, 1, number), (0x06, 0, 0, deny)]
    code.append((0x06, 0, 0, allow))
    packed = b"".join(struct.pack("HBBI", *one) for one in code)
    buffer = ctypes.create_string_buffer(packed)
    fprog = struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer))
    assert LIBC.prctl(38, 1, 0, 0, 0) == 0
    assert LIBC.prctl(22, 2, ctypes.create_string_buffer(fprog), 0, 0) == 0


def _no_more(kind: str) -> None:
    _own_user_namespace()
    Path(f"/proc/sys/user/max_{kind}_namespaces").write_text("0")


def without_any_of_this_it_is_namespaces(w: Path, o: Path) -> None:
    """The control of all the others; also in a user namespace, where one user is all there is."""
    with space(w) as box:
        assert box.run("touch made").ok
    _own_user_namespace()
    with space(w) as box:
        assert box.run("touch made && id -u").out == "0\n"
        assert [part.part for part in box.enforcement.weaker if part.part == "namespaces"] == []


def user_namespaces_are_off(w: Path, o: Path) -> None:
    _no_more("user")
    _landlock_and(w, o, "user namespaces are off", "sysctl user.max_user_namespaces=15000")


def net_namespaces_are_off(w: Path, o: Path) -> None:
    _no_more("net")
    _landlock_and(w, o, "net namespaces are off", "sysctl user.max_net_namespaces=15000")


def mount_namespaces_are_off(w: Path, o: Path) -> None:
    _no_more("mnt")
    _landlock_and(w, o, "mnt namespaces are off", "sysctl user.max_mnt_namespaces=15000")


def pid_namespaces_are_off(w: Path, o: Path) -> None:
    """Lanes are made one by one: that they cannot be had is seen at the first."""
    _no_more("pid")
    _landlock_and(w, o, "pid namespaces are off", "sysctl user.max_pid_namespaces=15000")


def there_are_too_many_namespaces(w: Path, o: Path) -> None:
    _own_user_namespace()
    with space(w) as box:
        box.run("true").check()
        Path("/proc/sys/user/max_user_namespaces").write_text("1")  # which is taken
        _landlock_and(w, o, "too many namespaces", "max_*_namespaces")
        assert box.run("echo still").out == "still\n"


def a_filter_refuses_unshare(w: Path, o: Path) -> None:
    _refuse([UNSHARE], errno.EPERM)
    _landlock_and(w, o, "seccomp filter", "seccomp=PROFILE")


def a_filter_says_that_there_is_no_unshare(w: Path, o: Path) -> None:
    _refuse([UNSHARE], errno.ENOSYS)
    _landlock_and(w, o, "seccomp filter", "seccomp=PROFILE")


def a_filter_refuses_pid_namespaces(w: Path, o: Path) -> None:
    _refuse([CLONE], errno.EPERM, flag=NEWPID)
    _landlock_and(w, o, "seccomp filter", "seccomp=PROFILE")


def a_filter_refuses_mounts(w: Path, o: Path) -> None:
    _refuse([MOUNT_SETATTR], errno.EPERM)
    _landlock_and(w, o, "seccomp filter", "seccomp=PROFILE")


def a_filter_refuses_to_move_mounts(w: Path, o: Path) -> None:
    _refuse([MOVE_MOUNT], errno.EPERM)
    _landlock_and(w, o, "seccomp filter", "seccomp=PROFILE")


def a_filter_does_not_know_the_newer_calls(w: Path, o: Path) -> None:
    _refuse([OPEN_TREE, FSOPEN, MOVE_MOUNT, MOUNT_SETATTR], errno.ENOSYS)
    _landlock_and(w, o, "seccomp filter", "seccomp=PROFILE")


def a_filter_refuses_the_loopback(w: Path, o: Path) -> None:
    _refuse([SOCKET], errno.EPERM, flag=2)  # AF_INET has that bit
    _landlock_and(w, o, "seccomp filter", "seccomp=PROFILE")


def parts_of_proc_are_masked(w: Path, o: Path) -> None:
    """As in a container: something lies over them that must not be seen through."""
    private_mounts()
    mount(b"/dev/null", b"/proc/timer_list", None, 4096)  # MS_BIND
    _landlock_and(w, o, "parts of /proc are masked", "systempaths=unconfined")


def the_switches_in_proc_are_read_only(w: Path, o: Path) -> None:
    private_mounts()
    mount(b"/proc/sys", b"/proc/sys", None, 4096)
    mount(b"none", b"/proc/sys", None, 4096 | 32 | 1)  # MS_REMOUNT, MS_RDONLY
    _landlock_and(w, o, "parts of /proc are masked", "systempaths=unconfined")


def a_default_container(w: Path, o: Path) -> None:
    """The shipped profile without what it opens is what containers have by default."""
    try:
        import pyseccomp as scmp
    except (ImportError, RuntimeError, OSError) as error:
        skip(f"needs pyseccomp with libseccomp.so.2: {error}")
    from sandbox.mends import DOCKER_PROFILE

    private_mounts()
    mount(b"/dev/null", b"/proc/timer_list", None, 4096)
    document = json.loads(DOCKER_PROFILE.read_text())
    rules = scmp.SyscallFilter(scmp.ERRNO(document["defaultErrnoRet"]))
    for group in document["syscalls"]:
        if group["action"] != "SCMP_ACT_ALLOW" or group.get("comment", "").startswith("OPENED"):
            continue
        if "args" in group:
            continue
        for name in group["names"]:
            try:
                rules.add_rule(scmp.ALLOW, name)
            except (ValueError, OSError):
                continue  # this libseccomp is older
    # What the arguments of the profile are about: any fork, any socket but the odd ones.
    for name in ("clone", "socket", "personality"):
        masked = [scmp.Arg(0, scmp.MASKED_EQ, 0x7E020000, 0)] if name == "clone" else []
        rules.add_rule(scmp.ALLOW, name, *masked)
    rules.load()
    _landlock_and(w, o, "seccomp filter", "seccomp=PROFILE")


def root_has_no_capabilities(w: Path, o: Path) -> None:
    if os.getuid() != 0:
        skip("needs root")
    for number in range(64):
        LIBC.prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP
    header = struct.pack("Ii", 0x20080522, 0)
    assert LIBC.capset(header, bytes(24)) == 0
    _landlock_and(w, o, "CAP_SETUID", "ordinary user")


INNER = """
import sys
sys.path[:0] = sys.argv[3:5]
import warnings
warnings.simplefilter("ignore")
from pathlib import Path
from spaces.refusals import _landlock_and
_landlock_and(Path(sys.argv[1]), Path(sys.argv[2]), "in a sandbox of this package", "outside")
print("as it should be")
"""


def in_a_sandbox_of_ours(w: Path, o: Path) -> None:
    """In either isolation."""
    places = [
        str(Path(__file__).resolve().parent.parent),
        str(Path(sandbox.__file__).resolve().parents[1]),
    ]
    for isolation in ("landlock", "auto"):
        os.environ["SANDBOX_ISOLATION"] = isolation
        with Sandbox(workspace_write(w, read=places)) as box:
            words = ["/usr/bin/python3", "-B", "-c", INNER, str(w), str(o), *places]
            result = box.run(words, timeout=60)
            if "cannot import" in result.err or "No module" in result.err:
                skip(f"no interpreter of ours can start in there: {result.err[-200:]}")
            assert result.out == "as it should be\n", (isolation, result.text)


def there_is_no_landlock(w: Path, o: Path) -> None:
    """Namespaces hold without it, and it is said."""
    (o / "d").mkdir()
    backend = LinuxBackend(_sandcore.probe()._replace(landlock_abi=0))
    with Sandbox(workspace_write(w), backend=backend) as box:
        assert box.enforcement.isolation == "namespaces"
        assert "landlock" in [part.part for part in box.enforcement.weaker]
        assert box.run("touch made").ok
        acts = f"touch {o}/x; echo x > {o}/file; rmdir {o}/d; chmod 777 {o}/file; mv {o}/d ."
        result = box.run(acts)
        assert result.err.count("Read-only file system") == 5, result.err
        code = "import os\ntry: open('/proc/1/mem')\nexcept OSError as e: print(e.errno)"
        assert box.run(program(code)).out == f"{errno.EACCES}\n"
    assert sorted(os.listdir(o)) == ["d", "file"]


def there_is_neither(w: Path, o: Path) -> None:
    """No Landlock, and no namespaces: refused, and the first cause is named."""
    backend = LinuxBackend(_sandcore.probe()._replace(landlock_abi=0))
    _refuse([UNSHARE], errno.EPERM)
    try:
        Sandbox(workspace_write(w), backend=backend)
    except sandbox.Unenforceable as error:
        assert "seccomp filter" in str(error), error
    else:
        raise AssertionError("nothing enforces it, and it was accepted")
    os.environ["SANDBOX_ISOLATION"] = "landlock"
    try:
        Sandbox(workspace_write(w), backend=backend)
    except sandbox.Unenforceable as error:
        assert "Landlock" in str(error), error
    else:
        raise AssertionError("nothing enforces it, and it was accepted")


def a_refusal_costs_nothing_afterwards(w: Path, o: Path) -> None:
    """No process, no descriptor, no directory of the attempt is left."""
    _refuse([MOVE_MOUNT], errno.EPERM)
    temporary = o / "tmp"
    temporary.mkdir()
    os.environ |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    tempfile.tempdir = None
    with Sandbox(workspace_write(w)):
        pass
    before = len(open_fds())
    for _ in range(5):
        with Sandbox(workspace_write(w)) as box:
            assert box.enforcement.isolation == "landlock"
    assert len(open_fds()) == before
    assert list(temporary.rglob("*")) == []
    assert subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True).returncode != 0
