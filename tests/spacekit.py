"""What the bodies of `tests/spaces/` share: a sandbox in namespaces, and attempts in and out of it.

An attempt is a Python expression. The same program tries it inside and, as the same user, outside:
what it does there says that it could have worked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox import Sandbox, SandboxPolicy, workspace_write

MARK = "SANDCORE_SPACE_MARK"
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
PROGRAM = """
import ctypes, errno, fcntl, json, os, resource, signal, socket, struct, sys
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
def call(number, *args):
    words = [ctypes.c_ulong(a & (2**64 - 1)) if isinstance(a, int) else a for a in args]
    result = LIBC.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
def read(path):
    with open(path, "rb") as file:
        return file.read()
def write(path, flags=0, data=b"x"):
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    os.write(fd, data)
    os.close(fd)
A = sys.argv[2:]
found = {}
for name, act in json.loads(sys.argv[1]).items():
    try:
        eval(act)
        found[name] = "ok"
    except OSError as error:
        found[name] = errno.errorcode.get(error.errno, str(error.errno))
print(json.dumps(found))
"""


@contextmanager
def space(w: Path, policy: SandboxPolicy | None = None) -> Iterator[Sandbox]:
    """A sandbox in namespaces, whose workspace is `w`; anything weaker is an error."""
    given = policy if policy is not None else workspace_write(w)
    with Sandbox(given.with_require("namespaces"), workspace=w) as made:
        assert made.enforcement.isolation == "namespaces"
        yield made


def words(acts: Mapping[str, str], *arguments: Any) -> list[str]:
    """The command that tries these; they see the arguments as the list `A` of texts."""
    return [PYTHON, "-I", "-S", "-c", PROGRAM, json.dumps(acts), *map(str, arguments)]


def inside(box: Sandbox, acts: Mapping[str, str], *arguments: Any) -> dict[str, str]:
    """What came of each inside: "ok", or the errno's name."""
    result = box.run(words(acts, *arguments))
    assert result.ok, (result.outcome, result.text)
    found: dict[str, str] = json.loads(result.out)
    return found


def outside(acts: Mapping[str, str], *arguments: Any) -> dict[str, str]:
    """What came of each on the host."""
    done = subprocess.run(words(acts, *arguments), capture_output=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def all_of(acts: Mapping[str, str], result: str) -> dict[str, str]:
    """One result for each."""
    return dict.fromkeys(acts, result)


def program(code: str, *arguments: Any) -> list[str]:
    """The command that runs a Python program."""
    return [PYTHON, "-I", "-S", "-c", code, *map(str, arguments)]


def new_mark() -> str:
    """A word that no other process knows."""
    return uuid.uuid4().hex


def marked(mark: str) -> list[int]:
    """Living processes of the host whose environment has the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            block = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if state not in "ZX" and wanted in block.split(b"\0"):
            found.append(int(name))
    return found


def helpers(of: int | None = None) -> list[int]:
    """The helper of a process and its lanes: the root first."""
    found = []
    parents = [of if of is not None else os.getpid()]
    while parents:
        parent = parents.pop()
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                text = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            if int(text.rpartition(")")[2].split()[1]) == parent and "(sandcore-helper)" in text:
                found.append(int(name))
                parents.append(int(name))
    return found
