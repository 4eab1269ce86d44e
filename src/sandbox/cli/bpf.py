"""Classic BPF as text: a line for each instruction, with the names that seccomp programs use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

__all__ = ["disassemble"]

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
_JUMP = 0x05  # BPF_JMP | BPF_JA
_RETURN = 0x06  # BPF_RET | BPF_K
_TESTS = {0x15: "==", 0x25: ">", 0x35: ">=", 0x45: "&"}  # BPF_JMP | BPF_Jxx | BPF_K

_ARGUMENTS_AT = 16  # offset of args[0] in struct seccomp_data
_FIELDS = {0: "nr", 4: "arch", 8: "instruction_pointer.low", 12: "instruction_pointer.high"}

_ACTIONS = {
    0x00000000: "KILL_THREAD",
    0x00030000: "TRAP",
    0x00050000: "ERRNO",
    0x7FC00000: "USER_NOTIF",
    0x7FF00000: "TRACE",
    0x7FFC0000: "LOG",
    0x7FFF0000: "ALLOW",
    0x80000000: "KILL_PROCESS",
}


def disassemble(
    program: Iterable[tuple[int, int, int, int]], errnos: Mapping[int, str]
) -> Iterator[str]:
    """The lines of a program of (code, jt, jf, k); `errnos` are names of numbers."""
    for at, (code, yes, no, value) in enumerate(program):
        yield f"{at:4}  {_words(at, code, yes, no, value, errnos)}"


def _words(at: int, code: int, yes: int, no: int, value: int, errnos: Mapping[int, str]) -> str:
    if code == _LOAD:
        return f"load {_field(value)}"
    if code == _AND:
        return f"and {value:#x}"
    if code == _JUMP:
        return f"goto {at + 1 + value}"
    if code == _RETURN:
        return f"return {_action(value, errnos)}"
    if code in _TESTS:
        return f"if {_TESTS[code]} {value:#x} goto {at + 1 + yes} else {at + 1 + no}"
    return f"code {code:#04x} jt {yes} jf {no} k {value:#x}"


def _field(offset: int) -> str:
    """A word of struct seccomp_data; both architectures here are little-endian."""
    if offset in _FIELDS:
        return _FIELDS[offset]
    number, high = divmod(offset - _ARGUMENTS_AT, 8)
    return f"args[{number}].{'high' if high else 'low'}"


def _action(value: int, errnos: Mapping[int, str]) -> str:
    name = _ACTIONS.get(value & 0xFFFF0000, f"{value:#x}")
    data = value & 0xFFFF
    return f"{name} {errnos.get(data, str(data))}" if name == "ERRNO" else name
