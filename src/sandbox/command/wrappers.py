"""Programs that start another program: where its words begin, and whether it runs as if alone.

A wrapper whose options are all in the table is taken off, and what is inside is judged. Anything
else is taken off as well as can be, so that what is inside is judged for danger, and the whole is
never called safe.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sandbox.command.options import names
from sandbox.command.verdict import Reason
from sandbox.command.words import Word

__all__ = ["SHELLS", "WRAPPERS", "Inner", "Wrapper", "script_of", "unwrap"]

SHELLS = names("sh bash dash ash zsh ksh mksh fish")
_KNOWN_SHELLS = names("sh bash dash ash zsh")  # whose quoting parse.py knows
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.S)


class Wrapper(NamedTuple):
    """A wrapper's row.

    ``letters``, ``long``: options without a value; ``valued``, ``long_valued``: with one.
    ``operands``: of its own, before the program. ``assigns``: NAME=VALUE may come first. ``text``:
    letters whose value is shell text. ``sheds``: options known only to find what is behind them:
    they take variables away, and so what others rely on. ``reason``: None where the program runs
    as if alone.
    """

    why: str
    letters: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    operands: int = 0
    assigns: bool = False
    text: str = ""
    joins: bool = False
    sheds: frozenset[str] = frozenset()
    reason: Reason | None = None


def _row(why: str, letters: str = "", valued: str = "", long: str = "", **more: object) -> Wrapper:
    """A row; ``long`` are names with blanks between them, those with a value end in ``=``."""
    whole = [f"--{name}" for name in names(long)]
    plain = frozenset(name for name in whole if name[-1] != "=")
    valued_names = frozenset(name[:-1] for name in whole if name[-1] == "=")
    return Wrapper(why, letters, valued, plain, valued_names, **more)  # type: ignore[arg-type]


_ROOT = Reason.PRIVILEGES
_OTHER = Reason.WRAPPER

WRAPPERS: dict[str, Wrapper] = {
    "env": _row("changes the environment", "iv", "u", "ignore-environment unset=",
                assigns=True, text="S", sheds=names("i u ignore-environment unset")),
    "timeout": _row("ends it after a time", "v", "ks",
                    "foreground preserve-status verbose kill-after= signal=", operands=1),
    "nice": _row("lowers its priority", "0123456789", "n", "adjustment="),
    "ionice": _row("lowers its priority", "t", "cn", "ignore class= classdata="),
    "stdbuf": _row("changes its buffers", "", "ioe", "input= output= error="),
    "time": _row("takes its time; -o writes", "pv"),
    "command": _row("of a shell: no function of that name; -p has another PATH"),
    "nohup": _row("writes nohup.out", reason=_OTHER),
    "setsid": _row("outlives the shell", "cfw", "", "ctty fork wait", reason=_OTHER),
    "xargs": _row("adds words that are not known", "0rtpxo", "adEIiLlnPs",
                  "null no-run-if-empty verbose interactive exit open-tty max-args= max-procs="
                  " max-lines= max-chars= delimiter= arg-file= replace=", reason=_OTHER),
    "parallel": _row("adds words that are not known", "0kqXm", "jNLnIaP", "jobs=",
                     joins=True, reason=_OTHER),
    "exec": _row("of a shell: in the shell's place", "cl", "a", reason=_OTHER),
    "builtin": _row("of a shell: the builtin", reason=_OTHER),
    "noglob": _row("of zsh", reason=_OTHER),
    "nocorrect": _row("of zsh", reason=_OTHER),
    "coproc": _row("of a shell: in the background", reason=_OTHER),
    "busybox": _row("a program of many", reason=_OTHER),
    "toybox": _row("a program of many", reason=_OTHER),
    "watch": _row("again and again", "bcdegtx", "n", "interval=", joins=True, reason=_OTHER),
    "flock": _row("locks a file", "eFnosux", "wEc", operands=1, text="c", reason=_OTHER),
    "script": _row("records a terminal", "aefq", "cIOBT", "command= quiet", text="c",
                   reason=_OTHER),
    "strace": _row("traces it; -o writes", "cCdfhiqrtTvVxy", "abeEIoOpPsSuX", reason=_OTHER),
    "ltrace": _row("traces it; -o writes", "cCfhiLrStTV", "aeFlnopsuwx", reason=_OTHER),
    "taskset": _row("binds it to processors", "acp", operands=1, reason=_OTHER),
    "chrt": _row("changes its scheduling", "abdfimoprv", "TPD", operands=1, reason=_OTHER),
    "prlimit": _row("changes its limits", reason=_OTHER),
    "setarch": _row("changes what the kernel says it is", "BFILRSTXZ3v", operands=1,
                    reason=_OTHER),
    "bwrap": _row("another sandbox", reason=_OTHER),
    "firejail": _row("another sandbox", reason=_OTHER),
    "sudo": _row("as another user", "AbEHiKklnPSsVv", "CDghpRrTtUu",
                 "preserve-env login non-interactive shell user= group= chdir= host= prompt=",
                 assigns=True, reason=_ROOT),
    "doas": _row("as another user", "nsL", "aCu", reason=_ROOT),
    "pkexec": _row("as another user", "", "", "user= disable-internal-agent", reason=_ROOT),
    "su": _row("as another user", "lmp-", "cgGsw", "command= login shell= group=", operands=1,
               text="c", reason=_ROOT),
    "runuser": _row("as another user", "lmp", "cgGsuw", "command= user= group=", text="c",
                    reason=_ROOT),
    "setpriv": _row("with other rights", reason=_ROOT),
    "chroot": _row("in another root", "", "", "userspec= groups= skip-chdir", operands=1,
                   reason=_ROOT),
    "unshare": _row("in other namespaces", "cfmnpruUiCT", "GRSw",
                    "fork map-root-user mount pid net", reason=_ROOT),
    "nsenter": _row("in other namespaces", "aFmnpruUiCTZ", "GrStw", "target= all",
                    reason=_ROOT),
}  # fmt: skip


class Inner(NamedTuple):
    """What a wrapper starts: its words, the assignments before it, text for a shell.

    ``strange``: the first word of the wrapper's that its table does not have.
    """

    words: list[Word]
    assignments: list[Word]
    texts: list[Word]
    strange: Word | None


def unwrap(words: list[Word], row: Wrapper) -> Inner:
    """Takes a wrapper off; ``words`` begin with its name."""
    at, strange = 1, None
    assignments: list[Word] = []
    texts: list[Word] = []
    operands = row.operands
    ended = False
    while at < len(words):
        text = words[at].text
        if text is not None and not ended and text in ("--", "-"):
            ended = text == "--"
            if text == "-" and strange is None:  # env - has no environment
                strange = words[at]
        elif text is not None and not ended and text.startswith("-"):
            taken, known = _option(text, row)
            value = words[at + taken - 1] if at + taken <= len(words) else words[at]
            if text[:2] != "--" and set(text[1:]) & set(row.text):
                texts.append(_rest_of(words[at], value, row.text))
                known = False
            if not known and strange is None:
                strange = words[at]
            at += taken - 1
        elif text is not None and row.assigns and _ASSIGNMENT.fullmatch(text):
            assignments.append(words[at])
        elif operands:
            operands -= 1
            ended = ended or row.reason is None  # their options end here
        else:
            break
        at += 1
    return Inner(words[at:], assignments, texts, strange)


def _option(text: str, row: Wrapper) -> tuple[int, bool]:
    """How many words an option takes, and whether the table has it."""
    if text.startswith("--"):
        name, mark, _ = text.partition("=")
        known = name[2:] not in row.sheds
        if name in row.long_valued:
            return (1 if mark else 2), known
        return 1, known and name in row.long and not mark
    known = True
    for index, letter in enumerate(text[1:], 2):
        known &= letter not in row.sheds
        if letter in row.valued or letter in row.text:
            return (2 if index == len(text) else 1), known
        if letter not in row.letters:
            return 1, False
    return 1, known


def _rest_of(option: Word, value: Word, letters: str) -> Word:
    """The text that an option has as its value, joined or in the next word."""
    if value is not option:
        return value
    text = option.text or ""
    at = min(text.index(letter) for letter in letters if letter in text)
    return option._replace(text=text[at + 1 :])


class _Shell(NamedTuple):
    """The command line of a shell: the text that it runs, and what is not known about it."""

    text: Word | None
    strange: Word | None
    login: Word | None
    reads_input: bool


def script_of(words: list[Word], name: str) -> _Shell:
    """What a shell would run; ``words`` begin with its name."""
    strange = None if name in _KNOWN_SHELLS else words[0]
    login = None
    wants_text = reads_input = False
    at = 1
    while at < len(words):
        word = words[at]
        text = word.text
        if text is None or text[:1] not in ("-", "+") or len(text) < 2:
            break
        at += 1
        if text == "--":
            break
        letters = "" if text[:2] == "--" else text[1:]
        wants_text |= "c" in letters
        reads_input |= "s" in letters
        if "l" in letters or text == "--login":
            login = word
        takes = letters[-1:] in ("o", "O") or text in ("--rcfile", "--init-file")
        if takes and at < len(words):
            if words[at].text != "pipefail":
                strange = strange or words[at]
            at += 1
        if not (text == "--login" or (letters and set(letters) <= set("ceulo"))) or text[0] == "+":
            strange = strange or word
    rest = words[at:]
    if wants_text:
        strange = strange or (rest[1] if len(rest) > 1 else None)
        return _Shell(rest[0] if rest else None, strange, login, False)
    reads_input |= not rest or rest[0].text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
    return _Shell(None, rest[0] if rest else strange, login, reads_input)
