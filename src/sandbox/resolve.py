"""From a policy to real paths, once.

Links are followed here and nowhere later, from what the *user* named: a path that a command
chose never moves the boundary, and a link that is swapped afterwards leads nowhere new. What comes
out is flat: each real path once, with the access that all layers agree on and with the secrets of
HOME taken out. Secrets are stronger than entries: only ``allow_secrets`` lifts them.

What one isolation cannot do (a deny inside a writable directory under Landlock) is refused by its
backend, not here; what no isolation should do (HOME as a workspace) is refused here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sandbox.entries import Access, Entry, Layer, Special, Table, flattened, lookup
from sandbox.errors import InvalidArgument, InvalidPath, Unenforceable, WorkspaceRefused
from sandbox.links import check_links
from sandbox.named import entries_of, named_sockets
from sandbox.paths import ancestors, below, clean, follow, has_pattern, real
from sandbox.policy import SandboxPolicy
from sandbox.protected import lifted_by, protected_paths
from sandbox.secrets import Secret, is_allowed, machine_secrets, secrets_of
from sandbox.workplace import check_workspace, workspace_of

__all__ = ["BY_POLICY", "Place", "ResolvedPolicy", "needed", "resolve"]

# Of these a sandbox may have its own.
_OWN = ("/dev/", "/run/", "/tmp/")
# What programs need to start; those that a machine has. The second half is macOS's.
_RUNTIME = (
    "/bin",
    "/sbin",
    "/usr",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/sys/devices/system/cpu",
    "/run/systemd/resolve",
    "/nix/store",
    "/run/current-system/sw",
    "/System/Library",
    "/System/Cryptexes",
    "/System/Volumes/Preboot/Cryptexes",
    "/Library/Apple",
    "/Library/Developer/CommandLineTools",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
    "/private/var/db/xcode_select_link",
    "/private/var/select",
    "/opt/homebrew",
)


BY_POLICY = "denied by the policy"  # the reason of a place that an entry denies


class Place(NamedTuple):
    """A real path, its access, and why where that is not the policy's entry alone."""

    path: str
    access: Access
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedPolicy:
    """A policy with real paths.

    - ``places``: the whole answer: each path once, sorted; the nearest one above a path decides.
    - ``writable``: directories and files below which writing is allowed.
    - ``denied``: what was denied by name (entries and secrets of HOME), with reasons, whether it
      exists or not.
    - ``protected``: paths that stay read-only in the writable ones, existing or not;
      ``more_protected``: those that came with what the host has changed since; ``nested``: the
      repositories further down, ``all_nested``: whether that is all of them.
    - ``patterns``: those that are denied, with real paths; ``matched``: what matched them.
    - ``sockets``: Unix sockets of the host that may be connected to, whether they exist or not.
    - ``links``: symbolic links that lead to what is denied; where they change, so does it.
    - ``workspace``, ``home``, ``tmp``: real paths; empty where there is none.
    - ``place``: where commands start, if that may be read; else empty.
    - ``dock``: the directory in which one workspace at a time is seen, and no other (``docks``).
    """

    policy: SandboxPolicy
    places: tuple[Place, ...]
    writable: tuple[str, ...]
    denied: tuple[Place, ...]
    protected: tuple[str, ...]
    links: tuple[str, ...]
    workspace: str
    home: str
    tmp: str
    place: str = ""
    more_protected: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    all_nested: bool = True
    patterns: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    dock: str = ""

    @property
    def all_protected(self) -> tuple[str, ...]:
        """All paths that stay read-only."""
        return (*self.protected, *self.more_protected, *self.nested)

    def access(self, path: str) -> Access:
        """What is allowed for a real path; the binding answer. Protected names are apart."""
        return lookup(self.table(), path)

    def denies(self, path: str) -> bool:
        """Whether a real path is denied by name, or a secret: not merely that nothing allows it."""
        table, named = self.table(), {place.path for place in self.denied}
        above = next((one for one in ancestors(path) if one in table or one in named), None)
        return above is not None and (above in named or table[above] is Access.DENY)

    def with_tmp(self, tmp: str) -> ResolvedPolicy:
        """A copy with another private temporary directory, given as a real path."""
        places = [p._replace(path=tmp) if p.path == self.tmp else p for p in self.places]
        return replace(
            self,
            places=tuple(sorted(places)),
            writable=tuple(tmp if path == self.tmp else path for path in self.writable),
            tmp=tmp,
        )

    def table(self) -> Table:
        """The places as path to access; for who asks often."""
        return {place.path: place.access for place in self.places}


def resolve(
    policy: SandboxPolicy,
    workspace: str | None,
    home: str,
    tmp: str,
    more_homes: Sequence[str] = (),
    place: str = "",
) -> ResolvedPolicy:
    """The policy with real paths, secrets and specials settled.

    ``workspace`` is the directory that the user named (None when he named none), ``home`` the home
    whose secrets are meant, ``tmp`` the private temporary directory, or empty. ``more_homes``:
    others whose secrets are meant too (a HOME that was set to a scratch directory does not open
    the real one). ``place`` is the directory in which commands start; it grants nothing.
    Raises ``InvalidPath``, ``WorkspaceRefused``, ``InvalidArgument`` (the author's fault) and
    ``Unenforceable`` for patterns, which no isolation here knows.
    """
    house = follow(clean(home))[0]
    houses = list(dict.fromkeys([house, *(follow(clean(other))[0] for other in more_homes)]))
    work = workspace_of(policy, workspace)
    places = {Special.WORKSPACE: work, Special.TMP: real(tmp, "temporary directory") if tmp else ""}
    layers: list[tuple[Table, list[Place], list[str]]] = [
        _real_layer(layer, places) for layer in policy.layers
    ]
    sockets = named_sockets(policy)
    for layer in layers:
        layer[0].update({path: Access.READ for path in sockets if path not in layer[0]})
    tables = [layer[0] for layer in layers]
    table = flattened(tables)
    check_links((*policy.layers, entries_of(policy)), table)
    denied = [place for layer in layers for place in layer[1]]
    links = [link for layer in layers for link in layer[2]]
    if work and table.get(work) is Access.WRITE:
        for other in houses:
            check_workspace(work, other)
    granted: Table = {path: access for path, access in table.items() if access is not Access.DENY}
    secret = _secrets(policy, houses, table, work, links)
    table = _without_secrets(table, policy, secret)
    denied.extend(place for place, _ in secret)
    paths = sorted(needed(table))
    return ResolvedPolicy(
        policy=policy,
        places=tuple(Place(path, table[path]) for path in paths),
        writable=tuple(path for path in paths if table[path] is Access.WRITE),
        denied=tuple(dict.fromkeys(denied)),
        protected=(
            *protected_paths(
                policy.protected, granted, places[Special.TMP], lifted_by(granted, tables)
            ),
            *_to_be_made(secret, granted),
        ),
        links=tuple(dict.fromkeys(links)),
        workspace=work,
        home=house,
        tmp=places[Special.TMP],
        sockets=tuple(path for path in sockets if lookup(table, path) is not Access.DENY),
        place=place if place and lookup(table, place) is not Access.DENY else "",
    )


def _real_layer(layer: Layer, places: dict[Special, str]) -> tuple[Table, list[Place], list[str]]:
    """One list of entries by real path, its denies, and the links passed on the way to these."""
    table: Table = {}
    denied: list[Place] = []
    links: list[str] = []
    known: set[str] = {"/"}
    for entry in layer:
        if entry.access is Access.DENY:
            paths, passed = _denied_paths(entry, places, known)
            links.extend(passed)
            denied.extend(Place(path, Access.DENY, BY_POLICY) for path in paths)
        else:
            paths = _granted_paths(entry, places)
        for path in paths:
            before = table.get(path, entry.access)
            table[path] = _settle(before, entry.access)
    return table, denied, links


def _settle(one: Access, other: Access) -> Access:
    """The tie rule within one layer: deny beats write beats read."""
    if Access.DENY in (one, other):
        return Access.DENY
    return Access.WRITE if Access.WRITE in (one, other) else Access.READ


def _granted_paths(entry: Entry, places: dict[Special, str]) -> list[str]:
    if entry.special is Special.MINIMAL:
        return [os.path.realpath(path) for path in _RUNTIME if os.path.exists(path)]
    if entry.special is not None and not entry.path:
        place = places.get(entry.special, "")
        return [place] if place else []
    return [real(entry.path, f"{entry.access} path")]


def _denied_paths(
    entry: Entry, places: dict[Special, str], known: set[str]
) -> tuple[list[str], tuple[str, ...]]:
    """What a deny covers. It need not exist: it stays denied when it is created."""
    if not entry.path:
        return _granted_paths(entry, places), ()
    if has_pattern(entry.path) and not os.path.lexists(entry.path):
        raise Unenforceable(
            "a denied pattern",
            f"{entry.path!r} takes namespaces, and cannot be compiled for sandcore-exec",
            "deny the directory or the files by name",
        )
    path, links = follow(entry.path, known=known)
    return [path], links


def needed(table: Table) -> set[str]:
    """The paths of a table without those that say what is said above them anyway.

    In what a sandbox may have of its own (a private ``/tmp``) to be read is said by being named.
    """
    above: Table = {}
    found = set()
    for path, access in table.items():
        directory = path.rpartition("/")[0] or "/"
        if directory not in above:
            above[directory] = lookup(table, directory)
        said = above[directory] is access and path != "/"
        if not said or (access is Access.READ and path.startswith(_OWN)):
            found.add(path)
    return found - ({"/"} if table.get("/") is Access.DENY else set())


def _secrets(
    policy: SandboxPolicy, homes: list[str], table: Table, work: str, links: list[str]
) -> list[tuple[Place, list[str]]]:
    """The places of secrets that stay denied, each with the paths below it that are allowed."""
    paths = {item: follow(item)[0] for item in policy.allow_secrets if item.startswith("/")}
    used: set[str] = set()
    granted = [path for path, access in table.items() if access is not Access.DENY]
    writable = work if table.get(work) is Access.WRITE else ""
    found: list[tuple[Place, list[str]]] = []
    for home, rows in (*((home, secrets_of()) for home in homes), ("/", machine_secrets())):
        there = _names(home)
        near = any(below(path, home) for path in granted)
        for row in rows:
            place = written = row.at(home)
            passed: tuple[str, ...] = ()
            if row.path.partition("/")[0] in there:  # most are not: nothing to follow
                place, passed = follow(row.path, home)
            mine = [to for item, to in paths.items() if below(item, written) or below(to, place)]
            used.update(mine)
            if is_allowed(row, written, policy.allow_secrets) or place in mine:
                continue
            links.extend(passed)
            if near or passed:
                _check_grants(row, place, granted, writable, mine)
            found.append((Place(place, Access.DENY, f"{row.name}: {row.reason}"), mine))
    for item, to in paths.items():
        if to not in used:
            raise InvalidArgument("allow_secrets", item, "lies in no place of secrets of this HOME")
    return found


def _to_be_made(secret: list[tuple[Place, list[str]]], granted: Table) -> Iterator[str]:
    """Places of secrets that commands could make: nothing covers what is not there.

    What is planted there is the user's own profile next time, or who may log in as the user.
    """
    roots = tuple(
        f"{path.rstrip('/')}/" for path, access in granted.items() if access is Access.WRITE
    )
    for (path, _, _), _ in secret:
        is_writable = path.startswith(roots) and lookup(granted, path) is Access.WRITE
        if is_writable and not os.path.lexists(path):
            yield path


def _names(path: str) -> set[str]:
    """What is in a directory; where it cannot be listed, everything may be."""
    try:
        return set(os.listdir(path))
    except FileNotFoundError:
        return set()
    except OSError:
        return {row.path.partition("/")[0] for row in secrets_of()}


def _check_grants(
    row: Secret, place: str, granted: list[str], work: str, allowed: list[str]
) -> None:
    """Refuse a policy that grants a place of secrets without allowing it.

    ``work`` is the workspace if it is writable, else empty.
    """
    mend = f"allow_secret({row.name!r}), if a model may see it"
    if row.grantable:
        return
    if work and below(place, work):
        raise WorkspaceRefused(work, f"it contains {place} ({row.reason})", mend)
    for path in granted:
        if not below(path, place) or any(below(path, item) for item in allowed):
            continue
        if path == work:
            raise WorkspaceRefused(work, f"it is a place of secrets ({row.reason})", mend)
        raise InvalidPath(path, f"is granted, and is a place of secrets ({row.reason})", mend)


def _without_secrets(
    table: Table, policy: SandboxPolicy, secrets: list[tuple[Place, list[str]]]
) -> Table:
    """The table with each secret denied, and with what is allowed below it as it was."""
    result = dict(table)
    for place, allowed in secrets:
        result[place.path] = Access.DENY
        for path in allowed:
            result[path] = lookup(table, path)
    return result
