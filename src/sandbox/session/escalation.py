"""Escalation: one retry of a command under the narrowest wider policy, after approval.

A call goes through the states of ``NEXT``, a table like a protocol's: what it does not have is no
way, so a command is retried once at most, and never without an approval. A failure that was no
denial is the end of it: nobody is asked.

A wider policy is the old one with the grants of what was refused. What the old one denies, its
places of secrets too, stays denied: it comes on top as a further list of entries, so that no grant
reaches below it. That holds for "no sandbox" as well, which is everything but that.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sandbox.denial import Denial, DenialKind, Grant
from sandbox.entries import Access, Entry, Layer, access_in, denies_of, put
from sandbox.errors import InvalidPath, SandboxException
from sandbox.paths import below, clean
from sandbox.policy import SandboxPolicy
from sandbox.presets import full_access
from sandbox.resolve import ResolvedPolicy

__all__ = [
    "NEXT",
    "Event",
    "Offer",
    "State",
    "check_settled",
    "denied_steps",
    "next_state",
    "offer",
    "settled",
    "unsandboxed",
    "widened",
]


class State(StrEnum):
    """Where a call is."""

    ASSESSED = "assessed"
    ASKING = "asking"
    RUNNING = "running"
    OFFERING = "offering"  # somebody is asked whether it may be retried
    RETRYING = "retrying"
    ENDED = "ended"  # it ran, whatever came of it
    DENIED = "denied"  # it did not run


class Event(StrEnum):
    """What happens to it."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    APPROVED = "approved"
    REFUSED = "refused"
    END = "end"  # it ended well, or failed and nothing was refused that could be granted
    DENIAL = "denial"  # it failed, and something was refused that could be granted
    FAULT = "fault"  # it did not start, or its sandbox was lost


NEXT: dict[tuple[State, Event], State] = {
    (State.ASSESSED, Event.ALLOW): State.RUNNING,
    (State.ASSESSED, Event.ASK): State.ASKING,
    (State.ASSESSED, Event.DENY): State.DENIED,
    (State.ASKING, Event.APPROVED): State.RUNNING,
    (State.ASKING, Event.REFUSED): State.DENIED,
    (State.RUNNING, Event.END): State.ENDED,
    (State.RUNNING, Event.FAULT): State.ENDED,
    (State.RUNNING, Event.DENIAL): State.OFFERING,
    (State.OFFERING, Event.APPROVED): State.RETRYING,
    (State.OFFERING, Event.REFUSED): State.ENDED,
    (State.RETRYING, Event.END): State.ENDED,
    (State.RETRYING, Event.DENIAL): State.ENDED,
    (State.RETRYING, Event.FAULT): State.ENDED,
}


def next_state(state: State, event: Event) -> State:
    """The state that follows. ``KeyError`` for what cannot happen: a bug of this package."""
    return NEXT[state, event]


# Of limits: more time is the caller's to give, and output that was left out is no failure.
_NOT_OFFERED = frozenset({"wall", "output"})
_PATH_STEPS = frozenset({"read", "write", "unix-socket"})


@dataclass(frozen=True, slots=True)
class Offer:
    """What a retry would be allowed, and what it rests on.

    - ``policy``: the wider one. ``grant``: what it has beside the old one; None for no sandbox.
    - ``denials``: what was refused. ``certain``: whether all of them are known by more than the
      command's own words; else no rule and no remembered approval may answer.
    """

    policy: SandboxPolicy
    grant: Grant | None
    denials: tuple[Denial, ...]
    certain: bool


def offer(
    denials: Sequence[Denial],
    policy: SandboxPolicy,
    resolved: ResolvedPolicy,
    *,
    may_leave: bool = False,
) -> Offer | None:
    """What to ask for after a command failed with these denials; None: nothing can be granted.

    ``resolved``: ``policy`` with real paths. ``may_leave``: whether running with no sandbox may be
    asked for, where no grant would do.
    """
    refused = [one for one in denials if not one.change and one.what not in _NOT_OFFERED]
    granted = [one for one in refused if one.grant is not None and _survives(one.grant, resolved)]
    if granted:
        steps = dict.fromkeys(step for one in granted for step in _steps(one))
        wanted = settled(Grant(_needed(tuple(steps), policy)))
        try:
            wider = widened(policy, wanted)
        except SandboxException:  # the policy cannot have it: too many sockets, no such path, ...
            return None
        return Offer(wider, wanted, tuple(granted), all(one.certain for one in granted))
    left = [one for one in refused if one.grant is None and one.kind is not DenialKind.LIMIT]
    left = [one for one in left if not _is_denied(one, resolved)]
    if left and may_leave:
        certain = all(one.certain for one in left)
        return Offer(unsandboxed(policy), None, tuple(left), certain)
    return None


def settled(grant: Grant) -> Grant:
    """A grant of real paths: what is asked about is what will be opened, whatever links say.

    Raises ``InvalidPath``.
    """
    return Grant(
        tuple(
            (word, os.path.realpath(clean(value)) if word in _PATH_STEPS else value)
            for word, value in grant.steps
        )
    )


def check_settled(grant: Grant, resolved: ResolvedPolicy) -> None:
    """Refuses a settled grant that leads elsewhere in the policy that was made of it.

    By a link that was put in the place of a granted directory since somebody was asked, say.
    Raises ``InvalidPath``.
    """
    moved = [
        f"{word} {value}"
        for word, value in grant.steps
        if (word == "write" and resolved.access(str(value)) is not Access.WRITE)
        or (word == "read" and resolved.access(str(value)) is Access.DENY)
        or (word == "unix-socket" and value not in resolved.sockets)
    ]
    if moved:
        raise InvalidPath(", ".join(moved), "leads elsewhere than when it was asked about")


def widened(policy: SandboxPolicy, grant: Grant) -> SandboxPolicy:
    """The policy with a grant; what it denies stays denied, whatever the grant says.

    Raises what the policy's own functions raise.
    """
    wider = grant.apply(policy)
    denials = [_with(one, grant, policy.protected) for one in _denials_of(policy)]
    within = tuple(dict.fromkeys([*wider.within, *denials]))
    return replace(wider, allow_secrets=policy.allow_secrets, within=within)


def unsandboxed(policy: SandboxPolicy) -> SandboxPolicy:
    """Full access, less what the policy denies and the places of secrets that it does not allow.

    Limits and environment stay those of the policy.
    """
    base = full_access()
    return replace(
        base,
        allow_secrets=policy.allow_secrets,
        within=_denials_of(policy),
        environment=policy.environment,
        limits=policy.limits,
    )


def _with(layer: Layer, grant: Grant, names: tuple[str, ...]) -> Layer:
    """A list that allows some places alone, in which a grant lifts protected names by name."""
    if not layer or layer[0] != Entry("/", Access.DENY):
        return layer
    for word, value in grant.steps:
        is_name = word == "write" and os.path.basename(str(value)) in names
        if is_name and access_in(layer, {}, clean(value)) is Access.WRITE:
            layer = put(layer, Entry(value, Access.WRITE))
    return layer


def _denials_of(policy: SandboxPolicy) -> tuple[Layer, ...]:
    return tuple(kept for kept in map(_denied_in, policy.layers) if kept)


def _denied_in(layer: Layer) -> Layer:
    """What a layer denies; also ``/``, where an entry says so: then all but its other entries."""
    kept = denies_of(layer)
    is_all = any(entry.path == "/" and entry.access is Access.DENY for entry in layer)
    return (Entry("/", Access.DENY), *kept[1:]) if is_all else kept


def _steps(denial: Denial) -> tuple[tuple[str, object], ...]:
    assert denial.grant is not None
    return denial.grant.steps


def _needed(
    steps: tuple[tuple[str, object], ...], policy: SandboxPolicy
) -> tuple[tuple[str, object], ...]:
    """Steps without those that others include: writing a path is reading it, and what is below.

    Not what an entry of the policy, or a protected name, takes out of what is below.
    """
    granted = [(word, str(value)) for word, value in steps if word in ("read", "write")]

    def is_included(word: str, path: str) -> bool:
        return any(
            (other, above) != (word, path)
            and (other == "write" or word == "read")
            and below(path, above)
            and not _is_apart(word, path, above, policy)
            for other, above in granted
        )

    return tuple(
        (word, value)
        for word, value in steps
        if word not in ("read", "write") or not is_included(word, str(value))
    )


def _is_apart(word: str, path: str, above: str, policy: SandboxPolicy) -> bool:
    """Whether something between decides about a path below one that is granted."""
    if word == "write" and not set(path[len(above) :].split("/")).isdisjoint(policy.protected):
        return True
    less = (Access.DENY, Access.READ) if word == "write" else (Access.DENY,)
    return any(
        entry.access in less and below(path, entry.path) and below(entry.path, above)
        for layer in policy.layers
        for entry in layer
        if entry.path and entry.path != above
    )


def denied_steps(grant: Grant, resolved: ResolvedPolicy) -> tuple[tuple[str, object], ...]:
    """The steps of a grant that no approval gives: what is denied by name, or a place of secrets.

    ``resolved``: the policy that is to have it, with real paths.
    """
    return tuple(
        (word, value)
        for word, value in grant.steps
        if word == "allow-secret"
        or (word in _PATH_STEPS and _lies_in_denied(clean(value), resolved))
    )


def _survives(grant: Grant, resolved: ResolvedPolicy) -> bool:
    """Whether all of a grant is there, and nothing of it denied, or a secret."""
    # What is missing cannot be granted: a protected name that does not exist yet, say.
    is_there = all(os.path.exists(v) for word, v in grant.steps if word in _PATH_STEPS)
    return is_there and not denied_steps(grant, resolved)


def _is_denied(denial: Denial, resolved: ResolvedPolicy) -> bool:
    return denial.what.startswith("/") and _lies_in_denied(denial.what, resolved)


def _lies_in_denied(path: str, resolved: ResolvedPolicy) -> bool:
    """Whether a path, or what it leads to, is denied by name. What no entry covers is not."""
    return resolved.denies(path) or resolved.denies(os.path.realpath(path))
