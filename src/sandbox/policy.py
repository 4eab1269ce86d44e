"""The policy: one immutable value that says what a command may do.

A policy is a key: it is hashed and compared on every run, so its hash is worked out once and two
equal objects are told equal by identity first. Everything that is slow (looking at files, making
rules) happens only when a policy is seen for the first time; see ``resolve``.
Functions return a changed copy. ``narrow`` is never wider than either side, ``widen`` allows what
either allows, less what the first one denies.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from sandbox.entries import (
    Access,
    Entry,
    Layer,
    Special,
    access_in,
    denies_of,
    put,
    union,
    weaker_of,
)
from sandbox.environ import Environment
from sandbox.errors import InvalidArgument
from sandbox.limits import Limits
from sandbox.parts import check_parts
from sandbox.paths import clean
from sandbox.secrets import ALL, check_allowed

__all__ = ["PROTECTED", "Isolation", "Network", "SandboxPolicy"]

Network = Literal["none", "loopback", "full"]
Isolation = Literal["landlock", "namespaces"]

# What programs outside the sandbox read and run later: hooks, tasks, rules, environments, profiles.
_PROTECTED = ".git .agents .codex .claude .vscode .idea .envrc .mcp.json sandbox.toml"
PROTECTED = tuple(_PROTECTED.split())

_NETWORKS: dict[str, int] = {"none": 0, "loopback": 1, "full": 2}
_ISOLATIONS: dict[str | None, int] = {None: 0, "landlock": 1, "namespaces": 2}
_SOCKETS_MAX = 64
_INSTRUCTION = 8  # bytes of one classic BPF instruction
_INSTRUCTIONS_MAX = 4096  # the kernel's BPF_MAXINSNS
_KINDS: dict[str, type] = {"environment": Environment, "limits": Limits}


@dataclass(frozen=True, slots=True, eq=False)
class SandboxPolicy:
    """What a command may do. All that is not said is refused.

    - ``entries``: paths and their access; none means that nothing may be read or written.
    - ``network``: ``"none"``, ``"loopback"`` (its own) or ``"full"``.
    - ``environment``, ``limits``: what it inherits, what it may use up.
    - ``require``: the weakest isolation that is acceptable, or None for what the host has.
    - ``protected``: names that stay read-only directly under each writable directory. Granting
      such a path by an entry lifts that.
    - ``extra_filter``: a seccomp filter of your own, as classic BPF bytes in this machine's order
      (``pyseccomp``'s ``export_bpf``), stacked on ours; at most 4096 instructions.
    - ``allow_secrets``: places of secrets (``sandbox.secrets``) that may be read if an entry says
      so: names, paths at or below a place, or ``"*"``. All others are denied whatever entries say.
    - ``unix_sockets``: paths of Unix sockets of the host that commands may connect to, 64 at the
      most. Whoever answers there acts with its own rights: naming a daemon's is giving its power
      away. An entry that denies exactly that path wins, as does a place of secrets.
    - ``accept``: the parts (``sandbox.parts``) that a host may enforce less than is said here, or
      None for all of them. With any other that is weaker nothing is run; what no host can do
      better counts as enforced.
    - ``within``: further lists of entries, made by ``narrow``: each must allow it too.

    Raises ``InvalidPath``, ``InvalidLimit`` or ``InvalidArgument``: its author's fault.
    """

    entries: Layer = ()
    network: Network = "none"
    environment: Environment = field(default_factory=Environment)
    limits: Limits = field(default_factory=Limits)
    require: Isolation | None = None
    protected: tuple[str, ...] = PROTECTED
    extra_filter: bytes | None = None
    allow_secrets: tuple[str, ...] = ()
    unix_sockets: tuple[str, ...] = ()
    accept: tuple[str, ...] | None = None
    within: tuple[Layer, ...] = ()
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_choices(self)
        _check_filter(self.extra_filter)
        layers = tuple(_check_layer(layer) for layer in (self.entries, *self.within))
        allowed = tuple(
            clean(item) if item[:1] in ("/", "~") else item
            for item in _texts("allow_secrets", self.allow_secrets)
        )
        check_allowed(allowed)
        accept = None if self.accept is None else _once(_texts("accept", self.accept))
        check_parts(accept or ())
        for name, value in (
            ("entries", layers[0]),
            ("within", layers[1:]),
            ("protected", _check_names(_texts("protected", self.protected))),
            ("allow_secrets", allowed),
            ("unix_sockets", _check_sockets(self.unix_sockets)),
            ("accept", accept),
        ):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_hash", hash(_values(self)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, SandboxPolicy):
            return NotImplemented
        return self._hash == other._hash and _values(self) == _values(other)

    def __reduce__(self) -> tuple[Any, ...]:
        # Made anew from its values: hashes of text differ between processes, and what comes out
        # of a pickle is checked like everything else.
        return (SandboxPolicy, _values(self))

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All lists of entries; a path may be used as far as each of them allows."""
        return (self.entries, *self.within)

    @property
    def unconfined(self) -> bool:
        """Whether nothing at all is to be enforced by the kernel (full access)."""
        return (
            self.network == "full"
            and self.require is None
            and self.extra_filter is None
            and ALL in self.allow_secrets
            and all(
                access_in(layer, {}, "/") is Access.WRITE
                and all(entry.access is Access.WRITE for entry in layer)
                for layer in self.layers
            )
        )

    def access(self, path: Any, places: Mapping[Special, str] | None = None) -> Access:
        """What the entries allow for a path, as text and without looking at the disk.

        ``places`` says where the specials are; those not in it cover nothing. Links, secrets and
        protected names are settled by ``resolve``, whose answer is the binding one.
        """
        text, known = clean(path), places or {}
        found = Access.WRITE
        for layer in self.layers:
            found = weaker_of(found, access_in(layer, known, text))
        return found

    def with_read(self, path: Any) -> SandboxPolicy:
        """A copy in which ``path`` may be read (and is not writable), whatever was said of it."""
        return self._grant(Entry(path, Access.READ))

    def with_write(self, path: Any) -> SandboxPolicy:
        """A copy in which ``path`` may be read and written, whatever was said of it."""
        return self._grant(Entry(path, Access.WRITE))

    def with_deny(self, path: Any) -> SandboxPolicy:
        """A copy in which ``path`` may be neither read nor written."""
        return replace(self, entries=put(self.entries, Entry(path, Access.DENY)))

    def with_network(self, network: Network) -> SandboxPolicy:
        """A copy with this network."""
        return replace(self, network=network)

    def without_network(self) -> SandboxPolicy:
        """A copy that reaches nothing."""
        return replace(self, network="none")

    def with_limits(self, limits: Limits) -> SandboxPolicy:
        """A copy with these limits."""
        return replace(self, limits=limits)

    def with_require(self, isolation: Isolation | None) -> SandboxPolicy:
        """A copy that is run with this isolation or a stronger one, or not at all."""
        return replace(self, require=isolation)

    def with_accept(self, parts: Iterable[str] | None) -> SandboxPolicy:
        """A copy under which these parts may be enforced less, and no others; None: all."""
        return replace(self, accept=None if parts is None else tuple(parts))

    def with_environment(self, environment: Environment) -> SandboxPolicy:
        """A copy with this environment."""
        return replace(self, environment=environment)

    def allow_secret(self, name: str) -> SandboxPolicy:
        """A copy that no longer denies a place of secrets, by its name or path."""
        return replace(self, allow_secrets=(*self.allow_secrets, name))

    def with_unix_socket(self, path: Any) -> SandboxPolicy:
        """A copy in which commands may connect to the host's Unix socket at ``path``."""
        return replace(self, unix_sockets=(*self.unix_sockets, path))

    def narrow(self, other: SandboxPolicy) -> SandboxPolicy:
        """What both allow: the intersection, in every part."""
        if None not in (self.extra_filter, other.extra_filter) and (
            self.extra_filter != other.extra_filter
        ):
            raise InvalidArgument(
                "extra_filter", "...", "two filters cannot be one", "compile them into one"
            )
        layers = _once([*self.layers, *other.layers])
        return SandboxPolicy(
            entries=layers[0],
            within=layers[1:],
            network=min(self.network, other.network, key=_NETWORKS.__getitem__),
            environment=self.environment.narrow(other.environment),
            limits=self.limits.narrow(other.limits),
            require=max(self.require, other.require, key=_ISOLATIONS.__getitem__),
            protected=_once([*self.protected, *other.protected]),
            extra_filter=self.extra_filter or other.extra_filter,
            allow_secrets=_shared(self.allow_secrets, other.allow_secrets),
            unix_sockets=_shared_sockets(self, other),
            accept=_both_accept(self.accept, other.accept),
        )

    def widen(self, other: SandboxPolicy) -> SandboxPolicy:
        """What either allows; what this policy denies, requires or protects stays so."""
        kept = [denies_of(layer) for layer in self.layers]
        layers = _once(
            [union(mine, theirs) for mine in self.layers for theirs in other.layers]
            + [layer for layer in kept if layer]
        )
        return replace(
            self,
            entries=layers[0],
            within=layers[1:],
            network=max(self.network, other.network, key=_NETWORKS.__getitem__),
            environment=self.environment.widen(other.environment),
            limits=self.limits.widen(other.limits),
            allow_secrets=_once([*self.allow_secrets, *other.allow_secrets]),
            unix_sockets=_once([*self.unix_sockets, *other.unix_sockets]),
            accept=(
                None
                if self.accept is None or other.accept is None
                else _once([*self.accept, *other.accept])
            ),
        )

    def _grant(self, entry: Entry) -> SandboxPolicy:
        # In each layer, or the grant would be without effect in a narrowed policy.
        layers = [put(layer, entry) for layer in self.layers]
        return replace(self, entries=layers[0], within=tuple(layers[1:]))


_FIELDS = tuple(item.name for item in fields(SandboxPolicy) if item.init)


def _values(policy: SandboxPolicy) -> tuple[Any, ...]:
    return tuple([getattr(policy, name) for name in _FIELDS])


def _once(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(items))


def _shared(mine: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """The allowances that both have; ``*`` has all."""
    if ALL in mine:
        return theirs
    return mine if ALL in theirs else tuple(item for item in mine if item in theirs)


def _shared_sockets(one: SandboxPolicy, other: SandboxPolicy) -> tuple[str, ...]:
    """The sockets that both reach; what is not confined reaches all."""
    if one.unconfined:
        return other.unix_sockets
    return tuple(
        path for path in one.unix_sockets if other.unconfined or path in other.unix_sockets
    )


def _both_accept(
    mine: tuple[str, ...] | None, theirs: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """The parts that both take weaker; None takes all."""
    if mine is None or theirs is None:
        return theirs if mine is None else mine
    return tuple(part for part in mine if part in theirs)


def _check_sockets(paths: Any) -> tuple[str, ...]:
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise InvalidArgument("unix_sockets", paths, "must be a list, not one path")
    found = _once(clean(path) for path in paths)
    if len(found) > _SOCKETS_MAX:
        raise InvalidArgument("unix_sockets", len(found), f"are more than {_SOCKETS_MAX}")
    return found


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidArgument(name, value, "must be a list, not one text", f"[{value!r}]")
    items = tuple(value)
    for item in items:
        if not isinstance(item, str):
            raise InvalidArgument(name, item, "is not text")
    return items


def _check_layer(layer: Any) -> Layer:
    entries = tuple(layer)
    for entry in entries:
        if not isinstance(entry, Entry):
            raise InvalidArgument("entries", entry, "is no Entry", "Entry(path, access)")
    return entries


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            raise InvalidArgument("protected", name, "must be the name of one file or directory")
    return names


def _check_choices(policy: SandboxPolicy) -> None:
    if policy.network not in _NETWORKS:
        raise InvalidArgument(
            "network", policy.network, "is none of the networks there are", "none, loopback, full"
        )
    if policy.require not in _ISOLATIONS:
        raise InvalidArgument(
            "require", policy.require, "is no isolation", "None, 'landlock' or 'namespaces'"
        )
    for name, kind in _KINDS.items():
        value = getattr(policy, name)
        if not isinstance(value, kind):
            raise InvalidArgument(name, value, f"is not of the class {kind.__name__}")


def _check_filter(program: Any) -> None:
    if program is None:
        return
    if not isinstance(program, bytes):
        raise InvalidArgument("extra_filter", program, "is not bytes")
    count, rest = divmod(len(program), _INSTRUCTION)
    if rest or not 1 <= count <= _INSTRUCTIONS_MAX:
        raise InvalidArgument(
            "extra_filter",
            f"{len(program)} bytes",
            f"must be 1 to {_INSTRUCTIONS_MAX} instructions of {_INSTRUCTION} bytes",
        )
