"""Putting watched names back after a command, and saying what was done.

What a command left under a protected name is renamed beside itself, never deleted, and what was
there before is put back. Each step is one ``Denial``; its ``undo`` is the line for a shell that
takes the step back. Its ``change``:

- ``planted``: nothing was there before; moved aside.
- ``changed``: content, kind or permissions differed; put back, the new one moved aside.
- ``removed``: put back from the copy.
- ``moved``: a directory was elsewhere; moved back.
- ``lost``: gone or changed, and no copy was kept.
- ``unrestored``: an error; whatever the command left may still be there.

A change that the host made itself while the command ran looks just the same, and is treated so.
Access lists and other extended attributes are not put back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from sandbox.backends.nofollow import (
    change_mode,
    entries,
    find_directory,
    identity,
    join,
    kind_of,
    look,
    make_directory,
    move_aside,
    move_line,
    put_file,
    put_link,
    read_file,
    read_link,
    swap_line,
    unlock_directory,
)
from sandbox.backends.snapshot import FILE_MAX, NAMES_MAX, Node
from sandbox.backends.watched import MARKS, is_head
from sandbox.denial import Change, Denial, DenialKind, Evidence
from sandbox.paths import shell

__all__ = ["restore"]

# With more new entries than this in one directory, the directory is moved aside as a whole.
_PLANTED_MAX = 64
_OWNER = 0o700
_READABLE = 0o400

Found = os.stat_result | None


def restore(roots: Sequence[tuple[bytes, Node]], moved: set[bytes]) -> tuple[Denial, ...]:
    """Put everything that is watched back to the snapshot; what was found, empty if nothing was.

    ``moved`` is what was moved aside since the snapshot, and grows: it is not found again. Raises
    no ``OSError``: what cannot be done is a ``Denial`` that says so.
    """
    denials: list[Denial] = []
    for path, node in roots:
        work = _Restore(path, denials, moved)
        try:
            work.start(node)
        except OSError as error:
            work.failed(path, error)
    return tuple(denials)


class _Restore:
    """One root. A path is always handled by its name in the open directory ``fd`` above it."""

    def __init__(self, root: bytes, denials: list[Denial], moved: set[bytes]) -> None:
        self._root = root
        self._root_fd = -1
        self._denials = denials
        self._moved = moved

    def start(self, node: Node) -> None:
        self._root_fd, mode = unlock_directory(self._root)
        try:
            self._contents(self._root_fd, node, self._root)
            self._settle_mode(self._root_fd, node, self._root, mode)
        finally:
            os.close(self._root_fd)

    def failed(self, path: bytes, error: OSError) -> None:
        self._say("unrestored", path, f"changed, and not put back ({error.strerror or error})")

    def _say(self, change: Change, path: bytes, detail: str, undo: str = "") -> None:
        self._denials.append(
            Denial(
                DenialKind.PROTECTED,
                os.fsdecode(path),
                Evidence.SWEEP,
                change=change,
                detail=detail,
                undo=undo,
            )
        )

    def _say_mode(self, path: bytes, had: int, now: int) -> None:
        text = f"its mode was made {had:04o}; it is {now:04o} again"
        self._say("changed", path, text, f"chmod {had:04o} -- {shell(path)}")

    def _contents(self, fd: int, node: Node, path: bytes) -> None:
        for child in node.children:
            self._check(fd, child, join(path, child.name))

    def _check(self, fd: int, node: Node, path: bytes) -> None:
        try:
            found = look(fd, node.name)
            if node.need == "any":
                self._free(fd, node, path, found)
            elif node.kind == "absent":
                if found is not None:
                    self._planted(fd, path)
            elif node.kind == "dir":
                self._directory(fd, node, path, found)
            elif not node.is_still(found):
                self._thing(fd, node, path, found)
        except OSError as error:
            self.failed(path, error)

    def _free(self, fd: int, node: Node, path: bytes, found: Found) -> None:
        """What may come and go, but must not be a link to where nothing is watched."""
        kind = kind_of(found)
        if kind == "dir":
            self._enter(fd, node, path)
        elif kind == "link" and not _is_same(fd, node, found):
            self._planted(fd, path)

    def _aside(self, fd: int, path: bytes, word: str) -> bytes:
        """Move a path aside; its new path."""
        up, name = os.path.split(path)
        aside = join(up, move_aside(fd, name, word))
        self._moved.add(aside)
        return aside

    def _planted(self, fd: int, path: bytes, mode: int | None = None) -> bytes:
        """Move what was not there aside; ``mode`` is what an undo has to give back."""
        aside = self._aside(fd, path, "planted")
        undo = move_line(aside, path)
        if mode is not None:
            undo = f"chmod {mode:04o} -- {shell(aside)} && {undo}"
        self._say("planted", path, f"was not there before; moved to {shell(aside)}", undo)
        return aside

    # Files, links, and whatever else is not a directory.

    def _thing(self, fd: int, node: Node, path: bytes, found: Found) -> None:
        if found is not None and _is_same(fd, node, found):
            self._settle_mode_of_file(fd, node, path, found)
            return
        aside = self._aside(fd, path, "changed") if found is not None else b""
        where = f"; what the command left is {shell(aside)}" if aside else ""
        undo = move_line(aside, path) if aside else ""
        try:
            done = _put(fd, node)
        except OSError as error:
            text = f"changed, and not put back ({error.strerror or error}){where}"
            self._say("unrestored", path, text, undo)
            return
        if not done:
            self._say("lost", path, f"changed or removed, and no copy was kept{where}", undo)
        elif not aside:
            self._say("removed", path, "was removed; it is put back", f"rm -- {shell(path)}")
        else:
            undo = swap_line(aside, path) if kind_of(found) == "dir" else undo
            self._say("changed", path, f"was changed; it is put back{where}", undo)

    def _settle_mode_of_file(self, fd: int, node: Node, path: bytes, found: os.stat_result) -> None:
        if node.found is None or not kind_of(found) == node.kind == "file":
            return
        had, wanted = stat.S_IMODE(found.st_mode), stat.S_IMODE(node.found.st_mode)
        if had == wanted or (node.need == "head" and had & _READABLE):
            return  # git writes HEAD anew, under whatever umask
        change_mode(fd, node.name, identity(found), wanted)
        self._say_mode(path, had, wanted)

    # Directories.

    def _directory(self, fd: int, node: Node, path: bytes, found: Found) -> None:
        is_right = (
            found is not None
            and node.found is not None
            and kind_of(found) == "dir"
            and (node.need == "there" or identity(found) == identity(node.found))
        )
        if is_right and node.is_leaf and found is not None and node.has_mode(found):
            return
        if is_right or self._bring_back(fd, node, path, found):
            self._enter(fd, node, path)

    def _enter(self, fd: int, node: Node, path: bytes) -> None:
        """Everything in a directory, and its permissions."""
        inside, mode = unlock_directory(node.name, fd)
        try:
            is_flooded = self._added(inside, node, path)
            if not is_flooded:
                self._contents(inside, node, path)
                self._settle_mode(inside, node, path, mode)
        finally:
            os.close(inside)
        if is_flooded:
            self._anew(fd, node, path)

    def _added(self, fd: int, node: Node, path: bytes) -> bool:
        """Move aside what was added to a directory; True when that is too much for it."""
        if node.names is None:
            return False
        now = entries(fd, NAMES_MAX)
        if now is None:
            return True
        new = sorted(name for name in now if name not in node.names)
        if sum(join(path, name) not in self._moved for name in new) > _PLANTED_MAX:
            return True
        for name in new:
            try:
                self._disarm(fd, join(path, name))
            except OSError as error:
                self.failed(join(path, name), error)
        return False

    def _disarm(self, fd: int, path: bytes) -> None:
        """Move an entry aside; a directory is closed too, as some programs load any they find."""
        found = look(fd, os.path.basename(path))
        if found is None:
            return
        mode = stat.S_IMODE(found.st_mode) if kind_of(found) == "dir" else None
        if path not in self._moved:
            path = self._planted(fd, path, mode)
        if mode:
            change_mode(fd, os.path.basename(path), identity(found), 0)

    def _anew(self, fd: int, node: Node, path: bytes) -> None:
        """Move a flooded directory aside, and make it again with what was watched in it."""
        aside = self._aside(fd, path, "planted")
        text = f"more than {_PLANTED_MAX} entries were added; all of it is {shell(aside)}"
        self._say("planted", path, text, swap_line(aside, path))
        assert node.found is not None
        make_directory(fd, node.name, node.found)
        inside, mode = unlock_directory(node.name, fd)
        try:
            self._contents(inside, node, path)
            self._settle_mode(inside, node, path, mode)
        finally:
            os.close(inside)

    def _bring_back(self, fd: int, node: Node, path: bytes, found: Found) -> bool:
        """Put a directory back that is not where it was; whether there is one now."""
        assert node.found is not None
        aside = self._aside(fd, path, "planted") if found is not None else b""
        where = f"; what was in its place is {shell(aside)}" if aside else ""
        try:
            old = self._move_home(fd, node, path)
            is_made = not old and (node.need == "there" or node.names is not None)
            if is_made:
                make_directory(fd, node.name, node.found)
        except OSError as error:
            text = f"moved or removed, and not put back ({error.strerror or error}){where}"
            self._say("unrestored", path, text, move_line(aside, path) if aside else "")
            return False
        if old:
            undo = move_line(path, old) + (f" && {move_line(aside, path)}" if aside else "")
            self._say("moved", path, f"was moved to {shell(old)}; it is back{where}", undo)
            return True
        if is_made:
            undo = swap_line(aside, path) if aside else f"rm -r -- {shell(path)}"
            text = f"was removed; it is made anew with what was watched in it{where}"
            self._say("removed", path, text, undo)
            return True
        text = f"is gone, and under no other name in {shell(self._root)}{where}"
        self._say("lost", path, text, move_line(aside, path) if aside else "")
        return False

    def _move_home(self, fd: int, node: Node, path: bytes) -> bytes:
        """Move a directory back that was renamed within its root or its parent; where it was."""
        assert node.found is not None
        marks = {child.name for child in node.children} | (node.names or frozenset())
        marks |= MARKS.get(node.name, frozenset())
        for up_fd, up in ((self._root_fd, self._root), (fd, os.path.dirname(path))):
            name = find_directory(up_fd, identity(node.found), marks, NAMES_MAX)
            if name and not path.startswith(join(up, name) + b"/"):
                os.rename(name, node.name, src_dir_fd=up_fd, dst_dir_fd=fd)
                return join(up, name)
        return b""

    def _settle_mode(self, fd: int, node: Node, path: bytes, had: int) -> None:
        """Give a directory its permissions back; where they are free, only if it lost its own."""
        is_locked = had & _OWNER != _OWNER
        wanted = had | _OWNER if is_locked else had
        is_fixed = is_locked or node.need not in ("pin", "any")
        if is_fixed and node.kind == "dir" and node.found is not None:
            wanted = stat.S_IMODE(node.found.st_mode)
        if stat.S_IMODE(os.fstat(fd).st_mode) != wanted:
            os.fchmod(fd, wanted)
        if had != wanted:
            self._say_mode(path, had, wanted)


def _is_same(fd: int, node: Node, found: Found) -> bool:
    """Whether what was found is, by content, what the node says."""
    kind = kind_of(found)
    is_locked = found is not None and kind == "file" and not found.st_mode & _READABLE
    if found is not None and is_locked and not node.has_mode(found):
        change_mode(fd, node.name, identity(found), stat.S_IMODE(found.st_mode) | _READABLE)
    if node.need == "head" and is_head(fd, node.name, kind):
        return True
    if found is None or kind != node.kind:
        return False
    if kind == "link":
        return read_link(fd, node.name) == node.data
    if kind == "file" and node.data is not None:
        if found.st_size != len(node.data):
            return False
        return read_file(fd, node.name, FILE_MAX) == node.data
    return node.has_state(found)


def _put(fd: int, node: Node) -> bool:
    """Make a file or link anew from the copy; False where there is none."""
    if node.data is None or node.found is None:
        return False
    if node.kind == "link":
        put_link(fd, node.name, node.data)
    else:
        put_file(fd, node.name, node.data, node.found)
    return True
