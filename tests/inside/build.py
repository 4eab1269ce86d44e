"""Compilers, build tools, debuggers."""

from __future__ import annotations

from insidekit import Fails, Row, bash, script

_CC = {"gcc": "gcc libc6-dev", "make": "make"}
_JOBS = """all: {targets}
\t+$(MAKE) -C sub all
%.o: %.c
\tgcc -O1 -c -o $@ $<
"""
_SOURCES = {f"f{i}.c": f"int f{i}(void) {{ return {i}; }}\n" for i in range(6)}
_MAKEFILE = _JOBS.format(targets=" ".join(f"f{i}.o" for i in range(6)))
_SUB = """all: a b c
a b c:
\t@case "$$MAKEFLAGS" in *jobserver*) touch $@ ;; *) exit 1 ;; esac
"""

# What GNU make 4.4 does by default: a named pipe in the temporary directory, opened by its name.
_FIFO = """
import os, subprocess, sys, tempfile

if len(sys.argv) > 1:
    kind, _, path = os.environ["MAKEFLAGS"].partition("--jobserver-auth=")[2].partition(":")
    assert kind == "fifo"
    fd = os.open(path, os.O_RDWR)
    token = os.read(fd, 1)
    os.write(1, b"r")
    os.write(fd, token)
    sys.exit(0)
path = os.path.join(tempfile.gettempdir(), "GMfifo" + str(os.getpid()))
os.mkfifo(path, 0o600)
read, write = os.open(path, os.O_RDONLY | os.O_NONBLOCK), os.open(path, os.O_WRONLY)
os.set_blocking(read, True)
os.write(write, b"++")
env = os.environ | {"MAKEFLAGS": f" -j3 --jobserver-auth=fifo:{path}"}
jobs = [subprocess.Popen([sys.executable, __file__, "job"], env=env) for _ in range(6)]
assert [job.wait(20) for job in jobs] == [0] * 6
assert os.read(read, 3) == b"++"
os.unlink(path)
print("works")
"""

_CRASH = """#include <stdlib.h>
int deeper(int *p) { return *p; }
int main(int argc, char **argv) { (void)argv; return argc > 1 ? deeper(0) : 0; }
"""
_LEAK = """#include <stdlib.h>
int main(void) { void *volatile p = malloc(77); p = 0; return p != 0; }
"""

_CARGO = {
    "Cargo.toml": '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/main.rs": 'fn main() {\n    println!("{}", p());\n}\n\nfn p() -> u8 {\n    return 3;\n}\n'
    "\n#[test]\nfn three() {\n    assert_eq!(p(), 3);\n}\n",
}
_GO = {
    "go.mod": "module example.org/m\n\ngo 1.19\n",
    "m.go": 'package main\n\nimport "os"\n\nfunc main() { os.Exit(three()) }\n\n'
    "func three() int { return 3 }\n",
    "m_test.go": 'package main\n\nimport "testing"\n\nfunc TestThree(t *testing.T) {\n'
    '\tif three() != 3 {\n\t\tt.Fatal("not three")\n\t}\n}\n',
}

_JAVA = """import java.io.*;
import java.net.*;
import java.nio.file.*;
import java.util.concurrent.*;

public class M {
    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0) {
            try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                 Socket client = new Socket(server.getInetAddress(), server.getLocalPort());
                 Socket peer = server.accept()) {
                client.getOutputStream().write(7);
                if (peer.getInputStream().read() != 7) System.exit(4);
            }
        }
        Path path = arguments.length > 0 ? Files.createTempFile("m", ".txt") : Path.of("m.txt");
        Files.writeString(path, "text");
        ExecutorService pool = Executors.newFixedThreadPool(4);
        if (!pool.submit(() -> Files.readString(path)).get().equals("text")) System.exit(2);
        pool.shutdown();
        Process child = new ProcessBuilder("cat", path.toString()).start();
        if (!new String(child.getInputStream().readAllBytes()).equals("text")) System.exit(3);
        System.out.println("works");
    }
}
"""

_NO_INET = "without a network namespace there is no loopback of its own, and no inet socket"
_CARGO_NEEDS = {"cargo": "cargo", "rustc": "rustc", "gcc": "gcc libc6-dev"}

ROWS = {
    "gcc-and-make-jobs": Row(
        bash("make -j4 >log", "grep -q f5.o log && test -e f5.o -a -e sub/c", "ar rc libf.a f*.o"),
        files={**_SOURCES, "Makefile": _MAKEFILE, "sub/Makefile": _SUB},
        needs=_CC,
    ),
    "make-fifo-jobs": Row(**script(_FIFO)),
    "gdb": Row(
        bash(
            "gcc -g -O0 -o crash crash.c",
            "gdb -nx -q -batch -ex run -ex bt --args ./crash x >log 2>&1 </dev/null || true",
            "cat log; grep -q SIGSEGV log; grep -q 'deeper (p=0x0) at crash.c:2' log",
            "gdb -nx -q -batch -ex 'break deeper' -ex run -ex 'print p' -ex kill --args ./crash x"
            " >log 2>&1 </dev/null",
            "grep -q '= (int \\*) 0x0' log",
        ),
        files={"crash.c": _CRASH},
        needs={"gdb": "gdb", **_CC},
    ),
    "strace": Row(
        bash(
            "strace -f -o log sh -c 'cat /etc/hostname | cat; true' >/dev/null",
            "grep -q execve log; grep -q 'exited with 0' log",
            "strace -c -o counts true; grep -q execve counts",
            "sleep 5 & strace -o attached -p $! & tracer=$!",
            "until grep -q 'TracerPid:.[1-9]' /proc/$(jobs -p %1)/status; do sleep 0.05; done",
            "sleep 0.1; kill %1; wait $tracer || true",
            "grep -q SIGTERM attached",
        ),
        needs={"strace": "strace"},
    ),
    "leak-sanitizer": Row(
        bash(
            "gcc -g -fsanitize=address -o leak leak.c",
            "if ./leak 2>log; then echo no leak; exit 1; fi",
            "cat log; grep -q 'detected memory leaks' log; grep -q '77 byte' log",
        ),
        files={"leak.c": _LEAK},
        needs=_CC,
    ),
    "cargo-build-and-clippy": Row(
        bash(
            "cargo build -q --offline",
            "./target/debug/p | grep -x 3",
            "cargo test -q --offline",
            "cargo clippy --offline 2>&1 | tee log; grep -q needless_return log",
        ),
        files=_CARGO,
        needs={"cargo-clippy": "rust-clippy", **_CARGO_NEEDS},
    ),
    "go-build-test-vet": Row(
        bash("go build -o m .", "./m || test $? -eq 3", "go test ./... >log; go vet ./..."),
        files=_GO,
        needs={"go": "golang-go", "gcc": "gcc libc6-dev"},
    ),
    "java": Row(
        bash("java M.java"),
        files={"M.java": _JAVA},
        needs={"javac": "openjdk-17-jdk-headless"},
    ),
    "java-sockets-and-temporary-files": Row(
        bash("java M.java all"),
        files={"M.java": _JAVA},
        needs={"javac": "openjdk-17-jdk-headless"},
        answers={"landlock": Fails("Operation not permitted", _NO_INET)},
    ),
}
