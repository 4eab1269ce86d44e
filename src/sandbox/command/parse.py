"""Shell text as simple commands, as far as it is understood.

tree-sitter makes the tree; what stands here believes only a small part of it. Node kinds are an
allowlist. Each word is read a second time from its own characters, and so is what lies
between words: where the tree and a shell could differ (a backslash before a newline, a comment
behind an escaped blank, the end of a here-document) the text is refused, not guessed at.

Commands inside of what was refused are found too: they are judged for danger, never for safety.

Everything is linear. The parser alone is not, in the face of errors, so it has a budget.
"""

from __future__ import annotations

import re
import time
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from sandbox.command.verdict import Reason
from sandbox.command.words import Word, value_of

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Tree

__all__ = ["TEXT_MAX", "Redirect", "Refused", "Script", "Simple", "parse"]

TEXT_MAX = 32 * 1024  # bytes
_NODES_MAX = 2000
_INNER_MAX = 4096  # bytes of a word in a part that is refused: those lie in each other
_SHORT = 512  # bytes; the worst of this length takes 20 ms, what is longer has the budget
_BUDGET = 0.01  # seconds of this thread's processor time

_GROUPS = frozenset({"program", "list", "redirected_statement", "pipeline"})
# What may lie between two parts. Each operator stands in such a gap: what is no plain one is seen.
_BETWEEN = re.compile(rb"[ \t]+(?:\\\n[ \t]*)*")  # words of one command
_BESIDE = re.compile(rb"(?:[ \t]+(?:\\\n[ \t]*)*)?")  # a command and its redirections
_AROUND = re.compile(rb"(?:[ \t\n]|[ \t]\\\n)*(?:(?:&&|\|\|?|;)(?:[ \t\n]|\\\n)*)?")  # commands
_SPLICE = "$", "`", "\\"  # what an unquoted here-document changes


class Simple(NamedTuple):
    """One simple command.

    ``piped``: its standard input comes from another command. ``fed``: what it prints becomes
    code of a shell (``sh <(...)``, ``eval "$(...)"``).
    """

    words: list[Word]
    assignments: list[Word]
    piped: bool
    fed: bool


class Redirect(NamedTuple):
    """A redirection of one descriptor ("" where none is written)."""

    descriptor: str
    operator: str
    target: Word


class Refused(NamedTuple):
    """A part of the text that is not understood."""

    reason: Reason
    start: int
    end: int
    detail: str


class Script(NamedTuple):
    """What a text holds. It is understood in full only if nothing is in ``refused``.

    ``inputs``: here-documents and strings that a shell is given as its input.
    """

    commands: list[Simple]
    redirects: list[Redirect]
    inputs: list[Word]
    refused: list[Refused]


class _Place(NamedTuple):
    """A node to be looked at; ``quiet``: a part around it is refused already."""

    node: Node
    piped: bool
    fed: bool
    quiet: bool


def parse(text: str, runs_text: frozenset[str] = frozenset()) -> Script:
    """The simple commands of a shell text.

    ``text`` is printable but for newlines and tabs, and at most ``TEXT_MAX`` bytes: the caller
    looks at that. ``runs_text`` are the programs whose arguments and input are code.
    """
    return _Reader(text, runs_text).read()


class _Reader:
    """One walk over one tree, in the order of the text."""

    def __init__(self, text: str, runs_text: frozenset[str]) -> None:
        self._data = text.encode()
        self._runs_text = runs_text
        self._chars = None if len(self._data) == len(text) else _characters(text)
        self._end = 0  # of what has been read
        self._script = Script([], [], [], [])

    def read(self) -> Script:
        tree = _tree(self._data)
        if tree is None:
            self._refuse(Reason.SIZE, 0, len(self._data), "the parser gave up")
            return self._script
        if tree.root_node.has_error:
            self._refuse(Reason.SYNTAX, 0, len(self._data), "not one shell's syntax")
        todo = [_Place(tree.root_node, False, False, False)]
        for _ in range(_NODES_MAX):
            if not todo:
                self._pass(len(self._data), _AROUND)
                return self._script
            place = todo.pop()
            todo += self._visit(place)[::-1]
        self._refuse(Reason.SIZE, 0, len(self._data), "too many parts")
        return self._script

    def _visit(self, place: _Place) -> list[_Place]:
        """Takes in one node; the nodes to be looked at next."""
        node, piped, fed, quiet = place
        kind = node.type
        if kind == "command":
            return self._command(place)
        if kind in _GROUPS:
            children = node.named_children
            found = [_Place(child, piped, fed, quiet) for child in children]
            if kind == "pipeline":
                found[1:] = [_Place(child, True, fed, quiet) for child in children[1:]]
            return found
        if kind == "file_redirect":
            return self._redirect(place, [])
        if kind == "heredoc_redirect" and self._is_data(node):
            return []
        if kind == "comment" and not quiet and self._is_comment(node):
            return []
        if kind == "herestring_redirect" and fed:
            self._script.inputs.extend(self._word(child) for child in node.named_children)
        if not quiet:
            reason = Reason.ASSIGNMENT if kind.startswith("variable_") else Reason.SYNTAX
            self._refuse(reason, node.start_byte, node.end_byte, kind)
            self._end = max(self._end, node.end_byte)
        # A here-document's node holds what the command before it is piped into.
        piped = piped or kind == "heredoc_redirect"
        return [_Place(child, piped, fed, True) for child in node.named_children]

    def _command(self, place: _Place) -> list[_Place]:
        words: list[Word] = []
        assignments: list[Word] = []
        more: list[_Place] = []
        node, piped, fed, quiet = place
        gap = b";" if quiet else self._data[self._end : node.start_byte]
        if self._script.commands and not (
            b"\n" in gap or b";" in gap or b"&" in gap or b"|" in gap
        ):
            self._refuse(Reason.SYNTAX, node.start_byte, node.end_byte, "one command or two")
        between, last = _AROUND, 0
        for child in node.named_children:
            kind = child.type
            if kind == "file_redirect":
                more += self._redirect(_Place(child, piped, fed, quiet), words)
                continue
            if kind == "comment":
                last = child.end_byte
                if not (quiet or self._is_comment(child)):
                    self._refuse(Reason.SYNTAX, child.start_byte, last, kind)
                continue
            if kind in ("heredoc_redirect", "herestring_redirect"):
                more.append(_Place(child, False, fed, quiet))
                continue
            word = self._word(child, quiet)
            if words and b"\n" in self._data[last : child.start_byte].replace(b"\\\n", b""):
                # Seen behind pipes: two lines as one command. For every shell they are two.
                self._script.commands.append(Simple(words, assignments, piped, place.fed))
                words, assignments, between = [], [], _AROUND
            if not quiet:
                self._step(child, between)
                between = _BETWEEN
            last = child.end_byte
            if kind == "variable_assignment":
                assignments.append(word)
                more.append(_Place(child, False, fed, True))
                continue
            words.append(word)
            if word.text is None:
                more.append(_Place(child, False, fed, True))
            elif len(words) == 1:
                fed = fed or _name_of(word) in self._runs_text
        self._script.commands.append(Simple(words, assignments, piped, place.fed))
        return more

    def _redirect(self, place: _Place, words: list[Word]) -> list[_Place]:
        """Takes in a redirection; the words behind its target are the command's."""
        node = place.node
        descriptor = operator = ""
        targets: list[Word] = []
        for child in node.children:
            if child.type == "file_descriptor":
                descriptor = self._word(child).raw
            elif not child.is_named:
                operator = child.type
            else:
                targets.append(self._word(child, place.quiet))
        if not place.quiet:
            # Without a blank before it a digit is the end of a word.
            self._step(node, _BETWEEN if descriptor and self._end else _BESIDE)
            self._refuse_names(node)
        if len(targets) != 1:
            self._refuse(Reason.SYNTAX, node.start_byte, node.end_byte, "words after a target")
        if targets:
            self._script.redirects.append(Redirect(descriptor, operator, targets[0]))
        owner = words if words or not self._script.commands else self._script.commands[-1].words
        owner.extend(targets[1:])
        return [_Place(child, False, place.fed, True) for child in node.named_children]

    def _refuse_names(self, node: Node) -> None:
        """``{PATH}<f``: the braces are no word, they name a variable that is set."""
        start = node.start_byte
        if self._data[start - 1 : start] == b"}":
            self._refuse(Reason.SYNTAX, start - 1, node.end_byte, "sets a variable")

    def _is_data(self, node: Node) -> bool:
        """Whether a here-document is only text, and ends where a shell would end it."""
        kinds = [child.type for child in node.children]
        if kinds not in (
            ["<<", "heredoc_start", "heredoc_body", "heredoc_end"],
            ["<<-", "heredoc_start", "heredoc_body", "heredoc_end"],
        ):
            return False
        start, last = node.children[1], node.children[3]
        raw = self._data[start.start_byte : start.end_byte].decode()
        delimiter = value_of(raw)
        at = start.end_byte
        if not delimiter or "\n" in raw or self._data[at : at + 1] != b"\n":
            return False
        lines = self._data[at + 1 :].split(b"\n")
        at += 1
        for line in lines:
            shown = line.lstrip(b"\t") if kinds[0] == "<<-" else line
            if shown == delimiter.encode():
                break
            is_changed = raw == delimiter and any(one.encode() in line for one in _SPLICE)
            if is_changed:
                return False
            at += len(line) + 1
        else:
            return False
        if (last.start_byte, last.end_byte) != (at + len(line) - len(shown), at + len(line)):
            return False
        self._pass(node.start_byte, _BESIDE)
        self._refuse_names(node)
        self._end = at + len(line)
        commands = self._script.commands
        if commands and any(_name_of(word) in self._runs_text for word in commands[-1].words):
            text = self._data[start.end_byte + 1 : at].decode()
            self._script.inputs.append(self._word(node)._replace(text=text))
        return True

    def _is_comment(self, node: Node) -> bool:
        """Whether a shell sees a comment there too: behind a blank that is not escaped."""
        begins = node.start_byte == 0 or node.start_byte > self._end
        begins = begins or self._data[node.start_byte - 1 : node.start_byte] in (b"\n", b";")
        if begins and b"\n" not in self._data[node.start_byte : node.end_byte]:
            self._step(node, _AROUND)
            return True
        return False

    # Places in the text.

    def _word(self, node: Node, quiet: bool = False) -> Word:
        start, end = node.start_byte, node.end_byte
        if quiet and end > start + _INNER_MAX:
            end = start + _INNER_MAX
        raw = self._data[start:end].decode("utf-8", "replace")
        if self._chars is not None:
            start, end = self._chars[start], self._chars[end]
        return Word(value_of(raw), raw, start, end)

    def _step(self, node: Node, between: re.Pattern[bytes]) -> None:
        self._pass(node.start_byte, between)
        self._end = max(self._end, node.end_byte)

    def _pass(self, start: int, between: re.Pattern[bytes]) -> None:
        """Looks at what lies between what has been read and the next part."""
        if start < self._end or not between.fullmatch(self._data, self._end, start):
            gap = self._data[self._end : start]
            end = self._end + len(gap.rstrip())
            self._refuse(Reason.SYNTAX, min(end - len(gap.strip()), start), min(end, start), "")

    def _at(self, byte: int) -> int:
        return byte if self._chars is None else self._chars[byte]

    def _refuse(self, reason: Reason, start: int, end: int, detail: str) -> None:
        self._script.refused.append(Refused(reason, self._at(start), self._at(end), detail))


def _name_of(word: Word) -> str:
    return (word.text or "").rpartition("/")[2]


def _characters(text: str) -> list[int]:
    """The number of the character that each byte belongs to."""
    found = [at for at, one in enumerate(text) for _ in range(len(one.encode()))]
    return [*found, len(text)]


@cache
def _bash() -> Language:
    """The grammar, when the first text comes: words are assessed without what it imports."""
    import tree_sitter_bash
    from tree_sitter import Language

    return Language(tree_sitter_bash.language())


def _tree(data: bytes) -> Tree | None:
    """The tree of a text; None if it takes too long. A parser is of one thread, and cheap."""
    from tree_sitter import Parser

    parser = Parser(_bash())
    if len(data) <= _SHORT:
        return parser.parse(data)
    end = time.thread_time() + _BUDGET
    try:
        return parser.parse(
            lambda at, _: data[at:], progress_callback=lambda *_: time.thread_time() > end
        )
    except ValueError:  # "Parsing failed": it was stopped
        return None
