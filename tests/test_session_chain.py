"""Verification of a log: any edit, deletion, insertion, reordering or truncation is found."""

from __future__ import annotations

import json
import shutil
import tempfile
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logkit import ended, filled, rewrite, segment, spawn

from sandbox.errors import Unavailable
from sandbox.session.chain import Reader, verify
from sandbox.session.events import GENESIS
from sandbox.session.log import Log
from sandbox.session.segments import Head, parse_head


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return filled(tmp_path / "log")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A log of 60 records in segments of a few."""
    return filled(tmp_path / "many", calls=20, rotate=4000)


def ok(directory: Path) -> bool:
    return verify(str(directory)).ok


def rows(directory: Path, number: int = 1) -> list[bytes]:
    return segment(directory, number).read_bytes().splitlines(keepends=True)


def put(directory: Path, lines: list[bytes], number: int = 1) -> None:
    path = segment(directory, number)
    path.touch()
    rewrite(path, b"".join(lines))


def test_a_log_that_nobody_touched_is_in_order(home: Path, many: Path) -> None:
    assert ok(home)
    found = verify(str(many))
    assert (found.ok, found.records, found.recovered, found.wrong) == (True, 60, 0, 0)
    assert found.segments == len(list(many.glob("*.jsonl"))) > 4
    assert found.head == sha256(rows(many, found.segments)[-1]).hexdigest()


@pytest.mark.parametrize("name", ["000001.jsonl", "head"])
def test_an_edit_of_any_single_byte_is_found(tmp_path: Path, name: str) -> None:
    home = filled(tmp_path / "log", calls=1)
    whole = (home / name).read_bytes()
    for place in range(len(whole)):
        for change in (1, 0x20, 0x80):
            edited = bytearray(whole)
            edited[place] ^= change
            rewrite(home / name, bytes(edited))
            assert not ok(home), (place, change)
    rewrite(home / name, whole)
    assert ok(home)


def test_a_byte_that_is_taken_away_or_put_in_anywhere_is_found(tmp_path: Path) -> None:
    home = filled(tmp_path / "log", calls=1)
    whole = segment(home).read_bytes()
    for place in range(len(whole)):
        rewrite(segment(home), whole[:place] + whole[place + 1 :])
        assert not ok(home), place
        for byte in (b" ", b"\n", b"\0"):
            rewrite(segment(home), whole[:place] + byte + whole[place:])
            assert not ok(home), (place, byte)


def test_a_truncation_at_any_byte_is_found(tmp_path: Path) -> None:
    home = filled(tmp_path / "log", calls=1)
    whole = segment(home).read_bytes()
    for size in range(len(whole)):
        rewrite(segment(home), whole[:size])
        assert not ok(home), size


def test_the_problem_names_segment_and_line(many: Path) -> None:
    lines = rows(many, 2)
    put(many, [*lines[:3], lines[3].replace(b"make", b"fake"), *lines[4:]], 2)
    (problem,) = verify(str(many)).problems
    assert (problem.segment, problem.line) == (2, 5)  # the line that does not follow any more
    assert "one was changed" in problem.what


def test_each_deleted_line_is_found(home: Path) -> None:
    lines = rows(home)
    for i in range(len(lines)):
        put(home, lines[:i] + lines[i + 1 :])
        assert not ok(home), i


def test_lines_that_are_swapped_or_repeated_are_found(home: Path) -> None:
    lines = rows(home)
    for i in range(len(lines)):
        for j in range(i):
            swapped = list(lines)
            swapped[i], swapped[j] = swapped[j], swapped[i]
            put(home, swapped)
            assert not ok(home), (i, j)
        put(home, [*lines[: i + 1], lines[i], *lines[i + 1 :]])
        assert not ok(home), i


def test_a_forged_line_that_fits_the_one_before_is_found(home: Path) -> None:
    """A well-made record, at any place; at the end it would fit, and the head does not count it."""
    lines = rows(home)
    for i in range(len(lines) + 1):
        last = sha256(lines[i - 1]).hexdigest() if i else GENESIS
        forged = {**json.loads(lines[-1]), "seq": i + 1, "prev": last}
        put(home, [*lines[:i], json.dumps(forged).encode() + b"\n", *lines[i:]])
        assert not ok(home), i


def test_a_line_that_is_edited_with_all_behind_it_made_to_fit_is_found_by_the_head(
    home: Path,
) -> None:
    last, forged = GENESIS, []
    for line in rows(home):
        record = {**json.loads(line), "prev": last}
        if record["seq"] == 2:
            record["argv"] = ["/bin/sh", "-c", "fake"]
        forged.append(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        last = sha256(forged[-1]).hexdigest()
    put(home, forged)
    assert [problem.what for problem in verify(str(home)).problems] == [
        "the last record or the head was changed"
    ]


def test_who_forges_the_head_too_is_found_only_by_a_digest_that_was_kept_elsewhere(
    home: Path,
) -> None:
    kept = verify(str(home)).head
    lines = rows(home)[:6]
    put(home, lines)
    size, last = len(b"".join(lines)), sha256(lines[-1]).hexdigest()
    (home / "head").write_bytes(Head(6, 1, size, last.encode()).pack())
    assert ok(home)  # as the documentation says
    (problem,) = verify(str(home), kept).problems
    assert "no record has the digest" in problem.what


def test_a_digest_that_was_kept_is_found_in_the_log_that_has_grown(home: Path) -> None:
    kept = verify(str(home)).head
    with Log(str(home)) as log:
        log.append(ended())
    assert verify(str(home), kept).ok
    assert verify(str(home), kept.upper()).ok
    assert not verify(str(home), "0" * 63 + "1").ok


def swap_segments(home: Path) -> None:
    one, two = rows(home, 1), rows(home, 2)
    put(home, two, 1)
    put(home, one, 2)


def drop_last(home: Path) -> None:
    sorted(home.glob("*.jsonl"))[-1].unlink()


def add_one(home: Path) -> None:
    number = len(list(home.glob("*.jsonl")))
    put(home, rows(home), number + 1)


def renumber(home: Path) -> None:
    for path in sorted(home.glob("*.jsonl"))[1:]:
        path.rename(segment(home, int(path.stem) - 1))


def link_second(home: Path) -> None:
    segment(home, 2).rename(home / "elsewhere")
    segment(home, 2).symlink_to(home / "elsewhere")


HARM: dict[str, Callable[[Path], object]] = {
    "the first segment is missing": lambda home: segment(home).unlink(),
    "one in the middle is missing": lambda home: segment(home, 3).unlink(),
    "the last one is missing": drop_last,
    "the first is missing and the rest renamed": renumber,
    "two are swapped": swap_segments,
    "there is one more": add_one,
    "one is empty": lambda home: put(home, [], 2),
    "the head is missing": lambda home: (home / "head").unlink(),
    "the head is empty": lambda home: (home / "head").write_bytes(b""),
    "the head is longer": lambda home: (home / "head").write_bytes(
        (home / "head").read_bytes() + b"x"
    ),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_harm_to_whole_files_is_found(many: Path, harm: Callable[[Path], object]) -> None:
    harm(many)
    found = verify(str(many))
    assert not found.ok
    assert found.wrong >= len(found.problems) > 0


def test_an_empty_segment_that_a_killed_writer_began_is_no_problem(many: Path) -> None:
    number = len(list(many.glob("*.jsonl")))
    segment(many, number + 1).touch(0o600)
    assert ok(many)
    with Log(str(many), rotate=1) as log:
        log.append(ended())
    assert ok(many)
    assert len(rows(many, number + 1)) == 1


def test_a_segment_that_is_a_link_cannot_be_verified(many: Path) -> None:
    link_second(many)
    with pytest.raises(Unavailable, match=r"000002\.jsonl"):
        verify(str(many))


def test_there_is_no_log_where_there_is_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(Unavailable):
            verify(str(path))


@given(data=st.data())
def test_no_other_bytes_pass_for_the_log(data: st.DataObject) -> None:
    """Blocks are cut out, doubled, moved or overwritten anywhere."""
    with tempfile.TemporaryDirectory() as top:
        home = filled(Path(top) / "log", fsync="never")
        whole = segment(home).read_bytes()
        a, b, c = sorted(data.draw(st.lists(st.integers(0, 4000), min_size=3, max_size=3)))
        kinds = [
            whole[:a] + whole[b:],
            whole[:b] + whole[a:],
            whole[:a] + whole[b:c] + whole[a:b] + whole[c:],
            whole[:a] + data.draw(st.binary(max_size=20)) + whole[b:],
        ]
        changed = data.draw(st.sampled_from(kinds))
        rewrite(segment(home), changed)
        assert ok(home) == (changed == whole)


def test_a_log_without_end_is_verified_in_little_memory(tmp_path: Path) -> None:
    home = tmp_path / "log"
    with Log(str(home), rotate=8 << 20) as log:
        for call in range(2000):
            log.append(spawn(["x" * 10_000], call=call))
    assert sum(path.stat().st_size for path in home.glob("*.jsonl")) > 20_000_000
    tracemalloc.start()
    try:
        assert ok(home)
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()


def test_thousands_of_problems_are_counted_and_the_first_are_kept(home: Path) -> None:
    put(home, [b"x\n"] * 5000)
    found = verify(str(home))
    assert (len(found.problems), found.wrong > 100) == (100, True)


def test_a_reader_goes_on_where_it_ended_and_leaves_half_a_line_for_later(tmp_path: Path) -> None:
    home = tmp_path / "log"
    with Log(str(home), rotate=1000) as log, Reader(str(home)) as reader:
        assert list(reader.lines()) == []
        for call in range(1, 8):
            log.append(spawn(call=call), ended(call=call))
            found = [line.record for line in reader.lines()]
            assert [record and record.call for record in found] == [call, call]
    last = sorted(home.glob("*.jsonl"))[-1]
    with Reader(str(home)) as reader:
        assert len(list(reader.lines())) == 14
        with last.open("ab") as file:
            file.write(b'{"event"')
            file.flush()
            assert list(reader.lines()) == []
            file.write(b":1}\n")
            file.flush()
            assert [line.record for line in reader.lines()] == [None]


def test_a_copy_of_a_log_can_be_verified_wherever_it_lies(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    for path in [*copy.iterdir(), copy]:
        path.chmod(0o555)
    assert ok(copy)


def test_a_head_is_parsed_only_as_it_was_written() -> None:
    head = Head(12, 3, 456, b"ab" * 32)
    assert parse_head(head.pack()) == head
    assert parse_head(head.pack() + b"\n") is None
    assert parse_head(head.pack().upper()) is None
