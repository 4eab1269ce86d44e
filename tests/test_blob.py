"""The blob: equal parts give equal bytes, and no bytes make a reader look outside of them."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import pickle
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ccore import ffi, lib
from conftest import AsUser
from guarded import Guarded
from hypothesis import given
from hypothesis import strategies as st

import _sandcore as core

HEADER = struct.Struct("<4s13I")
FIELDS = (
    *("magic", "version", "size", "arch", "abi", "flags", "handle", "rule_count", "filter_count"),
    *("extra_filter_count", "string_bytes", "network", "filter_flags", "mount_count"),
)
RULE = struct.Struct("<IHH")
MOUNT = struct.Struct("<IBBBBQ")
INSTRUCTION = struct.Struct("<HBBI")
ALLOW = (6, 0, 0, 0x7FFF0000)
ABI = min(core.probe().landlock_abi, 10)
memory = Guarded(1 << 17)


@dataclass(frozen=True)
class Parts:
    """What a blob is made of, in Python."""

    rules: tuple[tuple[bytes, int, int], ...] = ((b"/usr", 1, 0), (b"/tmp/x", 2, 1))
    filter: tuple[tuple[int, int, int, int], ...] = (ALLOW,) * 3
    extra: tuple[tuple[int, int, int, int], ...] = (ALLOW,)
    abi: int = 7
    handle: int = 5
    arch: int = core.NATIVE_ARCH
    network: int = 0
    filter_flags: int = 0
    mounts: tuple[tuple[bytes, int, int, int, int], ...] = ()

    @property
    def flags(self) -> int:
        layers = (self.abi, self.filter, self.mounts)
        return 1 | sum(2 << bit for bit, layer in enumerate(layers) if layer)


def write(parts: Parts) -> bytes:
    """The blob by the C functions."""
    rules = ffi.new("struct policy_rule[]", [(0, one[1], one[2]) for one in parts.rules])
    mounts = ffi.new("struct policy_mount[]", [(0, *one[1:4], 0, one[4]) for one in parts.mounts])
    texts = [ffi.new("char[]", one[0]) for one in (*parts.rules, *parts.mounts)]
    paths = ffi.new("char *[]", texts)
    programs = [ffi.new("struct sock_filter[]", list(one)) for one in (parts.filter, parts.extra)]
    made = ffi.new("struct policy_parts *")
    made.arch, made.abi, made.flags, made.handle = (
        parts.arch,
        parts.abi,
        parts.flags,
        parts.handle,
    )
    made.network, made.filter_flags = parts.network, parts.filter_flags
    made.rules, made.paths, made.rule_count = rules, paths, len(parts.rules)
    made.mounts, made.mount_count = mounts, len(parts.mounts)
    made.filter = {"code": programs[0], "count": len(parts.filter)}
    made.extra_filter = {"code": programs[1], "count": len(parts.extra)}
    size = lib.policy_size(made)
    assert size > 0
    out = ffi.new("uint8_t[]", b"\xa5" * size)  # dirty: what is not written would show
    assert lib.policy_write(made, out, size) == 0
    return bytes(ffi.buffer(out, size))


def open_view(blob: bytes) -> tuple[int, Any, int]:
    """Opens a blob that ends at a forbidden page; the result, the view, where it begins."""
    where = memory.put(blob, 8)
    view = ffi.new("struct policy_view *")
    return lib.policy_open(where, len(blob), view), view, int(ffi.cast("uintptr_t", where))


def read(blob: bytes) -> Parts | None:
    """The parts of a blob, read through its view; None when it is refused.

    Fails when the view reaches outside of the blob.
    """
    error, view, start = open_view(blob)
    if error:
        assert error == -errno.EINVAL
        return None
    header = view.header

    def inside(pointer: object, size: int) -> None:
        at = int(ffi.cast("uintptr_t", pointer))
        assert start <= at and at + size <= start + len(blob)

    inside(view.rules, header.rule_count * RULE.size)
    inside(view.mounts, header.mount_count * MOUNT.size)
    inside(view.filter.code, view.filter.count * INSTRUCTION.size)
    inside(view.extra_filter.code, view.extra_filter.count * INSTRUCTION.size)
    inside(view.strings, header.string_bytes)
    strings = bytes(ffi.buffer(view.strings, header.string_bytes))

    def text(at: int) -> bytes:
        assert at < len(strings) and b"\0" in strings[at:] and strings[at : at + 1] == b"/"
        return strings[at : strings.index(b"\0", at)]

    rules, mounts = [], []
    for i in range(header.rule_count):
        rule = view.rules[i]
        assert rule.access in (1, 2, 3, 4) and rule.flags in (0, 1)
        rules.append((text(rule.path), rule.access, rule.flags))
    for i in range(header.mount_count):
        one = view.mounts[i]
        assert one.kind in range(1, 10) and one.flags in range(8) and one.access in range(5)
        mounts.append((text(one.path), one.kind, one.flags, one.access, one.size))

    def program(one: Any) -> tuple[tuple[int, int, int, int], ...]:
        return tuple((i.code, i.jt, i.jf, i.k) for i in one.code[0 : one.count])

    result = Parts(
        tuple(rules),
        program(view.filter),
        program(view.extra_filter),
        header.abi,
        header.handle,
        header.arch,
        header.network,
        header.filter_flags,
        tuple(mounts),
    )
    # A network and a tree of namespaces, and whether the audit is told: in either way.
    assert header.flags & ~(16 | 32 | 64) in (0, result.flags)
    return result


SAMPLE = write(Parts())
LAYOUT = write(Parts(mounts=((b"/proc", 8, 0, 1, 0), (b"/tmp", 6, 2, 2, 1 << 30))))

words = st.integers(0, 2**32 - 1)
paths = st.binary(max_size=40).map(lambda text: b"/" + text.replace(b"\0", b"."))
instructions = st.tuples(st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 255), words)
parts_of_a_policy = st.builds(
    Parts,
    rules=st.lists(st.tuples(paths, st.integers(1, 4), st.integers(0, 1)), max_size=12).map(tuple),
    filter=st.lists(instructions, max_size=8).map(tuple),
    extra=st.lists(instructions, max_size=8).map(tuple),
    abi=st.integers(1, 10),
    handle=st.integers(0, 255),
    arch=words,
    network=words,
    filter_flags=words,
    mounts=st.lists(
        st.tuples(
            paths,
            st.integers(1, 8),
            st.integers(0, 3),
            st.integers(0, 4),
            st.integers(0, 2**64 - 1),
        ),
        max_size=6,
    ).map(tuple),
)


@given(parts_of_a_policy)
def test_what_is_written_is_read_back(parts: Parts) -> None:
    blob = write(parts)
    assert read(blob) == parts
    assert write(parts) == blob


@given(parts_of_a_policy, parts_of_a_policy)
def test_equal_parts_give_equal_bytes_and_other_parts_other_bytes(one: Parts, two: Parts) -> None:
    assert (write(one) == write(two)) == (one == two)


def test_every_value_of_every_byte_opens_to_a_sound_view_or_is_refused() -> None:
    opened = 0
    for at, value in itertools.product(range(len(SAMPLE)), range(256)):
        opened += read(SAMPLE[:at] + bytes([value]) + SAMPLE[at + 1 :]) is not None
        read(LAYOUT[:at] + bytes([value]) + LAYOUT[at + 1 :])
    assert len(SAMPLE) < opened < 200 * len(SAMPLE)  # instructions may be anything, headers not


def test_no_damage_to_one_byte_takes_a_whole_layer_away() -> None:
    for at, value in itertools.product(range(len(SAMPLE)), range(256)):
        damaged = SAMPLE[:at] + bytes([value]) + SAMPLE[at + 1 :]
        if read(damaged) is not None:
            header = dict(zip(FIELDS, HEADER.unpack(damaged[: HEADER.size]), strict=True))
            assert header["flags"] & ~64 == 7 and header["abi"] != 0
            assert (header["rule_count"], header["filter_count"]) == (2, 3)


def test_every_truncation_and_every_extension_is_refused() -> None:
    for size in range(len(SAMPLE)):
        assert read(SAMPLE[:size]) is None
    for extra in range(1, 65):
        assert read(SAMPLE + bytes(extra)) is None


@given(
    st.lists(
        st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=12
    )
)
def test_damage_in_many_places_is_no_more_dangerous(damage: list[tuple[int, int]]) -> None:
    blob = bytearray(SAMPLE)
    for at, value in damage:
        blob[at] = value
    read(bytes(blob))


@given(st.binary(max_size=400))
def test_bytes_of_any_origin_are_no_more_dangerous(blob: bytes) -> None:
    read(blob)
    read(b"SCPB" + blob)


EDGES = (0, 1, 2, 7, 8, 9, 55, 56, 255, 4096, 4097, 65535, 65536, 65537, 1 << 24, (1 << 24) + 1)
edges = st.sampled_from([*EDGES, 1 << 28, 1 << 29, 1 << 31, (1 << 32) - 8, (1 << 32) - 1])


@given(st.dictionaries(st.sampled_from(FIELDS[1:]), edges, min_size=1), st.binary(max_size=300))
def test_a_header_that_lies_about_what_follows_is_no_more_dangerous(
    lies: dict[str, int], rest: bytes
) -> None:
    honest = dict(zip(FIELDS, HEADER.unpack(SAMPLE[: HEADER.size]), strict=True))
    for tail in (rest, SAMPLE[HEADER.size :]):
        size = {"size": HEADER.size + len(tail)}
        header = HEADER.pack(*(honest | size | lies).values())
        read(header + tail)


def test_counts_whose_sum_would_wrap_around_are_refused() -> None:
    base = dict(zip(FIELDS, HEADER.unpack(SAMPLE[: HEADER.size]), strict=True))
    wrap = (1 << 32) // RULE.size
    for name, value in (
        ("rule_count", wrap + 2),
        ("filter_count", wrap + 3),
        ("string_bytes", (1 << 32) - 16),
    ):
        header = HEADER.pack(*(base | {name: value}).values())
        assert read(header + SAMPLE[HEADER.size :]) is None


def rule_at(blob: bytes, index: int, **changes: int) -> bytes:
    at = HEADER.size + index * RULE.size
    path, access, flags = RULE.unpack(blob[at : at + RULE.size])
    rule = {"path": path, "access": access, "flags": flags} | changes
    return blob[:at] + RULE.pack(*rule.values()) + blob[at + RULE.size :]


def test_an_offset_at_the_very_end_of_the_strings_is_the_last_that_counts() -> None:
    strings = struct.unpack_from("<I", SAMPLE, 4 * FIELDS.index("string_bytes"))[0]
    assert read(rule_at(SAMPLE, 0, path=0)) is not None
    assert read(rule_at(SAMPLE, 0, path=5)) is not None  # where the second path begins
    for offset in (4, strings - 1, strings, strings + 1, 1 << 31, (1 << 32) - 1):
        assert read(rule_at(SAMPLE, 0, path=offset)) is None


@pytest.mark.parametrize("changes", [{"access": 0}, {"access": 5}, {"flags": 2}, {"flags": 3}])
def test_a_rule_of_an_unknown_class_or_with_unknown_flags_is_refused(
    changes: dict[str, int],
) -> None:
    assert read(rule_at(SAMPLE, 1, **changes)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": 0},
        {"kind": 10},
        {"flags": 16},
        {"kind": 1, "flags": 8},
        {"access": 5},
        {"reserved": 1},
        {"path": 1 << 20},
    ],
)
def test_a_mount_of_an_unknown_kind_or_with_unknown_flags_is_refused(
    changes: dict[str, int],
) -> None:
    at = HEADER.size + 2 * RULE.size
    names = ("path", "kind", "flags", "access", "reserved", "size")
    mount = dict(zip(names, MOUNT.unpack(LAYOUT[at : at + MOUNT.size]), strict=True)) | changes
    assert read(LAYOUT) is not None
    assert read(LAYOUT[:at] + MOUNT.pack(*mount.values()) + LAYOUT[at + MOUNT.size :]) is None


def test_strings_without_a_terminator_are_refused() -> None:
    blob = write(Parts(rules=((b"/1234567", 1, 0),)))  # eight bytes and seven of filling
    assert read(blob[:-8] + b"\0" * 8) is not None
    assert read(blob[:-8] + b"x" * 8) is None


def with_header(blob: bytes, **changes: int) -> bytes:
    header = dict(zip(FIELDS, HEADER.unpack(blob[: HEADER.size]), strict=True)) | changes
    return HEADER.pack(*header.values()) + blob[HEADER.size :]


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("a filter that is present and not announced", {"flags": 3}),
        ("Landlock rules that nothing announces", {"flags": 5}),
        ("layers without the loss of privileges", {"flags": 6}),
        ("nothing announced at all", {"flags": 0}),
        ("an unknown flag", {"flags": 7 | 128}),
        ("namespaces without mounts", {"flags": 15}),
        ("a network of its own without namespaces", {"flags": 7 | 16}),
        ("mounts that are not there", {"mount_count": 1}),
        ("Landlock without an ABI", {"abi": 0}),
        ("the audit told of what nothing refuses", {"flags": 64}),
        ("another version", {"version": 1}),
    ],
)
def test_a_header_that_contradicts_its_parts_is_refused(what: str, changes: dict[str, int]) -> None:
    assert read(SAMPLE) is not None
    assert read(with_header(SAMPLE, **changes)) is None, what


def test_a_filter_that_is_announced_and_absent_is_refused() -> None:
    blob = write(Parts(filter=(), extra=()))
    assert read(blob) is not None
    assert read(with_header(blob, flags=7)) is None


def test_missing_names_come_after_all_mounts_or_the_blob_is_refused() -> None:
    """A lane stops looking for its own directories where they begin."""
    missing, own = (b"/w/.git", 9, 1, 0, 0), (b"/tmp", 6, 2, 2, 0)
    assert read(write(Parts(mounts=(own, missing, missing)))) is not None
    assert read(write(Parts(mounts=(missing, own)))) is None


def test_a_blob_that_is_not_aligned_is_refused_before_it_is_read() -> None:
    view = ffi.new("struct policy_view *")
    for shift in range(16):
        where = memory.put(SAMPLE + bytes(shift))
        aligned = int(ffi.cast("uintptr_t", where)) % 8 == 0
        assert lib.policy_open(where, len(SAMPLE), view) == (0 if aligned else -errno.EINVAL)


def test_what_is_larger_than_a_blob_may_be_is_refused_by_its_size_alone() -> None:
    view = ffi.new("struct policy_view *")
    where = memory.put(SAMPLE, 8)
    for size in (0, 1, 55, lib.POLICY_MAX_BYTES + 1, 1 << 40):
        assert lib.policy_open(where, size, view) == -errno.EINVAL


def test_parts_that_are_too_many_have_no_size() -> None:
    made = ffi.new("struct policy_parts *")
    for name in ("filter", "extra_filter"):
        getattr(made, name).count = 4097
        assert lib.policy_size(made) == -errno.E2BIG
        getattr(made, name).count = 4096
        assert lib.policy_size(made) > 0
    made.mount_count = lib.POLICY_MAX_MOUNTS + 1
    assert lib.policy_size(made) == -errno.E2BIG
    made.mount_count, made.rule_count = 0, lib.POLICY_MAX_RULES + 1
    assert lib.policy_size(made) == -errno.E2BIG


def test_a_size_that_is_not_the_parts_own_is_not_written_to() -> None:
    made = ffi.new("struct policy_parts *")
    size = lib.policy_size(made)
    out = ffi.new("uint8_t[]", b"\xa5" * 100)
    for wrong in (0, size - 1, size + 1):
        assert lib.policy_write(made, out, wrong) == -errno.EINVAL
    assert bytes(out) == b"\xa5" * 100 + b"\0"


# From Python.


def compiled(*rules: tuple[bytes, int, bool], **more: Any) -> core.Policy:
    return core.compile_policy(rules, abi=ABI, handle=core.HANDLE_WRITE, **more)


def test_a_policy_survives_pickle_and_is_equal_and_hashed_by_its_bytes() -> None:
    one = compiled((b"/usr", core.ACCESS_READ, False), network=core.NET_NONE)
    two = pickle.loads(pickle.dumps(one))
    other = compiled((b"/usr", core.ACCESS_WRITE, False))
    assert two is not one and two == one and hash(two) == hash(one) and two.blob == one.blob
    assert other != one and one != one.blob and len({one, two, other}) == 2
    assert two.rules == [(b"/usr", core.ACCESS_READ, 0)] and two.filter == one.filter


def test_a_damaged_pickle_is_no_policy() -> None:
    blob = compiled((b"/usr", core.ACCESS_READ, False)).blob
    for bad in (b"", blob[:-1], blob + b"\0", b"X" + blob[1:], blob[:50]):
        with pytest.raises(ValueError, match="not a compiled policy"):
            core.Policy(bad)
    with pytest.raises(TypeError):
        core.Policy(bytearray(blob))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: core.Policy(bytearray(b"SCPB")),  # type: ignore[arg-type]
        lambda: core.Policy(),  # type: ignore[call-arg]
        lambda: core.Policy(b""),
        lambda: core.Helper(None, core.HELPER_PATH),  # type: ignore[arg-type]
        lambda: core.Helper(),  # type: ignore[call-arg]
    ],
)
def test_what_was_never_made_closes_no_fd_of_ours(wrong: Any) -> None:
    os.fstat(0)
    with pytest.raises((TypeError, ValueError)):
        wrong()
    gc.collect()
    os.fstat(0)


def test_a_lane_of_no_helper_can_be_asked_and_not_used() -> None:
    lane = core.Lane()
    assert not lane.usable
    with pytest.raises(core.LaneLost):
        lane.run([b"/bin/true"], [b"true"], b"", 0, b"/")
    lane.close()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rules": [(b"usr", 1, False)]}, "absolute"),
        ({"rules": [(b"", 1, False)]}, "absolute"),
        ({"rules": [(b"/a\0b", 1, False)]}, "NUL"),
        ({"rules": [(b"/a", 9, False)]}, "policy"),
        ({"rules": [(b"/a", 1, False)] * 65_537}, "too large"),
        ({"rules": [(b"/a", 1, False)], "abi": 0}, "restrict nothing"),
        ({"extra_filter": b"1234567"}, "instructions"),
        ({"extra_filter": bytes(8 * 4097)}, "instructions"),
        ({"network": 77}, "no filter"),
        ({"network": 0, "filter_flags": 1 << 30}, "no filter"),
        ({"confined": False}, "does not confine"),
        ({"confined": False, "abi": 0, "rules": [(b"/a", 1, False)]}, "does not confine"),
    ],
)
def test_what_cannot_be_a_policy_is_refused_in_words(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        core.compile_policy(**{"rules": (), "abi": 7, "handle": 4} | changes)


def test_the_largest_policy_compiles_and_the_next_does_not() -> None:
    rules = [(b"/usr/%d" % i, core.ACCESS_READ, True) for i in range(65_536)]
    assert len(compiled(*rules).rules) == 65_536
    long = [(b"/" + b"x" * 4000, core.ACCESS_READ, True)] * 4200
    with pytest.raises(ValueError, match="too large"):
        compiled(*long)


# The ruleset that a policy becomes.


def spawn_under(policy: core.Policy, inline: bool = False) -> int:
    pid, pidfd = core.spawn(core.Plan([b"/bin/true"], [], policy=policy, inline=inline))
    status = core.wait(pidfd, 20)
    os.close(pidfd)
    assert pid > 0 and status is not None
    return status.status


def inline_under(policy: core.Policy) -> int:
    return spawn_under(policy, inline=True)


def helper_under(policy: core.Policy) -> int:
    core.Helper(policy, core.HELPER_PATH).close()
    return 0


def refusal(policy: core.Policy, start: Any) -> tuple[str, int | None, int]:
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(core.StageError) as caught:
        start(policy)
    assert sorted(os.listdir("/proc/self/fd")) == before
    return caught.value.stage, caught.value.errno, caught.value.detail


starts = pytest.mark.parametrize(
    "start", [spawn_under, inline_under, helper_under], ids=["nursery", "inline", "helper"]
)


@starts
def test_a_path_that_became_a_symlink_is_an_error_and_not_a_grant(place: Path, start: Any) -> None:
    (place / "real").mkdir()
    (place / "named" / "below").mkdir(parents=True)
    rules = [
        (b"/usr", core.ACCESS_READ, False),
        (bytes(place / "named" / "below"), core.ACCESS_WRITE, False),
    ]
    assert start(compiled(*rules)) == 0
    (place / "named" / "below").rmdir()
    (place / "named" / "below").symlink_to(place / "real")
    assert refusal(compiled(*rules), start) == ("landlock", errno.ELOOP, 1)
    (place / "named" / "below").unlink()
    (place / "named").rmdir()
    (place / "real" / "below").mkdir()
    (place / "named").symlink_to(place / "real")  # and one on the way there
    assert refusal(compiled(*rules), start) == ("landlock", errno.ELOOP, 1)


@starts
def test_a_path_that_became_a_symlink_is_an_error_also_where_it_may_be_missing(
    place: Path, start: Any
) -> None:
    (place / "link").symlink_to("/etc")
    policy = compiled((bytes(place / "link"), core.ACCESS_WRITE, True))
    assert refusal(policy, start) == ("landlock", errno.ELOOP, 0)


@starts
def test_a_named_path_that_is_missing_is_an_error_that_names_the_rule(
    place: Path, start: Any
) -> None:
    missing = bytes(place / "missing")
    usr = (b"/usr", core.ACCESS_READ, False)
    assert start(compiled(usr, (missing, core.ACCESS_WRITE, True))) == 0
    policy = compiled(usr, usr, (missing, core.ACCESS_WRITE, False))
    assert refusal(policy, start) == ("landlock", errno.ENOENT, 2)
    (place / "missing").mkdir()
    assert start(policy) == 0  # the same policy, once its path is there


@starts
def test_a_file_on_the_way_to_a_path_is_an_error_also_where_it_may_be_missing(
    outside: Path, start: Any
) -> None:
    policy = compiled((bytes(outside / "file" / "below"), core.ACCESS_WRITE, True))
    assert refusal(policy, start) == ("landlock", errno.ENOTDIR, 0)


@starts
def test_a_fifo_as_a_path_does_not_hold_the_start(place: Path, start: Any) -> None:
    os.mkfifo(place / "fifo")
    assert start(compiled((bytes(place / "fifo"), core.ACCESS_WRITE, False))) == 0


def test_a_path_behind_a_closed_door_is_an_error_for_an_ordinary_user(
    place: Path, as_user: AsUser
) -> None:
    (place / "closed" / "in").mkdir(parents=True)
    (place / "closed").chmod(0o700)
    done = as_user(
        """
        import sys, _sandcore as core
        policy = core.compile_policy(
            [(sys.argv[1].encode(), core.ACCESS_WRITE, True)], abi=1, handle=core.HANDLE_WRITE
        )
        try:
            core.spawn(core.Plan([b"/bin/true"], [], policy=policy))
        except core.StageError as error:
            print(error.stage, error.errno, error.detail)
        """.replace("\n        ", "\n"),
        str(place / "closed" / "in"),
    )
    assert done.stdout == f"landlock {errno.EACCES} 0\n", done.stderr


def test_the_ruleset_takes_none_of_the_numbers_that_a_command_needs(place: Path) -> None:
    """A caller without a stdin would otherwise get it as fd 0."""
    blob = compiled((bytes(place), core.ACCESS_WRITE, False)).blob
    error, view, _ = open_view(blob)
    failed = ffi.new("int *")
    ruleset = lib.policy_ruleset(view, failed)
    assert error == 0 and failed[0] == -1 and ruleset >= lib.PLAN_MAX_FDS
    assert not os.get_inheritable(ruleset)
    os.close(ruleset)


def test_a_policy_without_landlock_has_no_ruleset() -> None:
    error, view, _ = open_view(core.compile_policy(confined=False).blob)
    assert error == 0
    assert lib.policy_ruleset(view, ffi.new("int *")) == -errno.EINVAL
