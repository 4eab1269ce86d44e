"""One profile's file: what is wrong is named with line and key, and nothing of it is used."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import profile_schema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profilekit import Place, new_place

from sandbox import InvalidProfile
from sandbox.parts import PARTS
from sandbox.profile.document import Document, json_schema
from sandbox.profile.locate import line_of
from sandbox.profile.reading import decode, read_source
from sandbox.profile.values import Source
from sandbox.profile.wrong import shown


@pytest.fixture
def place() -> Iterator[Place]:
    with new_place() as made:
        yield made


# Wrong by itself: the decoder and the schema refuse it. Text, line, key, what is said.
BROKEN = {
    "unknown key": ('netwrk = "none"', 1, "netwrk", "did you mean 'network'?"),
    "unknown inner": ('\n[network]\nacess = "none"', 3, "network.acess", "did you mean 'access'?"),
    "dashes": ("[limits]\nopen-files = 9", 2, "limits.open-files", "'open_files'"),
    "nothing like it": ("[network]\nx = 1", 2, "network.x", "one of access, unix_sockets"),
    "quoted": ('[network]\n"a.b" = 1', 2, 'network."a.b"', "no such key"),
    "value": ('mode = "readonly"', 1, "mode", "did you mean 'read-only'?"),
    "network": ('[network]\naccess = "ful"', 2, "network.access", "did you mean 'full'?"),
    "access": ('[filesystem]\n"/a" = "wirte"', 2, 'filesystem."/a"', "'write'"),
    "relative": ('[filesystem]\n"/a" = "read"\n"x" = "read"', 3, "filesystem.x", "is no place"),
    "special": ('[filesystem]\n":work" = "read"', 2, 'filesystem.":work"', "':workspace'"),
    "another's home": ('[filesystem]\n"~x/a" = "read"', 2, 'filesystem."~x/a"', "is no place"),
    "sub-table": ('[filesystem."/a"]\nb = "read"\n"/c" = "deny"', 3, 'filesystem."/a"."/c"', "own"),
    "sub-access": ('[filesystem."/a"]\nb = "x"', 2, 'filesystem."/a".b', "one of deny, read"),
    "inline": ('filesystem = { "/a" = { b = "x" } }', 1, 'filesystem."/a".b', "'x'"),
    "size": ('[limits]\n\nmemory = "1T"', 3, "limits.memory", "is no size"),
    "fraction": ("[limits]\ncpu = 1.5", 2, "limits.cpu", "a whole number or text"),
    "truth": ("[limits]\nwall = true", 2, "limits.wall", "true or false"),
    "negative": ("[limits]\ncpu = -1", 2, "limits.cpu", ">= 0"),
    "nan": ("[limits]\nwall = nan", 2, "limits.wall", "> 0"),
    "part": ('[isolation]\naccept = ["nams"]', 2, "isolation.accept[0]", "did you mean 'names'?"),
    "no text": ("[environment.set]\nA = 1", 2, "environment.set.A", "expected text"),
    "no list": ('[environment]\nonly = "A"', 2, "environment.only", "expected a list"),
    "no table": ("network = 3", 1, "network", "expected a table"),
    "empty": ('extends = ""', 1, "extends", "length >= 1"),
    "no rule": ("rules = 3", 1, "rules", "expected a list"),
    "no prefix": (
        '[[rules]]\ndecision = "ask"\njustification = "x"',
        1,
        "rules[0]",
        "'prefix' is missing",
    ),
    "second rule": (
        '[[rules]]\nprefix = ["a"]\ndecision = "ask"\njustification = "x"\n\n'
        '[[rules]]\nprefix = []\ndecision = "ask"\njustification = "x"',
        7,
        "rules[1].prefix",
        "length >= 1",
    ),
    "decision": (
        '[[rules]]\nprefix = ["a"]\ndecision = "prompt"\njustification = "x"',
        3,
        "rules[0].decision",
        "ask",
    ),
    "no reason": (
        '[[rules]]\nprefix = ["a"]\ndecision = "ask"',
        1,
        "rules[0]",
        "'justification' is missing",
    ),
    "approval": ('[approval]\nmode = "on-request"', 2, "approval.mode", "on-escape"),
}
# Wrong by what it means: only the decoder can tell.
MEANINGLESS = {
    "zero": ("[limits]\ncpu = 0", 2, "limits.cpu", "from 1 to"),
    "a year": ("[limits]\nwall = 1e9", 2, "limits.wall", "at most"),
    "dots": ('[filesystem]\n"/a/../b" = "read"', 2, 'filesystem."/a/../b"', "'..'"),
    "dots below": ('[filesystem."/a"]\n"../b" = "read"', 2, 'filesystem."/a"."../b"', "'..'"),
    "twice": ('[filesystem]\n"/a" = "read"\n"/a/" = "deny"', 3, 'filesystem."/a/"', "twice"),
    "granted pattern": ('[filesystem]\n"/a/*.x" = "read"', 2, 'filesystem."/a/*.x"', "denied"),
    "in a special": ('[filesystem.":tmp"]\na = "read"', 2, 'filesystem.":tmp".a', "not known"),
    "hook": ('[environment]\nallow = ["LD_PRELOAD"]', 2, "environment.allow[0]", "put it in set"),
    "secret": ('[environment]\ninclude = ["A_TOKEN"]', 2, "environment.include[0]", "allow"),
    "marker": ('[environment.set]\nSANDBOX = "x"', 2, "environment.set.SANDBOX", "marks"),
    "place of secrets": ('allow_secrets = ["nmp"]', 1, "allow_secrets[0]", "npm"),
    "protected": ('protected = ["a/b"]', 1, "protected[0]", "'a/b'"),
    "sockets": (
        f"[network]\nunix_sockets = {[f'/{number}' for number in range(65)]}",
        2,
        "network.unix_sockets",
        "more than 64",
    ),
    "socket": ('[network]\nunix_sockets = ["x"]', 2, "network.unix_sockets[0]", "relative"),
    "example": (
        '[[rules]]\nprefix = ["git", "push"]\ndecision = "ask"\njustification = "x"\n'
        'match = ["git pull"]',
        5,
        "rules[0].match",
        "is not what the rule",
    ),
    "counterexample": (
        '[[rules]]\nprefix = ["git"]\ndecision = "ask"\njustification = "x"\n'
        'not_match = ["git pull"]',
        5,
        "rules[0].not_match",
        "is not what the rule",
    ),
    "blank reason": (
        '[[rules]]\nprefix = ["a"]\ndecision = "ask"\njustification = " "',
        4,
        "rules[0].justification",
        "says nothing",
    ),
    "quotes": (
        '[[rules]]\nprefix = ["git"]\ndecision = "ask"\njustification = "x"\nmatch = ["git \'"]',
        5,
        "rules[0].match",
        "git",
    ),
    "rule twice": (
        '[[rules]]\nprefix = ["a"]\ndecision = "ask"\njustification = "x"\n'
        '[[rules]]\nprefix = ["a"]\ndecision = "ask"\njustification = "y"',
        5,
        "rules[1]",
        "twice",
    ),
}
# No TOML at all. Text, line, what is said.
NO_TOML = {
    "open": ("a = 1\n[network", 2, "is no TOML"),
    "list": ("x = [", 1, "is no TOML"),
    "string": ('\na = """\n\n', 2, "unterminated"),
    "same key": ('mode = "auto"\nmode = "auto"', 2, "overwrite"),
    "same table": ("[limits]\n[limits]", 2, "twice"),
    "deep": (f"a = {'[' * 5000}", 0, "is no TOML"),
    "long number": (f"a = {'1' * 5000}", 0, "is no TOML"),
}
VALID = [
    "",
    'description = "x"\nextends = "auto"\nmode = "auto"\n',
    '[filesystem]\n":root" = "read"\n"~" = "read"\n"~/a" = "deny"\n"/a/**/*.pem" = "deny"\n',
    '[filesystem.":workspace"]\n"." = "write"\n"*.env" = "deny"\n',
    '[network]\naccess = "loopback"\nunix_sockets = ["/run/x"]\n',
    '[environment]\ninherit = "all"\ninclude = ["A*"]\nexclude = []\nonly = ["B"]\n'
    'allow = ["MY_TOKEN"]\n[environment.set]\nA = ""\n',
    '[limits]\nwall = 0.5\ncpu = "none"\nmemory = "2g"\ntmp = 1048576\noutput = 0\n',
    '[isolation]\nminimum = "namespaces"\naccept = ["names", "tmp"]\n',
    '[approval]\nmode = "untrusted"\nunsandboxed = false\n',
    '[[rules]]\nprefix = ["a", "b"]\ndecision = "allow"\n'
    'justification = "x"\nmatch = ["a b c"]\nnot_match = ["a"]\n',
    '[trust]\nprojects = ["/a"]\n',
]


def refused(place: Place, text: str) -> InvalidProfile:
    place.write(wrong=text)
    with pytest.raises(InvalidProfile) as caught:
        place.load("wrong")
    assert caught.value.file == str(place.user / "profiles/wrong.toml")
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "key", "said"),
    [*BROKEN.values(), *MEANINGLESS.values()],
    ids=[*BROKEN, *MEANINGLESS],
)
def test_what_is_wrong_is_named_with_file_line_and_key(
    place: Place, text: str, line: int, key: str, said: str
) -> None:
    error = refused(place, text)
    assert (error.line, error.key) == (line, key)
    assert said in str(error)
    assert str(error).startswith(f"{error.file}:{line}: {key}: ")
    assert "`" not in str(error)


@pytest.mark.parametrize(("text", "line", "said"), NO_TOML.values(), ids=NO_TOML)
def test_what_is_no_toml_is_named_with_its_line(
    place: Place, text: str, line: int, said: str
) -> None:
    error = refused(place, text)
    assert error.line == line
    assert said in str(error)


@pytest.mark.parametrize("text", VALID)
def test_what_is_right_is_taken_and_checks(place: Place, text: str) -> None:
    place.write(right=text)
    assert place.load("right").sources[0].text == text


# The schema


def test_the_schema_that_is_published_is_that_of_the_decoder() -> None:
    assert profile_schema.FILE.read_text() == profile_schema.text()
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("text", VALID)
def test_decoder_and_schema_take_the_same(text: str) -> None:
    raw = tomllib.loads(text)
    jsonschema.validate(raw, json_schema())
    msgspec.convert(raw, Document)


@pytest.mark.parametrize("text", [row[0] for row in BROKEN.values()], ids=BROKEN)
def test_decoder_and_schema_refuse_the_same(text: str) -> None:
    raw = tomllib.loads(text)
    if "nan" in text:  # JSON has no such number
        raw["limits"]["wall"] = 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(raw, json_schema())
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(raw, Document)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


@given(
    st.dictionaries(
        TEXT | st.sampled_from(["a` - at `$.network", "network", "rules", "x\n"]),
        st.recursive(
            st.integers()
            | TEXT
            | st.sampled_from(["a` - at `$.rules[0].prefix", "`key` in `$.x`"]),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(
                    st.sampled_from(["access", "a` - at `$.limits", "set", "/", "a.b"]), inner
                )
            ),
            max_leaves=5,
        ),
        max_size=2,
    )
)
def test_whatever_a_file_says_it_is_taken_or_refused_with_a_key(raw: dict[str, Any]) -> None:
    source = Source("project", "x.toml", text="".join(written(raw)))
    assert tomllib.loads(source.text) == raw
    try:
        decode(source)
    except InvalidProfile as error:
        assert error.key and error.line


def written(raw: dict[str, Any]) -> Iterator[str]:
    """A document as TOML: JSON's texts and lists are TOML's, but for the colons of tables."""
    for name, value in raw.items():
        yield f"{quoted(name)} = {inline(value)}\n"


def inline(value: Any) -> str:
    if isinstance(value, dict):
        pairs = [f"{quoted(name)} = {inline(item)}" for name, item in value.items()]
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    return quoted(value) if isinstance(value, str) else str(value)


def quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(letter):08x}" for letter in text) + '"'


def test_the_schema_has_every_part_that_can_be_weaker() -> None:
    text = json.dumps(json_schema())
    assert [name for name in PARTS if name not in text] == []


WORDS = st.sampled_from(
    ["mode", "network", "access", "limits", "cpu", "auto", "none", "/a", "read"]
)
TABLES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=3),
)


@given(st.dictionaries(WORDS, TABLES, max_size=3))
def test_whatever_the_decoder_says_of_any_document_the_schema_says(raw: dict[str, Any]) -> None:
    try:
        msgspec.convert(raw, Document)
        taken = True
    except msgspec.ValidationError:
        taken = False
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(raw) is taken


# Lines

KEYS = st.sampled_from(["a", "b", '"c.d"', "'e f'"])
PADDING = st.sampled_from(["", "\n", "# no\n", "\n# [x]\n\n"])
VALUES = st.sampled_from(
    ["1", '"x"', '"""\nx = 1\n[a]\n"""', "[\n  1, # one\n  2,\n]", "{ z = 1 }", "'''\n\n'''"]
)


@given(
    st.lists(st.tuples(PADDING, KEYS, KEYS, VALUES), max_size=6), st.sampled_from(["\n", "\r\n"])
)
def test_the_line_of_a_key_is_the_first_of_its_statement(
    rows: list[tuple[str, str, str, str]], end: str
) -> None:
    text, wanted = "", []
    for number, (padding, table, key, value) in enumerate(rows):
        text += f"{padding}[{table}.t{number}]\n"
        wanted.append(((plain(table), f"t{number}"), text.count("\n")))
        text += f"{padding}{key} = {value}\n"
        line = text.count("\n") - value.count("\n")
        wanted.append(((plain(table), f"t{number}", plain(key)), line))
    for path, line in wanted:
        assert line_of(text.replace("\n", end), path) == line, (text, path)


def plain(key: str) -> str:
    return key.strip("\"'")


def test_the_line_of_a_key_that_is_not_there_is_that_of_its_table() -> None:
    text = "\n[a]\nb = 1\n[[c]]\nd = 1\n[[c]]\nd = 2\n"
    assert line_of(text, ("a", "x")) == 2
    assert line_of(text, ("c", 1, "x")) == 6
    assert line_of(text, ("c", 1, "d")) == 7
    assert line_of(text, ("c", 7, "d")) == 4
    assert line_of(text, ("x",)) == 0
    assert line_of("", ("x",)) == 0


def test_the_line_in_the_largest_file_is_found_in_time(place: Place) -> None:
    rows = "".join(f'  "/{number:04}",\n' for number in range(1900))
    error = refused(place, f"protected = [\n{rows}]\n")
    assert (error.line, error.key) == (1, "protected[0]")


def test_the_lines_of_many_keys_are_found_in_the_time_of_a_few(monkeypatch: Any) -> None:
    """One parse for each statement at most, and a few for all: `policy show` asks for every key."""
    parsed: list[int] = []
    loads = tomllib.loads

    def counted(text: str) -> dict[str, Any]:
        parsed.append(len(text))
        return loads(text)

    monkeypatch.setattr(tomllib, "loads", counted)
    items = "".join(f'  "n{number}",\n' for number in range(250))
    text = f"mode = 'auto'\nprotected = [\n{items}]\n[limits]\ncpu = 1\n"
    lines = [line_of(text, ("protected", number)) for number in range(250)]
    assert lines == [2] * 250 and line_of(text, ("limits", "cpu")) == 255
    assert len(parsed) < 30
    parsed.clear()
    text = "[environment.set]\n" + "".join(f"A{number} = ''\n" for number in range(500))
    paths = [("environment", "set", f"A{number}") for number in range(500)]
    assert [line_of(text, path) for path in paths] == list(range(2, 502))
    assert len(parsed) < 600


def test_a_key_is_shown_as_it_is_written() -> None:
    assert shown(("rules", 0, "prefix", 2)) == "rules[0].prefix[2]"
    assert shown(("filesystem", "/a", ".")) == 'filesystem."/a"."."'


# Reading


def test_only_a_regular_file_is_read_and_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for file in (fifo, Path("/dev/zero"), tmp_path):
        with pytest.raises(InvalidProfile, match=r"regular file|directory"):
            read_source(str(file), "profile")
    with pytest.raises(InvalidProfile, match="no such file"):
        read_source(str(tmp_path / "missing"), "profile")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large"
    for data in (b"#" * (64 * 1024 + 1), b"\n" * 2001):
        file.write_bytes(data)
        with pytest.raises(InvalidProfile, match="has more than"):
            read_source(str(file), "profile")
    file.write_bytes(b"#" * 64 * 1024)
    assert decode(read_source(str(file), "profile")) == {}


def test_what_is_not_utf_8_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "latin"
    file.write_bytes(b"# a\n# \xe9\n")
    with pytest.raises(InvalidProfile, match=r"latin:2: is not UTF-8"):
        read_source(str(file), "profile")


def test_a_users_file_that_others_could_have_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text("")
    file.chmod(0o666)
    with pytest.raises(InvalidProfile, match="chmod o-w"):
        read_source(str(file), "user")
    assert read_source(str(file), "project").text == ""
    file.chmod(0o644)
    assert read_source(str(file), "user").text == ""
    if os.getuid() != 0:
        return
    os.chown(file, 4711, 4711)
    with pytest.raises(InvalidProfile, match="belongs to uid 4711"):
        read_source(str(file), "user")
    assert read_source(str(file), "project").text == ""


def test_an_error_of_no_file_names_the_layer() -> None:
    with pytest.raises(InvalidProfile, match="is no TOML"):
        decode(Source("user", "x", text="="))
