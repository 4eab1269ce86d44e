"""The probe: right about this host, right about hosts that lack something, and without a trace."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bpfsim import ALLOW, JEQ, JSET, LD, RET, Program, refuse
from ccore import CORE, ffi, lib
from conftest import AsUser
from seccomp_facts import AARCH64, X86_64, numbers

TESTS = Path(__file__).parent
NUMBERS = numbers({"x86_64": X86_64, "aarch64": AARCH64}[os.uname().machine])
NEWNS, NEWUSER, PIDFD = 0x20000, 0x10000000, 0x1000
PIDFD_GET_INFO = 0xC040FF0B


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """A directory that every user can pass, with tryprobe and trysyscall."""
    with tempfile.TemporaryDirectory(prefix="sandcore-probe-") as name:
        place = Path(name)
        place.chmod(0o755)
        core = [CORE / "probe.c", CORE / "clone.c"]
        for target, sources in (("tryprobe", core), ("trysyscall", [])):
            command = ["gcc", "-O2", f"-I{CORE}", TESTS / f"{target}.c", *sources]
            subprocess.run([*command, "-o", place / target], check=True)
        yield place


def read(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("result") == 0
    assert found.pop("left_as_it_was") == [1, 1, 1, 1, 1]
    return found


def probed(programs: Path, *arguments: str) -> dict[str, Any]:
    return read(subprocess.run([programs / "tryprobe", *arguments], capture_output=True, text=True))


def injecting(name: str, error: int, argument: int, value: int) -> list[tuple[int, ...]]:
    """Instructions that make a call fail, if the low word of the argument fits (-1: always).

    An ioctl's must equal the value, others must have its bits.
    """
    op = JEQ if name == "ioctl" else JSET
    check = [(LD, 0, 0, 16 + 8 * argument), (op, 0, 1, value)] if argument >= 0 else []
    body = [*check, (RET, 0, 0, refuse(error))]
    return [(LD, 0, 0, 0), (JEQ, 0, len(body), NUMBERS[name]), *body]


def probed_behind(programs: Path, *faults: tuple[str, int, int, int]) -> dict[str, Any]:
    filter = programs / "faults.bpf"
    insns = [insn for fault in faults for insn in injecting(*fault)]
    program = Program((*insns, (RET, 0, 0, ALLOW)))
    program.check()
    filter.write_bytes(program.pack())
    command = [programs / "trysyscall", filter, programs / "tryprobe"]
    return read(subprocess.run(command, capture_output=True, text=True))


def test_the_probe_agrees_with_what_the_kernel_says_by_itself(programs: Path) -> None:
    found = probed(programs)
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(444, None, ctypes.c_size_t(0), 1)
    assert found["landlock_abi"] == max(abi, 0)
    assert found["landlock_errno"] == (0 if abi > 0 else ctypes.get_errno())
    assert found["landlock_errata"] == max(libc.syscall(444, None, ctypes.c_size_t(0), 2), 0)
    assert found["release"] == platform.release()
    names = Path("/proc/sys/kernel/seccomp/actions_avail").read_text().split()
    bits = {
        "kill_process": lib.PROBE_RET_KILL_PROCESS, "kill_thread": lib.PROBE_RET_KILL_THREAD,
        "trap": lib.PROBE_RET_TRAP, "errno": lib.PROBE_RET_ERRNO,
        "user_notif": lib.PROBE_RET_USER_NOTIF, "trace": lib.PROBE_RET_TRACE,
        "log": lib.PROBE_RET_LOG, "allow": lib.PROBE_RET_ALLOW,
    }  # fmt: skip
    assert found["seccomp_actions"] == sum(bits[name] for name in names)
    assert found["seccomp_filter"] == 1


def test_user_namespaces_are_as_unshare_finds_them_for_root_and_user(
    programs: Path, as_user: AsUser
) -> None:
    makes = ["unshare", "--user", "--mount", "--propagation", "unchanged", "true"]
    for run in (as_user, lambda c: subprocess.run(c, capture_output=True, text=True)):
        found = read(run([str(programs / "tryprobe")]))
        assert found["userns"] == (run(makes).returncode == 0)
        assert (found["userns_errno"] == 0) == (found["userns"] == 1)


def test_an_ignored_sigchld_does_not_lose_the_answer(programs: Path) -> None:
    assert probed(programs, "ignore") == probed(programs)


def test_case_a_host_without_landlock_and_user_namespaces(programs: Path) -> None:
    plain = probed(programs)
    found = probed_behind(
        programs,
        ("landlock_create_ruleset", errno.ENOSYS, -1, 0),
        ("unshare", errno.EPERM, -1, 0),
    )
    assert (found["landlock_abi"], found["landlock_errno"]) == (0, errno.ENOSYS)
    assert found["landlock_errata"] == 0
    assert (found["userns"], found["userns_errno"]) == (0, errno.EPERM)
    same = set(plain) - {k for k in plain if k.startswith(("landlock", "userns"))}
    assert {k: found[k] for k in same} == {k: plain[k] for k in same}


@pytest.mark.parametrize(
    ("fault", "changed"),
    [
        (
            ("landlock_create_ruleset", errno.EOPNOTSUPP, -1, 0),
            {"landlock_abi": 0, "landlock_errno": errno.EOPNOTSUPP, "landlock_errata": 0},
        ),
        # A kernel before the errata query.
        (("landlock_create_ruleset", errno.EINVAL, 2, 2), {"landlock_errata": 0}),
        (("seccomp", errno.ENOSYS, -1, 0), {"seccomp_actions": 0, "seccomp_filter": 0}),
        (("seccomp", errno.EINVAL, 0, 1), {"seccomp_filter": 0}),
        (("pidfd_open", errno.ENOSYS, -1, 0), {"pidfd_open": 0}),
        (("close_range", errno.ENOSYS, -1, 0), {"close_range": 0}),
        (("unshare", errno.ENOSPC, 0, NEWUSER), {"userns": 0, "userns_errno": errno.ENOSPC}),
        # AppArmor: the namespace is made, and nothing may be done in it.
        (("unshare", errno.EPERM, 0, NEWNS), {"userns": 0, "userns_errno": errno.EPERM}),
        (
            ("clone", errno.EAGAIN, 0, PIDFD),
            {"userns": 0, "userns_errno": errno.EAGAIN, "pidfd_info_exit": 0},
        ),
        (("ioctl", errno.ENOTTY, 1, PIDFD_GET_INFO), {"pidfd_info_exit": 0}),
    ],
    ids=lambda x: x[0] + ("" if x[2] < 0 else f"-{x[3]:#x}") if isinstance(x, tuple) else "",
)
def test_one_thing_missing_changes_that_and_nothing_else(
    programs: Path, fault: tuple[str, int, int, int], changed: dict[str, int]
) -> None:
    plain = probed(programs)
    found = probed_behind(programs, fault)
    assert found == plain | changed
    assert found != plain, "the host lacks it anyway: this proves nothing here"


def test_no_more_user_namespaces_in_a_namespace_that_forbids_them(programs: Path) -> None:
    """A sysctl of the namespace; the host's own is not touched."""
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", script, programs / "tryprobe"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"needs a user namespace with a writable sysctl: {done.stderr.strip()}")
    found = read(done)
    assert (found["userns"], found["userns_errno"]) == (0, errno.ENOSPC)


def probe_here() -> tuple[Any, ...]:
    out = ffi.new("struct probe *")
    assert lib.probe_host(out) == 0
    fields = [name for name, _ in ffi.typeof("struct probe").fields if name != "release"]
    return (*(getattr(out, name) for name in fields), ffi.string(out.release))


def test_many_threads_can_probe_at_once() -> None:
    expected, found = probe_here(), []
    threads = [threading.Thread(target=lambda: found.append(probe_here())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


def test_what_was_there_before_does_not_show_in_the_answer() -> None:
    out = ffi.new("struct probe *")
    ffi.memmove(out, b"\xff" * ffi.sizeof(out[0]), ffi.sizeof(out[0]))
    assert lib.probe_host(out) == 0
    assert ffi.string(out.release).decode() == platform.release()
    assert out.userns in (0, 1) and out.landlock_errno in (0, errno.ENOSYS, errno.EOPNOTSUPP)
