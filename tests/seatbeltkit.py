"""Profiles for tests: made without a disk, asked by the evaluator, and made wrong on purpose."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox.backends.sbpl import Asked, Evaluator
from sandbox.backends.seatbelt import Profile, compile_profile
from sandbox.entries import Access
from sandbox.paths import ancestors
from sandbox.policy import Network, SandboxPolicy
from sandbox.resolve import Place, ResolvedPolicy, needed

HOME = "/Users/me"
WRITE = Access.WRITE

# A `sandbox-exec` that confines nothing: it takes the arguments of the real one, and executes.
STAND_IN = """#!/usr/bin/python3 -I
import os, signal, sys
{first}
words = sys.argv[1:]
assert words[0] == "-p" and words[1].startswith("(version 1)"), words[:1]
words = words[2:]
while words[0].startswith("-D"):
    assert "=" in words[0]
    words = words[1:]
assert words[0] == "--"
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    os.execvp(words[1], words[1:])
except OSError as error:
    sys.stderr.write(f"sandbox-exec: execvp() of '{{words[1]}}' failed: {{error.strerror}}\\n")
    sys.exit(71)
"""


def stand_in(place: Path, first: str = "") -> str:
    """The path of one; ``first`` is what it does before anything else."""
    path = place / "sandbox-exec"
    path.write_text(STAND_IN.format(first=first))
    path.chmod(0o755)
    return str(path)


def settled(
    table: Mapping[str, Access],
    *,
    protected: tuple[str, ...] = (),
    patterns: tuple[str, ...] = (),
    home: str = HOME,
    tmp: str = "",
    network: Network = "none",
    sockets: tuple[str, ...] = (),
) -> ResolvedPolicy:
    """A policy with real paths, as ``resolve`` would give it for a disk where all of them are."""
    # A setting that is granted by name is kept, whatever is said above it: as the backend does.
    begin = (f"{home}/.", f"{home}/Library/")
    settings = {path for path in table if f"{path}/".startswith(begin) and table[path] is WRITE}
    paths = sorted(needed(dict(table)) | settings)
    writes = [path for path in paths if table[path] is WRITE]
    roots = [path for path in table if table[path] is WRITE]
    lifted = {above for path in roots for above in ancestors(path)}
    names = [f"{root.rstrip('/')}/{name}" for root in roots for name in protected]
    denied = [Place(path, Access.DENY, "secret") for path in paths if table[path] is Access.DENY]
    return ResolvedPolicy(
        policy=SandboxPolicy(network=network, protected=protected),
        places=tuple(Place(path, table[path]) for path in paths),
        writable=tuple(writes),
        denied=tuple(denied),
        protected=tuple(path for path in names if path not in lifted),
        links=(),
        workspace="",
        home=home,
        tmp=tmp,
        patterns=patterns,
        sockets=sockets,
    )


def evaluator(profile: Profile) -> Evaluator:
    return Evaluator(profile.text, dict(profile.parameters))


def asker(resolved: ResolvedPolicy) -> Callable[..., bool]:
    """``ask(operation, path)`` of the right profile."""
    return asks(compile_profile(resolved))


def asks(profile: Profile) -> Callable[..., bool]:
    made = evaluator(profile)

    def ask(operation: str, path: str = "", **more: object) -> bool:
        verdict = made.ask(Asked(operation, path, **more))  # type: ignore[arg-type]
        assert verdict.known, f"whether the default covers {operation} is not known"
        return verdict.allowed

    return ask


def without(profile: Profile, is_left_out: Callable[[str, str, str], bool]) -> Profile:
    """A wrong profile: filters are left out by their word, their parameter's name and its value."""
    values = dict(profile.parameters)

    def keep(found: re.Match[str]) -> str:
        return "" if is_left_out(found[1], found[2], values[found[2]]) else found[0]

    text = re.sub(r'\((\w+) \(param "(\w+)"\)\)', keep, profile.text)
    text = re.sub(r"\(require-not \(require-any\s*\)\)", "", text)
    assert text != profile.text, "nothing was left out"
    return profile._replace(text=text)


def without_lines(profile: Profile, start: str) -> Profile:
    """A wrong profile: rules of one line that begin like this are left out."""
    lines = profile.text.splitlines()
    kept = [line for line in lines if not line.startswith(start)]
    assert len(kept) < len(lines), "nothing was left out"
    return profile._replace(text="\n".join(kept))
