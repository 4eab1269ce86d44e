"""Beginnings of commands that may be approved for all that begins so, and those that may not.

A prefix says nothing about the words behind it. So none may end where the next word is a program,
or code, or chooses what is done: an interpreter, a wrapper, a program of sub-commands without one.
The tables are the truth, with the reason beside each row. They keep a person from giving more than
was meant, and nothing else: `npm test` runs what the project says, approved or not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sandbox.command.dangers import FETCHERS, INTERPRETERS
from sandbox.command.options import names
from sandbox.command.wrappers import SHELLS, WRAPPERS

__all__ = ["ALONE", "NEVER", "SUBCOMMANDS", "banned", "prefix_of"]


def _rows(why: str, programs: str) -> dict[str, str]:
    return dict.fromkeys(names(programs), why)


_CODE = "an interpreter: what follows is code, or a file of it"
_SHELL = "a shell: what follows is code, or a file of it"
_FURTHER = "starts whatever program is named behind it"

# The program, without its version -> why no prefix begins with it.
NEVER: dict[str, str] = {
    **{name: f"{_FURTHER} ({row.why})" for name, row in WRAPPERS.items()},
    **_rows(_SHELL, " ".join(SHELLS)),
    **_rows(_SHELL, "tcsh csh rbash pwsh powershell nu elvish xonsh"),
    **_rows("of a shell: its words are code", "eval source . trap"),
    **_rows(_CODE, "py pyw pythonw nodejs ts-node tsx java jshell groovy scala kotlin julia"),
    **_rows(_CODE, "awk gawk mawk nawk sed ed ex m4 expect elixir iex erl escript runghc ghci"),
    **_rows(_CODE, "ipython jupyter irb sbcl clojure bb janet swipl octave matlab r rscript ocaml"),
    **_rows("an editor, which runs commands", "vi vim nvim emacs nano micro helix hx"),
    **_rows("a debugger, which runs commands", "gdb lldb dlv pdb rr valgrind perf dtrace"),
    **_rows("its client runs commands of a shell", "sqlite3 sqlite psql mysql mariadb mongosh"),
    **_rows("fetches a package and runs it", "npx bunx uvx pipx pnpx dlx"),
    **_rows(_FURTHER, "find fd fdfind entr tmux screen at batch systemd-run direnv mise asdf"),
    **_rows("installs or starts what a container or a service runs",
            "docker docker-compose podman nerdctl ctr systemctl launchctl crontab"),
    **_rows("works on another machine", "ssh scp sftp rsync mosh ansible"),
    **_rows("sends anything to anywhere", " ".join(FETCHERS)),
    **_rows("removes or overwrites what is named behind it", "rm rmdir unlink shred dd truncate"),
    **_rows("has options that start programs", "tar zip"),
}  # fmt: skip


class _Row(NamedTuple):
    """A program of sub-commands.

    ``never``: those that run what is named behind them, or change what later ones run.
    ``deeper``: those of which the next word decides.
    """

    never: frozenset[str] = frozenset()
    deeper: frozenset[str] = frozenset()


def _sub(never: str = "", deeper: str = "") -> _Row:
    return _Row(names(never), names(deeper))


# Programs whose sub-command, or target, decides: a prefix has one, and a second where it is deeper.
SUBCOMMANDS: dict[str, _Row] = {
    "git": _sub("config bisect rebase filter-branch difftool mergetool daemon credential var",
                "remote submodule stash worktree notes lfs"),
    "npm": _sub("exec x explore config set init create", "run run-script"),
    "pnpm": _sub("exec dlx create config node env", "run"),
    "yarn": _sub("exec dlx create config node", "run workspace"),
    "bun": _sub("x exec create repl", "run"),
    "deno": _sub("run eval repl x compile install jupyter serve", "task"),
    "pip": _sub("config"),
    "uv": _sub("run tool x", "pip"),
    "poetry": _sub("run shell config self"),
    "pipenv": _sub("run shell"),
    "hatch": _sub("run shell config"),
    "pdm": _sub("run config plugin"),
    "rye": _sub("run config"),
    **dict.fromkeys(("conda", "mamba", "micromamba"), _sub("run config shell activate")),
    "bundle": _sub("exec config console"),
    "gem": _sub("exec"),
    "composer": _sub("exec config run-script global"),
    "cargo": _sub("config"),
    "rustup": _sub("run", "toolchain target component"),
    "go": _sub("run generate tool env", "mod"),
    "swift": _sub("repl", "package"),
    "dart": _sub("run"),
    "dotnet": _sub("exec script tool run"),
    "mix": _sub("run eval"),
    "nix": _sub("run shell develop repl eval"),
    **dict.fromkeys(names("make gmake just task rake ninja meson bazel mvn gradle gradlew sbt ant"),
                    _sub("exec:java exec:exec run")),
    "kubectl": _sub("exec run debug cp attach proxy config", "get create"),
    "gh": _sub("alias extension auth api config secret codespace", "pr issue repo run release"),
    "aws": _sub("configure", "s3 ec2 iam ecs lambda"),
    "gcloud": _sub("auth config", "compute run container"),
    "terraform": _sub("console"),
}  # fmt: skip

# Programs without sub-commands that check a project: each may be a prefix by its name alone.
ALONE = names("pytest mypy pyright tsc eslint prettier black isort flake8 jest vitest rspec ctest")

_WORD = re.compile(r"[A-Za-z][\w:-]*", re.ASCII)
_VERSION = re.compile(r"[-.\d]+$")


def banned(words: Sequence[str]) -> str:
    """Why nothing that is remembered for long may begin with these words; empty if it may."""
    name = _name(words)
    if name in NEVER:
        return f"{name}: {NEVER[name]}"
    if INTERPRETERS.fullmatch(name):
        return f"{name}: {_CODE}"
    row = SUBCOMMANDS.get(name)
    if row is None:
        return "" if name else "there is no command"
    wanted = 2 if words[1:2] and words[1] in row.deeper else 1
    if not all(_WORD.fullmatch(word) for word in words[1 : 1 + wanted]) or len(words) <= wanted:
        return f"{' '.join(words[:wanted])}: the word behind it decides what is done"
    if words[1] in row.never:
        return f"{name} {words[1]}: runs what is named behind it, or changes what others run"
    return ""


def prefix_of(words: Sequence[str]) -> tuple[str, ...] | None:
    """The beginning of a command that may be approved for all commands that begin so, or None.

    It is the program with its sub-command; of a program that the tables do not have, the program
    with its first operand.
    """
    if banned(words):
        return None
    name = _name(words)
    row = SUBCOMMANDS.get(name)
    if row is not None:
        return tuple(words[: 3 if words[1] in row.deeper else 2])
    if name in ALONE:
        return tuple(words[:1])
    return tuple(words[:2]) if len(words) > 1 and words[1][:1] not in ("-", "") else None


def _name(words: Sequence[str]) -> str:
    """The name of a program as the tables have it: without directories, version, and case."""
    name = (words[0] if words else "").rpartition("/")[2].casefold()
    for one in (name, _VERSION.sub("", name), name.removesuffix(".exe")):
        if one in NEVER or one in SUBCOMMANDS or one in ALONE or INTERPRETERS.fullmatch(one):
            return one
    return name
