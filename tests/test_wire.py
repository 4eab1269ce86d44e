"""Requests on the wire: what is asked arrives, and no packet makes a lane look outside of it."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass, replace
from typing import Any

import pytest
from ccore import ffi, lib
from guarded import Guarded
from hypothesis import given
from hypothesis import strategies as st

LIMIT = struct.Struct("<IIQQ")
POINTER = ffi.sizeof("char *")
body_memory = Guarded(1 << 16)
pointer_memory = Guarded(1 << 16)


@dataclass(frozen=True)
class Request:
    """A request as the caller means it."""

    cwd: bytes = b"/"
    programs: tuple[bytes, ...] = (b"/bin/true",)
    args: tuple[bytes, ...] = (b"true",)
    envs: tuple[bytes, ...] = ()
    limits: tuple[tuple[int, int, int], ...] = ()
    umask: int = -1
    group: int = 0

    def body(self) -> bytes:
        limits = b"".join(LIMIT.pack(one[0], 0, *one[1:]) for one in self.limits)
        strings = (self.cwd, *self.programs, *self.args, *self.envs)
        return limits + b"".join(one + b"\0" for one in strings)

    def header(self, **lies: int) -> Any:
        honest = {
            "kind": lib.WIRE_RUN,
            "flags": 0,
            "body": len(self.body()),
            "umask": self.umask,
            "group": self.group,
            "limits": len(self.limits),
            "programs": len(self.programs),
            "args": len(self.args),
            "envs": len(self.envs),
            "timeout_ns": 0,
        }
        return ffi.new("struct wire_run *", honest | lies)


def texts(array: Any) -> tuple[bytes, ...]:
    found = []
    while array[len(found)] != ffi.NULL:
        found.append(ffi.string(array[len(found)]))
    return tuple(found)


def parse(header: Any, body: bytes) -> Request | int:
    """What a lane makes of it: body and pointers both end at a forbidden page."""
    assert header.body == len(body)  # as the lane makes sure of
    error = lib.wire_check(header)
    if error:
        return int(error)
    where = body_memory.put(body, 8)
    room = POINTER * lib.wire_pointers(header)
    pointers = ffi.cast("const char **", pointer_memory.put(b"\xa5" * room, POINTER))
    plan = ffi.new("struct plan *")
    error = lib.wire_parse(header, where, pointers, plan)
    if error:
        return int(error)
    start = int(ffi.cast("uintptr_t", where))
    for text in [plan.cwd, *(plan.programs[i] for i in range(header.programs))]:
        assert start <= int(ffi.cast("uintptr_t", text)) < start + len(body)
    return Request(
        ffi.string(plan.cwd),
        texts(plan.programs),
        texts(plan.argv),
        texts(plan.envp),
        tuple((one.resource, one.soft, one.hard) for one in plan.limits[0 : plan.limit_count]),
        plan.umask,
        plan.group,
    )


def model(header: Any, body: bytes) -> Request | int:
    """The same by slicing, with Python's own bounds."""
    strings = body[header.limits * LIMIT.size :]
    if header.limits * LIMIT.size > len(body) or not strings.endswith(b"\0"):
        return -errno.EINVAL
    parts = strings[:-1].split(b"\0")
    counts = (header.programs, header.args, header.envs)
    if len(parts) != 1 + sum(counts) or not parts[0].startswith(b"/"):
        return -errno.EINVAL
    limits = LIMIT.iter_unpack(body[: header.limits * LIMIT.size])
    p, a = header.programs, header.args
    return Request(
        parts[0],
        tuple(parts[1 : 1 + p]),
        tuple(parts[1 + p : 1 + p + a]),
        tuple(parts[1 + p + a :]),
        tuple((one[0], one[2], one[3]) for one in limits),
        header.umask,
        header.group,
    )


text = st.binary(max_size=12).map(lambda one: one.replace(b"\0", b"."))
some = st.lists(text, min_size=1, max_size=6).map(tuple)
numbers = st.integers(0, 2**64 - 1)
requests = st.builds(
    Request,
    cwd=text.map(lambda one: b"/" + one),
    programs=some,
    args=some,
    envs=st.lists(text, max_size=6).map(tuple),
    limits=st.lists(st.tuples(st.integers(0, 2**32 - 1), numbers, numbers), max_size=16).map(tuple),
    umask=st.integers(-1, 0o777),
    group=st.integers(0, 2**31 - 1),
)


@given(requests)
def test_what_is_asked_arrives(request: Request) -> None:
    assert parse(request.header(), request.body()) == request


counts = st.sampled_from(["limits", "programs", "args", "envs"])
few = st.integers(0, 20)


@given(requests, st.dictionaries(counts, few))
def test_counts_that_lie_are_refused_unless_the_body_bears_them_out(
    request: Request, lies: dict[str, int]
) -> None:
    header, body = request.header(**lies), request.body()
    wrong = header.programs == 0 or header.args == 0 or header.limits > lib.WIRE_MAX_LIMITS
    assert parse(header, body) == (-errno.EINVAL if wrong else model(header, body))


@given(requests, st.binary(max_size=200), st.integers(0, 400))
def test_a_body_of_any_bytes_is_read_to_its_end_and_no_further(
    request: Request, junk: bytes, cut: int
) -> None:
    for body in (junk, request.body()[:cut], request.body() + junk):
        header = request.header(body=len(body))
        assert parse(header, body) == model(header, body)


@pytest.mark.parametrize(
    ("lies", "code"),
    [
        ({"kind": 0}, errno.EINVAL),
        ({"kind": 3}, errno.EINVAL),
        ({"flags": 16}, errno.EINVAL),
        ({"flags": 1 << 31}, errno.EINVAL),
        ({"programs": 0}, errno.EINVAL),
        ({"args": 0}, errno.EINVAL),
        ({"limits": 17}, errno.EINVAL),
        ({"limits": 2**32 - 1}, errno.EINVAL),
        ({"programs": (1 << 20) + 1}, errno.E2BIG),
        ({"args": (1 << 20) + 1}, errno.E2BIG),
        ({"args": 2**32 - 1}, errno.E2BIG),
        ({"envs": 2**32 - 1}, errno.E2BIG),
        ({"body": (64 << 20) + 1}, errno.E2BIG),
        ({"body": 2**32 - 1}, errno.E2BIG),
    ],
)
def test_a_header_beyond_the_bounds_is_refused(lies: dict[str, int], code: int) -> None:
    assert lib.wire_check(Request().header()) == 0
    assert lib.wire_check(Request().header(**lies)) == -code


def test_every_flag_is_let_through_and_every_time() -> None:
    known = lib.WIRE_IN_MEMFD | lib.WIRE_KEEP_SESSION | lib.WIRE_BACKGROUND | lib.WIRE_TERMINAL
    for timeout in (0, 1, 2**63, 2**64 - 1):
        assert lib.wire_check(Request().header(flags=known, timeout_ns=timeout)) == 0


def test_the_bounds_themselves_are_let_through_and_do_not_overflow() -> None:
    most = lib.WIRE_MAX_STRINGS
    header = Request().header(programs=most, args=most, envs=most, body=lib.WIRE_MAX_BODY)
    assert lib.wire_check(header) == 0
    assert lib.wire_pointers(header) == 3 * most + 3


@pytest.mark.parametrize(
    "request_", [Request(cwd=b""), Request(cwd=b"relative"), Request(cwd=b"./x")]
)
def test_a_working_directory_that_is_not_absolute_is_refused(request_: Request) -> None:
    assert parse(request_.header(), request_.body()) == -errno.EINVAL


def test_an_empty_body_and_one_of_limits_only_are_refused() -> None:
    one = replace(Request(), limits=((1, 2, 3),))
    assert parse(one.header(body=0, limits=0), b"") == -errno.EINVAL
    assert parse(one.header(body=24), one.body()[:24]) == -errno.EINVAL
    assert parse(one.header(body=23), one.body()[:23]) == -errno.EINVAL


def test_a_last_string_without_its_terminator_is_refused() -> None:
    request = Request(envs=(b"A=1", b"B=2"))
    assert parse(request.header(), request.body()) == request
    body = request.body()[:-1]
    assert parse(request.header(body=len(body)), body) == -errno.EINVAL


def check_file(path: bytes, **fields: int) -> int:
    """What a lane says to a file request whose path ends at a forbidden page."""
    honest = {"kind": lib.WIRE_FILE, "what": lib.WIRE_FILE_READ, "flags": 0, "mode": 0}
    header = ffi.new("struct wire_file *", honest | fields)
    where = ffi.cast("const char *", body_memory.put(path))
    return int(lib.wire_check_file(header, where, len(path)))


@pytest.mark.parametrize("path", [b"/\0", b"/etc/passwd\0", b"/" + b"x" * 4094 + b"\0", b"/..\0"])
def test_an_absolute_path_is_let_through_where_nothing_is_named_in_a_directory(path: bytes) -> None:
    for what in range(lib.WIRE_FILE_KINDS):
        expected = 0 if what < lib.WIRE_FILE_MAKE else -errno.EINVAL
        assert check_file(path, what=what) == expected
        assert check_file(path, what=what, flags=lib.WIRE_FILE_HERE) == -errno.EINVAL


@pytest.mark.parametrize("path", [b"x\0", b"...\0", b".x\0", b"..x\0", b"\xff \n\0"])
def test_a_name_is_let_through_in_a_directory_only(path: bytes) -> None:
    for what in range(lib.WIRE_FILE_KINDS):
        assert check_file(path, what=what, flags=lib.WIRE_FILE_FLAGS) == 0
        assert check_file(path, what=what) == -errno.EINVAL


@pytest.mark.parametrize(
    "path", [b"", b"\0", b"x", b"/x", b"x\0y\0", b"/x\0\0", b"\0x\0", b"./x\0", b"x/\0", b"a/b\0"]
)
def test_what_is_no_path_with_its_end_is_refused(path: bytes) -> None:
    for flags in (0, lib.WIRE_FILE_HERE):
        assert check_file(path, flags=flags) == -errno.EINVAL


@pytest.mark.parametrize("name", [b".\0", b"..\0"])
def test_a_name_does_not_lead_out_of_its_directory(name: bytes) -> None:
    assert check_file(name, flags=lib.WIRE_FILE_HERE) == -errno.EINVAL


def test_fields_of_a_file_request_beyond_their_bounds_are_refused() -> None:
    assert check_file(b"/x\0", mode=0o777) == 0
    assert check_file(b"/" + b"x" * 4095 + b"\0") == -errno.ENAMETOOLONG
    for lie in (
        {"kind": lib.WIRE_RUN},
        {"kind": 0},
        {"what": lib.WIRE_FILE_KINDS},
        {"what": 2**32 - 1},
        {"flags": lib.WIRE_FILE_FLAGS + 1},
        {"flags": 1 << 31},
        {"mode": 0o1000},
        {"mode": 0o4755},
        {"mode": 2**32 - 1},
    ):
        assert check_file(b"/x\0", **lie) == -errno.EINVAL


@given(st.binary(max_size=40), st.integers(0, 12), st.integers(0, 5))
def test_a_path_of_any_bytes_is_let_through_as_the_rule_says(
    path: bytes, what: int, flags: int
) -> None:
    text, end = path[:-1], path[-1:]
    sound = end == b"\0" and text != b"" and b"\0" not in text
    if flags & lib.WIRE_FILE_HERE:
        sound = sound and b"/" not in text and text not in (b".", b"..")
    else:
        sound = sound and text.startswith(b"/") and what < lib.WIRE_FILE_MAKE
    sound = sound and what < lib.WIRE_FILE_KINDS and flags <= lib.WIRE_FILE_FLAGS
    assert check_file(path, what=what, flags=flags) == (0 if sound else -errno.EINVAL)
