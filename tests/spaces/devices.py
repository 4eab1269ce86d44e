"""/dev, /dev/shm, terminals, /tmp, /proc and /sys."""

from __future__ import annotations

import os
from pathlib import Path

from spacekit import inside, new_mark, outside, program, space

NAMES = {"fd", "full", "null", "ptmx", "pts", "random", "shm"}
NAMES |= {"stderr", "stdin", "stdout", "tty", "urandom", "zero"}


def dev_has_what_programs_need_and_nothing_else(w: Path, o: Path) -> None:
    with space(w) as box:
        assert set(box.run("ls -A /dev").check().out.split()) == NAMES
        assert box.run("head -c 4 /dev/zero | od -An -tx1; head -c 9 /dev/urandom | wc -c").ok
        assert box.run("echo x > /dev/null && echo y >> /dev/null && cat /dev/null").out == ""
        acts = {
            "full": "write('/dev/full')",
            "terminal": "os.open('/dev/tty', os.O_RDWR)",
            "new": "write('/dev/x', os.O_CREAT)",
            "device": "os.mknod('/tmp/x', 0o600 | 0o020000, 0x103)",
            "disk": "os.open('/dev/kmsg', os.O_RDONLY)",
        }
        found = inside(box, acts)
        assert found.pop("device") in ("EPERM", "EACCES") and found.pop("new") in (
            "EROFS",
            "EACCES",
        )
        assert found == {"full": "ENOSPC", "terminal": "ENXIO", "disk": "ENOENT"}


METADATA = {
    "mode": "os.chmod(A[0], 0o600)",
    "owner": "os.chown(A[0], os.getuid(), -1)",
    "times": "os.utime(A[0], (1, 1))",
    "attribute": "os.setxattr(A[0], 'user.x', b'1')",
}


def nobody_changes_the_devices_of_the_host(w: Path, o: Path) -> None:
    """Root owns them: through a writable mount `chmod 0 /dev/null` would be felt by everybody."""
    names = ("null", "zero", "full", "random", "urandom", "tty")
    before = {name: os.stat(f"/dev/{name}")[:9] for name in names}
    with space(w) as box:
        for name in names:
            found = inside(box, METADATA, f"/dev/{name}")
            assert found["mode"] == found["times"] == "EROFS", (name, found)
            assert found["owner"] in ("EROFS", "EPERM")
    assert {name: os.stat(f"/dev/{name}")[:9] for name in names} == before
    (o / "own").write_text("")
    assert outside({"mode": METADATA["mode"]}, o / "own") == {"mode": "ok"}


def shared_memory_is_private_and_works(w: Path, o: Path) -> None:
    mark = new_mark()
    ours = Path(f"/dev/shm/{mark}-ours")
    ours.write_text("host")
    try:
        with space(w) as box:
            acts = {
                "read": f"read('{ours}')",
                "make": f"write('/dev/shm/{mark}-theirs', os.O_CREAT)",
                "semaphore": "__import__('multiprocessing').Semaphore(1).acquire()",
            }
            assert outside({"read": acts["read"]}) == {"read": "ok"}
            found = inside(box, acts)
            assert found == {"read": "ENOENT", "make": "ok", "semaphore": "ok"}
            assert not Path(f"/dev/shm/{mark}-theirs").exists()
    finally:
        ours.unlink()


TERMINAL = """
import os, sys
ours, theirs = os.openpty()
os.write(theirs, b"x")
print(os.ttyname(theirs), os.read(ours, 1), sorted(os.listdir("/dev/pts")))
"""


def terminals_are_private_and_work(w: Path, o: Path) -> None:
    ours, theirs = os.openpty()
    try:
        name = os.ttyname(theirs)
        with space(w) as box:
            assert box.run(program(TERMINAL)).check().out == "/dev/pts/0 b'x' ['0', 'ptmx']\n"
            acts = {"open": "os.open(A[0], os.O_RDWR | os.O_NOCTTY)"}
            assert outside(acts, name) == {"open": "ok"}
            assert inside(box, acts, name) == {"open": "ENOENT"}
            assert inside(box, acts, "/dev/ptmx") == {"open": "ok"}
    finally:
        os.close(ours)
        os.close(theirs)


def tmp_is_private_and_gone_afterwards(w: Path, o: Path) -> None:
    mark = new_mark()
    ours = Path(f"/tmp/{mark}-ours")
    ours.write_text("host")
    try:
        with space(w) as box:
            assert box.run(f"cat {ours}").returncode != 0
            assert box.run(f"touch /tmp/{mark} && echo $TMPDIR").check().out == "/tmp\n"
            assert box.run("ls -A /tmp; stat -c %a /tmp").check().out.split() == [mark, "1777"]
        assert not Path(f"/tmp/{mark}").exists()
        with space(w) as box:
            assert box.run("ls -A /tmp").out == ""
    finally:
        ours.unlink()


# What root could change of the kernel by the mode of the file alone.
SWITCHES = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sysrq-trigger",
    "/proc/irq/default_smp_affinity",
    "/proc/self/oom_score_adj",
    "/proc/1/oom_score_adj",
    "/sys/kernel/profiling",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/fs/cgroup/unified/cgroup.procs",
    "/sys/fs/cgroup/cgroup.procs",
)


def switches_of_the_kernel_are_read_only(w: Path, o: Path) -> None:
    there = [path for path in SWITCHES if os.path.exists(path)]
    acts = {path: f"os.open({path!r}, os.O_WRONLY)" for path in there if "/1/" not in path}
    bare = outside(acts)
    expected = "ok" if os.getuid() == 0 else "EACCES"
    assert bare["/proc/sys/kernel/core_pattern"] == expected and "ok" in bare.values(), bare
    with space(w) as box:
        found = inside(box, {path: f"os.open({path!r}, os.O_WRONLY)" for path in there})
        assert set(found.values()) <= {"EROFS", "EACCES", "ENOENT"}, found
        modes = {
            "mode": "os.chmod('/proc/sys/kernel/hostname', 0o666)",
            "sys": "os.chmod('/sys', 0)",
        }
        assert set(inside(box, modes).values()) == {"EROFS"}


HIDDEN = ("kcore", "keys", "key-users", "timer_list", "kpagecount", "kpageflags", "vmallocinfo")


def what_the_kernel_tells_root_only_is_not_told(w: Path, o: Path) -> None:
    acts = {name: f"read('/proc/{name}')" for name in HIDDEN if os.path.exists(f"/proc/{name}")}
    acts["kmsg"] = "os.open('/proc/kmsg', os.O_RDONLY | os.O_NONBLOCK)"
    with space(w) as box:
        found = inside(box, acts)
        assert set(found.values()) <= {"EACCES", "EPERM", "ENOENT"}, found
        assert inside(box, {"open": "read('/proc/meminfo')"}) == {"open": "ok"}
    assert outside({"keys": "read('/proc/keys')"}) == {"keys": "ok"}


def run_shows_nothing_of_the_host(w: Path, o: Path) -> None:
    shown = {"systemd", "current-system", "opengl-driver"}
    with space(w) as box:
        assert set(box.run("ls -A /run").check().out.split()) <= shown
        acts = {"make": "os.mkdir('/run/x')", "file": "write('/run/y', os.O_CREAT)"}
        assert set(inside(box, acts).values()) <= {"EROFS", "EACCES"}
        assert box.run("find /run /tmp /dev -type s").check().out == ""


def host_names_and_ipc_are_its_own(w: Path, o: Path) -> None:
    with space(w) as box:
        links = [f"/proc/self/ns/{name}" for name in ("user", "mnt", "pid", "net", "ipc", "uts")]
        theirs = box.run(["readlink", *links]).check().out.split()
        again = box.run(["readlink", *links]).check().out.split()
        ours = [os.readlink(link) for link in links]
        assert not set(ours) & set(theirs) and theirs == again
        assert inside(box, {"name": "socket.sethostname('x')"}) == {"name": "EPERM"}
