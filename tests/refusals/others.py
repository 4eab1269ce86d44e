"""The network, sockets, system calls and limits that a command was refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import casekit

import sandbox
from refusals.files import PYTHON, refused
from sandbox import Limits

CONNECT = f"{PYTHON} 'import socket; socket.create_connection((\"192.0.2.1\", 80), 1)'"
RESOLVE = f"{PYTHON} 'import socket; socket.getaddrinfo(\"sandcore.invalid\", 80)'"


def no_network_is_told_with_its_grant(w: Path, o: Path) -> None:
    for script in (CONNECT, RESOLVE):
        (denial,) = refused(w, script)
        assert (denial.kind, denial.certain) == ("network", casekit.NAMESPACES)
        assert denial.rule == "network: none"
        assert denial.grant is not None
        assert denial.grant.option == "--network full"
        assert denial.grant.apply(sandbox.workspace_write(w)).network == "full"


def what_fails_with_a_network_is_no_denial(w: Path, o: Path) -> None:
    policy = sandbox.workspace_write(w).with_network("full")
    assert refused(w, RESOLVE, policy) == ()
    assert refused(w, "echo 'OSError: Network is unreachable' >&2; exit 1", policy) == ()


def a_server_of_its_own_that_is_not_there_is_no_denial(w: Path, o: Path) -> None:
    script = 'echo "curl: (7) Failed to connect to localhost port 9: Couldn\'t connect to server"'
    found = refused(w, f"{script} >&2; exit 7")
    assert bool(found) != casekit.NAMESPACES  # in landlock isolation it has no loopback, either


def a_system_call_is_told_by_its_program(w: Path, o: Path) -> None:
    (denial,) = refused(w, "unshare -U true")
    assert (denial.kind, denial.what, denial.grant) == ("syscall", "unshare", None)


def limits_are_told_with_twice_as_much(w: Path, o: Path) -> None:
    base = sandbox.workspace_write(w)
    usual = Limits()
    spin = f"exec {PYTHON} 'while True: pass'"
    grow = f"exec {PYTHON} 'x = []\nwhile True: x.append(bytearray(1 << 22))'"
    big = "head -c 300000 /dev/zero > file"
    talk = "head -c 300000 /dev/zero; exit 1"
    many = f"exec {PYTHON} 'import os\nfor n in range(99): os.dup(0)'"
    table = {
        "wall": (replace(usual, wall=0.5), "sleep 100", True),
        "cpu": (replace(usual, cpu=1), spin, None),
        "memory": (replace(usual, memory=64 << 20), grow, True),
        "file_size": (replace(usual, file_size=1000), f"exec {big}", False),
        "output": (replace(usual, output=1000), talk, True),
        "open_files": (replace(usual, open_files=20), many, False),
    }
    for name, (limits, script, certain) in table.items():
        if name == "memory" and not casekit.NAMESPACES:
            continue  # a test of limits has it
        found = {one.what: one for one in refused(w, script, base.with_limits(limits))}
        denial = found[name]
        assert denial.kind == "limit" and certain in (None, denial.certain), denial
        assert denial.grant is not None
        granted = denial.grant.apply(base.with_limits(limits)).limits
        assert getattr(granted, name) == 2 * getattr(limits, name)


def a_signal_that_a_command_sends_itself_proves_nothing(w: Path, o: Path) -> None:
    limits = Limits(cpu=100, file_size=1000)
    for number in ("XCPU", "XFSZ", "SYS"):
        found = refused(w, f"kill -{number} $$", sandbox.workspace_write(w).with_limits(limits))
        assert [denial.certain for denial in found] == ([] if number == "XCPU" else [False])
    for number in ("XCPU", "XFSZ"):
        assert refused(w, f"kill -{number} $$") == (), "no such limit"
