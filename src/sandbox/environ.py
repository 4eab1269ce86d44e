"""The environment of a command, rebuilt from nothing.

What is inherited is a list of names, not all but a list of secrets: no pattern knows every secret
(``DATABASE_URL``, ``MY_CREDS``). ``variables`` has the names, also those that are never inherited;
a person can still set any of these to a value of his own.
"""

from __future__ import annotations

import fnmatch
import os
import pwd
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sandbox.errors import InvalidArgument
from sandbox.paths import has_pattern
from sandbox.variables import CORE, is_never_inherited, is_secret

__all__ = [
    "CORE",
    "PATH_DEFAULT",
    "Environment",
    "Packed",
    "Plan",
    "account_homes",
    "block",
    "home",
    "markers",
]

Inherit = Literal["none", "core", "all"]
_WIDTH: dict[str, int] = {"none": 0, "core": 1, "all": 2}

PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_OURS = frozenset({"SANDBOX", "SANDBOX_NETWORK_DISABLED"})
_TEMPORARY = frozenset({"TMPDIR", "TEMP", "TMP", "TEMPDIR"})

_ENCODING = sys.getfilesystemencoding()  # as os.environ
_PACKED_MAX = 1024  # seats whose environment is kept
_VERDICTS_MAX = 4096  # names seen by one plan: an environment that grows for ever does not


def _matcher(patterns: Iterable[str]) -> re.Pattern[str]:
    """One expression for a list of shell patterns, upper and lower case alike."""
    each = [fnmatch.translate(pattern) for pattern in patterns]
    return re.compile("|".join(each) or r"(?!)", re.IGNORECASE)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise InvalidArgument("env", name, "is no name: empty, or contains '=' or NUL")
    if name in _OURS:
        raise InvalidArgument("env", name, "marks a confined command and cannot be set")
    _check_encodes(name, name)


def _check_value(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidArgument("env", name, f"its value is {type(value).__name__}, not text")
    if "\0" in value:
        raise InvalidArgument("env", name, "its value contains a NUL character")
    _check_encodes(name, value)


def _check_encodes(name: str, text: str) -> None:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise InvalidArgument("env", name, "contains a surrogate that stands for no byte") from None


@dataclass(frozen=True, slots=True)
class Environment:
    """Which variables of the caller a command gets.

    - ``inherit``: ``"none"``, ``"core"`` (``CORE``: path, home, user, language, terminal) or
      ``"all"`` (all but hooks, job servers, closed descriptors and what looks like a secret).
    - ``include``: patterns (``*``, ``?``, ``[...]``, any case) of further names to inherit.
    - ``exclude``: patterns of names not to inherit; wins over ``include`` and ``allow``.
    - ``only``: patterns; where there are some, nothing is inherited that matches none of them.
    - ``allow``: exact names to inherit although they look like secrets.
    - ``set``: values of your own, as a mapping or pairs; these win over everything.
    - ``within``: further lists like ``only``, made by ``narrow``: a name must match each.

    Raises ``InvalidArgument``, its author's fault, naming the culprit.
    """

    inherit: Inherit = "core"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    set: tuple[tuple[str, str], ...] = ()
    allow: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    within: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.inherit not in _WIDTH:
            raise InvalidArgument("inherit", self.inherit, "must be 'none', 'core' or 'all'")
        pairs = self.set.items() if isinstance(self.set, Mapping) else self.set
        ordered = tuple(sorted(dict(pairs).items()))
        object.__setattr__(self, "set", ordered)
        for field in ("include", "exclude", "allow", "only"):
            value = getattr(self, field)
            if isinstance(value, str):
                raise InvalidArgument(field, value, "must be a list of names, not one text")
            object.__setattr__(self, field, tuple(value))
        object.__setattr__(self, "within", tuple(tuple(names) for names in self.within))
        for name, value in ordered:
            _check_name(name)
            _check_value(name, value)
        for name in self.include:
            if not has_pattern(name) and is_secret(name):
                raise InvalidArgument("include", name, "looks like a secret", "put it in allow")
        for name in (*self.include, *self.allow):
            if not has_pattern(name) and is_never_inherited(name):
                raise InvalidArgument("include", name, "is never inherited", "put it in set")

    def narrow(self, other: Environment) -> Environment:
        """What both inherit. Values set by either stay: they are not the caller's."""
        least = min(self.inherit, other.inherit, key=_WIDTH.__getitem__)
        include = [
            pattern
            for mine, theirs in ((self, other), (other, self))
            for pattern in mine.include
            if theirs.inherit == "all" or pattern in theirs.include
        ]
        lists = tuple(dict.fromkeys([*self._lists(), *other._lists()]))
        return Environment(
            inherit=least,
            include=_once(include),
            exclude=_once([*self.exclude, *other.exclude]),
            set=tuple({**dict(other.set), **dict(self.set)}.items()),
            allow=tuple(name for name in self.allow if name in other.allow),
            only=lists[0] if lists else (),
            within=lists[1:],
        )

    def widen(self, other: Environment) -> Environment:
        """What either inherits, less what this one excludes."""
        lists = [_once([*mine, *theirs]) for mine in self._lists() for theirs in other._lists()]
        return Environment(
            inherit=max(self.inherit, other.inherit, key=_WIDTH.__getitem__),
            include=_once([*self.include, *other.include]),
            exclude=self.exclude,
            set=tuple({**dict(other.set), **dict(self.set)}.items()),
            allow=_once([*self.allow, *other.allow]),
            only=lists[0] if lists else (),
            within=tuple(lists[1:]),
        )

    def _lists(self) -> list[tuple[str, ...]]:
        """All lists of which a name must match each."""
        return [names for names in (self.only, *self.within) if names]


def _once(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


class Packed(NamedTuple):
    """An environment as one block, the number of variables in it, and its PATH."""

    block: bytes
    variables: int
    path: str


class Plan:
    """An ``Environment`` made ready: what depends on the policy alone is worked out once.

    Verdicts about names are kept, so that a run costs one look-up for each variable. A plan may
    be shared by threads: what is kept depends on the name alone.
    """

    __slots__ = (
        "_allow",
        "_exclude",
        "_include",
        "_inherit",
        "_only",
        "_packed",
        "_set",
        "_verdicts",
    )

    def __init__(self, environment: Environment) -> None:
        self._inherit = environment.inherit
        self._set = dict(environment.set)
        self._allow = frozenset(environment.allow)
        self._include = _matcher(environment.include)
        self._exclude = _matcher(environment.exclude)
        lists = (environment.only, *environment.within)
        self._only = [_matcher(patterns) for patterns in lists if patterns]
        self._verdicts: dict[str | bytes, str] = {}
        self._packed: dict[tuple[str, str, str], tuple[dict[bytes, bytes], Packed]] = {}

    def inherits(self, name: str) -> bool:
        """Whether a variable of the caller with this name is passed on."""
        if not name or "=" in name or name in _TEMPORARY or name in _OURS:
            return False
        if is_never_inherited(name):
            return False
        if self._exclude.match(name) or not all(only.match(name) for only in self._only):
            return False
        if name in self._allow:
            return True
        if self._inherit != "none" and name in CORE:
            return True
        if is_secret(name):
            return False
        return self._inherit == "all" or self._include.match(name) is not None

    def packed(
        self, isolation: str, network: str, tmp: str, extra: Mapping[str, str] | None = None
    ) -> Packed:
        """The environment of one command, from that of this process, as the kernel takes it.

        While this process's own does not change, it is what it was: comparing costs a tenth of
        making it. ``extra`` as for ``build``; the other parameters as for ``markers``.
        """
        raw = getattr(os.environ, "_data", None)
        key = (isolation, network, tmp)
        known = self._packed.get(key)
        if known is not None and not extra and known[0] == raw:
            return known[1]
        copy = dict(raw) if isinstance(raw, dict) else {}
        env = self.build(os.environ, markers(isolation, network, tmp), extra)
        packed = Packed(block(env), len(env), env["PATH"])
        if copy and not extra:
            if len(self._packed) >= _PACKED_MAX:
                self._packed.clear()
            self._packed[key] = (copy, packed)
        return packed

    def build(
        self,
        base: Mapping[str, str],
        marks: Mapping[str, str],
        extra: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """The environment of one command.

        ``base`` is the caller's (``os.environ``, or any mapping), ``marks`` what the sandbox adds
        (see ``markers``), ``extra`` values for this one command, which win over all.
        Raises ``InvalidArgument`` for a bad name or value in ``extra``.
        """
        env = self._inherited(base)
        env.setdefault("PATH", PATH_DEFAULT)
        env.update(marks)
        env.update(self._set)
        if extra:
            for name, value in extra.items():
                _check_name(name)
                _check_value(name, value)
            env.update(extra)
        return env

    def _inherited(self, base: Mapping[str, str]) -> dict[str, str]:
        # os.environ encodes and decodes on each access: 60 variables are 70 microseconds. The
        # bytes below it are what it is made of; where they are not found, it is asked itself.
        raw = getattr(base, "_data", None) if type(base) is type(os.environ) else None
        if not isinstance(raw, dict):
            return {name: base[name] for name in base if self._verdict(name)}
        verdicts = self._verdicts
        env = {}
        for key, value in raw.copy().items():
            name = verdicts.get(key)
            if name is None:
                name = self._verdict(key)
            if name:
                env[name] = value.decode(_ENCODING, "surrogateescape")
        return env

    def _verdict(self, key: str | bytes) -> str:
        """The name when it is inherited, else empty; worked out once for each name."""
        known = self._verdicts.get(key)
        if known is None:
            name = key if isinstance(key, str) else key.decode(_ENCODING, "surrogateescape")
            known = name if self.inherits(name) else ""
            if len(self._verdicts) >= _VERDICTS_MAX:
                self._verdicts.clear()
            self._verdicts[key] = known
        return known


def home() -> str | bytes | None:
    """HOME of this process, as a key: as it is kept, without what ``os.environ`` makes of it."""
    raw = getattr(os.environ, "_data", None)
    return raw.get(b"HOME") if isinstance(raw, dict) else os.environ.get("HOME")


def account_homes() -> tuple[str, ...]:
    """The home that the system has for this user, whatever HOME says."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ()
    return (home,) if home.startswith("/") else ()


def markers(isolation: str, network: str, tmp: str) -> dict[str, str]:
    """What the sandbox itself sets: the marks of a confined command and its temporary directory.

    ``TMPPREFIX`` is where zsh puts here-documents, whatever TMPDIR says; ``XDG_CACHE_HOME`` is
    where tools keep caches that they cannot work without (go, pip, uv), and npm has a name of its
    own for it.
    """
    marks = {"SANDBOX": isolation} if isolation != "none" else {}
    if network == "none":
        marks["SANDBOX_NETWORK_DISABLED"] = "1"
    if tmp:
        marks.update(TMPDIR=tmp, TEMP=tmp, TMP=tmp, TMPPREFIX=f"{tmp}/zsh")
        marks.update(XDG_CACHE_HOME=f"{tmp}/cache", npm_config_cache=f"{tmp}/cache/npm")
    return marks


def block(env: Mapping[str, str]) -> bytes:
    """``NAME=value`` items, each ended by a NUL byte, as the kernel takes them."""
    if not env:
        return b""
    return os.fsencode("\0".join([f"{name}={value}" for name, value in env.items()])) + b"\0"
