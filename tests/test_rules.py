"""From policy to Landlock rules: the complement holds on any tree, in a model of the kernel."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rulesim import DENY, NOBODY, READ, WRITE, may_read, may_write, settle

from sandbox.backends.rules import compile_rules
from sandbox.entries import Access
from sandbox.errors import InvalidPath, Unenforceable
from sandbox.presets import full_access, read_only
from sandbox.resolve import resolve

# On random trees

NAME = st.sampled_from(["a", "b", "c"])
INNER = st.lists(NAME, min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(INNER, st.sampled_from(["file", "dir", "link"]), max_size=8)


def plant(base: str, tree: dict[str, str]) -> tuple[list[str], list[str]]:
    """Makes a tree; returns its regular files and its directories."""
    for path, kind in sorted(tree.items()):
        full = f"{base}/{path}"
        try:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            if kind == "dir":
                os.makedirs(full, exist_ok=True)
            elif kind == "file" and not os.path.lexists(full):
                Path(full).write_text(path)
            elif not os.path.lexists(full):
                os.symlink(f"{base}/a", full)
        except (FileExistsError, NotADirectoryError):
            continue  # something else stands there already
        except OSError:
            continue  # through a link that leads nowhere or to itself
    files, dirs = [], [base]
    for top, names, loose in os.walk(base):
        dirs += [f"{top}/{name}" for name in names if not os.path.islink(f"{top}/{name}")]
        files += [f"{top}/{name}" for name in loose if not os.path.islink(f"{top}/{name}")]
    return files, dirs


@settings(max_examples=150)
@given(
    TREES,
    st.lists(st.tuples(INNER | st.just(""), st.sampled_from(Access)), max_size=4),
    st.sampled_from([READ, DENY, None]),
    st.sampled_from(["base", "root"]),
)
def test_the_rules_allow_just_what_the_policy_does_on_any_tree(
    tmp_path_factory: pytest.TempPathFactory,
    tree: dict[str, str],
    said: list[tuple[str, Access]],
    whole: Access | None,
    where: str,
) -> None:
    base = os.path.realpath(tmp_path_factory.mktemp("tree"))
    files, dirs = plant(base, tree)
    entries = [(f"{base}/{path}".rstrip("/"), access) for path, access in said]
    entries = [(p, a) for p, a in entries if a is DENY or os.path.exists(p)]
    if whole is not None:
        entries.append((base if where == "base" else "/", whole))
    try:
        found = settle(*entries)
    except InvalidPath as refused:  # a grant that leaves a writable directory by a link in it
        assert os.path.realpath(refused.path) != refused.path, "refused without a reason"
        return
    try:
        rules = compile_rules(found, 7)
    except Unenforceable:
        table = found.table()
        carved = [
            (inner, root)
            for root in found.writable
            for inner in table
            if inner.startswith(f"{root}/") and table[inner] is not WRITE
        ]
        assert carved, "refused without a reason"
        return
    for path in files:
        access = found.access(path)
        assert may_read(rules, path) is (access is not DENY), (path, access)
        assert may_write(rules, path) is (access is WRITE), (path, access)
    for path in dirs:
        assert may_write(rules, path) is (found.access(path) is WRITE)
        if may_read(rules, path):
            assert found.access(path) is not DENY


# Which rights are restricted at all


def test_a_policy_that_reads_everything_does_not_restrict_reading(workspace: Path) -> None:
    rules = compile_rules(settle(("/", READ), (workspace, WRITE)), 7)
    assert not rules.handle_read and not rules.handle_names
    assert rules.watched == ()
    assert {rule.access for rule in rules.rules} == {"write", "device"}


def test_a_policy_without_the_whole_root_restricts_reading_and_names(workspace: Path) -> None:
    rules = compile_rules(settle((workspace, READ)), 7)
    assert rules.handle_read and rules.handle_names
    assert not may_read(rules, "/etc/passwd")
    assert may_read(rules, f"{workspace}/f")
    assert "names" not in {weak.part for weak in rules.weaker}


def test_a_deny_in_what_may_be_read_leaves_names_visible_and_says_so(outside: Path) -> None:
    rules = compile_rules(settle(("/", READ), (outside, DENY)), 7)
    assert rules.handle_read and not rules.handle_names
    assert {"names", "metadata", "tmp"} <= {weak.part for weak in rules.weaker}
    assert rules.watched[0] == "/"
    assert all(os.path.isdir(path) for path in rules.watched)


def test_nothing_is_allowed_by_no_entries_but_devices() -> None:
    rules = compile_rules(settle(), 7)
    assert {rule.access for rule in rules.rules} == {"device"}
    assert all(rule.path.startswith(b"/dev/") for rule in rules.rules)


def test_full_access_writes_everything_and_talks_to_devices() -> None:
    rules = compile_rules(resolve(full_access(), None, NOBODY, ""), 7)
    assert [r.access for r in rules.rules if r.path == b"/"] == ["write", "device"]
    assert {weak.part for weak in rules.weaker} == {"tmp"}


def test_case_41_devices_are_there_under_every_policy_unless_they_are_denied() -> None:
    for found in (settle(), settle(("/", READ)), settle(("/", WRITE))):
        rules = compile_rules(found, 7)
        kinds = {rule.path: rule for rule in rules.rules if rule.access == "device"}
        for name in (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/urandom"):
            assert not kinds[name].is_dir
    rules = compile_rules(settle(("/", READ), ("/dev/null", DENY)), 7)
    assert b"/dev/null" not in {rule.path for rule in rules.rules}
    assert b"/dev/zero" in {rule.path for rule in rules.rules}


@pytest.mark.parametrize("abi", [-95, 0, 1, 2])
def test_case_04_a_kernel_that_cannot_stop_truncation_is_refused(abi: int) -> None:
    with pytest.raises(Unenforceable, match="ABI 3 is needed") as caught:
        compile_rules(settle(), abi)
    assert caught.value.part == "writes"


def test_a_kernel_before_abi_5_is_reported_for_its_devices() -> None:
    assert "devices" in {weak.part for weak in compile_rules(settle(), 4).weaker}
    assert "devices" not in {weak.part for weak in compile_rules(settle(), 5).weaker}


# What cannot be expressed


@pytest.mark.parametrize("access", [DENY, READ])
def test_taking_something_out_of_a_writable_directory_is_refused(
    access: Access, workspace: Path
) -> None:
    (workspace / "private").mkdir()
    found = settle(("/", READ), (workspace, WRITE), (workspace / "private", access))
    with pytest.raises(Unenforceable, match=r"private.* out of") as caught:
        compile_rules(found, 7)
    assert caught.value.mend


def test_a_writable_directory_with_a_secret_in_it_is_refused_and_the_secret_named(
    place: Path,
) -> None:
    (place / "home" / ".config" / "gh").mkdir(parents=True)
    policy = read_only().with_write(place / "home" / ".config")
    found = resolve(policy, None, str(place / "home"), "")
    with pytest.raises(Unenforceable, match=r"\.config/gh \(gh: tokens"):
        compile_rules(found, 7)


def test_a_writable_directory_below_a_denied_one_can_be_had(workspace: Path, place: Path) -> None:
    rules = compile_rules(settle(("/", READ), (place, DENY), (workspace, WRITE)), 7)
    assert may_write(rules, f"{workspace}/f") and may_read(rules, f"{workspace}/f")
    assert not may_read(rules, f"{place}/f")


def test_more_neighbours_than_rules_is_an_error_that_says_where(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox.backends.cover._RULES_MAX", 20)
    for number in range(30):
        (outside / f"n{number}").touch()
    with pytest.raises(Unenforceable, match="fewer neighbours"):
        compile_rules(settle((outside, READ), (outside / "n0", DENY)), 7)


def test_case_20_a_thousand_neighbours_stay_quick(outside: Path) -> None:
    for number in range(1500):
        (outside / f"n{number}").touch()
    found = settle((outside, READ), *((outside / f"n{n}", DENY) for n in range(0, 1500, 2)))
    start = time.process_time()
    rules = compile_rules(found, 7)
    assert time.process_time() - start < 0.5
    read = [rule for rule in rules.rules if rule.access == "read"]
    assert sum(rule.path.startswith(os.fsencode(outside)) for rule in read) == 751


# Names and files


def test_fsr16_a_hard_link_of_a_denied_file_gets_no_rule(outside: Path) -> None:
    """A rule on it would open the denied name too: the kernel ties rules to the file."""
    (outside / "secret").mkdir()
    (outside / "secret" / "key").write_text("secret")
    os.link(outside / "secret" / "key", outside / "alias")
    rules = compile_rules(settle((outside, READ), (outside / "secret", DENY)), 7)
    assert not may_read(rules, f"{outside}/alias")
    assert may_read(rules, f"{outside}/file")


def test_pol05_links_get_no_rule_and_a_denied_link_denies_its_target(
    outside: Path, place: Path
) -> None:
    (outside / "real").mkdir()
    (outside / "real" / "key").write_text("secret")
    (outside / "link").symlink_to("real")
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "link").symlink_to(outside / "link")
    said = (("/", READ), (place / "elsewhere" / "link", DENY))
    rules = compile_rules(settle(*said), 7)
    assert not may_read(rules, f"{outside}/real/key")
    assert os.fsencode(f"{outside}/link") not in {rule.path for rule in rules.rules}
    # Where a link stands is watched: it could be made to lead to what has a rule.
    assert {str(outside), f"{place}/elsewhere"} <= set(rules.watched)


def test_pol14_a_socket_a_fifo_or_a_device_among_the_neighbours_gets_no_rule(
    outside: Path,
) -> None:
    os.mkfifo(outside / "fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(outside / "sock"))
        rules = compile_rules(settle((outside, READ), (outside / "key", DENY)), 7)
    assert [os.path.basename(r.path) for r in rules.rules if r.access == "read"] == [b"file"]


def test_pol08_a_name_that_differs_in_case_alone_from_a_denied_one_gets_no_rule(
    outside: Path,
) -> None:
    (outside / "Secret").mkdir()
    rules = compile_rules(settle((outside, READ), (outside / "secret", DENY)), 7)
    assert not may_read(rules, f"{outside}/Secret/f")


def test_a_file_is_told_from_a_directory_and_named_things_from_neighbours(outside: Path) -> None:
    (outside / "dir").mkdir()
    found = settle((outside, READ), (outside / "key", DENY), (outside / "dir", WRITE))
    rules = {rule.path: rule for rule in compile_rules(found, 7).rules}
    file, tree = rules[os.fsencode(outside / "file")], rules[os.fsencode(outside / "dir")]
    assert (file.is_dir, file.named, tree.is_dir, tree.named) == (False, False, True, True)
    assert (file.dev, file.ino) == (
        os.stat(outside / "file").st_dev,
        os.stat(outside / "file").st_ino,
    )


def test_a_name_that_is_no_text_gets_its_rule(outside: Path) -> None:
    name = os.fsencode(outside) + b"/\xff\xfe"
    Path(os.fsdecode(name)).touch()
    rules = compile_rules(settle((outside, READ), (outside / "key", DENY)), 7)
    assert name in {rule.path for rule in rules.rules}


def test_a_special_file_named_by_a_person_is_a_device() -> None:
    rules = compile_rules(settle(("/", READ), ("/dev/zero", WRITE)), 7)
    assert ("device", True) in {(r.access, r.named) for r in rules.rules if r.path == b"/dev/zero"}


# What is watched


def test_equal_rules_are_equal_whatever_is_watched(outside: Path) -> None:
    settled = settle((outside, READ), (outside / "key", DENY))
    rules = compile_rules(settled, 7)
    (outside / "new").touch()
    assert compile_rules(settled, 7) != rules
    (outside / "new").unlink()
    assert compile_rules(settled, 7) == rules


def test_a_directory_on_the_way_that_appears_later_is_watched_by_the_one_above(
    outside: Path,
) -> None:
    rules = compile_rules(settle((outside, READ), (outside / "x" / "y" / "key", DENY)), 7)
    assert rules.watched == (str(outside),)


def test_a_root_that_is_gone_before_the_rules_are_made_is_an_error(workspace: Path) -> None:
    found = settle(("/", READ), (workspace, WRITE))
    workspace.rmdir()
    with pytest.raises(Unenforceable, match="is gone"):
        compile_rules(found, 7)


def test_a_directory_that_may_not_be_listed_allows_less_and_never_more(place: Path) -> None:
    """An ordinary user with a search-only directory on the way to what is denied."""
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("needs setpriv to become an ordinary user: apt-get install util-linux")
    (place / "box" / "in").mkdir(parents=True)
    (place / "box" / "in" / "key").touch()
    (place / "box" / "in" / "ok").touch()
    (place / "box" / "other").touch()
    (place / "box").chmod(0o711)
    found = settle((place, READ), (place / "box" / "in" / "key", DENY))
    with as_other_user():
        rules = compile_rules(found, 7)
    assert may_read(rules, f"{place}/box/in/ok")
    assert not may_read(rules, f"{place}/box/other")
    assert not may_read(rules, f"{place}/box/in/key")


@contextmanager
def as_other_user() -> Iterator[None]:
    """The effective user is not root, so that permissions count."""
    if os.getuid() != 0:
        pytest.skip("needs root, to take a directory that another user may not list")
    os.seteuid(1000)
    try:
        yield
    finally:
        os.seteuid(0)
