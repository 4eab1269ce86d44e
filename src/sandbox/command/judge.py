"""One simple command after another, and the causes that each gives: see ``assess``."""

from __future__ import annotations

import re

from sandbox.command.context import Context
from sandbox.command.dangers import (
    FETCHERS,
    INTERPRETERS,
    above_secrets,
    credential,
    dangers,
    disk_device,
    harmless_redirect,
    of_processes,
    plain,
    reads_code,
)
from sandbox.command.git import git_danger, git_plain, git_strange, git_wants_helpers
from sandbox.command.options import names
from sandbox.command.parse import TEXT_MAX, Redirect, Simple, parse
from sandbox.command.tables import BUILTINS, CHECKS
from sandbox.command.verdict import Cause, Reason
from sandbox.command.words import Word
from sandbox.command.wrappers import SHELLS, WRAPPERS, script_of, unwrap

__all__ = ["Judge"]

_DEPTH_MAX = 8
_COMMANDS_MAX = 500
_PARSED_MAX = 4 * TEXT_MAX  # characters, of a text and of all that is in it
_CAUSES_MAX = 100  # further ones only of reasons that are new
# Programs whose words, or input, are code for a shell.
_RUNS_TEXT = SHELLS | names("eval source . trap")
_VERSIONS = ("--version", "-V")
_TELLS_VERSION = names("python python3 node gcc g++ clang cc bash")
# Variables that change no more than how things look.
_HARMLESS = re.compile(
    r"(?:LC_\w+|LANG|NO_COLOR|CLICOLOR|FORCE_COLOR|COLUMNS|LINES|CI)=[\w.@-]*", re.ASCII
)
_MOVES = names("cd chdir pushd popd")  # to a directory of which nothing is promised
_LONG = 1000  # characters of a directory
_EXEC = names("-exec -execdir -ok -okdir")


class Judge:
    """The causes of one command, as they are found."""

    def __init__(self, context: Context) -> None:
        self.causes: list[Cause] = []
        self._context = context
        self._commands = self._parsed = 0
        self._moves = 0  # how often what is looked at changed its directory, and to which
        self._directory = "."
        self._seen: set[str] = set()
        if context.powers:
            self._add(Reason.ENVIRONMENT, 0, 0, ", ".join(context.powers[:3]))

    def text(self, text: str, inside: Word | None, depth: int) -> None:
        """Judges shell text; ``inside``: the word that holds it, and is shown for its parts."""
        self._parsed += len(text)
        if depth > _DEPTH_MAX or self._parsed > _PARSED_MAX:
            self._word(Reason.SIZE, inside, "too many shells in each other")
            return
        script = parse(text, _RUNS_TEXT)
        for part in script.refused:
            self._at(inside, part.reason, part.start, part.end, part.detail)
        for redirect in script.redirects:
            self._redirect(redirect, inside)
        if len(script.commands) > _COMMANDS_MAX:
            self._at(inside, Reason.SIZE, 0, len(text), "too many commands")
        for command in script.commands[:_COMMANDS_MAX]:
            if inside is not None:
                command = _moved(command, inside)
            self._words(command.words)
            self._simple(command, depth, True)
        for given in script.inputs:
            if given.text is not None:
                self.text(given.text, inside or given, depth + 1)
        if inside is not None and not script.commands:
            self._word(Reason.EMPTY, inside)

    def argv(self, texts: list[str]) -> None:
        """Judges words that no shell will see."""
        words = [Word(text, text, at, at + 1) for at, text in enumerate(texts)]
        if words:
            self._words(words)
            self._simple(Simple(words, [], False, False), 0, False)

    def _words(self, words: list[Word]) -> None:
        """Judges each word by itself: once, also where one command starts another."""
        for word in words:
            if word.text is None:
                self._word(Reason.EXPANSION, word)
            text = word.raw if word.text is None else word.text
            if credential(text):
                self._word(Reason.CREDENTIALS, word, "a place of keys or passwords")
            elif of_processes(text) or (
                self._directory[:4] == "./.." and of_processes(f"../{text}")
            ):
                self._word(Reason.OPTION, word, "environments and open files of processes")

    def _simple(self, command: Simple, depth: int, in_shell: bool) -> None:
        words = command.words
        self._commands += 1
        if self._commands > _COMMANDS_MAX:
            self._span(Reason.SIZE, words, "too many commands")
            return
        for one in command.assignments:
            self._assignment(one)
        if not words or not words[0].text:
            if not command.assignments:
                self._span(Reason.PROGRAM, words)
            return
        name = words[0].text.rpartition("/")[2]
        if name in _MOVES:
            self._move(words)
        if command.fed and name in FETCHERS:
            self._span(Reason.PIPE_TO_SHELL, words, "what it fetches becomes code of a shell")
        self._dangers(name, words)
        if not self._within(name, command, depth, in_shell):
            self._program(name, words, in_shell)

    def _move(self, words: list[Word]) -> None:
        """Follows a command to another directory."""
        self._moves += 1
        to = next((word.text for word in words[1:] if word.text and word.text[0] != "-"), "/")
        self._directory = plain(to if to[0] == "/" else f"{self._directory[:_LONG]}/{to}")
        if len(self._directory) > _LONG or above_secrets(self._directory):
            self._span(Reason.OPTION, words, "what follows may read secrets by short names")

    # What a command starts.

    def _within(self, name: str, command: Simple, depth: int, in_shell: bool) -> bool:
        """Judges what a command starts in its turn; whether that is all there is to judge."""
        words = command.words
        if name in SHELLS:
            self._shell(name, command, depth, in_shell)
            return True
        texts = [word.text or "x" for word in words[1:]]
        if command.piped and INTERPRETERS.fullmatch(name) and reads_code(texts):
            self._span(Reason.PIPE_TO_SHELL, words, "runs what the pipe sends")
        if name == "find":
            self._find(command, depth, in_shell)
        if name in ("eval", "trap"):
            self._evaluated(name, words, depth)
            return True
        row = WRAPPERS.get(name)
        if row is None or _asks_where(name, words):
            return False
        if depth >= _DEPTH_MAX:
            self._span(Reason.SIZE, words, "too many wrappers")
            return True
        inner = unwrap(words, row)
        if inner.strange is not None:
            self._word(Reason.WRAPPER, inner.strange, f"{name} {row.why}")
        if row.reason is not None:
            self._word(row.reason, words[0], f"{name} {row.why}")
        trusted = self._trust(words[0], in_shell)
        if not trusted:
            self._word(Reason.UNTRUSTED_PROGRAM, words[0])
        self._rules(name, words, trusted, only_strict=True)
        for text in inner.texts:
            if text.text is not None:
                self.text(text.text, text, depth + 1)
        if row.joins and len(inner.words) == 1:
            self._joined(inner.words, depth)
        if inner.words or inner.assignments:
            rest = command._replace(words=inner.words, assignments=inner.assignments)
            # Not even "command" starts a builtin everywhere: zsh looks the name up.
            self._simple(rest, depth + 1, False)
        if not inner.words:
            self._span(Reason.PROGRAM, words)
        return True

    def _shell(self, name: str, command: Simple, depth: int, in_shell: bool) -> None:
        words = command.words
        if self._version(name, words, in_shell):
            self._span(Reason.READS, words, "tells its version")
            return
        found = script_of(words, name)
        trusted = self._trust(words[0], in_shell)
        if not trusted:
            self._word(Reason.UNTRUSTED_PROGRAM, words[0])
        if found.reads_input and command.piped:
            self._span(Reason.PIPE_TO_SHELL, words, "runs what the pipe sends")
        for word, detail in ((found.strange, ""), (found.login, "reads start-up files")):
            if word is not None and not (word is found.login and self._context.login_files_trusted):
                self._word(Reason.WRAPPER, word, detail)
        self._rules(name, words, trusted, only_strict=True)
        if name == "zsh" and not self._context.login_files_trusted:
            self._word(Reason.WRAPPER, words[0], "zsh always reads .zshenv")
        if found.text is None:
            self._span(Reason.PROGRAM, words, "a shell that runs a file or its input")
        elif found.text.text is not None:
            self.text(found.text.text, found.text, depth + 1)

    def _evaluated(self, name: str, words: list[Word], depth: int) -> None:
        """``eval`` and ``trap``: their words are text."""
        self._span(Reason.PROGRAM, words, "its words are run as text")
        self._rules(name, words, False, only_strict=True)
        self._joined(words[1:] if name == "eval" else words[1:3], depth)

    def _joined(self, words: list[Word], depth: int) -> None:
        """Judges words that become one text, as far as they are known."""
        known = [word.text for word in words if word.text is not None and word.text != "--"]
        if known:
            whole = words[0]._replace(end=words[-1].end)
            self.text(" ".join(known), whole, depth + 1)

    def _find(self, command: Simple, depth: int, in_shell: bool) -> None:
        """What ``find -exec`` starts: up to ``;`` or ``+``."""
        words = command.words
        start: int | None = None
        for at, word in enumerate(words):
            if start is not None and word.text in (";", "+"):
                self._started(command._replace(words=words[start:at]), depth, in_shell)
                start = None
            elif start is None and word.text in _EXEC:
                start = at + 1
        if start is not None:
            self._started(command._replace(words=words[start:]), depth, in_shell)

    def _started(self, command: Simple, depth: int, in_shell: bool) -> None:
        if depth >= _DEPTH_MAX:
            self._span(Reason.SIZE, command.words, "too many commands in each other")
        elif command.words:
            self._simple(command._replace(assignments=[], piped=False), depth + 1, False)

    # What a command is.

    def _program(self, name: str, words: list[Word], in_shell: bool) -> None:
        """Judges a program that starts nothing of the command's: by rules, then by the tables."""
        trusted = self._trust(words[0], in_shell)
        if self._rules(name, words, trusted):
            return
        if not trusted:
            self._word(Reason.UNTRUSTED_PROGRAM, words[0])
            return
        texts = [word.text if word.text is not None else "" for word in words[1:]]
        if name == "git":
            self._git(words, texts)
            return
        if self._version(name, words, in_shell) or _asks_where(name, words):
            self._span(Reason.READS, words)
            return
        check = CHECKS.get(name)
        if check is None:
            self._word(Reason.PROGRAM, words[0])
            return
        ask, why = check
        strange = ask(texts)
        if strange is None:
            self._span(Reason.READS, words, why)
        else:
            self._word(Reason.OPTION, words[min(strange + 1, len(words) - 1)], why)

    def _git(self, words: list[Word], texts: list[str]) -> None:
        strange = git_strange(texts)
        if strange is not None:
            at, why = strange
            self._word(Reason.OPTION, words[min(at + 1, len(words) - 1)], why)
        elif git_wants_helpers(texts) and (self._moves or not self._context.git_helpers_off):
            self._span(Reason.GIT_HELPERS, words)
        else:
            self._span(Reason.READS, words)

    def _version(self, name: str, words: list[Word], in_shell: bool) -> bool:
        asks = len(words) == 2 and words[1].text in _VERSIONS and name in _TELLS_VERSION
        return asks and self._trust(words[0], in_shell)

    def _trust(self, word: Word, in_shell: bool) -> bool:
        text = word.text or ""
        return (in_shell and text in BUILTINS) or self._context.trusts(text)

    def _rules(
        self, name: str, words: list[Word], trusted: bool, only_strict: bool = False
    ) -> bool:
        """Applies the user's rules; whether one allows the command."""
        texts = [word.text for word in words]
        rule = self._context.rules.strictest(texts, name, trusted)
        if name == "git" and (rule is None or rule.decision == "allow"):
            # Options before the sub-command hide it from no rule that is strict.
            plain = [texts[0], *git_plain([text or "" for text in texts[1:]])]
            strict = self._context.rules.strictest(plain, name, False)
            rule = strict if strict is not None and strict.decision != "allow" else rule
        if rule is None:
            return False
        if rule.decision == "allow":
            if not only_strict:
                self._span(Reason.RULE_ALLOWS, words, rule.justification)
            return not only_strict
        is_forbidden = rule.decision == "forbid"
        reason = Reason.RULE_FORBIDS if is_forbidden else Reason.RULE_ASKS
        self._span(reason, words, f"{rule.shown}: {rule.justification}")
        return False

    def _dangers(self, name: str, words: list[Word]) -> None:
        texts = [word.raw if word.text is None else word.text for word in words[1:]]
        for form in git_danger(texts) if name == "git" else dangers(name, texts):
            self._span(form.reason, words, form.why)

    def _assignment(self, word: Word) -> None:
        if not _HARMLESS.fullmatch(word.raw):
            self._word(Reason.ASSIGNMENT, word)

    def _redirect(self, redirect: Redirect, inside: Word | None) -> None:
        """A redirection: harmless to nowhere, to another output, or from a file."""
        target, operator = redirect.target, redirect.operator
        text = target.text
        start, end = target.start, target.end
        if text is None:
            self._at(inside, Reason.EXPANSION, start, end)
        elif disk_device(text) and operator != "<":
            self._at(inside, Reason.DISK, start, end, "writes to a device")
        elif not harmless_redirect(redirect.descriptor, operator, text):
            self._at(inside, Reason.REDIRECTION, start, end, operator)
        if credential(target.raw if text is None else text):
            self._at(inside, Reason.CREDENTIALS, start, end, "a place of keys or passwords")

    # Causes.

    def _add(self, reason: Reason, start: int, end: int, detail: str = "") -> None:
        cause = Cause(reason, start, end, detail)
        if self.causes and cause == self.causes[-1]:
            return
        if len(self.causes) < _CAUSES_MAX or reason not in self._seen:
            self.causes.append(cause)
            self._seen.add(reason)

    def _word(self, reason: Reason, word: Word | None, detail: str = "") -> None:
        start, end = (word.start, word.end) if word is not None else (0, 0)
        self._add(reason, start, end, detail)

    def _span(self, reason: Reason, words: list[Word], detail: str = "") -> None:
        start, end = (words[0].start, words[-1].end) if words else (0, 0)
        self._add(reason, start, end, detail)

    def _at(
        self, inside: Word | None, reason: Reason, start: int, end: int, detail: str = ""
    ) -> None:
        if inside is not None:
            start, end = inside.start, inside.end
        self._add(reason, start, end, detail)


def _moved(command: Simple, inside: Word) -> Simple:
    """A command of an inner text, at the word that holds the text."""
    start, end = inside.start, inside.end
    return command._replace(
        words=[word._replace(start=start, end=end) for word in command.words],
        assignments=[word._replace(start=start, end=end) for word in command.assignments],
    )


def _asks_where(name: str, words: list[Word]) -> bool:
    """``command -v x``: it only tells."""
    return name == "command" and len(words) > 1 and words[1].text in ("-v", "-V")
