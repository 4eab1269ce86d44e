"""The evaluator of SBPL: what it reads, how it decides, and what it does not know and refuses."""

from __future__ import annotations

import pytest

from sandbox.backends.sbpl import Asked, Evaluator, SbplError, Symbol, Verdict, read

START = "(version 1)\n(deny default)\n"


def ask(rules: str, asked: Asked, **parameters: str) -> Verdict:
    return Evaluator(START + rules, parameters).ask(asked)


def allows(rules: str, operation: str, path: str = "", **parameters: str) -> bool:
    return ask(rules, Asked(operation, path), **parameters).allowed


def test_forms_have_their_line_and_their_words_texts_and_numbers() -> None:
    text = '; a comment ( with " signs\n(a "t\\"x" #"r\\.x" 32\n  (b)) ; more\n(c)'
    assert list(read(text)) == [
        (2, (Symbol("a"), 't"x', "r\\.x", 32, (Symbol("b"),))),
        (4, (Symbol("c"),)),
    ]
    kinds = [type(item) for item in next(read(text))[1]]
    assert kinds == [Symbol, str, str, int, tuple]


@pytest.mark.parametrize("text", ["(a", "a)", "a", '(a "b', "(a) b", '(a #"b)', "(a #b)"])
def test_what_is_not_whole_is_an_error(text: str) -> None:
    with pytest.raises(SbplError):
        list(read(text))


@pytest.mark.parametrize(
    "rules",
    [
        '(import "system.sb")',
        "(define x 1)",
        "(allow)",
        '(allow (literal "/x"))',
        '(allow file-read* "/x")',
        '(allow file-read* (prefix "/x"))',
        "(allow file-read* (literal /x))",
        '(allow file-read* (literal "/x" "/y"))',
        '(allow file-read* (literal (param "MISSING")))',
        '(allow file-read* (require-not (literal "/x") (literal "/y")))',
        "(allow file-read* (require-all))",
        "(allow file-read* (vnode-type REGULAR-FILE))",
        '(allow file-read* (regex #"a\\d"))',
        '(allow file-read* (regex #"(?:a)"))',
        '(allow file-read* (regex #"[a\\]]"))',
        '(allow network-outbound (remote ip "192.0.2.1:80"))',
        '(allow network-outbound (remote tcp "*:80"))',
        "(allow system-socket (socket-domain AF_UNIX))",
    ],
)
def test_what_is_not_known_is_an_error_when_it_is_read(rules: str) -> None:
    with pytest.raises(SbplError):
        Evaluator(START + rules, {})


def test_a_profile_begins_with_its_version() -> None:
    for text in ("(deny default)", "(version 2)", ""):
        with pytest.raises(SbplError, match="version"):
            Evaluator(text, {})


def test_the_last_rule_that_matches_decides_and_is_named() -> None:
    rules = '(allow file-read* (subpath "/a"))\n(deny file-read-data (literal "/a/b"))'
    assert ask(rules, Asked("file-read-data", "/a/c")) == Verdict(True, 3)
    assert ask(rules, Asked("file-read-data", "/a/b")) == Verdict(False, 4)
    assert ask(rules, Asked("file-read-metadata", "/a/b")) == Verdict(True, 3)
    assert ask(rules, Asked("file-read-data", "/x")) == Verdict(False, 0)
    turned = "\n".join(reversed(rules.splitlines()))
    assert ask(turned, Asked("file-read-data", "/a/b")) == Verdict(True, 4)


def test_a_star_stands_for_all_operations_that_begin_like_that() -> None:
    assert allows("(allow file-write*)", "file-write-create", "/x")
    assert not allows("(allow file-write*)", "file-read-data", "/x")
    assert not allows("(allow file-write)", "file-write-create", "/x")
    assert allows("(allow file*)", "file-link", "/x")


def test_of_several_filters_one_is_enough_and_words_between_them_mean_what_they_say() -> None:
    either = '(allow file-read* (literal "/a") (literal "/b"))'
    assert allows(either, "file-read-data", "/a") and allows(either, "file-read-data", "/b")
    both = '(allow file-read* (require-all (subpath "/a") (require-not (subpath "/a/b"))))'
    assert allows(both, "file-read-data", "/a/c") and not allows(both, "file-read-data", "/a/b/c")
    some = '(allow file-read* (require-any (literal "/a") (literal "/b")))'
    assert allows(some, "file-read-data", "/b") and not allows(some, "file-read-data", "/c")


def test_a_subpath_is_by_components_and_does_not_cover_the_making_of_itself() -> None:
    rules = '(allow file-write* (subpath (param "P")))'
    assert allows(rules, "file-write-create", "/a/b", P="/a")
    assert not allows(rules, "file-write-create", "/ab", P="/a")
    assert not allows(rules, "file-write-create", "/a", P="/a")
    assert allows(rules, "file-write-data", "/a", P="/a")
    assert allows(rules, "file-write-create", "/anything", P="/")


def test_an_expression_matches_anywhere_unless_it_is_anchored_and_ends_at_the_end() -> None:
    assert allows('(allow file-read* (regex #"b"))', "file-read-data", "/abc")
    anchored = '(allow file-read* (regex #"^/a$"))'
    assert allows(anchored, "file-read-data", "/a")
    for path in ("/ab", "/x/a", "/a\n"):
        assert not allows(anchored, "file-read-data", path), path
    assert allows('(allow file-read* (regex #"^/a.c$"))', "file-read-data", "/a\nc")
    assert not allows('(allow file-read* (regex #"^/a\\.c$"))', "file-read-data", "/abc")
    assert allows('(allow file-read* (regex #"^/[^/]+/(x|y)$"))', "file-read-data", "/a/y")


def test_what_the_default_does_not_cover_is_allowed_until_a_rule_says_otherwise() -> None:
    for operation in ("process-info-pidinfo", "nvram-get", "file-map-executable"):
        assert ask("", Asked(operation)).allowed
        assert not ask(f"(deny {operation.rpartition('-')[0]}*)", Asked(operation)).allowed
    assert Evaluator("(version 1)(allow default)", {}).ask(Asked("anything")).allowed


def test_what_no_rule_names_and_the_default_may_not_cover_is_not_known() -> None:
    assert ask("", Asked("system-fsctl")) == Verdict(False, 0, known=False)
    assert ask("(deny system-fsctl)", Asked("system-fsctl")) == Verdict(False, 3)
    named = '(allow system-fsctl (literal "/x"))'
    assert ask(named, Asked("system-fsctl")) == Verdict(False, 0)
    assert ask("", Asked("file-write-create")) == Verdict(False, 0)
    assert Evaluator("(version 1)(allow default)", {}).ask(Asked("system-fsctl")).known


def test_commands_of_fcntl_are_told_apart_and_are_numbers() -> None:
    rules = "(deny system-fcntl (fcntl-command 80 110))"
    for number, allowed in ((80, False), (110, False), (3, True)):
        assert ask(rules, Asked("system-fcntl", command=number)).allowed is allowed, number
    assert ask("", Asked("system-fcntl", command=80)).allowed
    for rules in (
        "(deny system-fcntl (fcntl-command F_GETFL))",
        "(deny system-fcntl (fcntl-command))",
    ):
        with pytest.raises(SbplError):
            Evaluator(START + rules, {})


def test_an_xpc_service_is_no_service_of_the_same_global_name() -> None:
    rules = (
        '(allow mach-lookup (global-name "a.b"))\n(deny mach-lookup (xpc-service-name-prefix "a"))'
    )
    assert ask(rules, Asked("mach-lookup", name="a.b")).allowed
    assert not ask(rules, Asked("mach-lookup", xpc="a.b")).allowed
    assert ask(rules, Asked("mach-lookup", xpc="b")) == Verdict(True, 0)
    assert not ask("(deny mach-lookup)", Asked("mach-lookup", xpc="b")).allowed


def test_hosts_are_near_or_any() -> None:
    near = '(allow network-outbound (remote ip "localhost:*"))'
    for address, allowed in (("127.0.0.9:1", True), ("::1:80", True), ("192.0.2.1:80", False)):
        assert ask(near, Asked("network-outbound", address=address)).allowed is allowed, address
    assert not ask(near, Asked("network-outbound", "/socket")).allowed
    port = '(allow network-outbound (remote ip "*:53"))'
    assert ask(port, Asked("network-outbound", address="192.0.2.1:53")).allowed
    assert not ask(port, Asked("network-outbound", address="192.0.2.1:54")).allowed
