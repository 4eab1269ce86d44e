"""What went wrong between clone and exec, in words that name the culprit and the mend.

Only looks at files, after the fact, from outside: the kernel's errno decides what is raised, this
only finds out which path it was about.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from errno import E2BIG

from sandbox.errors import StartError, start_error

__all__ = ["explain_start"]

_TOO_LONG = "give what is long as input, or in a file"
_PROGRAMS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")  # and Mach-O, alone and fat
_ALLOWED = "the policy may not allow reading it: with_read(...)"


def explain_start(
    stage: str, errno: int, detail: int, programs: Sequence[bytes], name: str, cwd: str
) -> StartError:
    """The exception for a failed stage.

    ``detail`` is the candidate that gave the errno, ``programs`` all candidates, ``name`` what the
    caller asked for, ``cwd`` where it was to run.
    """
    if stage == "cwd":
        return start_error(stage, errno, cwd, _about_directory(cwd))
    if stage != "exec":
        return start_error(stage, errno)
    tried = os.fsdecode(programs[detail]) if 0 <= detail < len(programs) else name
    path = os.path.join(cwd, tried)
    existing = [p for p in map(os.fsdecode, programs) if os.path.lexists(os.path.join(cwd, p))]
    if not existing:
        where = "" if "/" in name else "it is in no directory of the command's PATH"
        if " " in name:
            where = "a command line is not one word: give its words one by one, or bash -c '...'"
        return start_error(stage, errno, name, where)
    if not os.path.lexists(path):
        path = os.path.join(cwd, existing[0])
    about = _TOO_LONG if errno == E2BIG else _about_program(path)
    return start_error(stage, errno, path, about)


def _about_directory(path: str) -> str:
    if not os.path.exists(path):
        return "it does not exist"
    if not os.path.isdir(path):
        return "it is not a directory"
    if path.startswith("/tmp/"):
        return "it may not be entered, or /tmp is the sandbox's own: with_read(...) shows it there"
    return "it may not be entered"


def _about_program(path: str) -> str:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return "it is a link that leads nowhere"
    if stat.S_ISDIR(mode):
        return "it is a directory"
    if not mode & 0o111:
        return f"it has no execute permission: chmod +x {path}"
    interpreter = _interpreter(path)
    if interpreter is None:
        return "it is neither a program nor a script with a first line #!"
    if interpreter and not os.path.exists(interpreter):
        return f"its interpreter {interpreter} does not exist"
    return _ALLOWED


def _interpreter(path: str) -> str | None:
    """The interpreter that a script names; empty for a program, None for neither."""
    try:
        with open(path, "rb") as file:
            start = file.read(256)
    except OSError:
        return ""
    if start.startswith(_PROGRAMS):
        return ""
    if not start.startswith(b"#!"):
        return None
    words = start[2:].split(b"\n", 1)[0].split()
    return os.fsdecode(words[0]) if words else None
