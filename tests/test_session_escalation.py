"""Escalation: what may follow what, what is offered, and that it is the narrowest that helps."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sessionkit import PYTHON, Asked, Place, accepting

from sandbox import Limits, Sandbox, SandboxPolicy, workspace_write
from sandbox.denial import Denial, DenialKind, Evidence, Grant
from sandbox.entries import Access, Entry, Special
from sandbox.errors import InvalidArgument
from sandbox.paths import below
from sandbox.resolve import ResolvedPolicy, resolve
from sandbox.session import ToolCall, process_exec_tool_call
from sandbox.session.escalation import (
    NEXT,
    Event,
    Offer,
    State,
    denied_steps,
    next_state,
    offer,
    unsandboxed,
    widened,
)

DENY, READ, WRITE = Access.DENY, Access.READ, Access.WRITE
RANK = {DENY: 0, READ: 1, WRITE: 2}
OVER = {State.ENDED, State.DENIED}


# The table.


def ways(state: State) -> Iterator[list[tuple[State, Event]]]:
    """All ways from a state to an end."""
    if state in OVER:
        yield []
    for (start, event), end in NEXT.items():
        if start is state:
            for rest in ways(end):
                yield [(start, event), *rest]


def test_only_what_is_over_has_no_way_out() -> None:
    assert {start for start, _ in NEXT} == set(State) - OVER
    assert set(NEXT.values()) == set(State) - {State.ASSESSED}


def test_each_way_runs_at_most_twice_and_never_goes_back() -> None:
    found = [[state for state, _ in way] for way in ways(State.ASSESSED)]
    assert len(found) == 14  # all of them; a cycle would not end
    for states in found:
        assert len(set(states)) == len(states)
        assert states.count(State.RUNNING) + states.count(State.RETRYING) <= 2
        if State.RETRYING in states:
            assert states.index(State.RETRYING) > states.index(State.RUNNING)


def test_a_retry_comes_of_an_approval_of_a_denial_and_of_nothing_else() -> None:
    assert {key for key, end in NEXT.items() if end is State.RETRYING} == {
        (State.OFFERING, Event.APPROVED)
    }
    assert {key for key, end in NEXT.items() if end is State.OFFERING} == {
        (State.RUNNING, Event.DENIAL)
    }
    assert {key for key, end in NEXT.items() if end is State.RUNNING} == {
        (State.ASSESSED, Event.ALLOW),
        (State.ASKING, Event.APPROVED),
    }


def test_what_the_table_does_not_have_cannot_happen() -> None:
    for state in State:
        for event in Event:
            if (state, event) not in NEXT:
                with pytest.raises(KeyError):
                    next_state(state, event)


# Policies, on a small tree that is there.

TREE = (
    "/", "/x", "/x/a", "/x/a/b", "/x/a/b/c", "/x/d", "/x/.git", "/x/.git/h", "/y", "/y/e",
)  # fmt: skip


@pytest.fixture(scope="module")
def tree() -> Iterator[str]:
    """The directories of `TREE`, in one of their own, with a link and a home."""
    top = os.path.realpath(tempfile.mkdtemp(prefix="sandcore-test-", dir="/var/tmp"))
    for path in TREE:
        os.makedirs(top + path, exist_ok=True)
    os.makedirs(f"{top}/home/.ssh")
    os.symlink("a", f"{top}/x/link")
    yield top
    shutil.rmtree(top)


ENTRIES = st.tuples(st.sampled_from(TREE), st.sampled_from(Access))
LAYER = st.lists(ENTRIES, min_size=1, max_size=5)
STEPS = st.tuples(st.sampled_from(["read", "write"]), st.sampled_from(TREE[1:]))


def made(top: str, *layers: list[tuple[str, Access]], **how: Any) -> SandboxPolicy:
    def entries(layer: list[tuple[str, Access]]) -> tuple[Entry, ...]:
        return tuple(Entry(place(top, path), access) for path, access in layer)

    first, *rest = [entries(layer) for layer in layers]
    return SandboxPolicy(entries=first, within=tuple(rest), **how)


def place(top: str, path: str) -> str:
    return "/" if path == "/" else top + path


def really(policy: SandboxPolicy, top: str) -> ResolvedPolicy:
    return resolve(policy, None, f"{top}/home", "")


def named_denied(policy: SandboxPolicy, path: str) -> bool:
    """Whether an entry denies it, in any layer: written a second time, for these tests."""
    for layer in policy.layers:
        over = [entry for entry in layer if entry.path and below(path, entry.path)]
        longest = max((len(entry.path) for entry in over), default=0)
        if any(entry.access is DENY for entry in over if len(entry.path) == longest):
            return True
    return False


@given(layers=st.lists(LAYER, min_size=1, max_size=2), steps=st.lists(STEPS, max_size=3))
def test_no_grant_gives_what_is_denied_and_none_takes_anything(
    tree: str, layers: list[list[tuple[str, Access]]], steps: list[tuple[str, str]]
) -> None:
    policy = made(tree, *layers, allow_secrets=("ssh",))
    grant = Grant(tuple((word, place(tree, path)) for word, path in steps))
    wider = widened(policy, grant)
    for path in [place(tree, one) for one in TREE]:
        if named_denied(policy, path):
            assert wider.access(path) is DENY, path
        elif all(path != value for _, value in grant.steps):
            above = [v for _, v in grant.steps if below(path, str(v))]
            if not above:
                assert wider.access(path) is policy.access(path)
    assert replace(wider, entries=(), within=()) == replace(policy, entries=(), within=())
    again = widened(wider, grant)
    for path in [place(tree, one) for one in TREE]:
        assert again.access(path) is wider.access(path)


@given(layers=st.lists(LAYER, min_size=1, max_size=2))
def test_no_sandbox_is_everything_but_what_is_denied(
    tree: str, layers: list[list[tuple[str, Access]]]
) -> None:
    policy = made(tree, *layers, allow_secrets=("ssh",), limits=Limits(cpu=7))
    free = unsandboxed(policy)
    for path in [place(tree, one) for one in TREE]:
        assert free.access(path) is (DENY if named_denied(policy, path) else WRITE), path
    assert (free.allow_secrets, free.limits, free.network) == (("ssh",), Limits(cpu=7), "full")
    assert free.environment == policy.environment


def test_secrets_stay_secret_with_every_grant_and_with_no_sandbox(tree: str) -> None:
    secret = f"{tree}/home/.ssh"
    base = workspace_write(f"{tree}/x")
    for grant in (Grant.one("allow-secret", "ssh"), Grant.one("write", f"{tree}/home")):
        assert really(widened(base, grant), tree).access(f"{secret}/id") is DENY
    assert really(unsandboxed(base), tree).access(f"{secret}/id") is DENY
    allowed = base.allow_secret("ssh")
    assert really(unsandboxed(allowed), tree).access(f"{secret}/id") is WRITE  # the control
    assert really(allowed, tree).access(f"{secret}/id") is READ


def test_what_is_denied_through_a_link_is_denied_where_that_leads(tree: str) -> None:
    base = workspace_write(f"{tree}/y", deny=[f"{tree}/x/link"])
    grant = Grant.one("write", f"{tree}/x/a/b")
    assert denied_steps(grant, really(base, tree)) == grant.steps
    assert really(widened(base, grant), tree).access(f"{tree}/x/a/b") is DENY
    assert really(unsandboxed(base), tree).access(f"{tree}/x/a/b/c") is DENY
    through = Grant.one("read", f"{tree}/x/link/b")  # of a place that is denied by its own name
    assert denied_steps(through, really(workspace_write(f"{tree}/y", deny=[f"{tree}/x/a"]), tree))


# What is offered.


def refused(
    word: str,
    value: Any,
    evidence: Evidence = Evidence.KERNEL,
    kind: DenialKind = DenialKind.WRITE,
    **more: Any,
) -> Denial:
    return Denial(kind, str(value), evidence, "", Grant.one(word, value), **more)


@settings(max_examples=100)
@given(layer=LAYER, steps=st.lists(STEPS, min_size=1, max_size=4), data=st.data())
def test_what_is_offered_is_enough_and_each_step_of_it_is_needed(
    tree: str, layer: list[tuple[str, Access]], steps: list[tuple[str, str]], data: Any
) -> None:
    policy = made(tree, layer)
    resolved = really(policy, tree)
    wanted = [(word, place(tree, path)) for word, path in steps]
    wanted = [step for step in wanted if not has(resolved, *step)]
    assume(wanted)
    certain = data.draw(st.lists(st.booleans(), min_size=len(wanted), max_size=len(wanted)))
    denials = [
        refused(*step, Evidence.MOUNT if sure else Evidence.MESSAGE)
        for step, sure in zip(wanted, certain, strict=True)
    ]
    found = offer(denials, policy, resolved)
    allowed = [
        (step, sure)
        for step, sure in zip(wanted, certain, strict=True)
        if not named_denied(policy, step[1])
    ]
    if not allowed:
        assert found is None
        return
    assert found is not None and found.grant is not None
    assert found.certain is all(sure for _, sure in allowed)
    assert found.policy == widened(policy, found.grant)
    for step, _ in allowed:
        assert has(really(found.policy, tree), *step), step
    for left_out in found.grant.steps:
        fewer = Grant(tuple(step for step in found.grant.steps if step != left_out))
        with_fewer = really(widened(policy, fewer), tree)
        assert not all(has(with_fewer, *step) for step, _ in allowed), left_out


def has(resolved: ResolvedPolicy, word: str, path: str) -> bool:
    """Whether a policy gives reading, or writing, of a path; also where that is protected."""
    if word == "write" and any(below(path, one) for one in resolved.all_protected):
        return False
    return RANK[resolved.access(path)] >= (2 if word == "write" else 1)


def test_what_is_protected_in_a_granted_directory_is_a_step_of_its_own(tree: str) -> None:
    """Granting the directory alone would protect its `.git`, and the retry fail there."""
    policy = workspace_write(f"{tree}/y")
    denials = [refused("write", f"{tree}/x"), refused("write", f"{tree}/x/.git/h")]
    found = offer(denials, policy, really(policy, tree))
    assert found is not None and found.grant is not None
    assert dict.fromkeys(found.grant.steps) == dict.fromkeys(
        [("write", f"{tree}/x"), ("write", f"{tree}/x/.git/h")]
    )


def test_what_is_not_there_is_not_granted(tree: str) -> None:
    policy = workspace_write(f"{tree}/y")
    assert offer([refused("write", f"{tree}/x/new")], policy, really(policy, tree)) is None
    found = offer([refused("write", f"{tree}/x")], policy, really(policy, tree))
    assert found is not None  # the control: what is


def test_limits_are_offered_but_for_time_and_output(tree: str) -> None:
    policy = workspace_write(f"{tree}/y")
    resolved = really(policy, tree)
    for name, value in (("memory", 1 << 30), ("cpu", 2), ("processes", 9), ("file_size", 99)):
        found = offer([refused(name, value, kind=DenialKind.LIMIT)], policy, resolved)
        assert found is not None and getattr(found.policy.limits, name) == value
    for name, value in (("wall", 240.0), ("output", 1 << 20)):
        denial = Denial(DenialKind.LIMIT, name, Evidence.KERNEL, "", Grant.one(name, value))
        assert offer([denial], policy, resolved, may_leave=True) is None
        both = offer([denial, refused("write", f"{tree}/x")], policy, resolved)
        assert both is not None and both.grant == Grant.one("write", f"{tree}/x")


def test_what_was_put_back_afterwards_is_no_reason_to_ask(tree: str) -> None:
    policy = workspace_write(f"{tree}/y")
    denial = refused("write", f"{tree}/x/.git", Evidence.SWEEP, DenialKind.PROTECTED)
    assert offer([denial], policy, really(policy, tree)) is not None
    changed = replace(denial, change="changed")
    assert offer([changed], policy, really(policy, tree), may_leave=True) is None


def test_secrets_are_never_offered(tree: str) -> None:
    policy = workspace_write(f"{tree}/y")
    resolved, key = really(policy, tree), f"{tree}/home/.ssh"
    steps = (("allow-secret", key), ("read", key))
    denial = Denial(DenialKind.READ, key, Evidence.KERNEL, "", Grant(steps))
    assert offer([denial], policy, resolved, may_leave=True) is None
    assert offer([refused("read", key)], policy, resolved, may_leave=True) is None
    beside = offer([denial, refused("write", f"{tree}/x")], policy, resolved)
    assert beside is not None and beside.grant == Grant.one("write", f"{tree}/x")
    for device in ("/dev/null", "/run/user"):  # of the machine's some need only be named
        if os.path.exists(device):
            assert offer([refused("read", device)], policy, resolved) is None


def test_no_sandbox_is_offered_only_where_no_grant_would_do(tree: str) -> None:
    policy = workspace_write(f"{tree}/y", deny=[f"{tree}/x/d"])
    resolved = really(policy, tree)
    call = Denial(DenialKind.SYSCALL, "mount", Evidence.KERNEL)
    guess = replace(call, evidence=Evidence.MESSAGE)
    denied = Denial(DenialKind.READ, f"{tree}/x/d", Evidence.KERNEL)
    assert offer([call], policy, resolved) is None
    left = offer([call], policy, resolved, may_leave=True)
    assert left == Offer(unsandboxed(policy), None, (call,), True)
    doubtful = offer([call, guess], policy, resolved, may_leave=True)
    assert doubtful is not None and not doubtful.certain
    assert offer([denied], policy, resolved, may_leave=True) is None
    granted = offer([call, refused("write", f"{tree}/x")], policy, resolved, may_leave=True)
    assert granted is not None and granted.grant is not None


def test_a_grant_of_what_no_policy_has_is_its_authors_fault() -> None:
    for grant in (Grant.one("bogus", 1), Grant.one("network", "all")):
        with pytest.raises(InvalidArgument):
            widened(workspace_write("/x"), grant)


# Live.


@pytest.fixture(params=["auto", "landlock"])
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SANDBOX_ISOLATION", request.param)
    return str(request.param)


@pytest.fixture
def here(far: Path) -> Place:
    found = Place(far)
    for name in ("one", "two"):
        (found.out / name).mkdir()
    return found


@contextmanager
def listening(*sockets: socket.socket) -> Iterator[None]:
    """Takes connections of the host, until it is left."""

    def take(one: socket.socket) -> None:
        try:
            while True:
                one.accept()[0].close()
        except OSError:
            return

    threads = [threading.Thread(target=take, args=(one,), daemon=True) for one in sockets]
    for one, thread in zip(sockets, threads, strict=True):
        one.listen()
        thread.start()
    try:
        yield
    finally:
        for one in sockets:
            one.shutdown(socket.SHUT_RDWR)
            one.close()


def address() -> str:
    """An address of this host that is not loopback, which a sandbox has of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this host has no address but loopback")
        return str(one.getsockname()[0])


# Does all of its acts, says which failed and how, and ends with their number.
ACTS = """
import socket, sys
def write(path): open(path, "w").write("x")
def read(path): open(path).read()
def net(where): socket.create_connection(tuple(where.split(":")), 3)
def unix(path): socket.socket(socket.AF_UNIX).connect(path)
def big(path): open(path, "wb").write(bytes(300_000))
def files(path): return [open(path) for _ in range(40)]
failed = 0
for act in sys.argv[1:]:
    word, _, value = act.partition("=")
    try:
        globals()[word](value)
    except OSError as error:
        failed += 1
        print(f"{word}: {error}" + (f" socket {value}" if word == "net" else ""), file=sys.stderr)
sys.exit(failed)
"""

CASES: dict[str, tuple[str, ...]] = {
    "a new file": ("write={out}/one/new",),
    "a file": ("write={out}/file",),
    "two directories": ("write={out}/one/new", "write={out}/two/new"),
    "a directory and a file in another": ("write={out}/one/new", "write={out}/file"),
    "reading": ("read={hidden}/file",),
    "reading and writing": ("read={hidden}/file", "write={out}/one/new"),
    "the network": ("net={net}",),
    "a socket": ("unix={out}/s.sock",),
    "a limit": ("big={work}/big",),
    "two limits": ("big={work}/big", "files=/dev/null"),
    "three kinds": ("write={out}/one/new", "net={net}", "big={work}/big"),
    "three others": ("unix={out}/s.sock", "read={hidden}/file", "big={work}/big"),
}


@pytest.mark.filterwarnings("ignore::sandbox.SandboxWeakened")
@pytest.mark.parametrize("case", CASES)
def test_what_is_offered_is_the_narrowest_that_lets_it_end_well(
    case: str, isolation: str, here: Place
) -> None:
    """Without any one of its steps the same command fails again."""
    acts = " ".join(CASES[case])
    if "unix=" in acts and isolation == "landlock":
        pytest.skip("Landlock alone has no Unix sockets: none can be granted")
    hidden = here.top / "hidden"
    hidden.mkdir()
    (hidden / "file").write_text("hidden\n")
    names = {"out": here.out, "work": here.work, "hidden": hidden}
    sockets = []
    if "net=" in acts:
        sockets.append(socket.create_server((address(), 0)))
        names["net"] = "{}:{}".format(*sockets[-1].getsockname()[:2])
    if "unix=" in acts:
        sockets.append(socket.socket(socket.AF_UNIX))
        sockets[-1].bind(str(here.out / "s.sock"))
    words = [PYTHON, "-c", ACTS, *(act.format(**names) for act in CASES[case])]
    entries = (
        Entry("", READ, Special.MINIMAL),
        Entry("/dev/null", WRITE),
        Entry(str(here.out), READ),
        Entry(str(here.work), WRITE, Special.WORKSPACE),
    )
    limits = Limits(
        file_size=200_000 if "big=" in acts else None, open_files=32 if "files" in acts else 4096
    )
    policy = accepting(SandboxPolicy(entries=entries, limits=limits))
    with listening(*sockets):
        with Sandbox(policy, place=here.work) as box:
            first = box.run(words)
            assert first.returncode == len(CASES[case]), first.text
            found = offer(first.denials, box.policy, box.resolved)
        assert found is not None and found.grant is not None, first
        assert len(found.grant.steps) == len(CASES[case])
        assert ran(found.policy, words, here) == 0
        for step in found.grant.steps:
            rest = Grant(tuple(one for one in found.grant.steps if one != step))
            assert ran(widened(policy, rest), words, here) == 1, step
        # And so it goes through a session: asked once, run twice.
        asked = Asked("once")
        with here.session(policy, asked) as session:
            told = process_exec_tool_call(ToolCall(words), session)
        assert told.ok and told.attempts == 2 and len(asked) == 1, told.text
        assert len(asked.last.allows) == len(CASES[case])


def ran(policy: SandboxPolicy, words: list[str], here: Place) -> int:
    for new in (here.out / "one" / "new", here.out / "two" / "new", here.work / "big"):
        new.unlink(missing_ok=True)
    with Sandbox(policy, place=here.work) as box:
        return box.run(words).returncode


KEPT = """
for file in {files}; do cat "$file" 2>&1; done
echo new > {out}/one/new
"""


@pytest.mark.parametrize("how", ["retry", "no sandbox"])
def test_what_is_denied_or_secret_is_unreadable_in_a_retry_and_without_a_sandbox(
    how: str, here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a pattern, below what is granted, and through a link; a control reads all of it."""
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto")
    home = here.top / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    one = here.out / "one"
    files = {
        one / "plain": "marked-1",
        one / "a.key": "marked-2",
        here.top / "elsewhere": "marked-3",
        home / ".ssh" / "id_x": "marked-4",
    }
    for path, text in files.items():
        path.write_text(text)
    (here.out / "link").symlink_to(here.top / "elsewhere")
    denied = [one / "plain", f"{one}/*.key", here.out / "link"]
    policy, open_policy = here.policy(deny=denied), here.policy().allow_secret("ssh")
    text = KEPT.format(files=" ".join(map(str, files)), out=here.out)
    call = ToolCall(text, unsandboxed=how == "no sandbox")
    for chosen, is_read in ((open_policy, True), (policy, False)):
        (one / "new").unlink(missing_ok=True)
        with here.session(chosen, Asked("once"), unsandboxed=True) as session:
            told = process_exec_tool_call(call, session)
            assert session.boxes.base.isolation == "namespaces"
        assert told.ok and told.attempts == (2 if how == "retry" else 1), told.text
        assert (one / "new").read_text() == "new\n"
        assert told.result is not None
        for marked in files.values():
            assert (marked in told.result.text) is is_read, told.result.text


def test_without_namespaces_no_sandbox_is_refused_where_something_is_denied(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Landlock takes nothing out of what may be written: so it does not run, rather than see it."""
    monkeypatch.setenv("SANDBOX_ISOLATION", "landlock")
    with here.session(approver=Asked("once"), unsandboxed=True) as session:
        told = process_exec_tool_call(ToolCall(f"touch {here.out}/x", unsandboxed=True), session)
    assert told.status == "not-started" and "cannot enforce denied reads" in told.why
    assert not (here.out / "x").exists()


@pytest.mark.parametrize("word", ["read", "write", "allow-secret"])
def test_a_call_that_asks_for_what_is_denied_is_refused_without_asking(
    word: str, isolation: str, here: Place
) -> None:
    asked = Asked("once")
    denied = here.top / "denied"
    denied.mkdir()
    value = "ssh" if word == "allow-secret" else str(denied)
    with here.session(here.policy(deny=[denied]), asked) as session:
        told = process_exec_tool_call(ToolCall("true", grant=Grant.one(word, value)), session)
        assert told.status == "denied" and not len(asked)
        assert f"is not given: {word} {value}" in told.why
        device = ToolCall("true", grant=Grant.one("read", "/dev/loop-control"))
        assert process_exec_tool_call(device, session).status == "denied" and not len(asked)
        if word != "allow-secret":
            other = ToolCall("true", grant=Grant.one(word, str(here.out)))
            assert process_exec_tool_call(other, session).ok and len(asked) == 1
