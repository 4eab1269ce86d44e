"""Approvals that outlive a session: one file of the user, beside the profile.

The file is read strictly: what is not understood, or could have been written by anybody else, is an
error that names the file, and never an empty list. It is replaced as a whole, under a lock, so that
several processes may add to it. It holds a secret too, under which digests of policies are made:
so that values of variables count, and cannot be found by trying: see ``keys.digest_of``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Literal

import msgspec

from sandbox.errors import InvalidArgument, InvalidProfile, Unavailable
from sandbox.profile.where import check_user_directory, in_workspace, user_directory
from sandbox.session.prefixes import banned, prefix_of
from sandbox.session.trust import Trusted

__all__ = ["TRUST_FILE", "TrustFile"]

TRUST_FILE = "trust.json"
_SCHEMA: Final = "sandbox-trust/1"
_BYTES_MAX = 1 << 20
_ENTRIES_MAX = 1000
_SECRET_BYTES = 32


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry as it is written; ``id`` has to fit the rest."""

    id: str
    kind: Literal["exact", "prefix"]
    words: tuple[str, ...]
    text: str
    shell: str
    programs: tuple[str, ...]
    place: str
    policy: str
    permissions: tuple[str, ...]
    who: str
    why: str
    since: str


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    schema: Literal["sandbox-trust/1"]
    secret: str
    entries: tuple[_Row, ...]


class TrustFile:
    """The user's file of approvals; ``path`` by default beside the user's profile.

    ``workspace``: of the session; a file that lies in it, or is reached through it, is refused.
    All functions raise ``InvalidProfile`` for a file that cannot be used, and ``Unavailable``
    where it cannot be written.
    """

    def __init__(self, path: str | None = None, workspace: str | None = None) -> None:
        self.path = path if path is not None else os.path.join(user_directory(), TRUST_FILE)
        if workspace is not None:
            check_user_directory(workspace)
            if in_workspace(self.path, workspace):
                cause = "lies in the workspace: a command may have written it"
                raise InvalidProfile(self.path, 0, "", cause)
        self._seen: tuple[int, ...] = ()
        self._document = _empty()

    @property
    def secret(self) -> bytes:
        """What digests of policies are made under; the file is made if there is none."""
        if not self._read().secret:
            self._change(lambda rows: rows)
        said = self._read().secret
        if not said:
            raise Unavailable(f"the file of approvals {self.path}", "somebody removes it")
        return bytes.fromhex(said)

    def entries(self) -> tuple[Trusted, ...]:
        """All approvals that last. A file that changed is read again: what is revoked counts."""
        return tuple(_trusted(row) for row in self._read().entries)

    def add(self, entry: Trusted) -> Trusted:
        """Keeps an approval; one that is there already stays as it is.

        Raises ``InvalidArgument`` for what must not last: the caller's fault.
        """
        cause = _unfit(entry)
        if cause:
            raise InvalidArgument("entry", entry.command, cause)

        def added(rows: tuple[_Row, ...]) -> tuple[_Row, ...]:
            if any(row.id == entry.id for row in rows):
                return rows
            if len(rows) >= _ENTRIES_MAX:
                raise InvalidArgument("entry", entry.command, f"there are {_ENTRIES_MAX} already")
            return (*rows, _row(entry))

        self._change(added)
        return replace(entry, lasts=True)

    def remove(self, id: str) -> bool:
        """Takes an approval out; whether it was there."""
        found = any(row.id == id for row in self._read().entries)
        if found:
            self._change(lambda rows: tuple(row for row in rows if row.id != id))
        return found

    def clear(self) -> int:
        """Takes all of them out, and says how many there were."""
        count = len(self._read().entries)
        if count:
            self._change(lambda _: ())
        return count

    def _read(self) -> _Document:
        """What the file says; empty only where there is none."""
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
            with open(self.path, "rb", opener=lambda path, _: os.open(path, flags)) as opened:
                found = os.fstat(opened.fileno())
                self._check(found)
                seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
                if seen == self._seen:
                    return self._document
                data = opened.read(_BYTES_MAX + 1)
        except FileNotFoundError:
            return _empty()
        except OSError as error:
            is_link = error.errno == errno.ELOOP
            cause = "is a symbolic link" if is_link else (error.strerror or str(error)).lower()
            raise InvalidProfile(self.path, 0, "", cause) from None
        self._document, self._seen = self._decoded(data), seen
        return self._document

    def _check(self, found: os.stat_result) -> None:
        """Refuses a file that somebody else may have written, or can read."""
        if not stat.S_ISREG(found.st_mode):
            raise InvalidProfile(self.path, 0, "", "is no regular file")
        if found.st_uid != os.getuid():
            raise InvalidProfile(self.path, 0, "", f"belongs to uid {found.st_uid}", "chown")
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InvalidProfile(self.path, 0, "", "is open to others", f"chmod 600 {self.path}")

    def _decoded(self, data: bytes) -> _Document:
        mend = f"mend it, or remove {self.path} with all approvals in it"
        if len(data) > _BYTES_MAX:
            raise InvalidProfile(self.path, 0, "", f"has more than {_BYTES_MAX} bytes", mend)
        try:
            document = msgspec.json.decode(data, type=_Document)
            if len(bytes.fromhex(document.secret)) != _SECRET_BYTES:
                raise ValueError("its secret is too short")
        except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors
            said = str(error)
            raise InvalidProfile(self.path, 0, "", said[:1].lower() + said[1:], mend) from None
        for row in document.entries:
            entry = _trusted(row)
            cause = _unfit(entry) or ("its words do not fit its id" if entry.id != row.id else "")
            if cause:
                raise InvalidProfile(self.path, 0, f"entry {row.id!r}", cause, mend)
        return document

    def _change(self, change: Callable[[tuple[_Row, ...]], tuple[_Row, ...]]) -> None:
        """Reads, changes and replaces the file, alone. Raises ``Unavailable``."""
        try:
            os.makedirs(os.path.dirname(self.path), 0o700, exist_ok=True)
            with _locked(f"{self.path}.lock"):
                document = self._read()
                rows = change(document.entries)
                if rows != document.entries or not os.path.lexists(self.path):
                    secret = document.secret or secrets.token_hex(_SECRET_BYTES)
                    _replace(self.path, _Document(_SCHEMA, secret, rows))
        except OSError as error:
            raise Unavailable(f"the file of approvals {self.path}", str(error)) from error


def _empty() -> _Document:
    return _Document(_SCHEMA, "", ())


def _unfit(entry: Trusted) -> str:
    """Why an approval must not last; empty if it may."""
    if entry.assignments or not entry.programs or not all(entry.programs):
        return "has assignments, or programs that are not known"
    if not (entry.words or entry.text) or (entry.kind == "prefix" and not entry.words):
        return "has no words"
    if entry.kind == "prefix" and prefix_of(entry.words) is None:
        return banned(entry.words) or "is no prefix: the program's name alone says too little"
    return banned(entry.words) if entry.words else ""


def _row(entry: Trusted) -> _Row:
    values = {name: getattr(entry, name) for name in _Row.__struct_fields__}
    return _Row(**values)


def _trusted(row: _Row) -> Trusted:
    values = {name: getattr(row, name) for name in _Row.__struct_fields__ if name != "id"}
    return Trusted(**values, assignments=(), lasts=True)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Alone among processes. The file of the lock stays: who waits for it has it open."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _replace(path: str, document: _Document) -> None:
    """Puts a document in the place of a file, whole or not at all."""
    above = os.path.dirname(path)
    temporary = f"{path}.{secrets.token_hex(8)}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    directory = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
