"""From a resolved policy to Landlock rules.

Landlock only adds: a rule allows a right below a path, nothing takes it away again. What follows:

- A directory that may be read except for something inside it cannot have a rule. It is opened and
  each thing in it that is not on the way to the denied one gets a rule of its own: the
  *complement*. What is created in such a directory later has no rule and cannot be read, so these
  directories are watched (``Rules.watched``), and rules are made anew when one has changed.
- Their names cannot be hidden: listing would have to be allowed on them and so on all below them.
  Listing is then not restricted at all, and that is reported as weaker (``names``).
- The kernel ties a rule to a file, not to its name: a rule on one name of a hard-linked file opens
  all of them, the denied one too. Loose files with several names get no rule.
- A link gets no rule: the kernel asks about the file that it leads to, which has its own.
- Writing cannot be taken out of a writable directory: what needs that is refused.
- A policy that reads everything does not restrict reading at all: that costs a walk on each open.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sandbox.backends.aliases import aliases
from sandbox.backends.cover import DEVICES, Cover, Rule, RuleAccess, tree_of
from sandbox.entries import Access
from sandbox.errors import Unenforceable
from sandbox.paths import ancestors
from sandbox.resolve import Place, ResolvedPolicy
from sandbox.result import Weaker

__all__ = ["ABI_LEAST", "Rule", "RuleAccess", "Rules", "compile_rules"]

ABI_LEAST = 3  # Linux 6.2: before it a file that may only be read can still be emptied
_ABI_DEVICES = 5  # Linux 6.10: ioctl on devices
_ANCHORS_MAX = 16  # a stat each before every command; a root beyond, replaced, is just refused


@dataclass(frozen=True, slots=True)
class Rules:
    """What Landlock is told.

    - ``rules``: what is allowed. Writing is always restricted.
    - ``handle_read``, ``handle_names``: whether reading, and listing, are restricted at all.
    - ``weaker``: parts of the policy that this cannot enforce.
    - ``watched``: directories that were enumerated; ``anchors``: rules on what a person named, the
      first few. ``basis`` tells from these whether the rules still hold; they are not compared:
      two compilations with the same rules are equal.
    """

    rules: tuple[Rule, ...]
    handle_read: bool
    handle_names: bool
    weaker: tuple[Weaker, ...]
    watched: tuple[str, ...] = field(default=(), compare=False)
    anchors: tuple[Rule, ...] = field(default=(), compare=False)

    def with_path(self, path: bytes, other: bytes, dev: int, ino: int) -> Rules:
        """The same rules with another directory in the place of one; which one it is: dev, ino."""

        def moved(rule: Rule) -> Rule:
            return replace(rule, path=other, dev=dev, ino=ino) if rule.path == path else rule

        rules, anchors = tuple(map(moved, self.rules)), tuple(map(moved, self.anchors))
        return replace(self, rules=rules, anchors=anchors)


def compile_rules(resolved: ResolvedPolicy, abi: int) -> Rules:
    """The rules for a policy on a kernel with this Landlock ABI.

    Raises ``Unenforceable`` (the host's fault, or what Landlock cannot do) before anything runs.
    """
    if abi < ABI_LEAST:
        cause = f"Landlock ABI {abi}" if abi > 0 else "no Landlock"
        raise Unenforceable(
            "writes", f"this kernel has {cause}, ABI {ABI_LEAST} is needed", "Linux 6.2 or newer"
        )
    denied = [place.path for place in resolved.places if place.access is Access.DENY]
    others = aliases(denied)
    _refuse_carvings(resolved, others)
    handle_read = bool(denied) or resolved.access("/") is Access.DENY
    handle_names = resolved.access("/") is Access.DENY
    cover = Cover(resolved, handle_names)
    if handle_read:
        cover.read(tree_of(resolved, others), "/", False)
    for root in resolved.writable:
        cover.named(root, "write")
    if resolved.access("/") is Access.WRITE:
        cover.named("/", "device")
    for name in DEVICES:
        cover.device(f"/dev/{name}")
    hides = handle_names and not cover.watched
    for link in resolved.links:
        cover.watch(os.path.dirname(link))
    return Rules(
        rules=tuple(cover.rules.values()),
        handle_read=handle_read,
        handle_names=handle_names,
        weaker=tuple(_weaker(resolved, abi, hides)),
        watched=tuple(cover.watched),
        anchors=tuple([rule for rule in cover.rules.values() if rule.named][:_ANCHORS_MAX]),
    )


def _refuse_carvings(resolved: ResolvedPolicy, others: list[str]) -> None:
    """Refuse what would have to be taken out of a writable directory again.

    ``others`` are further names of what is denied, through a second mount.
    """
    table = resolved.table()
    carved = [place for place in resolved.places if place.access is not Access.WRITE]
    carved += [Place(path, Access.DENY) for path in others if path not in table]
    inner: dict[str, list[Place]] = {}
    for place in carved:
        for above in ancestors(place.path)[1:]:
            if table.get(above) is Access.WRITE:
                inner.setdefault(above, []).append(place)
    for root, less in inner.items():
        place = next((place for place in less if os.path.lexists(place.path)), less[0])
        reason = next((d.reason for d in resolved.denied if d.path == place.path), "")
        why = f" ({reason})" if reason else ""
        raise Unenforceable(
            "denied reads" if place.access is Access.DENY else "writes",
            f"Landlock cannot take {place.path}{why} out of {root}, which is writable",
            "grant less than that directory, move it out, or allow it",
        )


def _weaker(resolved: ResolvedPolicy, abi: int, hides: bool) -> Iterator[Weaker]:
    """What these rules do not enforce, each with its reason."""
    mend = "namespaces: see `sandbox doctor`"
    if not hides and resolved.denied:
        yield Weaker("names", "Landlock cannot hide what a denied directory contains", mend)
    if resolved.access("/") is not Access.WRITE:
        yield Weaker("metadata", "Landlock does not know chmod, chown, utime, xattr, locks", mend)
        cause = (
            "a hard link that was there before gives a file outside a name where more is allowed"
        )
        yield Weaker("hard-links", cause, "find WORKSPACE -type f -links +1")
    if resolved.protected:
        yield Weaker("protected", "Landlock cannot take a name out of a writable directory", mend)
    yield Weaker("tmp", "/tmp, /dev/shm and terminals are the host's: closed, not private", mend)
    if abi < _ABI_DEVICES:
        yield Weaker("devices", "Landlock restricts ioctl on devices from ABI 5", "Linux 6.10")
