"""One profile's file: read once, decoded, or refused with the line and the key that is wrong.

Nothing of a broken file is used: whoever cannot be understood is not obeyed in half.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import tomllib
from typing import Any

import msgspec

from sandbox.errors import InvalidProfile
from sandbox.profile.document import Document
from sandbox.profile.values import LayerName, Source
from sandbox.profile.wrong import invalid, near

__all__ = ["decode", "read_source"]

_BYTES_MAX = 64 * 1024
_LINES_MAX = 2000


def read_source(file: str, layer: LayerName) -> Source:
    """Reads a file, once: what comes later to its place has no effect.

    A project's own file must be no link: what it leads to could be writable from inside. A user's
    must belong to the user or to root, and be writable by nobody else.
    Raises ``InvalidProfile``.
    """
    no_links = os.O_NOFOLLOW if layer == "project" else 0
    try:  # not to be blocked by a FIFO
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | no_links
        with open(file, "rb", opener=lambda path, _: os.open(path, flags)) as opened:
            _check_file(file, os.fstat(opened.fileno()), layer)
            data = opened.read(_BYTES_MAX + 1)
    except OSError as error:
        if error.errno == errno.ELOOP and no_links:
            raise InvalidProfile(file, 0, "", "a project's profile must be no link") from None
        raise InvalidProfile(file, 0, "", (error.strerror or str(error)).lower()) from None
    if len(data) > _BYTES_MAX or data.count(b"\n") > _LINES_MAX:
        cause = f"has more than {_BYTES_MAX} bytes or {_LINES_MAX} lines"
        raise InvalidProfile(file, 0, "", cause, "extends, with a part of it in another file")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InvalidProfile(file, line, "", "is not UTF-8") from None
    return Source(layer, file, hashlib.sha256(data).hexdigest(), text)


def _check_file(file: str, found: os.stat_result, layer: LayerName) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InvalidProfile(file, 0, "", "is no regular file")
    if layer == "project":  # whoever can write it may; it is for the user to trust it
        return
    if found.st_uid not in (os.getuid(), 0):
        raise InvalidProfile(file, 0, "", f"belongs to uid {found.st_uid}", "chown, or a copy")
    if found.st_mode & stat.S_IWOTH:
        raise InvalidProfile(file, 0, "", "can be written by everybody", f"chmod o-w {file}")


def decode(source: Source) -> dict[str, Any]:
    """What a file says, as tables and lists, all of it checked. Raises ``InvalidProfile``."""
    try:
        raw = tomllib.loads(source.text)
    except (ValueError, RecursionError) as error:
        said = re.sub(r" ?\(at .*\)$", "", str(error)).strip()
        at = re.search(r"\(at line (\d+)", str(error))
        last = source.text.rstrip().count("\n") + 1
        line = int(at[1]) if at else last if "end of document" in str(error) else 0
        raise InvalidProfile(
            source.file, line, "", f"is no TOML: {said[:1].lower()}{said[1:]}"
        ) from None
    known = list(Document.__struct_fields__)
    for name in raw:  # here, because what the decoder says of these ends with a name of anybody's
        if name not in known:
            raise invalid(source, (name,), "there is no such key", near(name, known))
    try:
        msgspec.convert(raw, Document)
    except msgspec.ValidationError as error:
        from sandbox.profile.explain import explained

        raise explained(source, raw, str(error)) from None
    return raw
