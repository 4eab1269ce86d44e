"""The log of a session: one chain whoever writes to it, and nothing lost silently."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from conftest import AsUser
from hypothesis import example, given
from hypothesis import strategies as st
from logkit import assessment, documents, ended, filled, open_files, segment, spawn

from sandbox.errors import InvalidArgument, RecordsLost, Unavailable
from sandbox.session import events, lines, segments
from sandbox.session.chain import verify
from sandbox.session.events import GENESIS, KINDS, PathList
from sandbox.session.log import Log

ODD = st.text(st.characters(), max_size=30) | st.text("\\u\udcff\x00\x1b\x9b/", max_size=12)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "log"


def forked(body: Callable[[], object]) -> int:
    """A child that does this and ends, with status 0 if it went well; never back in a test."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    return child


def whole(directory: Path) -> int:
    """How many records a log has, which is in order."""
    found = verify(str(directory))
    assert found.problems == ()
    return found.records


# -- Records as lines


def test_each_record_has_what_all_have_and_the_digest_of_the_line_before(home: Path) -> None:
    """Worked out here with a digest of a line as `sed -n 3p | sha256sum` has it."""
    before = time.time()
    filled(home)
    last = GENESIS
    raw = segment(home).read_bytes().splitlines(keepends=True)
    for number, line in enumerate(raw, 1):
        found = json.loads(line)
        assert list(found)[:5] == ["event", "seq", "prev", "time", "session"]
        assert "mode" in found and "call" in found
        assert (found["seq"], found["prev"]) == (number, last)
        assert before <= found["time"] <= time.time()
        last = sha256(line).hexdigest()
    assert len(raw) == 9
    assert (home / "head").read_text().split()[-1] == last


@given(ODD, st.lists(ODD, max_size=4))
@example("\x7f", [])
def test_any_text_comes_back_as_it_was_and_is_harmless_to_print(
    text: str, words: list[str]
) -> None:
    record = assessment(words, cwd=text)
    start, rest = lines.encode(record)
    line = start + b'7,"prev":"' + b"0" * 64 + b'",' + rest
    assert line.decode().isprintable()
    json.loads(line)
    back = lines.decode(line + b"\n")
    assert isinstance(back, events.AssessmentRecord)
    assert (back.cwd, back.command, back.seq, back.escaped) == (text, words, 7, False)


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"\n", b"null", b"{}", b"[" * 100_000, b'{"event":' + b'{"a":' * 100_000),
        *(
            b'{"event":"end","x":' + b"[" * 100_000,
            b'{"event":"end","why":"\xff"}',
            b"\xef\xbb\xbf",
        ),
        *(b'{"event":"end","session":1,"calls":1,"why":""}', b'{"event":"ending"}'),
    ],
    ids=lambda line: line[:20],
)
def test_what_is_no_record_is_none_and_no_error(line: bytes) -> None:
    assert lines.decode(line) is None


@pytest.mark.parametrize(("option", "value"), [("rotate", 0), ("fsync", "always")])
def test_an_option_that_means_nothing_is_refused(home: Path, option: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=option):
        Log(str(home), **{option: value})  # type: ignore[arg-type]
    assert not home.exists()


def test_what_is_not_utf8_is_marked_and_can_be_read_without_this_package(home: Path) -> None:
    path = os.fsdecode(b"/project/\xff\\udcff")
    with Log(str(home)) as log:
        log.append(assessment(cwd=path))
    (found,) = documents(home)
    assert found["escaped"] is True
    assert found["cwd"] == r"/project/\udcff\\udcff"


def test_every_kind_of_record_has_a_class_and_no_place_for_a_value_or_output() -> None:
    assert set(KINDS) == {
        *("session", "end", "assessment", "approval", "spawn", "exit", "escalation", "edit"),
        *("files", "recovered"),
    }
    names = {name for kind in KINDS.values() for name in kind.__struct_fields__}
    assert not names & {"env", "input", "output", "content", "values", "data"}
    assert set(events.OutputRow.__struct_fields__) == {"bytes", "sha256", "truncated"}


def test_a_list_of_paths_is_cut_by_number_and_by_size_and_says_how_many_there_were() -> None:
    many = PathList.of([f"{number:05d}" for number in range(5000)])
    assert (len(many.paths), many.paths[0], many.total) == (1000, "00000", 5000)
    long = PathList.of(["x" * 4000 + f"{number:03d}" for number in range(200)])
    assert (len(long.paths), long.total) == (65, 200)


def test_a_record_is_refused_that_is_in_a_log_already_or_too_long(home: Path) -> None:
    filled(home, calls=1)
    old = lines.decode(segment(home).read_bytes().splitlines(keepends=True)[0])
    assert old is not None
    with Log(str(home)) as log:
        with pytest.raises(InvalidArgument, match="in a log already"):
            log.append(ended(), old)
        with pytest.raises(InvalidArgument, match="bytes"):
            log.append(ended(), assessment("x" * lines.LINE_MAX))
        log.append(ended())
    assert whole(home) == 4


# -- Several writers


def test_eight_processes_write_one_chain(home: Path) -> None:
    def write(writer: int) -> None:
        log = Log(str(home), fsync="never", rotate=200_000)
        for call in range(250):
            log.append(spawn([f"writer-{writer}"], call=call), ended(call=call))

    children = [forked(partial(write, writer)) for writer in range(8)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    assert whole(home) == 8 * 500
    assert len(list(home.glob("*.jsonl"))) > 5
    written = [one for one in documents(home) if one["event"] == "spawn"]
    for writer in range(8):
        calls = [one["call"] for one in written if one["argv"] == [f"writer-{writer}"]]
        assert calls == list(range(250))


def test_what_one_append_writes_stands_together(home: Path) -> None:
    def write(number: int) -> None:
        for _ in range(100):
            log.append(*(ended(call=number) for _ in range(3)))

    with Log(str(home)) as log:
        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert whole(home) == 2400
    calls = [one["call"] for one in documents(home)]
    assert all(len({*calls[i : i + 3]}) == 1 for i in range(0, 2400, 3))


def test_a_forked_child_goes_on_with_the_log_of_its_parent(home: Path) -> None:
    def write() -> None:
        for _ in range(300):
            log.append(ended(call=os.getpid()))

    with Log(str(home)) as log:
        log.append(ended(call=1))
        child = forked(write)
        write()
        assert os.waitpid(child, 0)[1] == 0
        log.append(ended(call=2))
    assert whole(home) == 602
    calls = [one["call"] for one in documents(home)]
    assert (calls[0], calls[-1], calls.count(child)) == (1, 2, 300)


def test_a_child_that_is_forked_in_the_middle_of_an_append_does_not_keep_the_lock(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread writes all the time; a child that inherited the lock would hold it till it ends."""
    monkeypatch.setattr(segments, "_LOCK_SECONDS", 5.0)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            log.append(ended())

    def once() -> None:
        log.append(ended(call=7))
        os.write(told, b".")
        time.sleep(60)

    with Log(str(home)) as log:
        thread = threading.Thread(target=write)
        thread.start()
        hears, told = os.pipe()
        children = [forked(once) for _ in range(30)]
        os.close(told)
        try:
            heard = sum(len(os.read(hears, 1)) for _ in range(30))
        finally:
            os.close(hears)
            done.set()
            thread.join()
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        log.append(ended())
    assert heard == 30
    whole(home)
    assert [one["call"] for one in documents(home)].count(7) == 30


def test_verifying_raises_no_alarm_while_others_write(home: Path) -> None:
    def write() -> None:
        for _ in range(500):
            log.append(ended(), ended())
            time.sleep(0.001)

    with Log(str(home), fsync="never", rotate=50_000) as log:
        log.append(ended())
        writer = forked(write)
        seen = [whole(home)]
        while os.waitpid(writer, os.WNOHANG) == (0, 0):
            seen.append(whole(home))
        seen.append(whole(home))
    assert seen == sorted(seen)
    assert len(set(seen)) > 3
    assert seen[-1] == 1001


def test_a_new_segment_is_begun_when_one_is_full_and_the_chain_goes_on(home: Path) -> None:
    filled(home, calls=20, rotate=4000)
    sizes = [path.stat().st_size for path in sorted(home.glob("*.jsonl"))]
    assert len(sizes) > 4
    assert all(4000 <= size < 6000 for size in sizes[:-1])
    assert whole(home) == 60


# -- Writers that are killed

KILLED = """
import os, sys
from logkit import spawn
from sandbox.session.log import Log
log = Log(sys.argv[1], fsync="never", rotate=300_000)
for number in range(300):  # some hundredths of a second
    log.append(spawn(["x" * 20_000], call=number), spawn(call=number))
    os.write(1, b".")
"""


def test_nothing_that_was_acknowledged_is_lost_when_writers_are_killed(home: Path) -> None:
    acknowledged = 0
    path = os.pathsep.join(sys.path)
    for _ in range(15):
        words = [sys.executable, "-c", KILLED, str(home)]
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
        ) as writer:
            assert writer.stdout is not None
            acknowledged += len(writer.stdout.read(1))
            time.sleep(random.uniform(0, 0.02))
            writer.kill()
            acknowledged += len(writer.stdout.read())
        with Log(str(home)) as log:
            log.append(ended())
        records = whole(home)
    found = documents(home)
    assert len(found) == records
    written = sum(one["event"] == "spawn" for one in found)
    assert 2 * acknowledged <= written <= 2 * (acknowledged + 15)


def test_half_a_record_is_taken_away_and_the_chain_says_so(home: Path) -> None:
    filled(home)
    half = b'{"event":"exit","seq":10,"pr'
    with segment(home).open("ab") as file:
        file.write(half)
    assert not verify(str(home)).ok
    with Log(str(home)) as log:
        log.append(ended(), ended())
    assert whole(home) == 12
    told = documents(home)[9]
    assert (told["event"], told["kept"], told["dropped"], told["missing"]) == (
        *("recovered", 0, len(half), 0),
    )
    assert told["sha256"] == sha256(half).hexdigest()


@pytest.mark.parametrize("half", [b"", b'{"event":"ex', b"\0\0\0", b"a\r"])
def test_whole_records_that_the_head_does_not_count_yet_are_kept(home: Path, half: bytes) -> None:
    filled(home)
    old = (home / "head").read_bytes()
    with Log(str(home)) as log:
        log.append(ended(), ended())
    (home / "head").write_bytes(old)
    with segment(home).open("ab") as file:
        file.write(half)
    with Log(str(home)) as log:
        log.append(ended())
    assert whole(home) == 13
    told = documents(home)[11]
    assert (told["kept"], told["dropped"]) == (2, len(half))


def test_somebody_elses_line_behind_the_head_stops_every_writer(home: Path) -> None:
    """It is no killed writer's, so it is neither kept as one nor destroyed."""
    filled(home)
    with Log(str(home)) as log:
        with segment(home).open("ab") as file:
            file.write(b'{"event":"end"}\n')
        with pytest.raises(RecordsLost, match="somebody else's line"):
            log.append(ended())
    assert segment(home).read_bytes().endswith(b'"end"}\n')


def test_records_that_a_power_failure_took_stay_visible(home: Path) -> None:
    filled(home)
    raw = segment(home).read_bytes()
    size = sum(len(line) + 1 for line in raw.split(b"\n")[:6])
    os.truncate(segment(home), size + 10)
    with Log(str(home)) as log:
        log.append(ended())
        log.append(ended())
    found = verify(str(home))
    assert [problem.what for problem in found.problems] == [
        "this is no record",
        "records 8 to 9 are missing before this one",
    ]
    told = json.loads(segment(home).read_bytes().split(b"\n")[7])
    assert (told["event"], told["seq"]) == ("recovered", 10)
    assert told["missing"] == len(raw) - size - 10


def test_an_interrupted_append_is_put_right_by_the_next(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log(str(home)) as log:
        log.append(ended())
        real = os.pwrite

        def interrupted(*_: object) -> int:
            monkeypatch.setattr(os, "pwrite", real)
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "pwrite", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.append(ended())
        with Log(str(home)) as other:  # the lock was let go
            other.append(ended())
        log.append(ended())
    assert [one["event"] for one in documents(home)] == [
        *("exit", "exit", "recovered", "exit", "exit"),
    ]
    whole(home)


# -- Disks that are full, logs that are gone


def refuses_for_good(log: Log, home: Path, records: int) -> None:
    """Whether a log takes nothing any more, and ends with the last whole record."""
    size = segment(home).stat().st_size
    for _ in range(3):
        with pytest.raises(RecordsLost):
            log.append(ended())
    assert segment(home).stat().st_size == size
    assert whole(home) == records


def test_a_file_that_may_not_grow_stops_the_session_and_leaves_no_half_record(home: Path) -> None:
    filled(home)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Log(str(home)) as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (segment(home).stat().st_size + 100, hard))
        try:
            with pytest.raises(RecordsLost, match=r"File too large.*make room") as caught:
                log.append(ended())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert isinstance(caught.value.__cause__, OSError)
        refuses_for_good(log, home, 9)
    with Log(str(home)) as log:  # another one may: there is room again
        log.append(ended())
    assert whole(home) == 10


FULL = """
import os, sys
from logkit import ended, spawn
from sandbox.errors import RecordsLost
from sandbox.session.chain import verify
from sandbox.session.log import Log
home = os.path.join(sys.argv[1], "log")
log = Log(home)
records = 0
try:
    while True:
        log.append(spawn(["x" * 3000]), ended())
        records += 2
except RecordsLost as error:
    print(error.cause)
try:
    log.append(ended())
except RecordsLost:
    print("refused")
found = verify(home)
print(records > 10, found.ok, found.records == records)
os.unlink(os.path.join(sys.argv[1], "ballast"))
with Log(home) as log:
    log.append(ended())
print(verify(home).records == records + 1)
"""


def test_a_full_disk_stops_the_session_and_leaves_no_half_record(
    tmp_path: Path, as_user: AsUser
) -> None:
    """A file system of 128 KiB, mounted for this test alone."""
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs user namespaces to mount a small tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    script = 'mount -t tmpfs -o size=128k none "$1" && head -c 16k /dev/zero > "$1/ballast" && '
    script += 'exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script, "sh", str(disk), sys.executable, FULL],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        *("No space left on device", "refused", "True True True", "True"),
    ]


@pytest.mark.parametrize("call", ["write", "pwrite", "pread", "fdatasync"])
def test_a_disk_that_fails_at_any_call_stops_the_session(
    home: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    filled(home)
    with Log(str(home), fsync="record") as log:
        log.append(ended())
        with monkeypatch.context() as patched:
            patched.setattr(os, call, failing)
            with pytest.raises(RecordsLost, match="Input/output error"):
                log.append(ended())
        refuses_for_good(log, home, 10)


def test_a_write_that_is_cut_short_is_continued_or_taken_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def short(number: int, data: bytes) -> int:
        return real(number, data[: len(data) // 2 + 1])

    with Log(str(home)) as log:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", short)
            log.append(ended())
        assert whole(home) == 1

        def full(number: int, data: bytes) -> int:
            patched.setattr(os, "write", failing)
            return short(number, data)

        def failing(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            with pytest.raises(RecordsLost, match="make room"):
                log.append(ended())
        refuses_for_good(log, home, 1)


def gone(home: Path) -> None:
    for path in home.iterdir():
        path.unlink()
    home.rmdir()


def replaced(home: Path) -> None:
    other = filled(home.with_name("other"))
    home.rename(home.with_name("old"))
    other.rename(home)


def moved(home: Path) -> None:
    home.rename(home.with_name("moved"))


def without_segment(home: Path) -> None:
    segment(home).rename(home / "kept.jsonl")


def cut(home: Path) -> None:
    os.truncate(segment(home), 300)


def emptied(home: Path) -> None:
    os.truncate(home / "head", 0)


def damaged(home: Path) -> None:
    (home / "head").write_bytes(b"x" + (home / "head").read_bytes()[1:])


@pytest.mark.parametrize(
    "harm",
    [gone, replaced, moved, without_segment, cut, emptied, damaged],
    ids=lambda f: f.__name__,
)
def test_a_log_that_vanished_or_was_replaced_stops_the_session(
    home: Path, harm: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(home)
    with Log(str(home)) as log:
        log.append(ended())
        monkeypatch.setattr("sandbox.session.log._LOOK_AGAIN", 0.0)
        assert callable(harm)
        harm(home)
        with pytest.raises(RecordsLost):
            log.append(ended())
        with pytest.raises(RecordsLost):
            log.append(ended())


def test_the_names_are_looked_at_again_once_a_second(home: Path) -> None:
    with Log(str(home)) as log:
        log.append(ended())
        moved(home)
        time.sleep(1.1)
        with pytest.raises(RecordsLost):
            log.append(ended())


def test_a_head_that_is_set_back_stops_the_session(home: Path) -> None:
    """Lines and head of an hour ago, put back together: only who saw the newer one can tell."""
    filled(home)
    old = segment(home).read_bytes(), (home / "head").read_bytes()
    with Log(str(home)) as log:
        log.append(ended())
        os.truncate(segment(home), len(old[0]))
        with (home / "head").open("r+b") as file:
            file.write(old[1])
        assert verify(str(home)).ok
        with pytest.raises(RecordsLost, match="set back"):
            log.append(ended())


def test_who_holds_the_lock_for_ever_stops_the_session_and_does_not_hang_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may only read the head can do that."""
    monkeypatch.setattr(segments, "_LOCK_SECONDS", 0.1)
    with Log(str(home)) as log, (home / "head").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RecordsLost, match="locked by another process"):
            log.append(ended())


def test_a_log_that_is_closed_takes_nothing(home: Path) -> None:
    log = Log(str(home))
    log.close()
    log.close()
    with pytest.raises(RecordsLost, match="closed"):
        log.append(ended())


# -- Who may write there


def test_the_log_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        home = filled(tmp_path / "a/b/log", rotate=1000)
    finally:
        os.umask(old)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()} == {0o600}


@pytest.mark.parametrize(("name", "mode"), [("", 0o770), ("head", 0o620), ("000001.jsonl", 0o602)])
def test_a_log_that_others_may_write_to_is_refused(home: Path, name: str, mode: int) -> None:
    filled(home)
    (home / name).chmod(mode)
    with pytest.raises(Unavailable, match="others may write"):
        Log(str(home))


@pytest.mark.parametrize("name", ["", "head", "000001.jsonl"])
def test_links_are_refused(home: Path, name: str) -> None:
    filled(home)
    (home / name).rename(home.with_name("elsewhere"))
    (home / name).symlink_to(home.with_name("elsewhere"))
    with pytest.raises(Unavailable):
        Log(str(home))


@pytest.mark.parametrize("name", ["head", "000001.jsonl"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(home: Path, name: str) -> None:
    filled(home)
    (home / name).unlink()
    os.mkfifo(home / name, 0o600)
    with pytest.raises(Unavailable):
        Log(str(home))


def test_a_log_of_another_user_is_refused(place: Path, as_user: AsUser) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to have two users")
    home = filled(place / "log")
    as_user.give(home)
    with pytest.raises(Unavailable, match="belongs to user"):
        Log(str(home))


def test_an_ordinary_user_has_a_log_in_the_usual_place(as_user: AsUser) -> None:
    program = """
from logkit import ended
from sandbox.session.chain import verify
from sandbox.session.log import Log
with Log() as log:
    log.append(ended())
    print(log.directory, verify().ok, verify(expect=log.head).ok)
"""
    done = as_user(program)
    assert done.stderr == ""
    assert done.stdout.split() == [f"{as_user.home}/.local/state/sandbox/log", "True", "True"]


def test_the_usual_place_follows_the_variable_if_it_is_absolute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert segments.default_directory() == "/state/sandbox/log"
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert segments.default_directory() == "/home/somebody/.local/state/sandbox/log"


def test_records_without_a_head_are_no_log_to_go_on_with(home: Path) -> None:
    filled(home)
    (home / "head").unlink()
    with pytest.raises(Unavailable, match="head that counts them is gone"):
        Log(str(home))


def test_no_file_stays_open_when_a_log_is_closed_refused_or_forgotten(home: Path) -> None:
    before = open_files()
    filled(home)
    Log(str(home))
    gc.collect()
    (home / "head").chmod(0o666)
    with pytest.raises(Unavailable):
        Log(str(home))
    assert open_files() == before
