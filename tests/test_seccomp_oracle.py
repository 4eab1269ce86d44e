"""The filter against libseccomp: another compiler, given the same rules by hand, must agree.

libseccomp brings its own table of numbers for both architectures and its own code for arguments.
Two of its programs stand against ours: one that allows by default and refuses by name, for every
number; and one that refuses by default and allows by arguments, for the calls with rules.
"""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Iterator
from functools import cache

import pytest
from bpfsim import ALLOW, Program
from seccomp_facts import (
    AARCH64,
    CLOEXEC,
    CLONE_PARENT,
    DENIED,
    DGRAM,
    FASTOPEN,
    FEW_VARIANTS,
    FULL,
    I386,
    INET,
    INET6,
    IPC,
    IPC_CALLS,
    MISSING,
    NETLINK,
    NEW,
    NEW_NAMESPACES,
    NEW_X86_64,
    NONBLOCK,
    NONE,
    PTRACE,
    RAW,
    REFUSED_FCNTLS,
    REFUSED_IOCTLS,
    RULED,
    SELF_CALLS,
    SEQPACKET,
    STREAM,
    UNIX,
    VARIANTS,
    X86_64,
    Variant,
    argument_classes,
    numbers,
)

try:
    import pyseccomp as libseccomp
except (ImportError, RuntimeError, OSError) as missing:
    pytest.skip(
        f"needs libseccomp: apt-get install libseccomp2 ({missing})", allow_module_level=True
    )

LOW = 0xFFFFFFFF
KIND = LOW & ~(CLOEXEC | NONBLOCK)
EPERM, ENOSYS = libseccomp.ERRNO(errno.EPERM), libseccomp.ERRNO(errno.ENOSYS)
TOKENS = {X86_64: libseccomp.Arch.X86_64, AARCH64: libseccomp.Arch.AARCH64}
few_variants = pytest.mark.parametrize("variant", FEW_VARIANTS, ids=str)


def word(index: int, value: int, mask: int = LOW) -> object:
    """A condition on the low word of an argument."""
    return libseccomp.Arg(index, libseccomp.MASKED_EQ, mask, value)


def new_filter(arch: int, default: int) -> libseccomp.SyscallFilter:
    made = libseccomp.SyscallFilter(default)
    made.set_attr(libseccomp.Attr.ACT_BADARCH, libseccomp.KILL_PROCESS)
    if libseccomp.system_arch() != TOKENS[arch]:
        made.remove_arch(libseccomp.system_arch())
        made.add_arch(TOKENS[arch])
    return made


def export(made: libseccomp.SyscallFilter) -> Program:
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0)
        return Program.parse(file.read())


@cache
def known(arch: int) -> dict[str, int]:
    """Number by name, of all the names that either table of ours has, as libseccomp has them.

    By name: pyseccomp's way from a number to its name frees what it must not (ASan aborts).
    """
    found = {}
    for name in {*numbers(X86_64), *numbers(AARCH64), *DENIED, *MISSING, *IPC_CALLS, *RULED}:
        with contextlib.suppress(ValueError):
            number = libseccomp.resolve_syscall(TOKENS[arch], name)
            if number >= 0:  # negative: another architecture's
                found[name] = number
    return found


def add_by_name(made: libseccomp.SyscallFilter, arch: int, action: int, names: list[str]) -> None:
    have = known(arch)
    for name in names:
        if name in have:
            made.add_rule(action, name)
        elif libseccomp.system_arch() == TOKENS[arch] and name in NEW:
            made.add_rule(action, NEW[name])


def test_libseccomp_has_the_same_numbers() -> None:
    for arch in (X86_64, AARCH64):
        ours, theirs = numbers(arch), known(arch)
        assert len(theirs) > 290
        assert {name: ours.get(name) for name in theirs} == theirs
        newer = {**NEW, **(NEW_X86_64 if arch == X86_64 else {})}
        assert {**theirs, **newer} == ours


def refusing(variant: Variant) -> Program:
    """Allow by default; refuse by name, and say that what has no name does not exist."""
    made = new_filter(variant.arch, libseccomp.ALLOW)
    denied = [*DENIED, *(() if variant.flags & IPC else IPC_CALLS)]
    denied += [] if variant.flags & PTRACE else ["ptrace"]
    open_to_all = variant.scoped or variant.network == FULL or variant.supervised
    denied += [] if open_to_all else ["connect"]
    add_by_name(made, variant.arch, EPERM, denied)
    add_by_name(made, variant.arch, ENOSYS, list(MISSING))
    if variant.supervised:
        made.add_rule(libseccomp.NOTIFY, "connect")
    if libseccomp.system_arch() == TOKENS[variant.arch]:
        named = {*known(variant.arch).values(), *NEW.values(), *NEW_X86_64.values()}
        for number in set(range(601)) - named:
            made.add_rule(ENOSYS, number)
    return export(made)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_libseccomp_answers_every_number_alike(variant: Variant) -> None:
    """Where libseccomp is of another architecture it takes names only: those are compared then."""
    ours, theirs = variant.compile(), refusing(variant)
    native = libseccomp.system_arch() == TOKENS[variant.arch]
    table = numbers(variant.arch)
    by_arguments = {table[name] for name in RULED if name not in ("ptrace", "connect")}
    compared = set(range(601)) if native else set(known(variant.arch).values())
    assert len(compared) > 290
    for number in compared - by_arguments:
        a, b = ours.run(number, (), variant.arch), theirs.run(number, (), variant.arch)
        assert a == b, number
    if variant.arch == X86_64:
        for number in (0x40000000, 0x40000029, 0x7FFFFFFF, -2):
            assert ours.run(number, (), X86_64) == theirs.run(number, (), X86_64)
    for foreign in (I386, 0):
        assert ours.run(1, (), foreign) == theirs.run(1, (), foreign)


def pair_rules(variant: Variant) -> list[list[object]]:
    if variant.scoped:
        return [[word(0, UNIX)]]
    return [[word(0, UNIX), word(1, kind, KIND)] for kind in (STREAM, SEQPACKET)]


def socket_rules(variant: Variant) -> list[list[object]]:
    if variant.network == NONE:
        return pair_rules(variant)
    rules = [
        [word(0, family), word(1, kind, KIND), word(2, protocol)]
        for family in (INET, INET6)
        for kind in (STREAM, DGRAM)
        for protocol in (0, 6, 17)
    ]
    rules += [[word(0, NETLINK), word(1, kind, KIND), word(2, 0)] for kind in (RAW, DGRAM)]
    return rules + (pair_rules(variant) if variant.scoped or variant.supervised else [])


def sendto_rules(variant: Variant) -> list[list[object]]:
    if variant.network == FULL:
        return [[word(3, 0, FASTOPEN)]]
    return [[]] if variant.scoped else [[libseccomp.Arg(4, libseccomp.EQ, 0)]]


def allowing_rules(variant: Variant) -> Iterator[tuple[str, list[list[object]]]]:
    refused_flags = sum(NEW_NAMESPACES) | CLONE_PARENT
    full = variant.network == FULL
    yield "clone", [[word(0, 0, refused_flags)]]
    yield "socket", socket_rules(variant)
    yield "socketpair", pair_rules(variant)
    yield "sendto", sendto_rules(variant)
    yield "sendmsg", [[word(2, 0, FASTOPEN)] if full else []]
    yield "sendmmsg", [[word(3, 0, FASTOPEN)] if full else []]
    yield "personality", [[word(0, 0)], [word(0, LOW)]]
    yield "setpriority", [[word(0, 0), word(1, 0)]]
    yield "ioprio_set", [[word(0, 1), word(1, 0)]]
    yield "seccomp", [[word(1, 0, 8)]]
    for name in SELF_CALLS:
        yield name, [[word(0, 0)]]


def allowing(variant: Variant) -> Program:
    made = new_filter(variant.arch, EPERM)
    for name, rules in allowing_rules(variant):
        for rule in rules:
            made.add_rule(libseccomp.ALLOW, name, *rule)
    return export(made)


def refusing_values(variant: Variant) -> Program:
    made = new_filter(variant.arch, libseccomp.ALLOW)
    for request in REFUSED_IOCTLS:
        made.add_rule(EPERM, "ioctl", word(1, request))
    for command in REFUSED_FCNTLS:
        made.add_rule(EPERM, "fcntl", word(1, command))
    made.add_rule(EPERM, "prctl", word(0, 35))
    return export(made)


@few_variants
def test_libseccomp_decides_arguments_alike(variant: Variant) -> None:
    ours, allowed, refused = variant.compile(), allowing(variant), refusing_values(variant)
    table = numbers(variant.arch)
    by_value = ("ioctl", "fcntl", "prctl")
    compared = [*dict(allowing_rules(variant)), *by_value]
    assert {*compared, "ptrace", "connect"} == {*RULED}
    for name in compared:
        theirs = refused if name in by_value else allowed
        seen = set()
        for args in argument_classes(name):
            answer = ours.run(table[name], args, variant.arch)
            assert answer == theirs.run(table[name], args, variant.arch), (name, args)
            seen.add(answer)
        assert ALLOW in seen
