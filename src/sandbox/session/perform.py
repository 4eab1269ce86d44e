"""Edits done, with the rights that commands have in the sandbox and no others.

All goes through the sandbox's own files, so that the kernel refuses what it would refuse a command,
wherever links lead. Everything is read and looked at before the first write, and each file again
directly before its own: two paths may be one file. New files come first and removals last, so that
what fails leaves the least to put back; what could not be is named.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, NoReturn

from sandbox.denial import Denial, DenialKind, Evidence
from sandbox.errors import SandboxLost
from sandbox.live import Sandbox
from sandbox.messages import Cause, Claim
from sandbox.refused import Judge
from sandbox.session.drafts import Change, Read

__all__ = ["Failure", "Performed", "Tried", "Written", "denial_of", "perform", "reading"]

READ_MAX = 16 << 20
_SET_ID = 0o6000
# What refuses a write in each isolation, as the judge of messages has it.
_WRITES: dict[str, Cause] = {"namespaces": "EROFS", "landlock": "EACCES", "seatbelt": "EPERM"}

# What was to be done: "entry" makes or removes a name in a directory.
Tried = Literal["read", "write", "entry"]


class Written(NamedTuple):
    """One file that was created, changed or deleted, for the record.

    Sizes in bytes and SHA-256 in hexadecimal, before and after; None and empty where there is none.
    """

    path: str
    change: Literal["created", "changed", "deleted"]
    size_before: int | None
    size_after: int | None
    sha256_before: str
    sha256_after: str


class Failure(NamedTuple):
    """Where it ended: the path, the errno (ESTALE: the file has changed since it was read), why.

    ``denial``: where the policy refused it, with the narrowest grant that would allow it.
    """

    path: str
    errno: int
    cause: str
    denial: Denial | None


@dataclass(frozen=True, slots=True)
class Performed:
    """What came of an edit.

    ``done``: what was written; after a ``failure`` it was put back, but for the paths in ``left``.
    """

    done: tuple[Written, ...]
    failure: Failure | None = None
    left: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether all of it was done."""
        return self.failure is None


def reading(box: Sandbox, cwd: str = "") -> Read:
    """What ``planned`` reads by: files as a command sees them, from ``cwd`` on.

    It raises OSError, also for more than 16 MiB; ``denial_of`` says whether the policy refused it.
    """
    return lambda path: box.read_file(os.path.join(cwd, path), max_bytes=READ_MAX)


def perform(box: Sandbox, changes: Sequence[Change], cwd: str = "") -> Performed:
    """Does what was planned, all of it or nothing as far as that can be had.

    ``cwd``: where relative paths begin; default: where commands start. What the system or the
    policy refuses is in the result; ``InvalidArgument`` comes as the sandbox's files raise it.
    """
    work = _Work(box, cwd)
    ordered = sorted(changes, key=_order)
    try:
        for change in ordered:
            work.check(change)
        for change in ordered:
            work.write(change)
    except (OSError, SandboxLost) as error:
        done, left = work.put_back(error)
        return Performed(tuple(map(_written, done)), work.failure(error), left)
    return Performed(tuple(map(_written, changes)))


def denial_of(
    box: Sandbox, path: str, tried: Tried, error: OSError, cwd: str = ""
) -> Denial | None:
    """The denial behind an error of the sandbox's files; None where the policy refuses nothing.

    It is known from the kernel's answer to a call that was made with a command's rights, and from
    what the policy says of the path. What is denied by name, and secrets, have no grant.
    """
    if error.errno not in (errno.EACCES, errno.EPERM):
        return None
    resolved, isolation = box.resolved, box.isolation
    # Protected names are refused with EPERM by the sandbox's files, where no mount does it.
    is_ours = error.errno == errno.EPERM and isolation == "landlock"
    kind = "namespaces" if is_ours else isolation
    if kind not in _WRITES:
        return None
    cause = "EACCES" if tried == "read" and kind != "seatbelt" else _WRITES[kind]
    start = os.path.join(resolved.workspace or resolved.place or "/", cwd)
    denial = Judge(resolved, kind, start).denial(Claim(cause, tried, (path,), "", "", ""))
    if denial is None or (is_ours and denial.kind is not DenialKind.PROTECTED):
        return None
    is_named = resolved.denies(denial.what)
    is_mount = isolation == "namespaces" and (tried != "read" or is_named)
    is_mount = is_mount and error.errno == errno.EACCES
    evidence = Evidence.MOUNT if is_mount else Evidence.KERNEL
    return replace(denial, evidence=evidence, grant=None if is_named else denial.grant)


def _order(change: Change) -> int:
    return 0 if change.before is None else 2 if change.after is None else 1


def _written(change: Change) -> Written:
    before, after = change.before, change.after
    return Written(
        change.path,
        "created" if before is None else "deleted" if after is None else "changed",
        None if before is None else len(before),
        None if after is None else len(after),
        "" if before is None else hashlib.sha256(before).hexdigest(),
        "" if after is None else hashlib.sha256(after).hexdigest(),
    )


def _fail(number: int, path: str, cause: str) -> NoReturn:
    raise OSError(number, cause, path)


class _Work:
    """The steps, and what is tried at the moment, so that a failure can say it."""

    def __init__(self, box: Sandbox, cwd: str) -> None:
        self._box, self._cwd = box, cwd
        self._now = ""  # the path of the change that is worked on
        self._tried: tuple[Tried, str] = "read", ""
        self._modes: dict[str, int] = {}  # of what is there, and of what takes another's
        self._missing: dict[str, list[str]] = {}  # directories above a new file, the lowest first
        self._begun: list[Change] = []
        self._done: list[Change] = []

    # Before the first write.

    def check(self, change: Change) -> None:
        """Raises OSError where it cannot be done, as far as that can be known."""
        place = self._begin(change)
        if change.before is None:
            self._check_new(change, place)
            return
        info = self._box.stat(place, follow=change.after is not None)
        if info.kind == "link":
            _fail(errno.ELOOP, change.path, "is a link: what it leads to would stay")
        self._modes[change.path] = info.mode & 0o777
        self._check_same(change, place)
        if change.after is not None and not info.mode & _SET_ID:
            self._tried = "write", place
            try:
                self._box.write_file(place, b"", append=True)
            except OSError as error:
                if error.errno != errno.EFBIG:  # what it gets may be less than is there
                    raise

    def _check_new(self, change: Change, place: str) -> None:
        if self._exists(place):
            _fail(errno.EEXIST, change.path, "is there already")
        self._modes[change.path] = change.mode
        if change.moved_from:
            self._modes[change.path] = self._box.stat(self._place(change.moved_from)).mode & 0o777
        self._missing[change.path] = self._missing_above(place)

    def _check_same(self, change: Change, place: str) -> None:
        if self._box.read_file(place, max_bytes=READ_MAX) != change.before:
            _fail(errno.ESTALE, change.path, "has changed since it was read")

    def _missing_above(self, place: str) -> list[str]:
        missing = []
        above = os.path.dirname(place)
        while above and not self._exists(above):
            missing.append(above)
            above = os.path.dirname(above)
        return missing

    # Writing.

    def write(self, change: Change) -> None:
        """Does one change."""
        place = self._begin(change)
        if change.before is not None:
            self._check_same(change, place)
        missing = self._missing_above(place) if change.before is None else []
        is_entry = None in (change.before, change.after)
        self._tried = "entry" if is_entry else "write", missing[-1] if missing else place
        self._begun.append(change)
        if change.after is None:
            self._box.remove(place)
        elif change.before is None:
            mode = self._modes[change.path]
            self._box.write_file(place, change.after, parents=True, exclusive=True, mode=mode)
        else:
            self._box.write_file(place, change.after)
        self._done.append(change)

    # After a failure.

    def put_back(self, error: Exception) -> tuple[list[Change], tuple[str, ...]]:
        """Takes back what was done, and half done; what had been done, and what of all that stays.

        What is neither as it was nor as it was made is somebody else's by now.
        """
        left = []
        for change in reversed(self._begun):
            is_half = change not in self._done
            if is_half and isinstance(error, FileExistsError):
                continue  # not ours
            try:
                is_back = self._put_back(change, self._place(change.path), is_half)
            except (OSError, SandboxLost):
                is_back = False
            left += [] if is_back else [change.path]
        return self._done, tuple(left)

    def _put_back(self, change: Change, place: str, is_half: bool) -> bool:
        now = self._box.read_file(place, max_bytes=READ_MAX) if self._exists(place) else None
        if now == change.before:
            pass
        elif change.before is None:
            if now != change.after and not (
                is_half and (change.after or b"").startswith(now or b"")
            ):
                return False
            self._box.remove(place)
        elif now is None:
            mode = self._modes[change.path]
            self._box.write_file(place, change.before, exclusive=True, mode=mode)
        elif now == change.after or is_half:
            self._box.write_file(place, change.before)
        else:
            return False
        for above in self._missing.get(change.path, ()):
            with suppress(OSError):  # others use it, or it was not made
                self._box.remove(above)
        return True

    def failure(self, error: Exception) -> Failure:
        """Where it ended, by what was tried last."""
        if not isinstance(error, OSError):
            return Failure(self._now, errno.EIO, str(error), None)
        tried, place = self._tried
        denial = denial_of(self._box, place, tried, error, self._cwd)
        return Failure(self._now, error.errno or errno.EIO, error.strerror or str(error), denial)

    def _begin(self, change: Change) -> str:
        place = self._place(change.path)
        self._now, self._tried = change.path, ("read", place)
        return place

    def _place(self, path: str) -> str:
        return os.path.join(self._cwd, path)

    def _exists(self, place: str) -> bool:
        try:
            self._box.stat(place, follow=False)
        except FileNotFoundError:
            return False
        return True
