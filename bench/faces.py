"""Ways to run a command, each in a process of its own that is told when to: ``faces.py NAME``.

A line of JSON on stdin says how many commands, and how many of them in flight; the answer has the
nanoseconds of each, from its call to its end, and of all together. So what is compared takes turns,
idles meanwhile, and none shares an interpreter with another. Those of peers import nothing of ours.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Words = Sequence[str]
Times = list[int]
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


class Face:
    """A way to run commands. ``work`` is what they may write in; ``one`` runs one of them.

    ``one`` gives what it printed; it is called from as many threads as commands are in flight.
    """

    def __init__(self, work: str) -> None:
        self.work = work

    def one(self, words: Words) -> str:
        raise NotImplementedError

    def prepare(self, count: int) -> None:
        """Before so many commands are timed."""

    def many(self, words: Words, count: int, most: int) -> Times:
        """That many commands, so many in flight: the nanoseconds of each."""
        left, taken = itertools.count(), list[int]()

        def serve() -> None:
            while next(left) < count:
                began = time.perf_counter_ns()
                self.one(words)
                taken.append(time.perf_counter_ns() - began)

        if most == 1:
            serve()
            return taken
        threads = [threading.Thread(target=serve) for _ in range(most)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return taken

    def close(self) -> None:
        """At the end."""


# The standard library, without a sandbox.


class Subprocess(Face):
    def one(self, words: Words) -> str:
        return subprocess.run(words, capture_output=True, text=True, env=ENV, cwd=self.work).stdout


class PosixSpawn(Face):
    """Nothing is captured."""

    def one(self, words: Words) -> str:
        pid = os.posix_spawn(words[0], words, ENV)
        os.waitpid(pid, 0)
        return ""


class AsyncioSubprocess(Subprocess):
    def many(self, words: Words, count: int, most: int) -> Times:
        async def act() -> None:
            process = await asyncio.create_subprocess_exec(
                *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV, cwd=self.work
            )
            await process.communicate()

        return asyncio.run(awaited(act, count, most))


async def awaited(act: Callable[[], Any], count: int, most: int) -> Times:
    left, taken = itertools.count(), list[int]()

    async def serve() -> None:
        while next(left) < count:
            began = time.perf_counter_ns()
            await act()
            taken.append(time.perf_counter_ns() - began)

    await asyncio.gather(*[serve() for _ in range(most)])
    return taken


# Ours.


class Held(Face):
    """``Sandbox.run``, from threads."""

    def __init__(self, work: str) -> None:
        super().__init__(work)
        import sandbox

        self.sandbox = sandbox
        self.policy = sandbox.workspace_write(work)
        self.box = sandbox.Sandbox(self.policy)

    def one(self, words: Words) -> str:
        return str(self.box.run(words, cwd=self.work).out)

    def close(self) -> None:
        self.box.close()


class Run(Held):
    """``sandbox.run``: a sandbox for each command as long as it runs."""

    def one(self, words: Words) -> str:
        return str(self.sandbox.run(words, self.policy, cwd=self.work).out)


class Batch(Held):
    """``run_many`` in one sandbox."""

    def how(self) -> dict[str, Any]:
        return {"sandbox": self.box}

    def commands(self, words: Words, count: int, began: dict[int, int]) -> Iterator[Any]:
        for number in range(count):
            began[number] = time.perf_counter_ns()
            yield words

    def many(self, words: Words, count: int, most: int) -> Times:
        began, taken = dict[int, int](), list[int]()
        commands = self.commands(words, count, began)
        for done in self.sandbox.run_many(
            commands, concurrency=most, ordered=False, cwd=self.where(), **self.how()
        ):
            taken.append(time.perf_counter_ns() - began.pop(done.index))
            if done.error is not None:
                raise done.error
        return taken

    def where(self) -> str | None:
        return self.work


class BatchEach(Batch):
    """``run_many``, each command in a sandbox for itself as long as it runs."""

    def how(self) -> dict[str, Any]:
        return {"policy": self.policy}


class BatchWorkspaces(Batch):
    """``run_many``, each command in a workspace of its own, which was never used before."""

    def __init__(self, work: str) -> None:
        super().__init__(work)
        self.dock = Path(work) / "samples"
        self.numbers = itertools.count()
        self.policy = self.sandbox.workspace_write()

    def how(self) -> dict[str, Any]:
        return {"policy": self.policy, "workspaces": self.dock}

    def where(self) -> None:
        return None

    def prepare(self, count: int) -> None:
        self.paths = [self.dock / str(next(self.numbers)) for _ in range(count)]
        for path in self.paths:
            path.mkdir(parents=True)

    def commands(self, words: Words, count: int, began: dict[int, int]) -> Iterator[Any]:
        for number in range(count):
            began[number] = time.perf_counter_ns()
            yield self.sandbox.Command(words, self.paths[number])


class Aio(Held):
    """``aio.Sandbox.run``."""

    def __init__(self, work: str) -> None:
        super().__init__(work)
        from sandbox import aio

        self.awaited = aio.Sandbox(self.policy)

    def many(self, words: Words, count: int, most: int) -> Times:
        return asyncio.run(awaited(lambda: self.awaited.run(words, cwd=self.work), count, most))

    def close(self) -> None:
        self.awaited.close()
        super().close()


class DropIn(Held):
    """``sandbox.subprocess.run(policy=)``: a child of the caller's own, in ``landlock``."""

    def __init__(self, work: str) -> None:
        super().__init__(work)
        from sandbox import subprocess as ours

        self.run = ours.run

    def one(self, words: Words) -> str:
        done = self.run(
            words, capture_output=True, text=True, env=ENV, cwd=self.work, policy=self.policy
        )
        return str(done.stdout)


class Joined(DropIn):
    """``sandbox.subprocess.run(sandbox=)``: a child of the caller's own in a live sandbox."""

    def one(self, words: Words) -> str:
        done = self.run(
            words, capture_output=True, text=True, env=ENV, cwd=self.work, sandbox=self.box
        )
        return str(done.stdout)


# Peers.


class Sandlock(Face):
    def __init__(self, work: str) -> None:
        super().__init__(work)
        import sandlock

        options = {"fs_readable": ["/"], "fs_writable": [work, "/tmp", "/dev/null"]}
        self.box = sandlock.Sandbox(**options, clean_env=True, env=ENV, cwd=work)

    def one(self, words: Words) -> str:
        return as_text(self.box.run(list(words), timeout=60).stdout)


class Nono(Face):
    def __init__(self, work: str) -> None:
        super().__init__(work)
        import nono_py

        self.run = nono_py.sandboxed_exec
        self.caps = nono_py.CapabilitySet()
        self.caps.allow_path("/", nono_py.AccessMode.READ)
        for path in (work, "/tmp"):
            self.caps.allow_path(path, nono_py.AccessMode.READ_WRITE)
        self.caps.block_network()

    def one(self, words: Words) -> str:
        done = self.run(
            self.caps,
            list(words),
            cwd=self.work,
            timeout_secs=60.0,
            env=list(ENV.items()),
            enforcement_mode="seccomp",
        )
        return as_text(done.stdout)


class Sandboxkit(Face):
    def __init__(self, work: str) -> None:
        super().__init__(work)
        import sandboxkit

        self.kit = sandboxkit

    def one(self, words: Words) -> str:
        from landlockpy import AccessFS, Ruleset

        everything = AccessFS(sum(AccessFS))
        rules = Ruleset(handled_fs=everything)
        rules.allow_path("/", AccessFS.READ_FILE | AccessFS.READ_DIR | AccessFS.EXECUTE)
        for path in (self.work, "/tmp"):
            rules.allow_path(path, everything)
        box = self.kit.Sandbox(
            landlock=rules, timeout=60, env=ENV, cwd=self.work, mount_proc=True, strict=True
        )
        return as_text(box.run_argv(list(words)).stdout)


class Hlyn(Face):
    def __init__(self, work: str) -> None:
        super().__init__(work)
        import hlyn

        self.run = hlyn.run

    def one(self, words: Words) -> str:
        def act() -> str:
            done = subprocess.run(words, capture_output=True, text=True, env=ENV, cwd=self.work)
            return done.stdout or done.stderr

        return as_text(self.run(act, read=["/"], write=[self.work], exec=True))


class Zerobox(Face):
    def __init__(self, work: str) -> None:
        super().__init__(work)
        import zerobox

        self.box = zerobox.Sandbox.create(
            {"allow_read": ["/"], "allow_write": [work, "/tmp"], "cwd": work}
        )

    def one(self, words: Words) -> str:
        done = self.box.exec(words[0], list(words[1:])).output(timeout=60)
        return as_text(done.stdout or done.stderr)


class PyLandlock(Face):
    def __init__(self, work: str) -> None:
        super().__init__(work)
        import py_landlock

        self.module = py_landlock

    def confine(self) -> None:
        rules = self.module.Landlock()
        rules.allow_read("/")
        rules.allow_execute("/")
        for path in (self.work, "/tmp"):
            rules.allow_read_write(path)
        rules.apply()

    def one(self, words: Words) -> str:
        return subprocess.run(
            words, capture_output=True, text=True, env=ENV, cwd=self.work, preexec_fn=self.confine
        ).stdout


class Landlock(PyLandlock):
    def __init__(self, work: str) -> None:
        Face.__init__(self, work)
        import landlock

        self.module = landlock

    def confine(self) -> None:
        access = self.module.FSAccess
        rules = self.module.Ruleset()
        rules.allow("/", rules=access.READ_FILE | access.READ_DIR | access.EXECUTE)
        for path in (self.work, "/tmp"):
            rules.allow(path, rules=access.all())
        rules.apply()


def as_text(output: object) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else str(output or "")


FACES: dict[str, type[Face]] = {
    "posix_spawn": PosixSpawn,
    "subprocess.run": Subprocess,
    "asyncio subprocess": AsyncioSubprocess,
    "sandbox.run": Run,
    "Sandbox.run": Held,
    "run_many (one sandbox)": Batch,
    "run_many (a sandbox each)": BatchEach,
    "run_many (a workspace each)": BatchWorkspaces,
    "aio.Sandbox.run": Aio,
    "subprocess.run(policy=)": DropIn,
    "subprocess.run(sandbox=)": Joined,
    "sandlock": Sandlock,
    "nono-py": Nono,
    "sandboxkit": Sandboxkit,
    "hlyn.run": Hlyn,
    "zerobox (API)": Zerobox,
    "py-landlock": PyLandlock,
    "landlock": Landlock,
}


def held() -> dict[str, int]:
    """What must not grow; ``resident``: bytes, at the most until now."""
    # Not getrusage: its maximum is inherited from who has started this program.
    status = Path("/proc/self/status").read_text()
    return {
        "fds": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "resident": int(status.split("VmHWM:")[1].split()[0]) * 1024,
    }


def serve(name: str, work: str) -> None:
    """Answers until stdin ends."""
    warnings.simplefilter("ignore")
    before = os.dup(1)
    os.dup2(2, 1)  # what a library prints is not an answer
    out = os.fdopen(before, "w")
    face, started = None, 0
    for line in sys.stdin:
        order = json.loads(line)
        words, count, most = order["words"], order.get("count", 0), order.get("most", 1)
        answer: dict[str, Any]
        try:
            if face is None:
                began = time.perf_counter_ns()
                face = FACES[name](work)
                face.one(["/bin/true"])
                started = time.perf_counter_ns() - began
            if count:
                face.prepare(count)
                began = time.perf_counter_ns()
                taken = face.many(words, count, most)
                answer = {"times": taken, "wall": time.perf_counter_ns() - began, **held()}
                answer["started"] = started
            else:
                answer = {"output": face.one(words)}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=out, flush=True)
    if face is not None:
        face.close()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
