"""SBPL, read and evaluated without a Mac: is an operation allowed, and by which line.

A small, exact interpreter of the part of the language that ``seatbelt`` writes, and of nothing
else: whatever it does not know is an error, never a guess. The last rule that matches decides. What
it takes from reports of real systems, and not from the language: ``subpath`` does not cover the
making of the directory that it names (Codex, seatbelt.rs), and a few operations are allowed unless
a rule denies them by name, whatever the default is (Chromium, common.sb; Codex, seatbelt.rs).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from sandbox.paths import below

__all__ = ["UNCOVERED", "Asked", "Evaluator", "Rule", "SbplError", "Symbol", "Verdict", "read"]

UNCOVERED = (
    *("process-info", "nvram", "iokit-get-properties", "file-map-executable"),
    "system-fcntl",
)
# What is known to be covered by "(deny default)": profiles of others with it have to allow these by
# name (Chromium, Codex, Apple), or they stand in Apple's Sandbox Guide 1.0 (fG!) as covered by it.
_COVERED = (
    *("appleevent-send", "authorization-right-obtain", "distributed-notification-post"),
    *("file-chroot", "file-ioctl", "file-link", "file-mknod", "file-mount", "file-read*"),
    *("file-revoke", "file-search", "file-unmount", "file-write*", "hid-control", "iokit-open"),
    *("ipc-posix*", "ipc-sysv*", "job-creation", "lsopen", "mach-bootstrap", "mach-lookup"),
    *("mach-priv*", "mach-register", "mach-task-name", "network*", "process-exec*"),
    *("process-fork", "pseudo-tty", "signal", "sysctl*", "system-socket", "user-preference*"),
)

_TOKEN = re.compile(
    r';[^\n]*|\s+|(?P<open>\()|(?P<close>\))|#"(?P<raw>(?:[^"\\]|\\.)*)"'
    r'|"(?P<text>(?:[^"\\]|\\.)*)"|(?P<atom>[^\s()";#]+)',
    re.DOTALL,
)
# One sign of a regular expression: escaped, a class, or what may stand for itself.
_SIGN = re.compile(r"\\[^A-Za-z0-9]|\[\^?\]?[^\]\\]*\]|[^\\\[]", re.DOTALL)
_LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1")


class SbplError(ValueError):
    """A profile that is not in the part of the language that is understood here."""


class Symbol(str):
    """A word that is no text."""

    __slots__ = ()


Node = "Symbol | str | int | tuple[Node, ...]"


class Rule(NamedTuple):
    """One ``allow`` or ``deny``: the line where it begins, its operations, and its filters."""

    line: int
    allows: bool
    operations: tuple[str, ...]
    filters: tuple[tuple[object, ...], ...]


class Asked(NamedTuple):
    """What is asked: an operation, and what it is about.

    ``path`` is the real one, ``directory`` whether one is there; ``name``: of a Mach service, a
    sysctl, a semaphore, or ``same-sandbox``; ``xpc``: of an XPC service; ``address``:
    ``HOST:PORT``; ``domain`` and ``protocol`` of a socket; ``extension``: a right that the system
    gave for this one thing; ``command`` of fcntl.
    """

    operation: str
    path: str = ""
    directory: bool = False
    name: str = ""
    address: str = ""
    domain: int = -1
    protocol: int = -1
    extension: str = ""
    command: int = -1
    xpc: str = ""


class Verdict(NamedTuple):
    """The answer, and the line of the rule that gave it; 0 where none did.

    ``known``: whether the language is known to be like that; if not, it is not said to be allowed.
    """

    allowed: bool
    line: int
    known: bool = True


def read(text: str) -> Iterator[tuple[int, tuple[object, ...]]]:
    """The forms of a profile, each with the line where it begins. Raises ``SbplError``."""
    open_forms: list[tuple[int, list[object]]] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise SbplError(f"line {_line(text, at)}: {text[at : at + 20]!r}")
        if found["open"]:
            open_forms.append((_line(text, at), []))
        elif found["close"]:
            if not open_forms:
                raise SbplError(f"line {_line(text, at)}: nothing is open")
            line, items = open_forms.pop()
            if not open_forms:
                yield line, tuple(items)
            else:
                open_forms[-1][1].append(tuple(items))
        elif (value := _value(found)) is not None:
            if not open_forms:
                raise SbplError(f"line {_line(text, at)}: {found[0]!r} is in no form")
            open_forms[-1][1].append(value)
        at = found.end()
    if open_forms:
        raise SbplError(f"line {open_forms[-1][0]}: is not closed")


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _value(found: re.Match[str]) -> object:
    if found["raw"] is not None:
        return found["raw"]
    if found["text"] is not None:
        return re.sub(r"\\(.)", r"\1", found["text"], flags=re.DOTALL)
    if found["atom"] is None:
        return None
    return int(found["atom"]) if found["atom"].isdigit() else Symbol(found["atom"])


class Evaluator:
    """A profile with its parameters. Raises ``SbplError`` for what is not understood."""

    def __init__(self, text: str, parameters: Mapping[str, str]) -> None:
        self._parameters = parameters
        self.rules: list[Rule] = []
        self._allows_default = False
        forms = list(read(text))
        if not forms or forms[0][1] != (Symbol("version"), 1):
            raise SbplError("a profile begins with (version 1)")
        for line, form in forms[1:]:
            self._add(line, form)
        for rule in self.rules:  # what cannot be evaluated is found now
            for one in rule.filters:
                self._matches(one, Asked(rule.operations[0]))

    def _add(self, line: int, form: tuple[object, ...]) -> None:
        if not form or form[0] not in ("allow", "deny"):
            raise SbplError(f"line {line}: {form[:1]} is no rule")
        operations = tuple(str(one) for one in form[1:] if isinstance(one, Symbol))
        filters = tuple(one for one in form[1:] if isinstance(one, tuple))
        if not operations or len(operations) + len(filters) != len(form) - 1:
            raise SbplError(f"line {line}: not operations and filters")
        if operations == ("default",):
            self._allows_default = form[0] == "allow"
            return
        self.rules.append(Rule(line, form[0] == "allow", operations, filters))

    def matching(self, asked: Asked) -> Iterator[Rule]:
        """The rules that say something of it, the last first."""
        for rule in reversed(self.rules):
            if any(_names(one, asked.operation) for one in rule.operations) and (
                not rule.filters or any(self._matches(one, asked) for one in rule.filters)
            ):
                yield rule

    def ask(self, asked: Asked) -> Verdict:
        """Whether it is allowed: what the last rule that matches says."""
        for rule in self.matching(asked):
            return Verdict(rule.allows, rule.line)
        # Apple's system.sb allows XPC services under version 1, and Codex denies them by name:
        # so what no rule says of them is the worse.
        is_uncovered = asked.operation.startswith(UNCOVERED) or bool(asked.xpc)
        if self._allows_default or is_uncovered:
            return Verdict(True, 0)
        return Verdict(False, 0, self._is_covered(asked.operation))

    def _is_covered(self, operation: str) -> bool:
        """Whether the default is known to deny it: a rule names it, or others have to."""
        named = (one for rule in self.rules for one in rule.operations)
        return any(_names(one, operation) for one in (*named, *_COVERED))

    def _matches(self, node: object, asked: Asked) -> bool:
        if not isinstance(node, tuple) or not node or not isinstance(node[0], Symbol):
            raise SbplError(f"{node!r} is no filter")
        name, given = str(node[0]), node[1:]
        if name in ("require-all", "require-any", "require-not"):
            inner = [self._matches(one, asked) for one in given]
            if not inner or (name == "require-not" and len(inner) != 1):
                raise SbplError(f"{name} of {len(inner)} filters")
            return all(inner) if name == "require-all" else any(inner) != (name == "require-not")
        if name in ("local", "remote") and len(given) == 2 and given[0] == Symbol("ip"):
            return _is_address(self._text(given[1]), asked.address)
        if name == "fcntl-command" and given and all(isinstance(one, int) for one in given):
            return asked.command in given
        if name in _NUMBERS and len(given) == 1 and isinstance(given[0], int):
            return _NUMBERS[name](asked) == given[0]
        if name in _WORDS and given in _WORDS[name]:
            return _WORDS[name][given](asked)
        if name in _TEXTS and len(given) == 1:
            return _TEXTS[name](self._text(given[0]), asked)
        raise SbplError(f"{name} {given!r} is no filter that is known")

    def _text(self, node: object) -> str:
        if isinstance(node, tuple) and len(node) == 2 and node[0] == Symbol("param"):
            if node[1] not in self._parameters:
                raise SbplError(f"parameter {node[1]!r} is missing")
            return self._parameters[str(node[1])]
        if isinstance(node, str) and not isinstance(node, Symbol):
            return node
        raise SbplError(f"{node!r} is no text")


def _names(pattern: str, operation: str) -> bool:
    """``file-write*`` stands for each operation that begins like that."""
    return operation.startswith(pattern[:-1]) if pattern[-1:] == "*" else operation == pattern


def _is_subpath(root: str, asked: Asked) -> bool:
    if asked.path == root and asked.operation == "file-write-create":
        return False
    return asked.path[:1] == "/" and below(asked.path, root)


def _is_address(pattern: str, address: str) -> bool:
    host, _, port = pattern.rpartition(":")
    its_host, _, its_port = address.rpartition(":")
    if host not in ("*", "localhost") or not (port == "*" or port.isdigit()):
        raise SbplError(f"{pattern!r} is no address: only * and localhost are hosts")
    near = host == "*" or _LOOPBACK.fullmatch(its_host) is not None
    return bool(address) and near and port in ("*", its_port)


@lru_cache(maxsize=1024)
def _expression(text: str) -> re.Pattern[str]:
    """A regular expression of SBPL: signs, classes, groups, ``|``, ``*``, ``+``, ``?``, anchors."""
    signs = [found[0] for found in _SIGN.finditer(text)]
    if "".join(signs) != text or "(?" in text:
        raise SbplError(f"{text!r} is no expression that is known")
    # In Python the end is also before a last newline, which may be part of a name.
    return re.compile("".join(r"\Z" if one == "$" else one for one in signs), re.DOTALL)


def _searches(field: Callable[[Asked], str]) -> Callable[[str, Asked], bool]:
    return lambda text, asked: _expression(text).search(field(asked)) is not None


_TEXTS: dict[str, Callable[[str, Asked], bool]] = {
    "literal": lambda text, asked: asked.path == text,
    "subpath": _is_subpath,
    "regex": _searches(lambda asked: asked.path),
    "extension": lambda text, asked: asked.extension == text,
    "global-name": lambda text, asked: asked.name == text,
    "xpc-service-name-prefix": lambda text, asked: bool(asked.xpc) and asked.xpc.startswith(text),
    "sysctl-name": lambda text, asked: asked.name == text,
    "sysctl-name-regex": _searches(lambda asked: asked.name),
    "ipc-posix-name-regex": _searches(lambda asked: asked.name),
}
_NUMBERS: dict[str, Callable[[Asked], int]] = {
    "socket-domain": lambda asked: asked.domain,
    "socket-protocol": lambda asked: asked.protocol,
}
_WORDS: dict[str, dict[tuple[object, ...], Callable[[Asked], bool]]] = {
    "vnode-type": {(Symbol("DIRECTORY"),): lambda asked: asked.directory},
    "target": {(Symbol("same-sandbox"),): lambda asked: asked.name == "same-sandbox"},
}
