"""What has to be known about where a command will run, to say anything about it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox.command.git import HELPERS_OFF
from sandbox.command.programs import Programs, is_outside, places_of
from sandbox.command.rules import Rules
from sandbox.errors import InvalidArgument
from sandbox.paths import clean

__all__ = ["Context"]

# Variables with which a program that only reads does more, each group with its reason.
_POWERS = re.compile(
    r"LD_\w+|DYLD_\w+"  # the loader runs what they name
    r"|BASH_ENV|ENV|BASH_FUNC_.*|BASHOPTS|SHELLOPTS|ZDOTDIR|FPATH|PS4|IFS|PROMPT_COMMAND"  # shells
    r"|GIT_\w+"  # git: helpers, other repositories
    r"|RIPGREP_CONFIG_PATH|GREP_OPTIONS"  # options from a file or a variable
    r"|GCONV_PATH|LOCPATH|NLSPATH|TERMINFO|TERMCAP|HOSTALIASES|GETCONF_DIR|MAGIC"  # code and data
    r"|PERL5\w+|PYTHON(?:PATH|STARTUP|HOME)|RUBYOPT|NODE_OPTIONS|JQ_LIBRARY_PATH|AWKPATH"
    r"|AWKLIBPATH|POSIXLY_CORRECT"
)


@dataclass(frozen=True, slots=True)
class Context:
    """Where a command will run.

    - ``path``: the directories of PATH that the command will have, in their order.
    - ``writable``: directories that commands may write, or may have written.
    - ``environment``: names of the variables that it will have.
    - ``rules``: the user's.
    - ``git_helpers_off``: a promise that no program runs that a repository names: see ``git``.
    - ``login_files_trusted``: a promise that no command can write the start-up files of a login
      shell (``bash -lc``), nor of zsh.
    - ``resolve``: where an absolute path leads, links followed, if that is a file that may be
      executed, else ``""``. It is asked about the words of commands; the default looks at the disk.
    - ``follow``: where a directory leads; asked once, about those of ``path`` and ``writable``.

    Raises ``InvalidPath`` or ``InvalidArgument``: the caller's fault.
    """

    path: tuple[str, ...] = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin",
                             "/bin")  # fmt: skip
    writable: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)
    git_helpers_off: bool = False
    login_files_trusted: bool = False
    resolve: Callable[[str], str] = field(default_factory=Programs, compare=False)
    follow: Callable[[str], str] = field(default=os.path.realpath, compare=False)
    _places: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _directories: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _powers: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _found: dict[str, str] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("path", "writable", "environment"):
            value = getattr(self, name)
            if isinstance(value, (str, bytes)):
                raise InvalidArgument(name, value, "must be a list, not one text")
            if not all(isinstance(item, str) for item in value):
                raise InvalidArgument(name, value, "must be a list of texts")
            object.__setattr__(self, name, tuple(value))
        roots = [clean(root) for root in self.writable]
        places = places_of([*roots, *map(self.follow, roots)])
        trusted = [
            is_outside(above, places) and is_outside(self.follow(above), places)
            for above in self.path
        ]
        known = self.path[: trusted.index(False) if False in trusted else len(trusted)]
        powers = tuple(
            name
            for name in self.environment
            if _POWERS.fullmatch(name) and not (self.git_helpers_off and name in HELPERS_OFF)
        )
        object.__setattr__(self, "_places", places)
        # What comes behind a directory that commands can write is found by their leave.
        object.__setattr__(self, "_directories", known)
        object.__setattr__(self, "_powers", powers)

    @property
    def powers(self) -> tuple[str, ...]:
        """Those of ``environment`` with which programs that only read do more."""
        return self._powers

    def trusts(self, word: str) -> bool:
        """Whether the program that ``word`` starts is one that no command could have put there."""
        found = self._found.get(word)
        # In the directories before it only the machine's owner can have put another since.
        if found is not None and self.resolve(found):
            return True
        paths = [word] if "/" in word else [f"{above}/{word}" for above in self._directories]
        for path in paths:
            if not is_outside(path, self._places):
                return False
            target = self.resolve(path)
            if target:
                if not is_outside(target, self._places):
                    return False
                self._found[word] = path
                return True
        return False
