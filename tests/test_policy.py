"""The policy as a value: which entry decides, what copies allow, and that it makes a good key."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.entries import Access, Entry, Special
from sandbox.environ import Environment
from sandbox.errors import InvalidArgument, InvalidPath
from sandbox.limits import Limits
from sandbox.parts import PARTS as WEAKER
from sandbox.policy import PROTECTED, SandboxPolicy
from sandbox.presets import full_access, read_only, workspace_write

READ, WRITE, DENY = Access.READ, Access.WRITE, Access.DENY
RANK = {DENY: 0, READ: 1, WRITE: 2}

PARTS = st.lists(st.sampled_from("abc"), max_size=3)
PATHS = PARTS.map(lambda parts: "/" + "/".join(parts))
ENTRIES = st.builds(Entry, PATHS, st.sampled_from(Access))
SPECIALS = st.builds(
    lambda special, access: Entry("", access, special),
    st.sampled_from([Special.WORKSPACE, Special.TMP]),
    st.sampled_from(Access),
)
PLAIN = st.lists(ENTRIES, max_size=5).map(tuple)
POLICIES = st.builds(
    SandboxPolicy,
    entries=st.lists(ENTRIES | SPECIALS, max_size=5).map(tuple),
    network=st.sampled_from(["none", "loopback", "full"]),
    require=st.sampled_from([None, "landlock", "namespaces"]),
    allow_secrets=st.lists(st.sampled_from(["ssh", "aws", "gh", "*"]), max_size=2).map(tuple),
    protected=st.lists(st.sampled_from([".git", ".idea", "x"]), max_size=2).map(tuple),
    unix_sockets=st.lists(st.sampled_from(["/a/s", "/b/s"]), max_size=2).map(tuple),
    accept=st.none() | st.lists(st.sampled_from(["names", "tmp"]), max_size=2).map(tuple),
)
PLACES = st.fixed_dictionaries({Special.WORKSPACE: PATHS, Special.TMP: PATHS})
EVERY_PATH = ["/" + "/".join(p) for n in range(4) for p in itertools.product("abc", repeat=n)]


def policy(*entries: tuple[str, str]) -> SandboxPolicy:
    return SandboxPolicy(entries=tuple(Entry(path, Access(access)) for path, access in entries))


# One path


def test_no_entries_allow_nothing() -> None:
    assert SandboxPolicy().access("/") is DENY
    assert SandboxPolicy().access("/a") is DENY


def test_the_most_specific_entry_decides() -> None:
    here = policy(("/", "read"), ("/a", "write"), ("/a/b", "deny"), ("/a/b/c", "read"))
    found = [here.access(path) for path in ("/x", "/a", "/a/x", "/a/b", "/a/b/x", "/a/b/c/x")]
    assert found == [READ, WRITE, WRITE, DENY, DENY, READ]


@pytest.mark.parametrize("order", list(itertools.permutations(["read", "write", "deny"])))
def test_on_a_tie_deny_beats_write_beats_read(order: tuple[str, ...]) -> None:
    assert policy(*(("/a", access) for access in order)).access("/a") is DENY
    without = [("/a", access) for access in order if access != "deny"]
    assert policy(*without).access("/a") is WRITE


def test_a_name_that_only_begins_alike_is_another() -> None:
    here = policy(("/x/proj", "write"))
    assert here.access("/x/proj/f") is WRITE
    assert here.access("/x/proj-evil/f") is DENY


@given(PLAIN, st.sampled_from(EVERY_PATH))
def test_access_is_the_rule_of_the_design(entries: tuple[Entry, ...], path: str) -> None:
    def covers(entry: Entry) -> bool:
        return entry.path == "/" or f"{path}/".startswith(f"{entry.path}/")

    covering = [entry for entry in entries if covers(entry)]
    longest = max((len(entry.path) for entry in covering), default=0)
    last = {entry.access for entry in covering if len(entry.path) == longest}
    expected = DENY if DENY in last or not last else WRITE if WRITE in last else READ
    assert SandboxPolicy(entries=entries).access(path) is expected


@given(PLAIN, st.randoms())
def test_the_order_of_entries_does_not_matter(entries: tuple[Entry, ...], random: Any) -> None:
    shuffled = list(entries)
    random.shuffle(shuffled)
    for path in EVERY_PATH:
        one, other = SandboxPolicy(entries=entries), SandboxPolicy(entries=tuple(shuffled))
        assert one.access(path) is other.access(path)


def test_a_special_covers_what_it_is_said_to_be() -> None:
    here = workspace_write()
    assert here.access("/w/f") is READ
    assert here.access("/w/f", {Special.WORKSPACE: "/w"}) is WRITE


@pytest.mark.parametrize("path", ["", "a", "/a\0", "/a/../b", "/\udcff", b"/a", 3])
def test_an_entry_with_a_bad_path_is_refused(path: Any) -> None:
    with pytest.raises(InvalidPath):
        Entry(path, READ)
    with pytest.raises(InvalidPath):
        read_only().with_write(path)


def test_an_entry_with_an_unknown_access_or_special_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="execute"):
        Entry("/a", "execute")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="lunch"):
        Entry("", READ, "lunch")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="takes no path"):
        Entry("/a", READ, Special.TMP)


# Copies


def test_copies_change_one_thing_and_leave_the_original() -> None:
    base = read_only()
    assert base.with_write("/a").access("/a/b") is WRITE
    assert base.with_deny("/a").access("/a/b") is DENY
    assert base.with_deny("/a").with_read("/a").access("/a/b") is READ
    assert base.with_write("/a").with_read("/a").access("/a/b") is READ
    assert base.with_network("full").network == "full"
    assert base.with_network("full").without_network() == base
    assert base.with_accept(["tmp"]).accept == ("tmp",)
    assert base.with_accept(["tmp"]).with_accept(None) == base
    assert base.with_limits(Limits(cpu=1)).limits.cpu == 1
    assert base.with_environment(Environment(inherit="none")).environment.inherit == "none"
    assert base.allow_secret("ssh").allow_secrets == ("ssh",)
    assert base.with_unix_socket("/a//s").with_unix_socket("/a/s").unix_sockets == ("/a/s",)
    assert base == read_only()


def test_sockets_are_named_by_few_paths_and_full_access_reaches_all() -> None:
    for wrong in ("/a", [f"/{number}" for number in range(65)]):
        with pytest.raises(InvalidArgument):
            SandboxPolicy(unix_sockets=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidPath):
        SandboxPolicy(unix_sockets=("",))
    named = read_only().with_unix_socket("/a/s")
    assert full_access().narrow(named).unix_sockets == ("/a/s",)
    assert named.narrow(full_access()).unix_sockets == ("/a/s",)
    assert named.narrow(read_only()).unix_sockets == ()
    assert read_only().widen(named).unix_sockets == ("/a/s",)
    assert full_access().with_unix_socket("/a/s").unconfined


@given(POLICIES, POLICIES, PLACES)
def test_a_narrowed_policy_is_what_both_allow(
    one: SandboxPolicy, other: SandboxPolicy, places: dict[Special, str]
) -> None:
    both = one.narrow(other)
    for path in EVERY_PATH:
        least = min(one.access(path, places), other.access(path, places), key=RANK.__getitem__)
        assert both.access(path, places) is least
    assert both.network == min(one.network, other.network, key=["none", "loopback", "full"].index)
    assert set(both.unix_sockets) == {*one.unix_sockets} & {*other.unix_sockets}
    order = [None, "landlock", "namespaces"]
    assert both.require == max(one.require, other.require, key=order.index)
    assert set(both.protected) == {*one.protected, *other.protected}
    accepted = [set(WEAKER) if one.accept is None else set(one.accept) for one in (one, other)]
    assert (set(WEAKER) if both.accept is None else set(both.accept)) == accepted[0] & accepted[1]
    wide = one.widen(other).accept
    assert (set(WEAKER) if wide is None else set(wide)) == accepted[0] | accepted[1]
    for name in ("ssh", "aws", "gh"):
        allowed = [bool({name, "*"} & set(p.allow_secrets)) for p in (one, other)]
        assert bool({name, "*"} & set(both.allow_secrets)) is all(allowed)


@given(POLICIES, POLICIES, POLICIES, PLACES)
def test_narrowing_does_not_depend_on_order_or_grouping(
    a: SandboxPolicy, b: SandboxPolicy, c: SandboxPolicy, places: dict[Special, str]
) -> None:
    ways = [a.narrow(b).narrow(c), a.narrow(b.narrow(c)), c.narrow(b).narrow(a)]
    for path in EVERY_PATH:
        assert len({way.access(path, places) for way in ways}) == 1


@given(PLAIN, PLAIN)
def test_a_widened_policy_allows_what_either_does_and_keeps_the_denies_of_the_first(
    mine: tuple[Entry, ...], theirs: tuple[Entry, ...]
) -> None:
    base, other = SandboxPolicy(entries=mine), SandboxPolicy(entries=theirs)
    wide = base.widen(other)
    for path in EVERY_PATH:
        named = [e for e in mine if f"{path}/".startswith(f"{e.path.rstrip('/')}/")]
        longest = max((len(entry.path) for entry in named), default=0)
        said_no = DENY in {e.access for e in named if len(e.path) == longest and e.path != "/"}
        most = max(base.access(path), other.access(path), key=RANK.__getitem__)
        assert wide.access(path) is (DENY if said_no else most)


@given(POLICIES, POLICIES, PLACES)
def test_widening_never_lifts_a_deny_of_the_first_wherever_specials_lie(
    base: SandboxPolicy, other: SandboxPolicy, places: dict[Special, str]
) -> None:
    wide = base.widen(other)
    for entry in base.entries:
        path = entry.path or places.get(entry.special or Special.MINIMAL, "")
        if entry.access is DENY and path != "/" and base.access(path, places) is DENY:
            assert wide.access(path, places) is DENY


def test_what_was_narrowed_can_be_granted_by_hand() -> None:
    narrow = workspace_write("/w").narrow(read_only())
    assert narrow.access("/w/f") is READ
    assert narrow.with_write("/w/f").access("/w/f") is WRITE
    assert narrow.with_deny("/w/f").access("/w/f") is DENY


def test_narrowing_by_read_only_takes_all_writing() -> None:
    places = {Special.WORKSPACE: "/w", Special.TMP: "/t"}
    narrow = workspace_write(write=["/x"]).narrow(read_only())
    assert [narrow.access(p, places) for p in ("/w", "/x", "/t", "/etc")] == [
        READ, READ, WRITE, READ,
    ]  # fmt: skip


# Other parts


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("network", "domains", "network='domains'"),
        ("network", None, "network=None"),
        ("require", "seatbelt", "require='seatbelt'"),
        ("protected", ("a/b",), "'a/b'"),
        ("protected", ("",), "protected=''"),
        ("protected", ("..",), "'..'"),
        ("protected", ".git", "must be a list"),
        ("allow_secrets", "ssh", "must be a list"),
        ("allow_secrets", ("shh",), "'shh'"),
        ("allow_secrets", (3,), "is not text"),
        ("accept", ("nams",), "names"),
        ("accept", "names", "must be a list"),
        ("entries", ("/a",), "is no Entry"),
        ("environment", {}, "Environment"),
        ("limits", None, "Limits"),
        ("extra_filter", b"", "0 bytes"),
        ("extra_filter", b"1234567", "7 bytes"),
        ("extra_filter", b"12345678" * 4097, "1 to 4096"),
        ("extra_filter", "text", "is not bytes"),
    ],
)
def test_a_part_that_means_nothing_is_refused_and_named(field: str, value: Any, named: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        SandboxPolicy(**{field: value})
    assert named in str(caught.value)


def test_a_filter_of_the_largest_size_is_taken() -> None:
    program = b"12345678" * 4096
    assert SandboxPolicy(extra_filter=program).extra_filter == program
    assert read_only().narrow(SandboxPolicy(extra_filter=program)).extra_filter == program
    with pytest.raises(InvalidArgument, match="two filters"):
        SandboxPolicy(extra_filter=program).narrow(SandboxPolicy(extra_filter=b"12345678"))


def test_the_default_protected_names_are_those_of_the_design() -> None:
    assert SandboxPolicy().protected == PROTECTED
    assert {".git", ".agents", ".codex", ".claude", ".vscode", ".envrc"} < set(PROTECTED)


def test_only_full_access_is_unconfined() -> None:
    assert full_access().unconfined
    for less in (
        read_only(),
        workspace_write(),
        SandboxPolicy(entries=(Entry("/", WRITE),), network="full"),
        full_access().with_deny("/a"),
        full_access().with_read("/a"),
        full_access().without_network(),
        full_access().narrow(read_only()),
    ):
        assert not less.unconfined


# As a key


@given(POLICIES)
def test_equal_policies_are_one_key_also_after_a_pickle(one: SandboxPolicy) -> None:
    back = pickle.loads(pickle.dumps(one))
    assert back == one and hash(back) == hash(one)
    assert {one: 1}[back] == 1
    assert one != one.with_limits(Limits(cpu=77))
    assert one != "a policy"


def test_a_policy_pickled_elsewhere_is_the_same_key_here() -> None:
    """Hashes of text differ from process to process, so a hash must not travel."""
    code = (
        "import pickle, sys; from sandbox.presets import workspace_write;"
        " sys.stdout.buffer.write(pickle.dumps(workspace_write('/w')))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, check=True)
    assert {workspace_write("/w"): "found"}[pickle.loads(done.stdout)] == "found"


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        read_only().network = "full"  # type: ignore[misc]
    assert not hasattr(read_only(), "__dict__")
