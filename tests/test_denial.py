"""The value: closed words, and a grant that is one thing as Python, as options and when applied."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from sandbox import Denial, DenialKind, Evidence, Grant, SandboxPolicy, read_only
from sandbox.entries import Access


@pytest.mark.parametrize("evidence", Evidence)
def test_only_a_message_is_uncertain(evidence: Evidence) -> None:
    assert Denial(DenialKind.READ, "/x", evidence).certain == (evidence != "message")


def test_a_denial_is_a_value_of_plain_parts() -> None:
    one = Denial(DenialKind.WRITE, "/x", Evidence.MOUNT, grant=Grant.one("write", "/x"))
    assert pickle.loads(pickle.dumps(one)) == one
    assert (one.kind, one.evidence) == ("write", "mount")


@pytest.mark.parametrize(
    ("step", "call", "option"),
    [
        (("write", "/a b"), ".with_write('/a b')", "--write '/a b'"),
        (("read", "/a"), ".with_read('/a')", "--read /a"),
        (("allow-secret", "/a"), ".allow_secret('/a')", "--allow-secret /a"),
        (("unix-socket", "/a"), ".with_unix_socket('/a')", "--unix-socket /a"),
        (("network", "full"), ".with_network('full')", "--network full"),
        (("wall", 9.0), ".with_limits(replace(policy.limits, wall=9.0))", "--timeout 9.0"),
        (("memory", 1 << 30), None, "--memory 1024M"),
        (("processes", 4), None, "--processes 4"),
        (("cpu", 4), ".with_limits(replace(policy.limits, cpu=4))", ""),
    ],
)
def test_a_grant_in_both_languages_says_what_it_does(
    step: tuple[str, object], call: str | None, option: str
) -> None:
    grant = Grant((step,))
    assert grant.option == option
    assert call is None or grant.call == call
    policy = read_only()
    said = eval(f"policy{grant.call}", {"policy": policy, "replace": replace})
    assert isinstance(said, SandboxPolicy)
    assert said == grant.apply(policy) != policy


def test_a_grant_of_several_steps_needs_all_of_them() -> None:
    grant = Grant((("allow-secret", "/etc/shadow"), ("write", "/etc/shadow")))
    assert grant.call == ".allow_secret('/etc/shadow').with_write('/etc/shadow')"
    assert grant.option == "--allow-secret /etc/shadow --write /etc/shadow"
    assert grant.apply(read_only()).access("/etc/shadow") is Access.WRITE
    assert Grant((("write", "/x"), ("file_size", 5))).option == ""


def test_an_option_is_one_line_whatever_the_path_is() -> None:
    option = Grant.one("write", "/a\x1b[2J\n\udcff").option
    assert option.isprintable()
    assert option == r"--write $'/a\x1b[2J\x0a\xff'"
