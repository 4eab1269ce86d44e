"""What the kernel's audit tells of a command: read as the kernel words it, and told as its own.

The messages are those of Linux 7.3. Where the audit is on and ours to read, the kernel is asked.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Sandbox, workspace_write
from sandbox.backends.audit import Audit, Hearing, read_record
from sandbox.backends.base import Outcome, Told
from sandbox.denial import DenialKind, Evidence
from sandbox.denials import Asked, denials_of, from_kernel, untold
from sandbox.limits import Limits
from sandbox.resolve import resolve

ACCESS, DOMAIN, SYSCALL = 1423, 1424, 1300
NOW = 1796037518120
READ = 'domain=13c5 blockers=fs.read_file path="/o/f" dev="tmpfs" ino=4'
ALLOCATED = (
    "domain=13c5 status=allocated mode=enforcing pid=131 uid=0"
    ' exe="/lib/sandcore-helper" comm="sandcore-helper"'
)


def at(when: int, text: str) -> str:
    """A message of that moment, in milliseconds."""
    return f"audit({when // 1000}.{when % 1000:03}:7): {text}"


class Kernel:
    """The other end of a listener's socket."""

    def __init__(self) -> None:
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        ours, self._end = socket.socketpair(socket.AF_UNIX, kind)
        self.audit = Audit(ours)

    def tell(self, kind: int, when: int, text: str) -> None:
        body = at(when, text).encode()
        self._end.send(struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body)

    def close(self) -> None:
        self.audit.close()
        self._end.close()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("text", "rights", "what"),
    [
        (READ, ("fs.read_file",), "/o/f"),
        (
            'domain=1 blockers=fs.write_file path=2F6F2F6E61206D65 dev="tmpfs" ino=5',
            ("fs.write_file",),
            "/o/na me",
        ),
        ('domain=1 blockers=scope.signal opid=1 ocomm="bash"', ("scope.signal",), "process 1"),
        (
            "domain=1 blockers=scope.abstract_unix_socket path=006162736E616D65",
            ("scope.abstract_unix_socket",),
            "@absname",
        ),
        ("domain=1 blockers=net.connect_tcp daddr=127.0.0.1 dest=80", ("net.connect_tcp",), "80"),
        (
            'domain=1 blockers=fs.refer,fs.make_reg path="/o" dev="vda" ino=3',
            ("fs.refer", "fs.make_reg"),
            "/o",
        ),
        ("domain=1 blockers=fs.change_topology", ("fs.change_topology",), ""),
    ],
)
def test_an_access_is_read_as_the_kernel_words_it(
    text: str, rights: tuple[str, ...], what: str
) -> None:
    record = read_record(at(NOW, text))
    assert record is not None
    assert record.when == NOW
    assert record.told == Told(rights, what)


def test_a_domain_tells_whose_it_is_once() -> None:
    record = read_record(at(NOW, ALLOCATED))
    assert record is not None
    assert (record.domain, record.pid, record.told) == ("13c5", 131, None)
    ended = read_record(at(NOW, "domain=13c5 status=deallocated denials=3"))
    assert ended is not None
    assert (ended.pid, ended.told) == (0, None)


@pytest.mark.parametrize("text", ["", "audit(1.2:3): domain=1 blockers=x", "arch=c000003e", "\0"])
def test_what_is_worded_otherwise_is_nothing(text: str) -> None:
    assert read_record(text) is None


def test_a_lane_is_told_of_its_own_domain_only(kernel: Kernel) -> None:
    since = kernel.audit.now(131)
    kernel.tell(ACCESS, since, READ)
    kernel.tell(DOMAIN, since, ALLOCATED)
    kernel.tell(ACCESS, since, READ.replace("13c5", "beef"))
    kernel.tell(SYSCALL, since, READ.replace("/o/f", "/other"))
    assert kernel.audit.take(132, since, failed=False) == ()
    assert kernel.audit.take(131, since, failed=True) == (Told(("fs.read_file",), "/o/f"),)
    assert kernel.audit.take(131, since, failed=False) == ()


def test_what_was_before_a_command_is_not_told_as_its(kernel: Kernel) -> None:
    """Neither what had come by then, nor what came late."""
    kernel.tell(DOMAIN, NOW, ALLOCATED)
    kernel.tell(ACCESS, NOW, READ)
    since = kernel.audit.now(131)
    kernel.tell(ACCESS, since - 1, READ.replace("/o/f", "/late"))
    kernel.tell(ACCESS, since, READ.replace("/o/f", "/mine"))
    assert [one.what for one in kernel.audit.take(131, since, failed=False)] == ["/mine"]


def test_a_flood_is_cut_and_lost_messages_are_no_error(kernel: Kernel) -> None:
    since = kernel.audit.now(131)
    kernel.tell(DOMAIN, since, ALLOCATED)
    for i in range(6):
        for j in range(20):
            kernel.tell(ACCESS, since, READ.replace("/o/f", f"/o/{i * 20 + j}"))
        kernel.audit.take(999, since, failed=False)
    found = [one.what for one in kernel.audit.take(131, since, failed=False)]
    assert len(found) == 64
    assert found[-1] == "/o/119"


def outcome(status: int) -> Outcome:
    """Of a command that printed nothing."""
    used = (0.0, 0.0, 0, 0, 0, 0, 0, 0, 0)
    return Outcome(True, status, False, "", 0, 0, b"", 0, 0, b"", 0, 0, 0, False, False, used, 0.0)


def test_the_outcome_carries_what_was_heard(kernel: Kernel) -> None:
    hearing = Hearing(kernel.audit, 131)
    assert hearing.added(outcome(0)).refusals == ()
    since = kernel.audit.now(131)
    kernel.tell(DOMAIN, since, ALLOCATED)
    kernel.tell(ACCESS, since, READ)
    assert hearing.added(outcome(256)).refusals == (Told(("fs.read_file",), "/o/f"),)


def test_the_policy_says_which_entry_it_was(workspace: Path, outside: Path) -> None:
    policy = workspace_write(workspace).with_deny(outside / "file")
    resolved = resolve(policy, str(workspace), "/home/none", "")
    asked = Asked(resolved, str(workspace), Limits(), None)
    told = [
        Told(("fs.read_file",), f"{outside}/file"),
        Told(("fs.make_reg",), str(outside)),
        Told(("fs.make_char",), str(workspace)),
        Told(("fs.make_char", "fs.ioctl_dev"), str(workspace)),  # a rename's other directory
        Told(("fs.resolve_unix",), "/srv/daemon.sock"),
        Told(("scope.signal",), "process 1"),
    ]
    found = from_kernel(told, asked, "landlock")
    assert {denial.evidence for denial in found} == {Evidence.KERNEL}
    assert [(str(denial.kind), denial.what, denial.rule) for denial in found] == [
        ("read", f"{outside}/file", f"deny: {outside}/file"),
        ("write", str(outside), "read: /"),
        ("write", str(workspace), "landlock: fs.make_char"),
        ("socket", "/srv/daemon.sock", "sockets of the host: none"),
        ("syscall", "kill", "landlock: scope.signal"),
    ]
    assert [denial.grant.call if denial.grant else "" for denial in found] == [
        f".with_read('{outside}/file')",
        f".with_write('{outside}')",
        "",
        ".with_unix_socket('/srv/daemon.sock')",
        "",
    ]
    # The command says it too, of the name rather than of the directory: that is no second one.
    said = [b"bash: %s/new: Permission denied\n" % os.fsencode(outside)]
    claimed = denials_of(outcome(256), asked, "landlock", said)
    assert [denial.kind for denial in claimed] == [DenialKind.WRITE]
    assert untold(claimed, found) == ()
    assert untold(claimed, found[:1]) == claimed


def test_the_kernel_tells_of_a_command_whatever_it_prints(
    workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = Audit.open()
    if listening is None:
        pytest.skip("the audit is off, or not ours to read; make vm ARGS=--audit has one")
    listening.close()
    monkeypatch.setenv("SANDBOX_ISOLATION", "landlock")
    policy = workspace_write(workspace).with_deny(outside / "file")
    with Sandbox(policy, workspace=workspace) as box:
        silent = box.run(f"cat {outside}/file 2>/dev/null; echo x 2>/dev/null >{outside}/new")
        assert {(d.kind, d.what, d.evidence) for d in silent.denials} == {
            (DenialKind.READ, f"{outside}/file", Evidence.KERNEL),
            (DenialKind.WRITE, str(outside), Evidence.KERNEL),
        }
        lying = box.run("echo 'cat: /etc/shadow: Permission denied' >&2; exit 1")
        assert [denial.evidence for denial in lying.denials] == [Evidence.MESSAGE]
        with box.popen(["cat", f"{outside}/file"]) as process:
            result = process.wait()
        assert [denial.evidence for denial in result.denials] == [Evidence.KERNEL]
