"""The approvals that a session remembers, and what they answer for.

An exact approval answers for its key and nothing else. A prefix answers for plain commands that
begin so, by the same program, in the same workspace, under the same policy and permissions, and
never for anything dangerous; of a list or pipe each part has to be answered for, or be safe.
All of it ends with the session. What is to last is in the user's file: see ``trustfile``.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Literal, Protocol

from sandbox.command.assess import assess_command_safety
from sandbox.command.context import Context
from sandbox.command.options import names
from sandbox.command.verdict import Assessment, Verdict
from sandbox.errors import InvalidArgument
from sandbox.parts import check_parts
from sandbox.paths import below
from sandbox.session.approval import Answer, Choice, may_last
from sandbox.session.decide import Ground
from sandbox.session.keys import Key, Part
from sandbox.session.prefixes import banned, prefix_of

__all__ = ["Lasting", "Trust", "Trusted", "exact_of", "prefix_entry_of"]

_MOVES = names("cd chdir pushd popd")
_ID_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Trusted:
    """One approval that is remembered.

    ``kind``: ``exact``, with all of a key, or ``prefix``, whose ``words`` are the beginning and
    ``programs`` the one program. ``place``: the working directory, or the workspace. ``since``:
    when, in UTC. ``lasts``: whether it is in the user's file.
    """

    kind: Literal["exact", "prefix"]
    words: tuple[str, ...]
    assignments: tuple[str, ...]
    text: str
    shell: str
    programs: tuple[str, ...]
    place: str
    policy: str
    permissions: tuple[str, ...]
    who: str
    why: str
    since: str
    lasts: bool = False

    @property
    def id(self) -> str:
        """What it is revoked by: the same for the same approval, whoever gave it, and when."""
        said = asdict(replace(self, who="", why="", since="", lasts=False))
        text = json.dumps(said, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]

    @property
    def ground(self) -> Ground:
        """What it is in a decision."""
        return Ground.TRUSTED_EXACT if self.kind == "exact" else Ground.TRUSTED_PREFIX

    @property
    def command(self) -> str:
        """What was approved, as a shell reads it."""
        text = self.text or shlex.join([*self.assignments, *self.words])
        return text if self.kind == "exact" else f"{text} ..."

    def is_of(self, key: Key) -> bool:
        """Whether it is the exact approval of a key."""
        return self.kind == "exact" and all(
            getattr(self, mine) == getattr(key, its) for mine, its in _OF_KEY.items()
        )


# Each field of an approval that is one of the key, by its name there: all that make a key.
_OF_KEY = {
    **{name: name for name in ("words", "assignments", "text", "shell", "programs")},
    "place": "cwd",
    "policy": "policy",
    "permissions": "permissions",
}


def exact_of(key: Key, answer: Answer) -> Trusted:
    """The approval of exactly one key."""
    values = {mine: getattr(key, its) for mine, its in _OF_KEY.items()}
    return Trusted("exact", **values, who=answer.who, why=answer.why, since=_now())


def prefix_entry_of(key: Key, prefix: tuple[str, ...], place: str, answer: Answer) -> Trusted:
    """The approval of all that begins as a plain command does.

    Raises ``InvalidArgument`` if the command does not begin so: the caller's fault.
    """
    if len(key.parts) != 1 or key.parts[0].words[: len(prefix)] != prefix:
        raise InvalidArgument("prefix", prefix, "is not how this plain command begins")
    if prefix_of(prefix) is None:
        raise InvalidArgument("prefix", prefix, banned(prefix) or "says too little")
    programs = (key.parts[0].program,)
    return replace(
        exact_of(key, answer), kind="prefix", words=prefix, programs=programs, place=place
    )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Lasting(Protocol):
    """Where approvals are that outlive a session."""

    def entries(self) -> tuple[Trusted, ...]:
        """All of them."""
        ...

    def add(self, entry: Trusted) -> Trusted:
        """Keeps one more."""
        ...

    def remove(self, id: str) -> bool:
        """Takes one out; whether it was there."""
        ...


class Trust:
    """What was approved in a session, for a workspace; ``file`` is what lasts, or None."""

    def __init__(self, workspace: str, file: Lasting | None = None) -> None:
        self._workspace = workspace
        self._file = file
        self._entries: dict[str, Trusted] = {}
        self._accepted: frozenset[str] = frozenset()

    @property
    def accepted(self) -> frozenset[str]:
        """The parts that a person took weaker for this session: see ``decide.enforced_of``."""
        return self._accepted

    def accept_weaker(self, parts: Iterable[str]) -> None:
        """Takes parts of the policy weaker until the session ends. Raises ``InvalidArgument``."""
        more = tuple(parts)
        check_parts(more)
        self._accepted = self._accepted | frozenset(more)

    def add(self, key: Key, answer: Answer) -> Trusted | None:
        """Remembers what an answer said about a key; None where it was for once, or a denial.

        Raises ``InvalidArgument`` for what was not to be offered: the caller's fault.
        """
        if answer.choice is Choice.SESSION:
            entry = exact_of(key, answer)
        elif answer.choice is Choice.PREFIX:
            place = self._workspace if below(key.cwd, self._workspace) else key.cwd
            entry = prefix_entry_of(key, answer.prefix, place, answer)
        elif answer.choice is Choice.ALWAYS:
            if self._file is None:
                raise InvalidArgument("answer", answer.choice, "there is no file for what lasts")
            if not may_last(Verdict.UNKNOWN, key):
                raise InvalidArgument("answer", answer.choice, "this is not to last")
            return self._file.add(exact_of(key, answer))
        else:
            return None
        self._entries[entry.id] = entry
        return entry

    def find(self, key: Key, assessment: Assessment, context: Context) -> Trusted | None:
        """The approval that answers for a command of this key and assessment, or None.

        ``context`` is what it was assessed in. Raises what reading the user's file raises.
        """
        exact = self.find_exact(key)
        if exact is not None:
            return exact
        entries = self.entries()
        if assessment.verdict not in (Verdict.SAFE, Verdict.UNKNOWN):
            return None
        prefixes = [
            entry
            for entry in entries
            if entry.kind == "prefix"
            and (entry.policy, entry.permissions) == (key.policy, key.permissions)
            and self._reaches(entry, key.cwd)
        ]
        return self._of_prefixes(prefixes, key, context) if prefixes else None

    def find_exact(self, key: Key) -> Trusted | None:
        """The approval of exactly this key, or None."""
        return next((entry for entry in self.entries() if entry.is_of(key)), None)

    def entries(self) -> tuple[Trusted, ...]:
        """All that is remembered, what lasts behind what ends with the session."""
        lasting = self._file.entries() if self._file is not None else ()
        return (*self._entries.values(), *lasting)

    def revoke(self, id: str) -> bool:
        """Forgets an approval, in the user's file too; whether there was one."""
        if self._entries.pop(id, None) is not None:
            return True
        return self._file is not None and self._file.remove(id)

    def clear(self) -> None:
        """Forgets all that ends with the session, accepted parts too."""
        self._entries = {}
        self._accepted = frozenset()

    def _of_prefixes(self, prefixes: list[Trusted], key: Key, context: Context) -> Trusted | None:
        """The first prefix that answers for a part, if each other part is answered for or safe."""
        found: Trusted | None = None
        rest: list[Part] = []
        where = key.cwd
        for part in key.parts:
            entry = next((one for one in prefixes if self._answers(one, part, where)), None)
            if entry is None:
                rest.append(part)
            found = found or entry
            if part.words[0] in _MOVES:
                where = _moved(where, part.words)
                # A link may lead elsewhere the next time.
                where = where if where and context.follow(where) == where else ""
        if found is None or not rest:
            return found
        # In one text: what a directory is changed to counts for what is safe behind it.
        text = " && ".join(shlex.join(part.words) for part in rest)
        is_safe = assess_command_safety(text, context).verdict is Verdict.SAFE
        return found if is_safe else None

    def _answers(self, entry: Trusted, part: Part, where: str) -> bool:
        return (
            part.words[: len(entry.words)] == entry.words
            and entry.programs == (part.program,)
            and self._reaches(entry, where)
        )

    def _reaches(self, entry: Trusted, where: str) -> bool:
        """Whether a directory is that of a prefix, or in its workspace."""
        if entry.place == self._workspace:
            return below(where, entry.place)
        return where == entry.place


def _moved(where: str, words: tuple[str, ...]) -> str:
    """The directory behind a ``cd``, by its letters; empty, which nothing reaches, if unclear."""
    to = words[1] if len(words) == 2 and words[0] == "cd" else ""
    if not where or not to or to[0] in "-+" or ".." in to.split("/"):
        return ""
    parts = [part for part in (to if to[0] == "/" else f"{where}/{to}").split("/") if part]
    return "/" + "/".join(part for part in parts if part != ".")
