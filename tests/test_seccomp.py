"""The filter, simulated: every number, every class of arguments, both architectures."""

from __future__ import annotations

import errno
import os

import pytest
from bpfsim import ALLOW, ASK, KILL_PROCESS, Program, refuse
from ccore import ffi, lib
from hypothesis import given
from hypothesis import strategies as st
from seccomp_facts import (
    AARCH64,
    ABSENT,
    ARM,
    DENIED,
    DENY,
    FEW_VARIANTS,
    FULL,
    I386,
    IPC_CALLS,
    MISSING,
    NONE,
    RISCV64,
    RULED,
    SUPERVISED,
    VARIANTS,
    X86_64,
    Variant,
    argument_classes,
    expected,
    header_numbers,
    numbers,
)

X32 = 0x40000000
each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)
few_variants = pytest.mark.parametrize("variant", FEW_VARIANTS, ids=str)


# The table.


def rows() -> list[object]:
    count = ffi.new("size_t *")
    table = lib.syscalls_table(count)
    return [table[i] for i in range(count[0])]


@pytest.mark.parametrize("arch", [X86_64, AARCH64])
def test_no_number_stands_in_the_table_twice_and_none_is_above_what_was_reviewed(arch: int) -> None:
    found = [lib.syscalls_number(ffi.addressof(row), arch) for row in rows()]
    found = [number for number in found if number >= 0]
    assert len(found) == len(set(found))
    assert max(found) == lib.SYSCALLS_HIGHEST == 469


def test_no_name_stands_in_the_table_twice() -> None:
    names = [ffi.string(row.name) for row in rows()]
    assert len(names) == len(set(names))


def test_every_call_of_the_kernel_headers_is_in_the_table_with_its_number() -> None:
    ours = numbers({"x86_64": X86_64, "aarch64": AARCH64}[os.uname().machine])
    theirs = header_numbers("#include <asm/unistd.h>\n")
    assert len(theirs) > 300
    assert {name: ours.get(name) for name in theirs} == theirs


def test_every_call_of_the_generic_headers_is_in_the_table_for_aarch64() -> None:
    wants = ("RENAMEAT", "NEW_STAT", "SET_GET_RLIMIT", "TIME32_SYSCALLS", "SYS_CLONE3",
             "MEMFD_SECRET")  # fmt: skip
    source = "#define __BITS_PER_LONG 64\n" + "".join(f"#define __ARCH_WANT_{w}\n" for w in wants)
    ours = numbers(AARCH64)
    theirs = header_numbers(source + "#include <asm-generic/unistd.h>\n")
    internal = {n for n in theirs if n.startswith("3264_") or n == "arch_specific_syscall"}
    theirs = {name: number for name, number in theirs.items() if name not in internal}
    theirs.pop("syscalls", None)  # their count
    assert len(theirs) > 290
    assert {name: ours.get(name) for name in theirs} == theirs


def test_what_is_refused_has_a_reason_and_what_is_ruled_has_words() -> None:
    for row in rows():
        assert (row.action == lib.SYSCALL_ALLOW) == (ffi.string(row.reason) == b"")
        assert (row.action == lib.SYSCALL_RULE) == (row.rule != lib.RULE_NONE)
        if row.action == lib.SYSCALL_RULE:
            assert ffi.string(lib.syscalls_rule_text(row.rule))
    assert lib.syscalls_rule_text(lib.RULE_NONE) == ffi.NULL
    assert lib.syscalls_rule_text(lib.RULE_COUNT) == ffi.NULL


def test_a_row_has_no_number_on_an_architecture_that_is_unknown() -> None:
    assert lib.syscalls_number(ffi.addressof(rows()[0]), RISCV64) == -1


def some_arguments(name: str) -> list[tuple[int, ...]]:
    return [*argument_classes(name)][::5] if name in RULED else [(), (-1,) * 6]


@few_variants
def test_the_action_that_is_printed_is_the_one_that_is_compiled(variant: Variant) -> None:
    program = variant.compile()
    answers = {
        lib.SYSCALL_ALLOW: ALLOW,
        lib.SYSCALL_DENY: DENY,
        lib.SYSCALL_ABSENT: ABSENT,
        lib.SYSCALL_ASK: ASK,
    }
    for row in rows():
        number = lib.syscalls_number(ffi.addressof(row), variant.arch)
        action = lib.seccomp_action(variant.options(), ffi.addressof(row))
        if number < 0:
            continue
        name = ffi.string(row.name).decode()
        found = {program.run(number, args, variant.arch) for args in some_arguments(name)}
        assert found == ({answers[action]} if action in answers else {ALLOW, DENY}), name


# Every number.


@each_variant
def test_every_number_is_answered_as_the_facts_say(variant: Variant) -> None:
    """Numbers without a row are ENOSYS; ruled calls are looked at with their arguments below."""
    program = variant.compile()
    names = {number: name for name, number in numbers(variant.arch).items()}
    for number in range(601):
        name = names.get(number)
        answer = program.run(number, (), variant.arch)
        assert answer == (ABSENT if name is None else expected(variant, name)), (number, name)


@each_variant
@pytest.mark.parametrize("number", [601, 1024, 0xFFFF, X32 - 1])
def test_numbers_beyond_the_table_do_not_exist(variant: Variant, number: int) -> None:
    assert variant.compile().run(number, (), variant.arch) == ABSENT


@each_variant
def test_x32_numbers_are_killed_on_x86_64_and_do_not_exist_on_aarch64(variant: Variant) -> None:
    program = variant.compile()
    answer = KILL_PROCESS if variant.arch == X86_64 else ABSENT
    for number in (*range(X32, X32 + 601), 0x7FFFFFFF, -(2**31), -4095, -2):
        assert program.run(number, (), variant.arch) == answer, number


@each_variant
def test_minus_one_is_no_call_of_any_abi_and_lets_a_tracer_skip_one(variant: Variant) -> None:
    assert variant.compile().run(-1, (), variant.arch) == ABSENT


@each_variant
def test_a_foreign_architecture_is_killed_whatever_it_calls(variant: Variant) -> None:
    program = variant.compile()
    foreign = {I386, ARM, RISCV64, X86_64, AARCH64, 0, 0xFFFFFFFF} - {variant.arch}
    for arch in foreign:
        assert {program.run(number, (), arch) for number in (*range(601), -1)} == {KILL_PROCESS}


# Every class of arguments.


@few_variants
@pytest.mark.parametrize("name", RULED)
def test_arguments_decide_as_the_facts_say(variant: Variant, name: str) -> None:
    program = variant.compile()
    number = numbers(variant.arch)[name]
    for args in argument_classes(name):
        answer = program.run(number, args, variant.arch)
        assert answer == expected(variant, name, args), [hex(a) for a in args]


@pytest.mark.parametrize("arch", [X86_64, AARCH64])
def test_the_options_open_and_close_what_they_name(arch: int) -> None:
    """Twins: with everything else alike the one option turns the answer."""
    for name, flag in (("ptrace", 1), ("shmget", 2), ("connect", 4)):
        number = numbers(arch)[name]
        assert Variant(arch, NONE, 0).compile().run(number, (), arch) == DENY
        assert Variant(arch, NONE, flag).compile().run(number, (), arch) == ALLOW
    connect = numbers(arch)["connect"]
    assert Variant(arch, FULL, 0).compile().run(connect, (), arch) == ALLOW
    for network in (NONE, FULL):
        assert Variant(arch, network, SUPERVISED).compile().run(connect, (), arch) == ASK
    unix = (numbers(arch)["socket"], (1, 1, 0), arch)
    assert Variant(arch, FULL, 0).compile().run(*unix) == DENY
    assert Variant(arch, FULL, SUPERVISED).compile().run(*unix) == ALLOW


@each_variant
def test_what_a_lane_does_under_its_own_filter_passes(variant: Variant) -> None:
    calls = {
        "recvmsg": (3, 4096, 0x40000000), "sendmsg": (3, 4096, 0x4000 | 0x40),
        "clone": (0x100 | 0x4000 | 0x1000 | 17,), "ppoll": (), "wait4": (), "waitid": (),
        "kill": (-1, 9), "mmap": (), "close": (), "close_range": (), "dup3": (), "setsid": (),
        "prlimit64": (0, 7, 4096), "umask": (), "chdir": (), "fchdir": (), "execve": (),
        "prctl": (1, 9), "capset": (), "landlock_create_ruleset": (), "landlock_add_rule": (),
        "landlock_restrict_self": (), "seccomp": (1, 0, 4096), "rt_sigaction": (), "exit_group": (),
    }  # fmt: skip
    program, table = variant.compile(), numbers(variant.arch)
    assert {n: program.run(table[n], a, variant.arch) for n, a in calls.items()} == dict.fromkeys(
        calls, ALLOW
    )


@each_variant
def test_what_event_loops_do_on_their_own_pairs_passes(variant: Variant) -> None:
    """A refusal of these hangs asyncio, tokio and Node instead of failing them."""
    program, table = variant.compile(), numbers(variant.arch)
    calls = {
        "socketpair": (1, 1 | 0o2004000), "sendto": (3, 4096, 1, 0x4000, 0, 0), "recvfrom": (3,),
        "shutdown": (3, 2), "getsockopt": (3, 1, 4), "setsockopt": (3, 1, 7), "accept4": (3,),
        "bind": (3, 4096), "listen": (3, 128), "getsockname": (3,),
    }  # fmt: skip
    for name, args in calls.items():
        assert program.run(table[name], args, variant.arch) == ALLOW, name


# The program as such.


@each_variant
def test_the_program_is_one_the_kernel_takes_and_its_paths_are_short(variant: Variant) -> None:
    """Installing costs by instruction and by step: a change that makes it dearer must be meant."""
    program = variant.compile()
    program.check()
    fixed = [program.trace(number, (), variant.arch)[1] for number in range(470)]
    assert len(program.insns) <= 171
    assert program.longest_path() <= 24
    assert sum(fixed) / 470 <= 12.5


@each_variant
def test_compiling_twice_gives_the_same_bytes(variant: Variant) -> None:
    assert variant.compile().pack() == variant.compile().pack()


@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[-1]], ids=str)
def test_a_program_that_does_not_fit_is_refused_whatever_is_missing(variant: Variant) -> None:
    whole = variant.compile()
    length = len(whole.insns)
    for cap in range(length):
        out = ffi.new("struct sock_filter[]", length)
        assert lib.seccomp_compile(variant.options(), out, cap) == -errno.ENOSPC
        assert all(out[i].code == out[i].k == 0 for i in range(cap, length)), "wrote beyond cap"
    out = ffi.new("struct sock_filter[]", length)
    assert lib.seccomp_compile(variant.options(), out, length) == length
    assert Program.of(out[0:length]) == whole


@pytest.mark.parametrize(
    ("arch", "network", "flags"),
    [(I386, 0, 0), (RISCV64, 0, 0), (0, 0, 0), (X86_64, 2, 0), (X86_64, 0, 16), (X86_64, 0, 2**31)],
)
def test_unknown_options_are_refused(arch: int, network: int, flags: int) -> None:
    options = ffi.new(
        "struct seccomp_options *", {"arch": arch, "network": network, "flags": flags}
    )
    out = ffi.new("struct sock_filter[]", lib.SECCOMP_MAX_INSNS)
    assert lib.seccomp_compile(options, out, lib.SECCOMP_MAX_INSNS) == -errno.EINVAL


# The assembler.

partitions = st.lists(
    st.tuples(st.integers(1, 2**32 - 1) | st.integers(1, 600), st.integers(0, 3)), max_size=400
)


@given(partitions, st.integers(0, 3), st.integers(0, 300))
def test_a_tree_finds_the_range_of_every_number(
    cuts: list[tuple[int, int]], first: int, padding: int
) -> None:
    """Also when the targets are out of a branch's reach, which padding brings about."""
    pieces = [(0, first), *sorted(dict(cuts).items())]
    out = ffi.new("struct sock_filter[]", 4096)
    w = ffi.new("struct bpf_writer *", {"out": out, "cap": 4096})
    labels = [lib.bpf_return(w, refuse(i)) for i in range(3)]
    lib.bpf_return(w, refuse(3))
    labels.append(lib.bpf_and(w, 0xFFFFFFFF))  # a target that is no return
    for _ in range(padding):
        lib.bpf_return(w, refuse(99))
    ranges = ffi.new("struct bpf_range[]", [(start, labels[to]) for start, to in pieces])
    root = lib.bpf_tree(w, ranges, len(pieces))
    lib.bpf_branch(w, 0x10, 0, root, root)
    lib.bpf_load(w, 0)
    count = lib.bpf_finish(w)
    program = Program.of(out[0:count])
    program.check()
    for number in {n for start, _ in pieces for n in (start - 1, start, start + 1)} | {2**32 - 1}:
        if 0 <= number < 2**32:
            to = [to for start, to in pieces if start <= number][-1]
            assert program.run(number) == refuse(to)


@pytest.mark.parametrize("to_return", [True, False], ids=["return", "check"])
@pytest.mark.parametrize("distance", range(252, 260))
def test_a_branch_reaches_targets_on_both_sides_of_its_limit(
    to_return: bool, distance: int
) -> None:
    out = ffi.new("struct sock_filter[]", 600)
    w = ffi.new("struct bpf_writer *", {"out": out, "cap": 600})
    yes = no = lib.bpf_return(w, refuse(2))
    if to_return:
        yes = lib.bpf_return(w, refuse(1))
    else:
        lib.bpf_branch(w, 0x10, 7, lib.bpf_return(w, refuse(1)), no)
        yes = lib.bpf_load(w, 0)
    for _ in range(distance):
        lib.bpf_return(w, refuse(99))
    lib.bpf_branch(w, 0x10, 7, yes, no)
    lib.bpf_load(w, 0)
    program = Program.of(out[0 : lib.bpf_finish(w)])
    program.check()
    assert (program.run(7), program.run(8)) == (refuse(1), refuse(2))


def test_the_facts_name_only_calls_that_the_table_has() -> None:
    known = {ffi.string(row.name).decode() for row in rows()}
    assert known >= {*DENIED, *MISSING, *IPC_CALLS, *RULED}
