"""Policies as Seatbelt profiles: what they mean, proved by the evaluator, and mistakes it sees."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import seatbeltkit as kit
from hypothesis import given
from hypothesis import strategies as st

from sandbox.backends.sbpl import Asked, Evaluator, SbplError
from sandbox.backends.search import glob_expression, literal_part
from sandbox.backends.seatbelt import Profile, compile_profile
from sandbox.entries import Access
from sandbox.errors import Unenforceable
from sandbox.paths import ancestors, below
from sandbox.presets import workspace_write
from sandbox.protected import protected_paths
from sandbox.resolve import ResolvedPolicy, resolve

READ, WRITE, DENY = Access.READ, Access.WRITE, Access.DENY
WRITING = ("file-write-create", "file-write-data", "file-write-mode", "file-write-xattr")
READING = ("file-read-data", "file-read-metadata", "file-map-executable", "process-exec")

# Names that could be more than names, in text or in an expression.
NAMES = ["a", "A", "b.pem", "Library", ".git", ".gitx", ".GIT", ".x", 'q"(', "(p)", "[s]", "ü \\"]
DEEP = ["/" + "/".join(parts) for n in range(1, 4) for parts in itertools.product("ab", repeat=n)]
HOME = "/a/b"


def path_of(parts: list[str]) -> str:
    return "/" + "/".join(parts)


PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(path_of)
IN_HOME = st.lists(st.sampled_from(NAMES), max_size=2).map(lambda parts: "/".join([HOME, *parts]))
ANY_PATH = st.just("/") | PATHS | IN_HOME | st.sampled_from(DEEP)
TABLES = st.dictionaries(ANY_PATH, st.sampled_from(Access), max_size=6)
PATTERNS = st.lists(
    st.sampled_from(["/a/*.pem", "/**/b.*", "/a/**/[ab]", "/a/?", "/(p)/*/a", "/a/**"]), max_size=2
).map(lambda found: tuple(dict.fromkeys(found)))


@st.composite
def policies(draw: st.DrawFn) -> ResolvedPolicy:
    return kit.settled(
        draw(TABLES),
        protected=tuple(draw(st.lists(st.sampled_from([".git", "[s]"]), max_size=2, unique=True))),
        patterns=draw(PATTERNS),
        home=HOME,
    )


# What the policy says, in its own words; on a Mac a name in another case is the same


def is_matched(resolved: ResolvedPolicy, path: str) -> bool:
    texts = [
        glob_expression(one, lambda sign: f"(?i:{re.escape(sign)})") for one in resolved.patterns
    ]
    wholes = [re.compile(text, re.DOTALL) for text in texts]
    starts = [literal_part(one) for one in resolved.patterns]
    return any(
        whole.fullmatch(above) is not None and below(above, start)
        for whole, start in zip(wholes, starts, strict=True)
        for above in ancestors(path)
    )


def is_another_case(resolved: ResolvedPolicy, path: str, kept: Iterable[str]) -> bool:
    """Whether a path is a kept one by another case of what is below a writable directory."""
    for one in kept:
        roots = [above for above in ancestors(one)[1:] if above in resolved.writable]
        if roots and below(path, roots[-1]) and below(path.lower(), one.lower()):
            return True
    return False


def may_read(resolved: ResolvedPolicy, path: str) -> bool:
    denied = [one.path for one in resolved.places if one.access is DENY]
    # What is granted below something denied is granted by its exact name.
    inner = [one for one in denied if is_another_case(resolved, path, [one])]
    exact = [one for one in ancestors(path) if one in resolved.table()][:1]
    within = [one for one in inner if exact and not below(exact[0], one)]
    return resolved.access(path) is not DENY and not within and not is_matched(resolved, path)


def is_setting(resolved: ResolvedPolicy, path: str) -> bool:
    """A dot file of HOME, or what is in its Library, that is not granted by a name of its own."""
    begin = (f"{resolved.home}/.", f"{resolved.home}/Library/")
    if not f"{path}/".startswith(begin):
        return False
    roots = [root for root in ancestors(path) if root in resolved.writable]
    return not any(
        resolved.access(root) is WRITE and f"{root}/".startswith(begin) for root in roots
    )


def may_write(resolved: ResolvedPolicy, path: str) -> bool:
    root = next((one for one in ancestors(path) if one in resolved.table()), "/")
    kept = [one.path for one in resolved.places if one.access is not WRITE]
    # What is granted by its exact name is no other case of something.
    inner = [one for one in (*kept, *resolved.all_protected) if below(one, root)]
    return (
        resolved.access(path) is WRITE
        and not is_another_case(resolved, path, inner)
        and not is_matched(resolved, path)
        and not is_setting(resolved, path)
    )


@given(policies(), st.lists(ANY_PATH, min_size=1, max_size=8))
def test_the_profile_allows_what_the_policy_does_and_nothing_else(
    resolved: ResolvedPolicy, paths: list[str]
) -> None:
    ask = kit.asker(resolved)
    for path in paths:
        if path == "/":
            continue  # of which everything is a part
        assert ask("file-read-data", path) is may_read(resolved, path), path
        for operation in WRITING:
            assert ask(operation, path) is may_write(resolved, path), (operation, path)


@given(policies(), st.lists(ANY_PATH, min_size=1, max_size=8))
def test_what_may_be_removed_or_renamed_has_nothing_below_it_that_may_not(
    resolved: ResolvedPolicy, paths: list[str]
) -> None:
    """Rules know paths: what is moved away is known no more."""
    ask = kit.asker(resolved)
    named = [*paths, *(one.path for one in resolved.places), *resolved.all_protected]
    universe = {above for path in (*named, HOME) for above in ancestors(path)}
    universe |= {f"{path.rstrip('/')}/{name}" for path in universe for name in ("a", "b.pem", ".x")}
    for path in universe - {"/"}:
        is_directory = any(one != path and below(one, path) for one in universe)
        if ask("file-write-unlink", path, directory=is_directory):
            inside = [one for one in universe if below(one, path)]
            assert [one for one in inside if not may_write(resolved, one)] == [], path
        elif not resolved.patterns and may_write(resolved, path):  # and there is a reason
            rest = [one for one in universe if below(one.lower(), path.lower())]
            kept = [one for one in rest if not may_write(resolved, one)]
            near = below(HOME.lower(), path.lower())
            same = [one for one in resolved.writable if one.lower() == path.lower()]
            assert kept or same or near, path


@given(policies(), st.lists(ANY_PATH, min_size=1, max_size=6))
def test_rules_that_contradict_each_other_are_about_moving_alone(
    resolved: ResolvedPolicy, paths: list[str]
) -> None:
    """So the answer does not depend on which of two rules wins, of which reports differ."""
    made = kit.evaluator(compile_profile(resolved))
    for path in paths:
        for operation in (*READING, *WRITING):
            said = {rule.allows for rule in made.matching(Asked(operation, path))}
            assert said in (set(), {True}, {False}) or operation == "file-map-executable"


def test_a_denied_place_may_have_a_granted_one_in_it_which_can_be_reached() -> None:
    resolved = kit.settled({"/": READ, "/s": DENY, "/s/in/open": WRITE})
    ask = kit.asker(resolved)
    assert not ask("file-read-data", "/s") and not ask("file-read-data", "/s/in")
    assert ask("file-read-data", "/s/in/open/x") and ask("file-write-create", "/s/in/open/x")
    assert ask("file-read-metadata", "/s") and ask("file-read-metadata", "/s/in")
    assert not ask("file-read-metadata", "/s/other")


def test_the_root_itself_is_seen_and_nothing_below_it() -> None:
    """Programs die at their start without: dyld looks at it."""
    ask = kit.asker(kit.settled({"/usr": READ, "/w": WRITE}))
    assert ask("file-read-data", "/") and ask("file-read-metadata", "/")
    for path in ("/Users", "/Users/me", "/x"):
        assert not ask("file-read-data", path), path
    assert not ask("file-write-create", "/x") and not ask("file-write-data", "/")


def test_programs_that_may_not_be_read_may_not_be_executed() -> None:
    ask = kit.asker(kit.settled({"/": READ, "/s": DENY}))
    assert ask("process-exec", "/bin/ls") and ask("file-map-executable", "/usr/lib/x.dylib")
    assert not ask("process-exec", "/s/x") and not ask("file-map-executable", "/s/x")


def test_a_pattern_with_a_class_that_escapes_is_refused() -> None:
    for pattern in ("/a/[\\]]", "/a/[[]"):
        with pytest.raises(Unenforceable, match="pattern"):
            compile_profile(kit.settled({"/a": WRITE}, patterns=(pattern,)))


def test_what_is_made_in_another_case_is_not_read_when_the_host_has_written_into_it() -> None:
    table = {"/": READ, "/w": WRITE, "/w/conf/secret": DENY, "/w/kept": READ}
    right = compile_profile(kit.settled(table, patterns=("/w/**/*.pem",)))
    wrong = kit.without(right, lambda word, name, value: word == "regex" and "_NAME_" in name)
    for path in ("/w/conf/SECRET", "/w/Conf/secret/x", "/w/KEPT"):
        assert not kit.asks(right)("file-write-create", path), path
        assert kit.asks(wrong)("file-write-create", path), path
    assert not kit.asks(right)("file-read-data", "/w/CONF/Secret")
    assert not kit.asks(right)("file-write-unlink", "/w/Conf", directory=True)
    plain = compile_profile(kit.settled(table))
    moving = kit.without_lines(plain, '(deny file-write-unlink (regex (param "PINNED_NAME')
    assert not kit.asks(plain)("file-write-unlink", "/w/Conf", directory=True)
    assert kit.asks(moving)("file-write-unlink", "/w/Conf", directory=True)
    assert not kit.asks(right)("file-read-data", "/w/a/KEY.PEM")
    assert kit.asks(right)("file-read-data", "/W/conf/secret")  # outside: it cannot be made there


# Published mistakes: the right profile refuses, and the evaluator sees what the wrong one lets pass

LAID_OUT = {
    "/": READ,
    "/w": WRITE,
    "/w/deep/secret": DENY,
    kit.HOME: WRITE,
    f"{kit.HOME}/.cache": WRITE,
}


def laid_out() -> Profile:
    return compile_profile(kit.settled(LAID_OUT, protected=(".git",)))


def test_dot_files_of_home_are_closed_and_a_profile_that_opens_them_is_seen() -> None:
    """anthropic-experimental/sandbox-runtime#175."""
    right = laid_out()
    wrong = kit.without(right, lambda word, name, value: name.startswith("HOME_SETTINGS"))
    for name in (".bashrc", ".zshrc", ".config/x", ".ssh", "Library/LaunchAgents/x.plist"):
        assert not kit.asks(right)("file-write-create", f"{kit.HOME}/{name}")
        assert kit.asks(wrong)("file-write-create", f"{kit.HOME}/{name}")
    assert kit.asks(right)("file-write-create", f"{kit.HOME}/notes")


def test_a_dot_file_of_home_is_open_where_it_is_granted_by_name() -> None:
    ask = kit.asks(laid_out())
    assert ask("file-write-create", f"{kit.HOME}/.cache/x")
    assert not ask("file-write-create", f"{kit.HOME}/.cachex")


def test_an_ancestor_cannot_be_renamed_and_a_profile_that_lets_it_is_seen() -> None:
    """anthropic-experimental/sandbox-runtime#8, openai/codex: mv, then another in its place."""
    right = laid_out()
    wrong = kit.without_lines(right, "(deny file-write-unlink")
    for path in ("/w", "/w/deep"):
        assert not kit.asks(right)("file-write-unlink", path, directory=True)
        assert kit.asks(wrong)("file-write-unlink", path, directory=True)
    assert kit.asks(right)("file-write-unlink", "/w/other", directory=True)


def test_a_protected_name_cannot_be_made_and_a_profile_that_names_only_below_is_seen() -> None:
    """openai/codex, seatbelt.rs: ``subpath`` lets the directory itself be made."""
    right = laid_out()
    wrong = kit.without(right, lambda word, name, value: word != "subpath" and "PROT" in name)
    assert not kit.asks(right)("file-write-create", "/w/.git")
    assert kit.asks(wrong)("file-write-create", "/w/.git")
    for ask in (kit.asks(right), kit.asks(wrong)):
        assert not ask("file-write-create", "/w/.git/hooks") and ask("file-write-create", "/w/git")


def test_a_protected_name_is_one_in_any_case_and_a_profile_of_one_case_is_seen() -> None:
    """CVE-2025-59944: the usual file system of a Mac takes one for the other."""
    right = laid_out()
    wrong = kit.without(right, lambda word, name, value: name.startswith("PROTECTED_NAME"))
    for path in ("/w/.GIT", "/w/.Git/hooks/x"):
        assert not kit.asks(right)("file-write-create", path)
        assert kit.asks(wrong)("file-write-create", path)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        (".vscode", (".v\u017fcode", ".V\u017fCODE")),
        (".mcp.json", (".mcp.j\u017fon",)),
        ("kiss", ("\u212aiss", "ki\u00df", "KI\u1e9e", "ki\u017fs")),
        ("office.st", ("o\ufb03ce.st", "o\ufb00ice.st", "of\ufb01ce.\ufb06", "office.\ufb05")),
        ("fless", ("\ufb02e\u00df", "\ufb02ess")),
        ("lesst", ("le\u00dft", "les\ufb06")),
        ("\u00fcber", ("\u00dcBER",)),
        ("sssssssss", ("sssssss\u00df",)),
    ],
)
def test_a_name_is_kept_in_each_spelling_that_folds_to_it(
    name: str, others: tuple[str, ...]
) -> None:
    """Unicode, CaseFolding.txt; all that the usual file system of a Mac takes for one name."""
    protected = kit.asker(kit.settled({"/": READ, "/w": WRITE}, protected=(name,)))
    matched = kit.asker(kit.settled({"/w": WRITE}, patterns=(f"/w/**/{name}",)))
    for other in (name, *others):
        assert other.casefold() == name.casefold()
        for ask in (protected, matched):
            assert not ask("file-write-create", f"/w/{other}"), other
            assert not ask("file-write-create", f"/w/{other}/x"), other
    for ask in (protected, matched):
        assert ask("file-write-create", "/w/other") and ask("file-write-create", f"/w/x{name}")


def test_the_private_spelling_is_the_same_and_a_profile_with_one_of_them_is_seen() -> None:
    table = {"/": READ, "/tmp/w": WRITE, "/tmp/w/kept": READ, "/var/secret": DENY, "/etc/s": DENY}
    right = compile_profile(kit.settled(table))
    wrong = kit.without(right, lambda word, name, value: value.startswith("/private/"))
    for path in ("/private/var/secret", "/private/etc/s/x"):
        assert not kit.asks(right)("file-read-data", path)
        assert kit.asks(wrong)("file-read-data", path)
    assert kit.asks(right)("file-write-create", "/private/tmp/w/x")
    assert not kit.asks(wrong)("file-write-create", "/private/tmp/w/x")
    assert not kit.asks(right)("file-write-data", "/private/tmp/w/kept")
    given = compile_profile(kit.settled({"/": READ, "/private/var/secret": DENY}))
    assert not kit.asks(given)("file-read-data", "/var/secret")


def test_the_second_name_of_the_data_volume_is_excepted_too() -> None:
    right = compile_profile(kit.settled({"/": READ, f"{kit.HOME}/.ssh": DENY}))
    wrong = kit.without(right, lambda word, name, value: value.startswith("/System/Volumes"))
    path = f"/System/Volumes/Data{kit.HOME}/.ssh/id"
    assert not kit.asks(right)("file-read-data", path)
    assert kit.asks(wrong)("file-read-data", path)


def test_a_symlinked_protected_name_keeps_its_target_and_a_profile_of_names_alone_is_seen(
    workspace: Path, place: Path
) -> None:
    (workspace / "real").mkdir()
    (workspace / ".git").symlink_to("real")
    resolved = resolve(workspace_write(), str(workspace), str(place / "home"), "")
    right = compile_profile(resolved)
    target = f"{workspace}/real"
    shown = (target, "[rR][eE][aA][lL]")
    wrong = kit.without(right, lambda word, name, value: any(one in value for one in shown))
    assert not kit.asks(right)("file-write-create", f"{target}/hooks")
    assert kit.asks(wrong)("file-write-create", f"{target}/hooks")
    assert not kit.asks(right)("file-write-unlink", f"{workspace}/.git")


@pytest.mark.parametrize(
    "name",
    ['a")) (allow file-write* (subpath "/")) ((', "it's (1)", "a;b", "a\nb", 'x\\"y', "$(z)"],
)
def test_a_path_is_no_text_of_the_profile_and_one_that_is_pasted_is_seen(name: str) -> None:
    path = f"/w/{name}"
    right = compile_profile(kit.settled({"/": READ, path: WRITE, f"{path}/kept": READ}))
    assert name not in right.text
    ask = kit.asks(right)
    assert ask("file-write-create", f"{path}/x") and not ask("file-write-create", "/etc/x")
    assert not ask("file-write-data", f"{path}/kept")
    if name.startswith('a"'):
        pasted = f'(version 1)\n(deny default)\n(allow file-write* (subpath "{path}"))\n'
        with pytest.raises(SbplError, match="line"):
            Evaluator(pasted, {})
        pasted = pasted.replace("((", "")
        assert Evaluator(f"{pasted[:-4]}", {}).ask(Asked("file-write-create", "/etc/x")).allowed


def test_what_runs_unconfined_is_not_writable_wherever_it_lies() -> None:
    venv = "/w/.venv/lib/psutil"
    profile = compile_profile(kit.settled({"/": READ, "/w": WRITE}), (), (venv, "/usr/lib/python"))
    ask = kit.asks(profile)
    assert not ask("file-write-data", f"{venv}/__init__.py") and ask("file-read-data", venv)
    assert not ask("file-write-unlink", "/w/.venv", directory=True)
    assert ask("file-write-create", "/w/.venv/lib/other")
    wrong = kit.asks(kit.without(profile, lambda word, name, value: name.startswith("OURS")))
    assert wrong("file-write-data", f"{venv}/__init__.py")


def test_a_device_is_open_where_the_policy_names_it() -> None:
    ask = kit.asker(kit.settled({"/": READ, "/dev/ttys001": WRITE}))
    assert ask("file-write-data", "/dev/ttys001") and not ask("file-write-data", "/dev/ttys002")
    assert ask("file-read-data", "/dev/ttys001") and not ask("file-read-data", "/dev/ttys002")


# What others could do for a command


@pytest.mark.parametrize("network", ["none", "loopback", "full"])
def test_nothing_that_acts_for_others_is_reached(network: str) -> None:
    ask = kit.asker(kit.settled({"/": READ, "/w": WRITE}, network=network))  # type: ignore[arg-type]
    for service in (
        "com.apple.coreservices.launchservicesd",
        "com.apple.coreservices.appleevents",
        "com.apple.coreservices.quarantine-resolver",
        "com.apple.cfprefsd.daemon",
        "com.apple.cfprefsd.agent",
        "com.apple.pasteboard.1",
        "com.apple.SecurityServer",
        "com.apple.securityd.xpc",
        "com.apple.secd",
        "com.apple.metadata.mds",
        "com.apple.xpc.launchd.domain.user",
    ):
        assert not ask("mach-lookup", name=service), service
    for operation in (
        *("appleevent-send", "lsopen", "mach-register", "user-preference-write", "file-mount"),
        *("file-link", "iokit-open", "iokit-get-properties", "nvram-set", "job-creation"),
        *("ipc-sysv-shm", "mach-priv-task-port", "process-info-pidinfo"),
    ):
        assert not ask(operation, "/w/x"), operation
    assert ask("mach-lookup", name="com.apple.system.opendirectoryd.libinfo")
    assert ask("signal", name="same-sandbox") and not ask("signal")
    assert ask("process-info-pidinfo", name="same-sandbox")


def test_what_the_default_does_not_cover_is_denied_by_name_and_a_profile_without_is_seen() -> None:
    right = laid_out()
    for name in ("process-info*", "nvram*", "iokit-get-properties"):
        wrong = kit.without_lines(right, f"(deny {name})")
        operation = name.rstrip("*")
        assert not kit.asks(right)(operation) and kit.asks(wrong)(operation)


def test_no_xpc_service_is_reached_and_a_profile_that_reaches_them_is_seen() -> None:
    """openai/codex, seatbelt.rs: their names are no global ones."""
    right = rich()
    wrong = kit.without_lines(right, "(deny mach-lookup (xpc-service-name-prefix")
    service = "com.apple.example.service"
    assert not kit.asks(right)("mach-lookup", xpc=service)
    assert kit.asks(wrong)("mach-lookup", xpc=service)
    assert not kit.asks(wrong)("mach-lookup", name=service)
    last = right.bare.splitlines()[-1]
    assert last == '(deny mach-lookup (xpc-service-name-prefix ""))'
    assert kit.asks(right)("mach-lookup", name="com.apple.system.opendirectoryd.libinfo")


def test_no_fcntl_writes_into_what_is_open_for_reading_and_a_profile_that_lets_it_is_seen() -> None:
    """openai/codex, seatbelt.rs: neither asks for file-write*."""
    right = laid_out()
    rule = "(deny system-fcntl"
    at = right.text.index(rule)
    end = right.text.index("\n", right.text.index("(fcntl-command", at))
    wrong = right._replace(text=right.text[:at] + right.text[end:])
    for number in (80, 110):
        assert not kit.asks(right)("system-fcntl", command=number)
        assert kit.asks(wrong)("system-fcntl", command=number)
    assert kit.asks(right)("system-fcntl", command=2)  # F_SETFD: every program


def test_facts_of_the_machine_are_read_and_those_of_processes_are_not() -> None:
    ask = kit.asker(kit.settled({"/": READ}))
    for name in ("hw.ncpu", "kern.sysv.semmns", "hw.perflevel0.name", "net.routetable.0.0.3.0"):
        assert ask("sysctl-read", name=name), name
    for name in ("kern.procargs2", "kern.proc.all", "kern.boottime", "xhw.ncpu", "hw.ncpux"):
        assert not ask("sysctl-read", name=name), name
    assert ask("sysctl-write", name="kern.grade_cputype")
    assert not ask("sysctl-write", name="kern.hostname")


@pytest.mark.parametrize("table", [{"/w": WRITE}, {"/": READ}, {"/": WRITE}])
def test_devices_are_named_and_terminals_are_ones_own(table: dict[str, Access]) -> None:
    """A terminal of this user's shows what he types."""
    ask = kit.asker(kit.settled(table))
    for name in ("ttys001", "disk0", "console"):
        assert not ask("file-read-data", f"/dev/{name}"), name
    for name in ("null", "zero", "tty", "ptmx", "fd/12"):
        assert ask("file-write-data", f"/dev/{name}"), name
    for name in ("disk0", "rdisk0", "mem", "auditpipe", "ttys001", "fd/12/x", "null/x"):
        assert not ask("file-write-data", f"/dev/{name}"), name
    own = "com.apple.sandbox.pty"
    assert ask("file-read-data", "/dev/ttys001", extension=own)
    assert not ask("file-write-create", "/dev/x") and ask("pseudo-tty")
    for name in ("/mp-a1", "/loky-12-ab_c"):
        assert ask("ipc-posix-sem", name=name)
    for operation in ("ipc-posix-shm-read-data", "ipc-posix-shm-write-create"):
        assert ask(operation, name="/psm_1a2b") and not ask(operation, name="/psm_x")
        assert not ask(operation, name="/other")
    assert not ask("ipc-posix-sem", name="/other")


# Network


def addresses(ask: object) -> dict[str, bool]:
    assert callable(ask)
    near, far = "127.0.0.1:80", "192.0.2.1:443"
    return {
        "near": ask("network-outbound", address=near),
        "far": ask("network-outbound", address=far),
        "serve near": ask("network-bind", address="localhost:0"),
        "serve": ask("network-bind", address="0.0.0.0:80"),
        "names": ask("network-outbound", "/private/var/run/mDNSResponder"),
        "docker": ask("network-outbound", "/private/var/run/docker.sock"),
    }


@pytest.mark.parametrize(
    ("network", "allowed"),
    [
        ("none", set()),
        ("loopback", {"near", "serve near"}),
        ("full", {"near", "far", "serve near", "serve", "names"}),
    ],
)
def test_each_network_reaches_what_it_says_and_no_socket_of_the_host(
    network: str, allowed: set[str]
) -> None:
    ask = kit.asker(kit.settled({"/": READ, "/w": WRITE}, network=network))  # type: ignore[arg-type]
    assert {name for name, is_allowed in addresses(ask).items() if is_allowed} == allowed


def test_unix_sockets_are_reached_by_name_and_no_others() -> None:
    """Case 161: connecting is no file operation, whatever a profile says of files."""
    sock = "/private/var/run/x.sock"
    resolved = kit.settled({"/": WRITE, "/t": WRITE}, sockets=(sock,), tmp="/t")
    ask = kit.asker(resolved)
    assert ask("file-write-data", "/private/var/run/docker.sock")
    assert not ask("network-outbound", "/private/var/run/docker.sock")
    assert ask("network-outbound", sock) and ask("network-outbound", "/var/run/x.sock")
    assert not ask("network-outbound", f"{sock}/y") and not ask("network-bind", sock)
    for path in ("/t/mine", "/private/var/run/mDNSResponder"):
        assert not ask("network-bind", path) and not ask("network-outbound", path)
    assert ask("system-socket", domain=1) and not ask("system-socket", domain=2)


# The text


def rich() -> Profile:
    return compile_profile(
        kit.settled(
            LAID_OUT | {"/t": WRITE},
            protected=(".git", ".envrc"),
            patterns=("/w/**/*.pem",),
            tmp="/t",
            network="full",
            sockets=("/w/s",),
        )
    )


def test_each_line_says_why_it_is_there_and_each_of_the_base_from_where() -> None:
    base, _, ours = rich().text.partition("; Of this policy\n")
    rules = [line for line in ours.splitlines() if line.strip(" )")]
    assert rules and [line for line in rules if "  ; " not in line] == []
    lines = [line for line in base.splitlines() if line and not line.startswith(";")]
    whole = [line for line in lines if line.count("(") <= line.partition(" ; ")[0].count(")")]
    unsaid = [line for line in whole if not re.search(r" ; .*(; \S|escape|case|the same)", line)]
    assert unsaid == ["(version 1)", "(deny default)"]


def test_all_parameters_are_used_and_no_value_is_in_the_text() -> None:
    profile = rich()
    used = set(re.findall(r'\(param "(\w+)"\)', profile.text))
    assert used == {name for name, _ in profile.parameters}
    ours = profile.text.partition("; Of this policy\n")[2].splitlines()
    rules = "\n".join(line.partition("  ; ")[0] for line in ours)
    for _, value in profile.parameters:
        assert value not in rules or value == "/"


def test_numbers_stand_where_older_releases_have_no_names() -> None:
    rules = [line.partition(";")[0] for line in rich().text.splitlines()]
    assert not [line for line in rules if "AF_" in line or "SYSPROTO" in line]


def test_the_command_line_is_apples_program_by_its_path() -> None:
    profile = rich().with_mark("word")
    argv = profile.argv(["/bin/echo", "-D", "--"])
    assert argv[:3] == ["/usr/bin/sandbox-exec", "-p", profile.bare]
    assert argv[-4:] == ["--", "/bin/echo", "-D", "--"]
    assert argv[3:-4] == [f"-D{name}={value}" for name, value in profile.parameters]
    assert "-DMARK=word" in argv
    assert kit.asks(profile)("mach-lookup", name="word")
    assert not kit.asks(profile)("mach-lookup", name="word.not")


def test_protected_paths_of_the_oracle_are_those_of_the_package(workspace: Path) -> None:
    """`seatbeltkit.settled` works them out without a disk."""
    table = {str(workspace): WRITE, f"{workspace}/.idea": WRITE}
    names = (".git", ".idea")
    (workspace / ".idea").mkdir()
    found = protected_paths(names, table, "")
    assert f"{workspace}/.git" in found and f"{workspace}/.idea" not in found
    assert kit.settled(table, protected=names).protected == found
