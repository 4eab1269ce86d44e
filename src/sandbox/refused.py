"""What the policy itself says of a path that a command claims to have been refused.

A claim (``messages``) is a denial only when the policy refuses that path, in that way, with that
errno: what a file's own mode refuses is none, nor what a command makes up. Each answer names the
entry that refuses and the narrowest grant.

The path is the command's choice, so it is looked at with care: component by component, never below
what is denied or what a sandbox has of its own (the answer would tell a command what the host has
there), nor in file systems that may not answer. The command's own rights count, not the caller's.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from sandbox.denial import Denial, DenialKind, Evidence, Grant
from sandbox.entries import Access, Special
from sandbox.messages import Claim
from sandbox.paths import ancestors, below
from sandbox.resolve import BY_POLICY, ResolvedPolicy
from sandbox.secrets import machine_secrets

__all__ = ["Judge"]

_OWN = ("/dev", "/proc", "/run", "/tmp")  # of a sandbox in namespaces, unless the policy names them
_LINKS_MAX = 40
_DEPTH_MAX = 128
# File systems of a network or of a program: looking may wait for ever.
_SLOW = ("nfs", "cifs", "smb", "fuse", "autofs", "9p", "afs", "ceph", "gluster", "virtiofs", "coda")
_GRANTABLE = frozenset(f"{row.name}: " for row in machine_secrets() if row.grantable)


class _Found(NamedTuple):
    """Where a path leads, and the nearest directory above it that exists.

    ``info`` is None for what is missing; ``open``: whether it was looked at to its end, and the
    command may come that far.
    """

    path: str
    info: os.stat_result | None
    above: str
    above_info: os.stat_result | None
    open: bool


class Judge:
    """Answers for one command: its policy, where it ran, and with whose rights."""

    def __init__(self, resolved: ResolvedPolicy, isolation: str, cwd: str) -> None:
        self._resolved = resolved
        self._spaces = isolation == "namespaces"
        self._seatbelt = isolation == "seatbelt"  # which says EPERM, whatever it refuses
        self._cwd = cwd
        self._table = resolved.table()
        granted = {path for path, access in self._table.items() if access is not Access.DENY}
        self._own = [path for path in _OWN if self._spaces and path not in granted]
        self._ways = {above for path in granted for above in ancestors(path)}
        guards = self._spaces or self._seatbelt
        self._protected = resolved.all_protected if guards else ()
        self._reasons = {place.path: place.reason for place in resolved.denied}
        self._groups = {os.getegid(), *os.getgroups()}
        self._slow: tuple[str, ...] | None = None

    def denial(self, claim: Claim) -> Denial | None:
        """The denial that a claim is about, or None when the policy refuses nothing in it."""
        for text in claim.paths:
            try:
                found = self._ask(claim, os.path.join(self._cwd, text))
            except OSError:  # it changes while it is looked at
                continue
            if found is not None:
                return found
        return None

    def _ask(self, claim: Claim, path: str) -> Denial | None:
        place = self._walk(path)
        entry, access = self._entry(place.path)
        if self._is_own(place.path):
            return None
        if access is Access.DENY:
            return self._denied(claim, place.path, entry)
        if self._protected and claim.cause in self._guarding():
            pinned = claim.cause == "EBUSY" or (self._seatbelt and claim.act == "entry")
            protected = self._protecting(place.path, pinned)
            if protected:
                rule = f"protected: {protected}"
                return self._made("protected", place.path, rule, ("write", protected))
        if access is Access.READ and self._is_write(claim, place):
            return self._unwritable(claim, place, f"{access}: {entry}")
        return None

    def _guarding(self) -> tuple[str, ...]:
        """What is said of a change of something protected."""
        return ("EPERM",) if self._seatbelt else ("EROFS", "EXDEV", "EBUSY")

    # Which entry.

    def _entry(self, path: str) -> tuple[str, Access]:
        """The entry that decides about a path, and what it says; "" where none covers it."""
        for above in ancestors(path):
            if above in self._table:
                return above, self._table[above]
            if above in self._reasons:
                return above, Access.DENY
        return "", Access.DENY

    def _is_own(self, path: str) -> bool:
        """Whether a path lies in a directory that is not the host's at all."""
        entry = self._entry(path)[0]
        return any(below(path, own) and not below(entry, own) for own in self._own)

    def _protecting(self, path: str, is_pinned: bool) -> str:
        """The protected path that a path lies in, or that keeps it from being moved.

        The outermost: who writes in a linked worktree's git directory writes in the common one too.
        """
        found = [place for place in self._protected if below(path, place)]
        if is_pinned and not found:
            found = [place for place in self._protected if below(place, path)]
        return min(found, key=len, default="")

    def _is_write(self, claim: Claim, place: _Found) -> bool:
        """Whether it was writing that was refused where only reading is allowed."""
        if not place.open:
            return False
        if claim.cause == "EXDEV":
            return True
        if self._spaces:  # a read-only mount says so; another errno is the file's own
            return claim.cause == "EROFS"
        errno = "EPERM" if self._seatbelt else "EACCES"
        if claim.cause != errno or claim.act in ("read", "run"):
            return False
        if claim.act or place.info is None:
            return True  # what is missing is refused only to who would make it
        return self._may(place.info, 0o4)  # what may be read was to be written

    # What comes of it.

    def _denied(self, claim: Claim, path: str, entry: str) -> Denial | None:
        if claim.cause not in ("EACCES", "EROFS", "EPERM"):
            return None
        is_write = claim.act in ("write", "entry") or claim.cause == "EROFS"
        word = "write" if is_write else "read"
        reason = self._reasons.get(entry, "")
        if not entry:
            return self._made(word, path, "no entry allows it", (word, path))
        if entry == self._resolved.dock:  # one of them is to be had, and no way into another
            return self._made(word, path, f"workspaces: {entry}")
        if not reason or reason == BY_POLICY:
            return self._made(word, path, f"deny: {entry}", *self._lifted(word, path, entry))
        name, _, why = reason.partition(": ")
        detail = f"a place of secrets: {why}"
        steps: list[tuple[str, str]] = []
        if f"{name}: " not in _GRANTABLE:
            steps.append(("allow-secret", path))
        if is_write or not steps or not self._reads_without_secrets(path):
            steps.append((word, path))
        return self._made(word, path, f"secret: {name}", *steps, detail=detail)

    def _lifted(self, word: str, path: str, entry: str) -> list[tuple[str, str]]:
        """The step that lifts what an entry denies; nothing lifts a pattern for one file."""
        if path in self._resolved.matched:
            return []
        if path != entry:
            return [(word, path)]
        # The entry itself has to be replaced: it may have been written with a link in it.
        layers = self._resolved.policy.layers
        named = [e.path for layer in layers for e in layer if e.access is Access.DENY and e.path]
        return [(word, next((p for p in named if os.path.realpath(p) == entry), path))]

    def _reads_without_secrets(self, path: str) -> bool:
        work, tmp = self._resolved.workspace, self._resolved.tmp
        places = {Special.WORKSPACE: work, Special.TMP: tmp}
        return self._resolved.policy.access(path, places) is not Access.DENY

    def _unwritable(self, claim: Claim, place: _Found, rule: str) -> Denial:
        """Writing: the file itself, or the directory in which a name is to come or go."""
        target, info = place.path, place.info
        if info is None or claim.act == "entry":
            target, info = place.above, place.above_info
        if claim.cause == "EXDEV":
            return self._made("write", place.path, rule, detail="not between file systems")
        if target == "/" or below(self._resolved.home, target):
            text = f"{target} as a whole is not to be granted: make the file, and grant that"
            return self._made("write", place.path, rule, detail=text)
        if info is not None and not self._may(info, 0o3 if stat.S_ISDIR(info.st_mode) else 0o2):
            text = "its own mode or owner refuses it, too"
            return self._made("write", place.path, rule, detail=text)
        if self._spaces and os.statvfs(target).f_flag & os.ST_RDONLY:
            return self._made("write", place.path, rule, detail="the host cannot write it, either")
        return self._made("write", place.path, rule, ("write", target))

    def _made(
        self, kind: str, what: str, rule: str, *steps: tuple[str, str], detail: str = ""
    ) -> Denial:
        can_be_said = steps and all(_is_text(value) for _, value in steps)
        grant = Grant(steps) if can_be_said else None
        return Denial(DenialKind(kind), what, Evidence.MESSAGE, rule, grant, detail=detail)

    # Looking.

    def _walk(self, path: str) -> _Found:
        """Where a path leads, as far as that may be looked at."""
        todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        here, info, links = "/", os.lstat("/"), 0
        while todo:
            part = todo.pop()
            if part == "..":
                here = here.rpartition("/")[0] or "/"
                info = os.lstat(here)
                continue
            inner = f"{here.rstrip('/')}/{part}"
            rest = os.path.normpath("/".join([inner, *reversed(todo)]))
            if not self._may(info, 0o1) or not stat.S_ISDIR(info.st_mode):
                return _Found(rest, None, "", None, False)
            if links > _LINKS_MAX or len(todo) > _DEPTH_MAX or self._is_closed(inner):
                return _Found(rest, None, "", None, False)
            try:
                below_it = os.lstat(inner)
                target = os.readlink(inner) if stat.S_ISLNK(below_it.st_mode) else None
            except OSError:
                return _Found(rest, None, here, info, not todo)
            if target is None:
                here, info = inner, below_it
                continue
            links += 1
            if target.startswith("/"):
                here, info = "/", os.lstat("/")
            todo += [piece for piece in reversed(target.split("/")) if piece not in ("", ".")]
        above = here.rpartition("/")[0] or "/"
        return _Found(here, info, above, os.lstat(above), True)

    def _is_closed(self, path: str) -> bool:
        """Whether this is not to be looked at: denied, the sandbox's own, or slow to answer."""
        denied = self._entry(path)[1] is Access.DENY and path not in self._ways
        return denied or self._is_own(path) or path in self._slow_mounts()

    def _slow_mounts(self) -> tuple[str, ...]:
        """Mount points that may not answer, but for those that the policy makes writable."""
        if self._slow is None:
            try:
                with open("/proc/self/mountinfo", "rb") as file:
                    rows = [os.fsdecode(line).split(" ") for line in file.read().splitlines()]
            except OSError:
                rows = []
            trusted = {above for path in self._resolved.writable for above in ancestors(path)}
            self._slow = tuple(
                row[4]
                for row in rows
                if row[4] not in trusted and row[row.index("-") + 1].startswith(_SLOW)
            )
        return self._slow

    def _may(self, info: os.stat_result, bits: int) -> bool:
        """Whether a file's mode allows it to the command, which has no capabilities."""
        shift = 6 if info.st_uid == os.geteuid() else 3 if info.st_gid in self._groups else 0
        return (info.st_mode >> shift) & bits == bits


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
