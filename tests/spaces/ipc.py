"""System V memory, semaphores and queues: a command's own, and gone when it has ended."""

from __future__ import annotations

import subprocess
from pathlib import Path

from spacekit import all_of, inside, outside, program, space

import sandbox

KEY = 0x5A11D
# Making, and finding what another made; each by the one key, with rights for all.
MAKE = {
    "memory": f"call(29, {KEY}, 4096, 0o3666)",  # IPC_CREAT | IPC_EXCL
    "semaphores": f"call(64, {KEY}, 1, 0o3666)",
    "queue": f"call(68, {KEY}, 0o3666)",
}
FIND = {
    "memory": f"call(29, {KEY}, 0, 0)",
    "semaphores": f"call(64, {KEY}, 0, 0)",
    "queue": f"call(68, {KEY}, 0)",
}
# Many, and none of them for anybody to read.
_MANY = f"""
import ctypes
call = ctypes.CDLL(None, use_errno=True).syscall
for i in range(300):
    for number, *more in ((29, 4096), (64, 1), (68,)):
        assert call(number, {KEY} + i, *more, 0o3000) >= 0, (number, i)
"""
_COUNT = (
    "for kind in ('shm', 'sem', 'msg'):\n"
    "    print(len(open(f'/proc/sysvipc/{kind}').readlines()) - 1)\n"
)
_USE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
key = libc.shmget(0, 4096, 0o3600)
at = libc.shmat(key, None, 0)
ctypes.memset(at, 7, 4096)
if os.fork() == 0:
    os._exit(ctypes.string_at(libc.shmat(key, None, 0), 1)[0])
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def memory_is_shared_by_the_processes_of_a_command(w: Path, o: Path) -> None:
    with space(w) as box:
        assert box.run(program(_USE)).out == "7\n"


def nothing_is_left_of_it_for_the_next_command(w: Path, o: Path) -> None:
    with space(w) as box:
        assert inside(box, MAKE | {f"{name}, found": act for name, act in FIND.items()}) == all_of(
            [*MAKE, *(f"{name}, found" for name in FIND)], "ok"
        )
        assert inside(box, FIND) == all_of(FIND, "ENOENT")
        box.run(program(_MANY)).check()
        assert box.run(program(_COUNT)).out.split() == ["0", "0", "0"]
        box.run(program(_MANY), timeout=0.5)  # also when it was killed
        assert box.run(program(_COUNT)).out.split() == ["0", "0", "0"]
    sandbox.run(program(_MANY), cwd=w).check()
    assert sandbox.run(program(_COUNT), cwd=w).out.split() == ["0", "0", "0"]


def commands_beside_each_other_have_each_their_own(w: Path, o: Path) -> None:
    with (
        space(w) as box,
        box.popen(
            program(_MANY + "print('there', flush=True); input()"),
            stdin=sandbox.PIPE,
            stdout=sandbox.PIPE,
            text=True,
        ) as other,
    ):
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "there\n"
        assert inside(box, FIND) == all_of(FIND, "ENOENT")
        assert inside(box, MAKE) == all_of(MAKE, "ok")
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.wait(20).ok


def those_of_the_host_are_neither_seen_nor_made(w: Path, o: Path) -> None:
    assert outside(MAKE) == all_of(MAKE, "ok")
    try:
        assert outside(FIND) == all_of(FIND, "ok")
        with space(w) as box:
            assert inside(box, FIND) == all_of(FIND, "ENOENT")
            assert inside(box, MAKE) == all_of(MAKE, "ok")
        assert outside(FIND) == all_of(FIND, "ok")
    finally:
        for kind in ("-M", "-S", "-Q"):
            subprocess.run(["ipcrm", kind, str(KEY)], check=True)


def queues_of_posix_are_refused_as_nothing_lists_them(w: Path, o: Path) -> None:
    acts = {
        "open": "call(240, b'sandcore-none', os.O_RDWR, 0o600, 0)",
        "remove": "call(241, b'sandcore-none')",
    }
    assert outside(acts) == all_of(acts, "ENOENT")
    with space(w) as box:
        assert inside(box, acts) == all_of(acts, "EPERM")
