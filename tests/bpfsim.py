"""Runs classic BPF programs on seccomp_data, as the kernel would, and looks at their shape."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LD, AND, RET, JA, JEQ, JGT, JGE, JSET = 0x20, 0x54, 0x06, 0x05, 0x15, 0x25, 0x35, 0x45
BRANCHES = {
    JEQ: lambda a, k: a == k,
    JGT: lambda a, k: a > k,
    JGE: lambda a, k: a >= k,
    JSET: lambda a, k: a & k != 0,
}
U32 = 0xFFFFFFFF

KILL_PROCESS = 0x80000000
ALLOW = 0x7FFF0000
ASK = 0x7FC00000  # a supervisor


def refuse(errno: int) -> int:
    """The answer that makes a call fail with an errno."""
    return 0x00050000 | errno


@dataclass(frozen=True)
class Program:
    """A program, each instruction as (code, jt, jf, k)."""

    insns: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def of(cls, insns: Iterable[object]) -> Program:
        return cls(tuple((i.code, i.jt, i.jf, i.k) for i in insns))  # type: ignore[attr-defined]

    @classmethod
    def parse(cls, data: bytes) -> Program:
        return cls(tuple(struct.iter_unpack("=HBBI", data)))

    def pack(self) -> bytes:
        return b"".join(struct.pack("=HBBI", *insn) for insn in self.insns)

    def check(self) -> None:
        """Raises unless the kernel would take it: known codes, forward jumps inside, a return."""
        last = len(self.insns) - 1
        assert self.insns[last][0] == RET
        for i, (code, jt, jf, k) in enumerate(self.insns):
            assert code in {LD, AND, RET, JA, *BRANCHES}, f"{i}: code {code:#x}"
            reach = k if code == JA else max(jt, jf) if code in BRANCHES else 0
            assert i + reach + (code != RET) <= last, f"{i}: jumps out"
            assert code != LD or (k % 4 == 0 and k < 64), f"{i}: loads at {k}"

    def run(self, nr: int, args: Sequence[int] = (), arch: int = 0) -> int:
        """What the program answers to a call; numbers and arguments may be negative."""
        return self.trace(nr, args, arch)[0]

    def trace(self, nr: int, args: Sequence[int] = (), arch: int = 0) -> tuple[int, int]:
        """The answer, and how many instructions led to it."""
        answer, path = self.follow(nr, args, arch)
        return answer, len(path)

    def follow(self, nr: int, args: Sequence[int] = (), arch: int = 0) -> tuple[int, list[int]]:
        """The answer, and the instructions that led to it."""
        words = [*args, *[0] * (6 - len(args))]
        data = struct.pack("=IIQ6Q", nr & U32, arch, 0, *(w & 0xFFFFFFFFFFFFFFFF for w in words))
        insns, a, pc = self.insns, 0, 0
        path: list[int] = []
        while True:
            code, jt, jf, k = insns[pc]
            path.append(pc)
            pc += 1
            if code == LD:
                a = int.from_bytes(data[k : k + 4], "little")
            elif code == AND:
                a &= k
            elif code == RET:
                return k, path
            elif code == JA:
                pc += k
            else:
                pc += jt if BRANCHES[code](a, k) else jf

    def longest_path(self) -> int:
        """The most instructions that any call can take (also if no call does)."""
        longest = [0] * len(self.insns)
        for i in range(len(self.insns) - 1, -1, -1):
            code, jt, jf, k = self.insns[i]
            nexts = [jt, jf] if code in BRANCHES else [k] if code == JA else [0]
            longest[i] = 1 + (0 if code == RET else max(longest[i + 1 + step] for step in nexts))
        return longest[0]
