"""Section I: many descriptors, many threads, many calls."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import shutil
import statistics
import threading
import time
from pathlib import Path

from casekit import NAMESPACES, alive, children, python, skip
from scenekit import open_fds

import sandbox


def _median(box: sandbox.Sandbox, count: int = 15) -> float:
    times = []
    for _ in range(count):
        start = time.monotonic()
        assert box.run(["true"]).ok
        times.append(time.monotonic() - start)
    return statistics.median(times)


def case_132_a_huge_limit_of_descriptors_costs_nothing(w: Path, o: Path) -> None:
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        plain = _median(box)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ceiling = int(Path("/proc/sys/fs/nr_open").read_text())
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, ceiling))
    except (ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(15_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 100)
    fds = [os.dup(0) for _ in range(count)]
    for fd in fds:
        os.set_inheritable(fd, True)
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        many = _median(box)
        inside = int(box.run("ulimit -Sn").out)
        assert set(box.run("ls /proc/self/fd").out.split()) <= {"0", "1", "2", "3"}
    for fd in fds:
        os.close(fd)
    assert inside <= 4096
    assert many < 3 * plain + 0.02, f"{plain * 1000:.1f} ms, {many * 1000:.1f} ms"


def case_133_a_script_that_was_just_written_is_executed(w: Path, o: Path) -> None:
    script = w / "s.sh"
    stop = threading.Event()
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:

        def busy() -> None:
            while not stop.is_set():
                box.run(["true"])

        threads = [threading.Thread(target=busy) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for index in range(300):
                script.write_text(f"#!/bin/sh\necho {index}\n")
                script.chmod(0o755)
                assert box.run([script]).out == f"{index}\n"
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def _state() -> dict[str, object]:
    return {
        "fds": len(open_fds()),
        "threads": len(os.listdir("/proc/self/task")),
        "children": len(children()),
        "zombies": len([pid for pid in children() if not alive(pid)]),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
    }


def case_135_nothing_grows_with_the_number_of_commands(w: Path, o: Path) -> None:
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        own = Path(box.run("echo $TMPDIR").out.strip())

        def one(index: int) -> None:
            match index % 4:
                case 0:
                    box.run("echo x; touch $TMPDIR/a; mkdir $TMPDIR/d")
                case 1:
                    assert box.run(["sleep", "9"], timeout=0.005).timed_out
                case 2:
                    with contextlib.suppress(sandbox.CommandNotFound):
                        box.run(["no-such-program-here"])
                case 3:
                    box.run("(setsid sleep 9 >/dev/null 2>&1 &); kill -9 $$")

        for index in range(8):
            one(index)
        before = _state()
        for index in range(400):
            one(index)
        after = _state()
        assert after == before, (before, after)
        if not NAMESPACES:
            (lane,) = own.parent.iterdir()  # not always the same one
            assert list(lane.iterdir()) == []
    assert NAMESPACES or not own.parent.exists()


def case_135_sandboxes_leave_nothing_either(w: Path, o: Path) -> None:
    sandbox.Sandbox(sandbox.workspace_write(w)).close()
    before = _state()
    for _ in range(10):
        with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
            box.run(["true"])
    assert _state() == before


def case_137_many_threads_with_policies_of_their_own_do_not_mix(w: Path, o: Path) -> None:
    policies = [
        sandbox.workspace_write(w),
        sandbox.read_only(),
        sandbox.workspace_write(w, deny=[o]),
        sandbox.workspace_write(w).with_network("full"),
    ]
    wrong: list[object] = []
    for policy in policies:
        sandbox.run(["true"], policy)

    def work(number: int) -> None:
        for turn in range(8):
            policy = policies[(number + turn) % 4]
            cwd = w if turn % 2 else w / f"d{number}"
            mark = f"{number}-{turn}"
            command = f"pwd; echo {mark}; touch f{mark}; cat {o}/file"
            result = sandbox.run(command, policy, cwd=cwd, env={"MARK": mark})
            expected = [str(cwd), mark, *([] if policy is policies[2] else ["outside"])]
            made = (cwd / f"f{mark}").exists()
            if result.out.split() != expected or made != (policy is not policies[1]):
                wrong.append((mark, result.text, made))

    for number in range(32):
        (w / f"d{number}").mkdir()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not any(thread.is_alive() for thread in threads), "dead-locked"
    assert wrong == []


def _in_a_fork(w: str) -> int:
    return sandbox.run("exit 7", sandbox.workspace_write(w)).returncode


def case_137_a_forked_caller_has_a_sandbox_of_its_own(w: Path, o: Path) -> None:
    policy = sandbox.workspace_write(w)
    assert sandbox.run("exit 7", policy).returncode == 7
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_in_a_fork, [str(w)] * 8) == [7] * 8
    assert sandbox.run("exit 7", policy).returncode == 7


def case_135_a_sandbox_that_is_confined_anew_leaves_nothing(w: Path, o: Path) -> None:
    quiet = o / "beside"
    quiet.mkdir()
    with sandbox.Sandbox(sandbox.workspace_write(w, deny=[quiet / "denied"])) as box:
        box.run(["true"])
        before = _state()
        for index in range(20):
            (quiet / str(index)).touch()  # the neighbours of what is denied
            (quiet / str(index)).rename(quiet / f"{index}-renamed")
            time.sleep(0.06)
            assert box.run(["true"]).ok
        after = _state()
        assert after == before, (before, after)


def case_137_a_forked_caller_leaves_the_files_of_its_parents_sandbox(w: Path, o: Path) -> None:
    with sandbox.Sandbox(sandbox.workspace_write(w)) as box:
        own = Path(box.run("echo $TMPDIR").out.strip())
        pid = os.fork()
        if pid == 0:
            box.run(["true"])
            box.close()
            del box
            gc.collect()
            os._exit(0)
        os.waitpid(pid, 0)
        assert own.is_dir()
        assert box.run("touch $TMPDIR/f").ok


_RUNTIMES = (
    ("node -e 0", "node"),
    ("java -version", "java"),
    ("go version", "go"),
    ("python3 -c 'import json, asyncio'", "python3"),
)


def case_138_runtimes_that_map_much_start_under_a_limit_of_memory(w: Path, o: Path) -> None:
    policy = sandbox.workspace_write(w).with_limits(sandbox.Limits(memory=512 << 20))
    with sandbox.Sandbox(policy) as box:
        for command, tool in _RUNTIMES:
            if shutil.which(tool) is not None:
                result = box.run(command)
                assert result.ok, (command, result.outcome, result.text)
        takes = "held = [bytearray(8 << 20) for _ in range(90)]; import time; time.sleep(9)"
        over = box.run([python(), "-c", takes])
        assert over.memory_exceeded and over.exit_status == 137, over.text


def case_138_a_temporary_directory_in_memory_has_a_size(w: Path, o: Path) -> None:
    policy = sandbox.workspace_write(w).with_limits(sandbox.Limits(tmp=8 << 20))
    with sandbox.Sandbox(policy) as box:
        if box.enforcement.isolation != "namespaces":
            skip("needs namespaces: elsewhere TMPDIR is a directory of the host")
        for place in ("/tmp", "/dev/shm"):
            assert box.run(f"head -c 7M /dev/zero >{place}/f").ok
            full = box.run(f"head -c 9M /dev/zero >{place}/f")
            assert full.returncode == 1 and "No space left" in full.err, full.text
