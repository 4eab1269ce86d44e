"""What rules were made from, and whether that still holds.

Rules name files that were there when they were made. Three kinds of change matter, differently:
- what a person named (a workspace) is another directory now: the rules are worthless, at once;
- something lies at a denied path that was not there: a rule may have come to cover it; soon (a
  command that runs already has the old rules, too);
- a directory beside a denied one has another file: that file cannot be read yet. Less is allowed,
  never more, so in a directory that never rests (``/tmp``) it may wait: making rules is dear, and
  must not become what commands wait for.
"""

from __future__ import annotations

import os
import time

import _sandcore
from sandbox.backends.rules import Rules, compile_rules
from sandbox.resolve import ResolvedPolicy

__all__ = ["Basis", "compile_with_basis"]

_LOOK = 0.05  # seconds between two looks at the neighbours: a stat each, before every command
_SHARE = 20  # rules are made anew for unread neighbours in one part of so many of the time
_PAUSE = 0.2  # seconds, at the least


class Basis:
    """The state of the disk that rules were made from."""

    def __init__(self, rules: Rules, resolved: ResolvedPolicy) -> None:
        encode = os.fsencode
        self._paths = tuple(rule.path for rule in rules.anchors)
        self._named = _sandcore.Stamps((), self._paths)
        self._denied = _sandcore.Stamps((), [encode(place.path) for place in resolved.denied])
        self._watched = _sandcore.Stamps([encode(path) for path in rules.watched])
        self._states = (self._named.take(), self._denied.take(), self._watched.take())
        # Before a clock's next tick a second change would look like the first.
        self._settled = self._watched.settled(self._states[2])
        self._rest_until = self._look_at = 0.0

    @classmethod
    def nothing(cls) -> Basis:
        """The basis of rules that name nothing: it holds for ever."""
        basis = cls.__new__(cls)
        basis._named = basis._denied = basis._watched = _sandcore.Stamps(())
        basis._states = (b"", b"", b"")
        basis._rest_until = 0.0
        basis._look_at = float("inf")
        return basis

    def holds(self) -> bool:
        """Whether the rules still say what the policy says. A stat for each path that matters."""
        named, denied, watched = self._states
        if not self._named.same(named):
            return False
        now = time.monotonic()
        if now < self._look_at:
            return True
        self._look_at = now + _LOOK
        if self._watched.same(watched):
            return True
        return now < self._rest_until and self._denied.same(denied)

    def compare(self, rules: Rules) -> None:
        """Rules that name other things than those that led to this are not to be kept."""
        self._settled &= self._paths == tuple(rule.path for rule in rules.anchors)

    def moved(self, rules: Rules) -> Basis | None:
        """The same for the same rules but of another temporary directory; None unless all is still.

        To the letter: for a new sandbox neighbours that cannot be read yet do not wait.
        """
        if not self._settled:
            return None
        before, denied, watched = self._states
        other = Basis.__new__(Basis)
        other._paths = tuple(rule.path for rule in rules.anchors)
        other._named = _sandcore.Stamps((), other._paths)
        now, size = other._named.take(), _sandcore.Stamps.SIZE
        for index, pair in enumerate(zip(self._paths, other._paths, strict=True)):
            part = slice(index * size, (index + 1) * size)
            if pair[0] == pair[1] and before[part] != now[part]:
                return None
        if not self._watched.same(watched):
            return None
        other._settled = True
        other._denied, other._watched = self._denied, self._watched
        other._states = (now, denied, watched)
        other._rest_until, other._look_at = self._rest_until, 0.0
        return other

    def rest(self, cost: float) -> None:
        """The rules cost so many seconds to make: not again before a multiple of that."""
        self._rest_until = time.monotonic() + max(_PAUSE, _SHARE * cost)


def compile_with_basis(resolved: ResolvedPolicy, abi: int) -> tuple[Rules, Basis]:
    """Rules, and the state of the disk from before they were made.

    The first compilation finds what there is to watch. The rules are those of the second, made
    after the state was taken: what changes meanwhile differs from it and is seen before the next
    command. Raises ``Unenforceable``.
    """
    began = time.monotonic()
    basis = Basis(compile_rules(resolved, abi), resolved)
    rules = compile_rules(resolved, abi)
    basis.compare(rules)
    basis.rest(time.monotonic() - began)
    return rules, basis
