"""What an approval is remembered for: a command in its canonical form, and where it runs.

A person approves what a command does, not how it is written: quoting and shells around one plain
command make no difference. All else does: each word, the files that its programs are, the working
directory, the policy, and what the call asks for beyond it. A script is only ever itself.
Nothing here runs anything, and only ``Context.resolve`` may look at a disk.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from sandbox.command.context import Context
from sandbox.command.dangers import harmless_redirect
from sandbox.command.options import names
from sandbox.command.parse import TEXT_MAX, Script, parse
from sandbox.command.tables import BUILTINS
from sandbox.command.words import Word
from sandbox.command.wrappers import SHELLS, WRAPPERS, script_of, unwrap
from sandbox.paths import clean
from sandbox.policy import SandboxPolicy

__all__ = ["NO_SANDBOX", "Key", "Part", "digest_of", "key_of"]

NO_SANDBOX = "no sandbox"  # among permissions: the call runs without one
_DEPTH_MAX = 8
# What a shell does itself, of whichever shell: for these no program is looked up.
_IN_SHELL = names(
    """. : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare
    dirs disown echo enable eval exec exit export false fc fg getopts hash help history jobs kill
    let local logout mapfile popd printf pushd pwd read readarray readonly return set shift shopt
    source suspend test time times trap true type typeset ulimit umask unalias unset wait"""
)


class Part(NamedTuple):
    """One plain command of a command, and the file that its program is; empty where none is."""

    words: tuple[str, ...]
    program: str


@dataclass(frozen=True, slots=True)
class Key:
    """What an approval is remembered for. Two commands with equal keys are one command.

    - ``words``: of one plain command; ``assignments`` stand before it. Else ``text`` is the exact
      text, and ``shell`` the file of the shell that reads it.
    - ``programs``: the files of the programs, as far as they are known; ``:name`` is a shell's own.
    - ``cwd``: absolute. ``policy``: its digest. ``permissions``: what the call gets beyond it.

    ``parts`` and ``lasting`` follow from these: the plain commands that it is a list or pipe of
    (none if it is anything more), and whether no command could have written any program of it.
    """

    words: tuple[str, ...]
    assignments: tuple[str, ...]
    text: str
    shell: str
    programs: tuple[str, ...]
    cwd: str
    policy: str
    permissions: tuple[str, ...]
    parts: tuple[Part, ...] = field(compare=False, repr=False)
    lasting: bool = field(compare=False, repr=False)


def key_of(
    command: str | bytes | Sequence[str | bytes],
    context: Context,
    *,
    cwd: str,
    policy: str,
    permissions: Iterable[str] = (),
    shell: str = "/bin/bash",
) -> Key:
    """The key of a command.

    - ``command``: text for ``shell``, or the words of an argv.
    - ``cwd``: the directory that it runs in, absolute; links in it are the caller's to follow.
    - ``policy``: the digest of its policy. ``permissions``: a line for each thing that the call
      gets beyond it; their order does not count.

    Raises ``InvalidPath`` for a working directory that is not absolute: the caller's fault.
    """
    reader = _Reader(context, clean(cwd))
    if isinstance(command, (str, bytes)):
        form = reader.of_text(os.fsdecode(command), context.resolve(shell) or shell, 0)
    else:
        form = reader.of_words(tuple(os.fsdecode(word) for word in command), 0)
    programs = tuple(program for program, _ in form.programs)
    # Of a script that is more than plain commands not all programs are known.
    lasting = bool(form.parts) and all(fixed for _, fixed in form.programs)
    return Key(
        form.words,
        form.assignments,
        form.text,
        form.shell,
        programs,
        reader.cwd,
        policy,
        tuple(sorted(set(permissions))),
        form.parts,
        lasting and all(word.isprintable() for part in form.parts for word in part.words),
    )


class _Form(NamedTuple):
    """A command taken apart; ``programs`` with whether no command could have written each."""

    words: tuple[str, ...]
    assignments: tuple[str, ...]
    text: str
    shell: str
    programs: tuple[tuple[str, bool], ...]
    parts: tuple[Part, ...]


class _Reader:
    """Takes one command apart."""

    def __init__(self, context: Context, cwd: str) -> None:
        self._context = context
        self.cwd = cwd

    def of_text(self, text: str, shell: str, depth: int) -> _Form:
        """Text that a shell, named by its file, is given."""
        script = _parsed(text)
        if script is None:
            return _Form((), (), text, shell, ((shell, False),), ())
        commands = [
            (tuple(word.text or "" for word in command.words), command)
            for command in script.commands
        ]
        is_known = not script.refused and all(
            word.text is not None
            for _, command in commands
            for word in (*command.words, *command.assignments)
        )
        # What a here-document says may be code, and the parser hands on only that of shells.
        is_known = is_known and "<<" not in text
        if is_known and len(commands) == 1 and not script.redirects:
            words, command = commands[0]
            if words:
                assignments = tuple(word.text or "" for word in command.assignments)
                return self.of_words(words, depth, assignments, shell)
        programs = [self._program(words, True) for words, _ in commands if words]
        parts: tuple[Part, ...] = ()
        if is_known and _is_plain(script):
            parts = tuple(
                Part(words, found[0]) for (words, _), found in zip(commands, programs, strict=True)
            )
        found = [(shell, True), *(one for words, _ in commands for one in self._chain(words, True))]
        return _Form((), (), text, shell, tuple(found), parts)

    def of_words(
        self,
        words: tuple[str, ...],
        depth: int,
        assignments: tuple[str, ...] = (),
        shell: str = "",
    ) -> _Form:
        """One plain command, ``shell`` around it or none."""
        inner = None if assignments else self._inside(words, depth)
        if inner is not None:
            return inner
        programs = self._chain(words, bool(shell))
        # Files that the environment names are run by a shell, and not without one.
        around = shell if self._context.powers else ""
        parts = () if assignments or not words else (Part(words, programs[0][0]),)
        return _Form(words, assignments, "", around, tuple(programs), parts)

    def _inside(self, words: tuple[str, ...], depth: int) -> _Form | None:
        """What ``bash -c`` and the like run, if that is all that they do."""
        context = self._context
        name = words[0].rpartition("/")[2] if words else ""
        if name not in SHELLS or depth >= _DEPTH_MAX or context.powers:
            return None
        found = script_of([Word(word, word, 0, 0) for word in words], name)
        reads_files = found.login is not None or name == "zsh"
        if found.text is None or found.strange is not None or not found.text.text:
            return None
        if (reads_files and not context.login_files_trusted) or not context.trusts(words[0]):
            return None
        form = self.of_text(found.text.text, self._program(words, False)[0], depth + 1)
        # -e and -u say nothing about one command, and much about several.
        return form if form.words or words[1:-1] == ("-c",) else None

    def _chain(self, words: Sequence[str], in_shell: bool) -> list[tuple[str, bool]]:
        """The programs of one command: its own, and those that wrappers start."""
        found = []
        rest = list(words)
        for _ in range(_DEPTH_MAX):
            if not rest or not rest[0]:
                break
            found.append(self._program(rest, in_shell))
            row = WRAPPERS.get(rest[0].rpartition("/")[2])
            if row is None:
                break
            inner = unwrap([Word(word, word, 0, 0) for word in rest], row)
            rest, in_shell = [word.text or "" for word in inner.words], False
        return found

    def _program(self, words: Sequence[str], in_shell: bool) -> tuple[str, bool]:
        """The file of the program that words begin with, and whether no command can change that."""
        name = words[0]
        if in_shell and name in _IN_SHELL:
            return f":{name}", name in BUILTINS
        places = [name] if "/" in name else [f"{above}/{name}" for above in self._context.path]
        for path in places:
            if path[:1] != "/":
                path = f"{self.cwd}/{path.removeprefix('./')}"
            target = self._context.resolve(path)
            if target:
                return target, self._context.trusts(name)
        return "", False


def _parsed(text: str) -> Script | None:
    """The commands of a text that a person can read and the parser may be given."""
    if len(text) > TEXT_MAX or not text.replace("\n", "").replace("\t", "").isprintable():
        return None
    return parse(text) if len(text.encode()) <= TEXT_MAX else None


def _is_plain(script: Script) -> bool:
    """Whether a script is plain commands in lists and pipes, with harmless redirections."""
    return all(command.words and not command.assignments for command in script.commands) and all(
        one.target.text is not None
        and harmless_redirect(one.descriptor, one.operator, one.target.text)
        for one in script.redirects
    )


def digest_of(policy: SandboxPolicy, secret: bytes = b"") -> str:
    """SHA-256, in hexadecimal, of all that a policy says; the same in every process.

    Values of variables that it sets may be short secrets, which could be found again by trying. So
    only their names count, unless there is a ``secret`` that who reads the digest has not: then
    the values count too, by their HMAC under it. What is written down for others takes none.
    """
    said: dict[str, Any] = {
        item.name: getattr(policy, item.name) for item in fields(policy) if item.init
    }
    del said["entries"], said["within"]
    layers = [sorted([e.path, e.special or "", e.access] for e in one) for one in policy.layers]
    environment = asdict(policy.environment)
    pairs = environment["set"]
    environment["set"] = [name for name, _ in pairs]
    if secret:
        environment["values"] = hmac.new(secret, _canonical(pairs), "sha256").hexdigest()
    program = policy.extra_filter
    said |= {
        "layers": layers,
        "environment": environment,
        "limits": asdict(policy.limits),
        "extra_filter": program and hashlib.sha256(program).hexdigest(),
    }
    return hashlib.sha256(_canonical(said)).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
