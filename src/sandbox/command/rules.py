"""Rules of a user: words that commands begin with, and what is decided about them.

A rule is checked when it is made: each of its examples must do what it says. What is wrong with
one stops the loading of all: a rule that is lost may be the one that forbids.
Of the rules that match a command the strictest counts. A rule that allows lifts "not known to be
harmless", and nothing else: what is dangerous is still asked for, and where it runs is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from sandbox.command.parse import TEXT_MAX, parse
from sandbox.errors import InvalidArgument

__all__ = ["Decision", "Rule", "Rules"]

Decision = Literal["allow", "ask", "forbid"]
_STRICTNESS: dict[str, int] = {decision: at for at, decision in enumerate(get_args(Decision))}


@dataclass(frozen=True, slots=True)
class Rule:
    """A prefix of words and what is decided about commands that begin with it.

    - ``prefix``: the words; a tuple in the place of a word has its alternatives.
    - ``decision``: ``"allow"``, ``"ask"`` or ``"forbid"``.
    - ``justification``: why, for whoever is asked or refused.
    - ``match``, ``not_match``: commands, as shell text, that it must, or must not, apply to.

    A first word without a slash is a program's name: ``allow`` then needs a program that no
    command could have put there; ``ask`` and ``forbid`` count for that name anywhere.
    Raises ``InvalidArgument``: the rule's author's fault.
    """

    prefix: tuple[str | tuple[str, ...], ...]
    decision: Decision
    justification: str
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", _prefix(self.prefix))
        if self.decision not in _STRICTNESS:
            raise InvalidArgument("decision", self.decision, "is none", "allow, ask, forbid")
        if not isinstance(self.justification, str) or not self.justification.strip():
            raise InvalidArgument("justification", self.justification, "says nothing")
        for name in ("match", "not_match"):
            examples = _texts(name, getattr(self, name))
            object.__setattr__(self, name, examples)
            for example in examples:
                if self.applies(_words(name, example)) != (name == "match"):
                    cause = f"is not what the rule {self.shown!r} does"
                    raise InvalidArgument(name, example, cause, "change the rule or the example")

    @property
    def shown(self) -> str:
        """The prefix as a person reads it."""
        return " ".join(
            word if isinstance(word, str) else f"({'|'.join(word)})" for word in self.prefix
        )

    def applies(self, words: Sequence[str | None]) -> bool:
        """Whether a command of these words begins with the prefix; None is a word not known."""
        if len(words) < len(self.prefix):
            return False
        return all(
            word == wanted if isinstance(wanted, str) else word in wanted
            for word, wanted in zip(words, self.prefix, strict=False)
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules, found by the first word of a command."""

    rules: tuple[Rule, ...] = ()
    _first: dict[str, list[Rule]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        first: dict[str, list[Rule]] = {}
        for rule in self.rules:
            if not isinstance(rule, Rule):
                raise InvalidArgument("rules", rule, "is no Rule", "Rules.of(tables)")
            names = rule.prefix[0]
            for name in (names,) if isinstance(names, str) else names:
                first.setdefault(name, []).append(rule)
        object.__setattr__(self, "_first", first)

    @classmethod
    def of(cls, tables: Iterable[Mapping[str, Any]]) -> Rules:
        """The rules that tables of a document hold, as TOML or JSON decodes them.

        Raises ``InvalidArgument`` for the first that is wrong, with its number: no rule of a
        document with a mistake is used, because none may be missing.
        """
        return cls(tuple(_rule(number, table) for number, table in enumerate(tables)))

    def strictest(self, words: Sequence[str | None], name: str, trusted: bool) -> Rule | None:
        """The rule that counts for a command.

        ``name`` is the last part of its first word; ``trusted``: the program is one that no
        command could have put there, so that a rule may allow it by name.
        """
        if not self._first or not words or words[0] is None:
            return None
        found = [rule for rule in self._first.get(words[0], ()) if rule.applies(words)]
        if not trusted and "/" not in words[0]:
            found = [rule for rule in found if rule.decision != "allow"]
        if name != words[0]:
            named = [name, *words[1:]]
            for rule in self._first.get(name, ()):
                if rule.applies(named) and (trusted or rule.decision != "allow"):
                    found.append(rule)
        return max(found, key=lambda rule: _STRICTNESS[rule.decision], default=None)


_KEYS = frozenset(Rule.__dataclass_fields__)


def _rule(number: int, table: Mapping[str, Any]) -> Rule:
    where = f"rules[{number}]"
    if not isinstance(table, Mapping):
        raise InvalidArgument(where, table, "is no table")
    for key in table:
        if key not in _KEYS:
            raise InvalidArgument(f"{where}.{key}", table[key], "is no key of a rule", _listed())
    missing = [key for key in ("prefix", "decision", "justification") if key not in table]
    if missing:
        raise InvalidArgument(where, dict(table), f"has no {missing[0]}")
    try:
        return Rule(**table)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{where}.{error.name}", error.value, error.cause, error.mend
        ) from None


def _listed() -> str:
    return ", ".join(sorted(_KEYS))


def _prefix(prefix: Any) -> tuple[str | tuple[str, ...], ...]:
    if isinstance(prefix, str) or not isinstance(prefix, Sequence) or not prefix:
        raise InvalidArgument("prefix", prefix, "must be a list of words", '["npm", "test"]')
    found: list[str | tuple[str, ...]] = []
    for item in prefix:
        words = (item,) if isinstance(item, str) else _texts("prefix", item)
        if not words or not all(words):
            raise InvalidArgument("prefix", prefix, "has an empty word")
        found.append(item if isinstance(item, str) else words)
    return tuple(found)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    if not is_list or not all(isinstance(item, str) for item in value):
        raise InvalidArgument(name, value, "must be a list of texts")
    return tuple(value)


def _words(name: str, example: str) -> list[str]:
    """The words of an example, which has to be one plain command."""
    if len(example.encode("utf-8", "replace")) <= TEXT_MAX and example.isprintable():
        script = parse(example)
        words = [word.text for command in script.commands for word in command.words]
        if len(script.commands) == 1 and not script.refused and not script.redirects:
            known = [word for word in words if word is not None]
            if known and len(known) == len(words):
                return known
    raise InvalidArgument(name, example, "is not one plain command")
