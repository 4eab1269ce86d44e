"""Leave out one rule of the filter at a time: some attempt of the live tests must notice.

A rule is left out by one branch that always goes the same way, or one mask that masks nothing. Only
those matter by which a call passes that did not: they are looked for among all numbers, and among
the arguments that reach every branch. The attempts are those that `test_seccomp_live` makes in the
kernel, where each is compared with what the unaltered filter answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
from bpfsim import ALLOW, AND, BRANCHES, U32, Program
from seccomp_facts import (
    ABSENT,
    FULL,
    I386,
    NONE,
    PTRACE,
    RULED,
    SUPERVISED,
    Variant,
    argument_classes,
)
from test_seccomp_live import ARCH, BEYOND, FOREIGN, NONSENSE, NUMBERS, X32_NUMBERS, resolved
from test_seccomp_live import RULED as ATTEMPTS

Call = tuple[int, tuple[int, ...], int]
# What lanes get: in namespaces, with the network of the host, and with Landlock alone.
VARIANTS = [
    Variant(ARCH, FULL, PTRACE | SUPERVISED),
    Variant(ARCH, FULL, PTRACE),
    Variant(ARCH, NONE, PTRACE),
]


def every_call() -> Iterator[Call]:
    """All numbers, all that arguments decide, and other architectures."""
    for number in (*range(601), 0x7FFF, 0xFFFFFFFF, 0x40000000, 0x40000027, 0x7FFFFFFF):
        yield number, (), ARCH
        yield number, (), I386
    for name in RULED:
        if name in NUMBERS:
            for args in argument_classes(name):
                yield NUMBERS[name], tuple(args), ARCH


def live_calls() -> Iterator[Call]:
    """What the live tests try."""
    for name, args in (*NONSENSE, *ATTEMPTS):
        yield NUMBERS[name], resolved(args), ARCH
    yield from ((number, (-1,) * 6, ARCH) for number in BEYOND)
    yield from ((0x40000000 | number, (), ARCH) for number in X32_NUMBERS)
    yield from ((number, (), I386) for number in FOREIGN)


def mutants(program: Program) -> Iterator[tuple[int, Program]]:
    """Each with the instruction that is changed."""
    for at, (code, jt, jf, k) in enumerate(program.insns):
        others = [(code, jt, jt, k), (code, jf, jf, k)] if code in BRANCHES else []
        others += [(code, jt, jf, U32)] if code == AND else []
        for other in others:
            if other != program.insns[at]:
                yield at, Program((*program.insns[:at], other, *program.insns[at + 1 :]))


def by_instruction(program: Program, calls: Iterator[Call]) -> dict[int, list[tuple[Call, int]]]:
    """The calls whose answer hangs on each instruction, with that answer."""
    found: dict[int, list[tuple[Call, int]]] = defaultdict(list)
    for call in calls:
        answer, path = program.follow(*call)
        for at in path:
            found[at].append((call, answer))
    return found


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_rule_that_is_left_out_is_noticed(variant: Variant) -> None:
    program = variant.compile()
    everything = by_instruction(program, every_call())
    live = by_instruction(program, live_calls())
    wider, unnoticed = 0, []
    for at, mutant in mutants(program):
        through = [
            call
            for call, answer in everything[at]
            if answer != ALLOW and mutant.run(*call) == ALLOW
        ]
        if not through:
            continue
        wider += 1
        if all(mutant.run(*call) == answer for call, answer in live[at]):
            unnoticed.append((at, through[:3]))
    assert wider > 100
    assert unnoticed == []


def test_the_search_finds_what_is_left_out() -> None:
    """The unaltered filter is not wider than itself; one that allows everything is, everywhere."""
    program = VARIANTS[0].compile()
    calls = [*every_call()]
    refused = [call for call in calls if program.run(*call) != ALLOW]
    assert len(refused) > 1000 and {program.run(*call) for call in refused} > {ABSENT}
    assert all(Program(((0x06, 0, 0, ALLOW),)).run(*call) == ALLOW for call in refused)
