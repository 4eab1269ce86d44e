"""The shipped profiles for containers and AppArmor: what they allow, tried where we can."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from sandbox.mends import APPARMOR_PROFILE, DOCKER_PROFILE


def docker_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DOCKER_PROFILE.read_text())
    return document


def test_the_docker_profile_allows_by_name_and_refuses_the_rest() -> None:
    document = docker_document()
    assert document["defaultAction"] == "SCMP_ACT_ERRNO"
    allowed = [
        name
        for group in document["syscalls"]
        if group["action"] == "SCMP_ACT_ALLOW" and "args" not in group
        for name in group["names"]
    ]
    assert len(allowed) == len(set(allowed))
    assert {"landlock_restrict_self", "seccomp", "unshare", "mount", "execve"} <= set(allowed)
    refused = "bpf keyctl perf_event_open init_module kexec_load reboot io_uring_setup userfaultfd"
    assert not set(refused.split()) & set(allowed)


def test_what_the_docker_profile_opens_is_said_in_it() -> None:
    opened = [g for g in docker_document()["syscalls"] if g.get("comment", "").startswith("OPENED")]
    names = [name for group in opened for name in group["names"]]
    assert {"clone", "unshare", "setns", "mount", "pivot_root", "mount_setattr"} <= set(names)
    closed = dict(docker_document())
    closed["syscalls"] = [group for group in closed["syscalls"] if group not in opened]
    plain = [name for group in closed["syscalls"] for name in group["names"]]
    assert "unshare" not in plain
    assert "mount" not in plain


PROGRAM = """
import ctypes, errno, json, os, sys
sys.path[:0] = json.loads(sys.argv[2])
import pyseccomp as scmp

document = json.loads(sys.argv[1])
operators = {"LT": scmp.LT, "EQ": scmp.EQ, "GT": scmp.GT, "MASKED_EQ": scmp.MASKED_EQ}
rules = scmp.SyscallFilter(scmp.ERRNO(document["defaultErrnoRet"]))
unknown = []
for group in document["syscalls"]:
    allowed = group["action"] == "SCMP_ACT_ALLOW"
    action = scmp.ALLOW if allowed else scmp.ERRNO(group["errnoRet"])
    arguments = [
        scmp.Arg(a["index"], operators[a["op"][9:]], a["value"], a.get("valueTwo", 0))
        for a in group.get("args", ())
    ]
    for name in group["names"]:
        try:
            scmp.resolve_syscall(scmp.system_arch(), name)
            rules.add_rule(action, name, *arguments)
        except (ValueError, OSError):
            unknown.append(name)  # this libseccomp is older: runtimes leave it out, too
libc = ctypes.CDLL(None, use_errno=True)
number = lambda name: scmp.resolve_syscall(scmp.system_arch(), name)
CALLS = {
    "vsock": ("socket", 40, 1, 0), "alg": ("socket", 38, 5, 0), "inet": ("socket", 2, 1, 0),
    "bpf": ("bpf", 0, 0, 0), "keyctl": ("keyctl", 0, 0, 0), "clone3": ("clone3", 0, 0),
    "query": ("personality", 0xFFFFFFFF), "aslr_off": ("personality", 0x0040000),
    "landlock": ("landlock_create_ruleset", 0, 0, 1),
    "namespaces": ("unshare", 0x10000000 | 0x20000),  # CLONE_NEWUSER | CLONE_NEWNS
    "tmpfs": ("mount", b"x", b"/mnt", b"tmpfs", 0, 0),
}
if document["load"]:
    rules.load()
said = {}
for name, (call, *arguments) in CALLS.items():
    ctypes.set_errno(0)
    values = [a if isinstance(a, bytes) else ctypes.c_ulong(a) for a in arguments]
    result = libc.syscall(number(call), *values)
    said[name] = "ok" if result >= 0 else errno.errorcode[ctypes.get_errno()]
said["fork"] = os.waitstatus_to_exitcode(os.system("exit 3"))
said["unknown"] = unknown
print(json.dumps(said))
"""


def behind(document: dict[str, Any], load: bool) -> dict[str, Any]:
    """What calls answer behind a profile, in a process of its own."""
    arguments = [json.dumps({**document, "load": load}), json.dumps(sys.path)]
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.fixture(scope="module")
def needs_libseccomp() -> None:
    try:
        import pyseccomp  # noqa: F401
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(f"pyseccomp with libseccomp.so.2 is needed: {error}")


@pytest.mark.usefixtures("needs_libseccomp")
def test_behind_the_docker_profile_the_helper_has_what_it_needs_and_no_more() -> None:
    outside = behind(docker_document(), load=False)
    inside = behind(docker_document(), load=True)
    for name in ("fork", "inet", "query", "landlock", "namespaces", "tmpfs"):
        assert inside[name] == outside[name], name
    for name in ("vsock", "alg", "bpf", "keyctl", "aslr_off"):
        assert inside[name] == "EPERM", name
        assert outside[name] != "EPERM", name
    assert inside["clone3"] == "ENOSYS"
    assert outside["clone3"] == "EINVAL"
    assert "landlock_restrict_self" not in inside["unknown"]


@pytest.mark.usefixtures("needs_libseccomp")
def test_without_the_opened_groups_the_docker_profile_still_runs_programs() -> None:
    document = docker_document()
    document["syscalls"] = [
        group for group in document["syscalls"] if not group.get("comment", "").startswith("OPENED")
    ]
    inside = behind(document, load=True)
    assert (inside["namespaces"], inside["tmpfs"]) == ("EPERM", "EPERM")
    assert (inside["fork"], inside["landlock"]) == (3, behind(document, load=False)["landlock"])


def test_the_apparmor_profile_is_for_one_path_and_opens_one_thing() -> None:
    lines = [
        line.strip()
        for line in APPARMOR_PROFILE.read_text().splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    assert lines == [
        "abi <abi/4.0>,",
        "include <tunables/global>",
        'profile sandcore-helper "@HELPER@" flags=(unconfined) {',
        "userns,",
        "include if exists <local/sandcore-helper>",
        "}",
    ]
