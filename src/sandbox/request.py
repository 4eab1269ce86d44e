"""A command as a person writes it, made ready for the kernel: words, candidates, directory.

Everything that can be refused before a process exists is refused here, with the culprit's name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox.errors import InvalidArgument, WorkingDirectoryError

__all__ = ["Args", "candidates", "encode_words", "working_directory"]

Args = str | Sequence[Any]

# Agents write for bash. Never as a login shell: that rebuilds PATH and runs files of HOME.
_SHELLS = ("/bin/bash", "/bin/sh")
# These name whatever process looks at them: the helper, when it comes to executing.
_SELF = ("/proc/self/", "/proc/thread-self/")


def encode_words(args: Args) -> list[bytes]:
    """The words of a command as bytes; text is given to a shell with ``-c``.

    Raises ``InvalidArgument`` for an empty command, a word that is neither text, bytes nor a path,
    NUL, and surrogates that stand for no byte.
    """
    if isinstance(args, str):
        shell = next((path for path in _SHELLS if os.access(path, os.X_OK)), _SHELLS[-1])
        args = (shell, "-c", args)
    elif isinstance(args, bytes):
        raise InvalidArgument("args", args, "is bytes", "text for a shell, or a list of words")
    words = [_encode(index, word) for index, word in enumerate(args)]
    if not words or not words[0]:
        raise InvalidArgument("args", args, "names no program")
    if words[0].decode("utf-8", "replace").startswith(_SELF):
        raise InvalidArgument("args[0]", args[0], "means another file for each process")
    return words


def _encode(index: int, word: Any) -> bytes:
    try:
        encoded = os.fsencode(word)
    except TypeError:
        kind = type(word).__name__
        raise InvalidArgument(
            f"args[{index}]", word, f"is {kind}, neither text nor a path"
        ) from None
    except UnicodeEncodeError:
        raise InvalidArgument(f"args[{index}]", word, "contains a surrogate") from None
    if b"\0" in encoded:
        raise InvalidArgument(f"args[{index}]", word, "contains a NUL character")
    return encoded


def candidates(program: bytes, env: Mapping[str, str]) -> tuple[bytes, ...]:
    """What to try to execute, in order: the command's own PATH counts, not the caller's."""
    if b"/" in program:
        return (program,)
    path = os.fsencode(env.get("PATH", ""))
    # An empty entry of PATH means the working directory; a sandboxed one is written by strangers.
    found = tuple(place + b"/" + program for place in path.split(b":") if place)
    return found or (program,)


def working_directory(cwd: Any) -> str:
    """``cwd`` as an absolute path (the caller's own for None), not resolved further.

    Raises ``WorkingDirectoryError`` when the caller's was deleted, ``InvalidArgument`` when it is
    no path.
    """
    try:
        if cwd is None:
            return os.getcwd()
        text = os.fsdecode(cwd)
        if "\0" in text or not text:
            raise InvalidArgument("cwd", cwd, "is empty or contains a NUL character")
        return text if text.startswith("/") else os.path.join(os.getcwd(), text)
    except OSError as error:
        hint = "the caller's working directory was deleted"
        raise WorkingDirectoryError("cwd", error.errno or 0, ".", hint) from None
    except (TypeError, UnicodeError):
        raise InvalidArgument("cwd", cwd, "is no path") from None
