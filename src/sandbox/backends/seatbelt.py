"""A policy as a Seatbelt profile: SBPL text and parameters for ``/usr/bin/sandbox-exec``.

The text is the fixed base (``seatbelt_base.sbpl``) and generated rules. No path stands in it, only
names of parameters: a quote or a parenthesis in a path is a sign like any other.

What may be done is allowed exactly, with what is excepted cut out of it (``require-not``), so that
hardly anything depends on which of two rules wins. Each exception is named literally and with all
below it: ``subpath`` alone lets the thing itself be made. The few denies that there are come last:
what may not be renamed away, because the rules know paths and not files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from sandbox.backends.search import glob_expression, literal_part
from sandbox.backends.spelled import aliases, any_case, quote, spellings
from sandbox.entries import Access, Table, lookup
from sandbox.errors import Unenforceable
from sandbox.host import SANDBOX_EXEC
from sandbox.paths import ancestors, below
from sandbox.resolve import BY_POLICY, ResolvedPolicy

__all__ = ["MARK", "SANDBOX_EXEC", "Profile", "compile_profile", "starts", "writable_above"]

MARK = "MARK"

_READING = "file-read* file-map-executable process-exec*"
_FULL = (  # of the network; none of these keeps secrets or acts for another (escape MAC06)
    ("com.apple.SystemConfiguration.DNSConfiguration", "which name servers"),
    ("com.apple.SystemConfiguration.configd", "proxies of the system"),
    ("com.apple.networkd", "which way to a host"),
    ("com.apple.ocspd", "certificates that were called back"),
    ("com.apple.system.opendirectoryd.membership", "who may: asked by libraries for TLS"),
    ("com.apple.trustd.agent", "whether a certificate is trusted"),
)


class Profile(NamedTuple):
    """SBPL text, and the value of each parameter in it."""

    text: str
    parameters: tuple[tuple[str, str], ...]

    def with_mark(self, mark: str) -> Profile:
        """The same, under which processes are known by a word of their own."""
        rest = [(name, value) for name, value in self.parameters if name != MARK]
        return self._replace(parameters=(*rest, (MARK, mark)))

    def argv(self, words: Sequence[str], program: str = SANDBOX_EXEC) -> list[str]:
        """The command line that runs ``words`` under it."""
        given = [f"-D{name}={value}" for name, value in self.parameters]
        return [program, "-p", self.bare, *given, "--", *words]

    @property
    def bare(self) -> str:
        """The text without its reasons: command lines have a limit. No text in it has a ``;``."""
        lines = [line.partition(";")[0].strip() for line in self.text.splitlines()]
        return "\n".join(line for line in lines if line)


@lru_cache(maxsize=1)
def base() -> str:
    """The fixed part."""
    return files("sandbox.backends").joinpath("seatbelt_base.sbpl").read_text(encoding="utf-8")


def starts(home: str) -> tuple[str, str]:
    """How the paths of settings in a HOME begin: what programs of the host read and follow."""
    return f"{home.rstrip('/')}/.", f"{home.rstrip('/')}/Library/"


class _Writer:
    """Lines of SBPL, each with its reason, and the parameters that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.parameters: dict[str, str] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def parameter(self, kind: str, value: str) -> str:
        """A reference to a value; the same one for the same."""
        name = self._names.get((kind, value))
        if name is None:
            number = self._counts[kind] = self._counts.get(kind, -1) + 1
            name = self._names[kind, value] = f"{kind}_{number}"
            self.parameters[name] = value
        return f'(param "{name}")'

    def line(self, text: str, why: str) -> None:
        """One line. Reasons are ours: nothing of a policy's author is in them."""
        self.lines.append(f"{text}  ; {why}")

    def filters(self, kind: str, names: Iterable[str]) -> list[str]:
        """Filters for paths and all below them."""
        refs = [self.parameter(kind, one) for one in names]
        return [f"({word} {ref})" for ref in refs for word in ("literal", "subpath")]

    def expressions(self, kind: str, values: Iterable[str]) -> list[str]:
        """Filters for regular expressions."""
        return [f"(regex {self.parameter(kind, one)})" for one in values]


class _Cut(NamedTuple):
    """What is excepted: filters, and why."""

    filters: Sequence[str]
    why: str


def compile_profile(
    resolved: ResolvedPolicy, more_homes: Sequence[str] = (), own: Sequence[str] = ()
) -> Profile:
    """The profile of a policy that confines.

    ``more_homes``: others whose settings are kept beside those of HOME. ``own``: what this package
    itself runs unconfined, which stays as it is wherever it lies.
    Raises ``Unenforceable`` for a pattern that its expressions cannot say.
    """
    _check_patterns(resolved.patterns)
    homes = tuple(dict.fromkeys((resolved.home, *more_homes)))
    out = _Writer()
    _reading(out, resolved)
    _writing(out, resolved, homes, own)
    _network(out, resolved)
    # There is no such service: whether it may be looked up says whose process one is.
    out.line(f'(allow mach-lookup (global-name (param "{MARK}")))', "how its processes are known")
    out.parameters[MARK] = "sandcore.nobody"
    for path, why in _pinned(resolved, homes, own):
        for one in spellings(path):
            ref = out.parameter("PINNED", one)
            out.line(f"(deny file-write-unlink (literal {ref}))", why)
        for one in out.expressions("PINNED_NAME", _cased(path, resolved.table(), "$")):
            out.line(f"(deny file-write-unlink {one})", why)
    for expression in _pinned_patterns(resolved):
        out.line("(deny file-write-unlink", "a directory in which something denied may be:")
        ref = out.parameter("PINNED_PATTERN", expression)
        out.line(f"  (require-all (vnode-type DIRECTORY) (regex {ref})))", "moved, it is unknown")
    xpc = '(xpc-service-name-prefix "")'  # whose names are no global ones
    out.line(f"(deny mach-lookup {xpc})", "programs that others start for it; Codex, seatbelt.rs")
    text = base() + "\n; Of this policy\n" + "\n".join(out.lines) + "\n"
    return Profile(text, tuple(out.parameters.items()))


# Files


def _reading(out: _Writer, resolved: ResolvedPolicy) -> None:
    table = resolved.table()
    reasons = {place.path: place.reason for place in resolved.denied}
    granted = [path for path, access in table.items() if access is not Access.DENY]
    denied = [path for path, access in table.items() if access is Access.DENY]
    for path in granted:
        above = path.rpartition("/")[0] or "/"
        if path != "/" and not below(path, "/dev") and lookup(table, above) is not Access.DENY:
            continue  # what is granted above has it
        cuts = [
            _except(out, "DENIED", one, table, reasons.get(one) or BY_POLICY)
            for one in denied
            if below(one, path)
        ]
        _region(out, _READING, path, "READ", "may be read", [*cuts, *_patterns(out, resolved)])
    passed = dict.fromkeys(above for path in granted for above in ancestors(path)[1:])
    for path in passed:
        for one in aliases(path) if lookup(table, path) is Access.DENY else ():
            ref = out.parameter("PASSED", one)
            out.line(f"(allow file-read-metadata (literal {ref}))", "on the way to what is granted")


def _writing(
    out: _Writer, resolved: ResolvedPolicy, homes: Sequence[str], own: Sequence[str]
) -> None:
    table = resolved.table()
    for path in resolved.writable:
        settings = tuple(start for home in homes if below(home, path) for start in starts(home))
        cuts = [
            _except(out, "KEPT", one, table, "not writable by the policy")
            for one, access in table.items()
            if access is not Access.WRITE
            and one != path
            and below(one, path)
            and not one.startswith(settings)  # all of these are cut out below
        ]
        for one in resolved.all_protected:
            if below(one, path) and table.get(one) is not Access.DENY:
                why = "protected: others read and run it later"
                cuts.append(_except(out, "PROTECTED", one, table, why))
        for home in homes:
            if not below(home, path):
                continue
            found = [
                f"^{quote(one)}/(\\.[^/]|{any_case('Library')}(/|$))" for one in spellings(home)
            ]
            why = "settings in HOME: each to be granted by its name"
            cuts.append(_Cut(out.expressions("HOME_SETTINGS", found), why))
        for one in own:
            if below(one, path):
                why = "what keeps commands is run unconfined"
                cuts.append(_Cut(out.filters("OURS", spellings(one)), why))
        cuts += _patterns(out, resolved)
        _region(out, "file-write*", path, "WRITE", "may be written", cuts)


def _except(out: _Writer, kind: str, path: str, table: Table, why: str) -> _Cut:
    """A path and all below it."""
    filters = out.filters(kind, spellings(path))
    return _Cut(filters + out.expressions(f"{kind}_NAME", _cased(path, table, "(/.*)?$")), why)


def _cased(path: str, table: Table, end: str) -> list[str]:
    """Expressions for a path in a writable directory, by its name there in any case.

    The usual file system of a Mac takes .GIT for .git: what a command makes under the one name, the
    host writes into under the other.
    """
    roots = [above for above in ancestors(path)[1:] if table.get(above) is Access.WRITE]
    if not roots:
        return []
    rest = any_case(path[len(roots[-1].rstrip("/")) :])
    return [f"^{quote(one.rstrip('/'))}{rest}{end}" for one in spellings(roots[-1])]


def _check_patterns(patterns: Iterable[str]) -> None:
    """What stands in ``[...]`` is handed over as it is: what escaping means there is not known."""
    for pattern in patterns:
        if re.search(r"\[[^\]]*[\\\[]", pattern):
            cause = rf"{pattern!r} has [ or \ in [...]"
            raise Unenforceable("a denied pattern", cause, "deny the files by name")


def _patterns(out: _Writer, resolved: ResolvedPolicy) -> list[_Cut]:
    """What denied patterns match, now and later, with all below it."""
    found = []
    for pattern in resolved.patterns:
        rest = glob_expression(pattern[len(literal_part(pattern).rstrip("/")) :], any_case)
        starts = [quote(start.rstrip("/")) for start in spellings(literal_part(pattern))]
        whole = [f"^{start}{rest}(/.*)?$" for start in starts]
        found.append(_Cut(out.expressions("PATTERN", whole), "a denied pattern"))
    return found


def _region(
    out: _Writer, operations: str, path: str, kind: str, why: str, cuts: Iterable[_Cut]
) -> None:
    """Allows operations on a path and all below it, but for the cuts."""
    out.line(f"(allow {operations}", why)
    out.line("  (require-all", "all of this")
    out.line(f"    {_any(out.filters(kind, aliases(path)))}", "by its names")
    if below("/dev", path) and path != "/dev":
        out.line('    (require-not (subpath "/dev"))', "devices: those of the base, or by name")
    for cut in cuts:
        out.line(f"    (require-not {_any(cut.filters)})", cut.why)
    out.lines.append("  ))")


def _any(filters: Sequence[str]) -> str:
    return f"(require-any {' '.join(filters)})"


# What may not be moved


def _pinned(
    resolved: ResolvedPolicy, homes: Sequence[str], own: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Paths that may be neither renamed nor removed, and why; each once."""
    table = resolved.table()
    kept = [path for path, access in table.items() if access is not Access.WRITE]
    kept += [*resolved.all_protected, *own]
    kept += [f"{home}/." for home in homes]
    kept += [f"{literal_part(pattern).rstrip('/')}/*" for pattern in resolved.patterns]
    found = dict.fromkeys(resolved.writable, "a boundary of the policy")
    for above in writable_above(table, kept):
        found.setdefault(above, "something below is not writable: moved, it is unknown")
    yield from ((path, why) for path, why in found.items() if path != "/")


def writable_above(table: Table, paths: Iterable[str]) -> Iterator[str]:
    """The directories above some paths that may be written."""
    for path in paths:
        for above in ancestors(path)[1:]:
            if lookup(table, above) is Access.WRITE:
                yield above


def _pinned_patterns(resolved: ResolvedPolicy) -> Iterator[str]:
    """Expressions for the directories on the way to what a pattern may match."""
    found: dict[str, None] = {}
    for pattern in resolved.patterns:
        literal = literal_part(pattern)
        parts = pattern[len(literal.rstrip("/")) :].split("/")[1:]
        for start in spellings(literal):
            for count in range(1, len(parts)):
                way = "".join(f"/{part}" for part in parts[:count])
                head = f"^{quote(start.rstrip('/'))}{glob_expression(way, any_case)}"
                found[f"{head}$"] = None
    yield from found


# Network


def _network(out: _Writer, resolved: ResolvedPolicy) -> None:
    network = resolved.policy.network
    # None of its own: one of the host's in a writable directory could be moved among them.
    if resolved.sockets:
        # 1 is AF_UNIX: older releases have no names for these numbers.
        out.line("(allow system-socket (socket-domain 1))", "Unix sockets at all")
    for path in resolved.sockets:
        for one in aliases(path):
            ref = out.parameter("SOCKET", one)
            why = "a socket that the policy names; connecting is no file access (case 161)"
            out.line(f"(allow network-outbound (literal {ref}))", why)
    if network == "loopback":
        out.line('(allow network-bind network-inbound (local ip "localhost:*"))', "its servers")
        out.line('(allow network-outbound (remote ip "localhost:*"))', "and reaching them")
    if network == "full":
        out.line('(allow network-bind network-inbound (local ip "*:*"))', "servers")
        out.line('(allow network-outbound (remote ip "*:*"))', "hosts; no Unix sockets of this one")
        name = '(literal "/private/var/run/mDNSResponder")'
        out.line(f"(allow network-outbound {name})", "names of hosts (escape MAC17)")
        # 32 is AF_SYSTEM, 2 its control protocol.
        sockets = "(require-all (socket-domain 32) (socket-protocol 2))"
        out.line(f"(allow system-socket {sockets})", "state of the network; Codex, network policy")
        for service, why in _FULL:
            out.line(
                f'(allow mach-lookup (global-name "{service}"))', f"{why}; Codex, network policy"
            )
