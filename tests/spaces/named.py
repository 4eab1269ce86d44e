"""Sockets of the host that a policy names: these, and nothing beside them."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

from casekit import Listener, cc, listening
from spacekit import inside, outside, program, space

import sandbox
from sandbox import SandboxPolicy, workspace_write

CONNECT = "socket.socket(socket.AF_UNIX).connect(A[0])"


@contextmanager
def servers(directory: Path, *names: str) -> Iterator[list[Listener]]:
    """Servers of the host, by the names of their sockets."""
    made = [Listener(socket.AF_UNIX, str(directory / name)) for name in names]
    try:
        yield made
    finally:
        for one in made:
            one.socket.close()
        for name in names:
            (directory / name).unlink(missing_ok=True)


@contextmanager
def in_tmp() -> Iterator[Path]:
    """A directory of the host's in `/tmp`, which is private inside."""
    made = Path(tempfile.mkdtemp(prefix="sandcore-named-", dir="/tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _tries(*paths: Path) -> dict[str, str]:
    return {path.name: f"socket.socket(socket.AF_UNIX).connect({str(path)!r})" for path in paths}


def _policies(w: Path, *paths: Path) -> Iterator[SandboxPolicy]:
    """With a network of its own and with the host's; and where nothing is read by default."""
    entry, access, special = sandbox.Entry, sandbox.Access, sandbox.Special
    yield from (
        workspace_write(w, unix_sockets=paths),
        workspace_write(w, unix_sockets=paths, network="full"),
        SandboxPolicy(
            entries=(
                entry("", access.READ, special.MINIMAL),
                entry(w, access.WRITE, special.WORKSPACE),
            ),
            unix_sockets=paths,
        ),
    )


def a_named_socket_is_reached_and_its_neighbour_is_not(w: Path, o: Path) -> None:
    with in_tmp() as tmp:
        for place in (o, w, tmp):
            for policy in _policies(w, place / "named"):
                with servers(place, "named", "beside") as hosts:
                    acts = _tries(place / "named", place / "beside")
                    assert outside(acts) == {"named": "ok", "beside": "ok"}
                    assert [host.greeted() for host in hosts] == [1, 1]
                    with space(w, policy) as box:
                        found = inside(box, acts)
                        assert found["named"] == "ok", (place, policy.network, found)
                        assert found["beside"] in ("EPERM", "ENOENT", "EACCES")
                        assert [host.greeted() for host in hosts] == [1, 0]


def data_goes_to_and_from_a_named_socket(w: Path, o: Path) -> None:
    code = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendall(b"asked")
print(client.recv(9))
"""
    with (
        servers(o, "named") as (host,),
        space(w, workspace_write(w, unix_sockets=[o / "named"])) as box,
        box.popen(program(code, o / "named"), stdout=PIPE) as client,
    ):
        host.socket.settimeout(9)
        peer, _ = host.socket.accept()
        assert peer.recv(9) == b"asked"
        peer.sendall(b"told")
        peer.close()
        assert client.communicate()[0].decode() == "b'told'\n"


def a_command_cannot_put_another_in_its_place(w: Path, o: Path) -> None:
    """In a writable directory: it lies under a mount there, and what leads to it is held."""
    (w / "way").mkdir()
    acts = {
        "rename over": "os.rename(A[0] + '/other', A[0] + '/way/named')",
        "unlink": "os.unlink(A[0] + '/way/named')",
        "rename away": "os.rename(A[0] + '/way/named', A[0] + '/away')",
        "rename the way": "os.rename(A[0] + '/way', A[0] + '/away')",
        "hard link": "os.link(A[0] + '/way/named', A[0] + '/link')",
        "link over": "os.symlink('../other', A[0] + '/way/named')",
        "connect": "socket.socket(socket.AF_UNIX).connect(A[0] + '/other')",
        "named": "socket.socket(socket.AF_UNIX).connect(A[0] + '/way/named')",
    }
    with servers(w, "other", "way/named") as (other, named):
        for policy in _policies(w, w / "way" / "named"):
            with space(w, policy) as box:
                found = inside(box, acts, w)
                assert found.pop("named") == "ok" and found.pop("connect") == "EPERM"
                assert found.pop("link over") == "EEXIST"
                assert set(found.values()) <= {"EBUSY", "EXDEV", "EROFS"}, found
                assert (other.greeted(), named.greeted()) == (0, 1)
        assert outside({"hard link": acts["hard link"]}, w) == {"hard link": "ok"}
        (w / "link").unlink()


def a_file_that_came_to_its_place_is_not_named(w: Path, o: Path) -> None:
    """The host takes its socket away; a command that runs puts another of the host's there."""
    code = """
import os, socket, sys
def tell(act):
    try:
        act()
        print("ok", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
input()
tell(lambda: os.rename("other", "named"))
tell(lambda: socket.socket(socket.AF_UNIX).connect("named"))
"""
    for policy in _policies(w, w / "named"):
        with (
            servers(w, "other", "named") as (other, _),
            space(w, policy) as box,
            box.popen(program(code), cwd=w, stdin=PIPE, stdout=PIPE) as command,
        ):
            (w / "named").unlink()
            out = command.communicate(b"\n")[0].decode().split()
            assert out == ["ok", "1"], out
            assert other.greeted() == 0


def a_link_that_a_command_may_have_made_is_not_followed(w: Path, o: Path) -> None:
    with servers(o, "host") as (host,):
        (w / "named").symlink_to(o / "host")
        try:
            with space(w, workspace_write(w, unix_sockets=[w / "named"])) as box:
                raise AssertionError(inside(box, {"link": CONNECT}, w / "named"))
        except sandbox.InvalidPath as error:
            assert "which a command may have made" in str(error)
        (o / "link").symlink_to(o / "host")  # nobody inside can have made that one
        with space(w, workspace_write(w, unix_sockets=[o / "link"])) as box:
            assert inside(box, {"link": CONNECT}, o / "link") == {"link": "ok"}
            assert host.greeted() == 1


def a_server_that_is_started_again_is_reached_by_the_next_command(w: Path, o: Path) -> None:
    pause = 0.2  # outside of what is writable the layout looks every 50 ms
    with in_tmp() as tmp:
        for place in (o, tmp):
            path, missing = place / "named", ("ENOENT", "ECONNREFUSED")
            with space(w, workspace_write(w, unix_sockets=[path])) as box:
                assert inside(box, {"none": CONNECT}, path)["none"] in missing
                for _ in range(2):
                    with servers(place, "named") as (host,):
                        time.sleep(pause)
                        assert inside(box, {"there": CONNECT}, path) == {"there": "ok"}
                        assert host.greeted() == 1
                    time.sleep(pause)
                    assert inside(box, {"gone": CONNECT}, path)["gone"] in missing


def what_is_no_socket_and_what_is_denied_is_not_named(w: Path, o: Path) -> None:
    try:
        with space(w, workspace_write(w, unix_sockets=[o])):
            raise AssertionError("a directory was named")
    except sandbox.InvalidPath as error:
        assert "is none" in str(error)
    path = o / "named"
    with servers(o, "named") as (host,):
        open_ = workspace_write(w, unix_sockets=[path])
        for policy, errno in (
            (open_.with_deny(path), {"ECONNREFUSED"}),
            (open_.narrow(workspace_write(w)), {"EPERM"}),
            (
                open_.with_deny(o),
                {"ok"},
            ),  # naming is more precise
            (open_, {"ok"}),
        ):
            with space(w, policy) as box:
                assert {inside(box, {"one": CONNECT}, path)["one"]} == errno
        assert host.greeted() == 2
    home = Path.home()
    (home / ".gnupg").mkdir(exist_ok=True)
    with servers(home / ".gnupg", "S.gpg-agent"):
        agent = home / ".gnupg" / "S.gpg-agent"
        try:
            with space(w, workspace_write(w, unix_sockets=[agent])):
                raise AssertionError("a secret's socket was named")
        except sandbox.InvalidPath as error:
            assert "place of secrets" in str(error)


def datagrams_do_not_come_with_a_name(w: Path, o: Path) -> None:
    act = {"sendto": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', A[0])"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as host:
        host.bind(str(o / "log"))
        assert outside(act, o / "log") == {"sendto": "ok"}
        with space(w, workspace_write(w, unix_sockets=[o / "log"])) as box:
            assert inside(box, act, o / "log") == {"sendto": "EPERM"}


SWAP = r"""
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
static struct sockaddr_un one = {AF_UNIX}, two = {AF_UNIX}, used;
static volatile int over;
static char *what, *place;
static void *swap(void *ignored) {
    for (unsigned i = 0; !over; i++) {
        const struct sockaddr_un *next = i & 1 ? &one : &two;
        if (what[0] == 'a') memcpy(&used, next, sizeof used);
        else { unlink("n"); symlink(next->sun_path, "n"); rename("n", "l"); }
    }
    return NULL;
}
int main(int argc, char **argv) {
    what = argv[1];
    strcpy(one.sun_path, argv[2]);
    strcpy(two.sun_path, argv[3]);
    used = one;
    if (what[0] == 'l') strcpy(used.sun_path, "l");
    pthread_t thread;
    pthread_create(&thread, NULL, swap, NULL);
    int reached = 0, refused = 0;
    for (time_t end = time(NULL) + 3; time(NULL) < end && reached < 900;) {
        int mine = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(mine, (void *)&used, sizeof used)) refused++;
        else reached++;
        close(mine);
        sched_yield(); /* or a busy machine sees one of the two only */
    }
    over = 1;
    pthread_join(thread, NULL);
    printf("%d %d\n", reached > 20, refused > 20);
    return 0;
}
"""


def a_race_between_a_named_socket_and_another_is_lost(w: Path, o: Path) -> None:
    race = cc(SWAP, w / "race")
    with servers(o, "named") as (named,), servers(o, "other") as (other,):
        named.socket.listen(1000)
        for policy in _policies(w, o / "named"):
            for what in "al":
                with space(w, policy) as box:
                    words = [str(race), what, str(o / "named"), str(o / "other")]
                    result = box.run(words, timeout=60)
                    assert result.out == "1 1\n", (what, policy.network, result.text)
                    assert other.greeted() == 0
                    named.greeted(0.01)


def a_refused_socket_comes_with_its_grant(w: Path, o: Path) -> None:
    with listening(str(o / "s"), socket.AF_UNIX) as host:
        policy = workspace_write(w)
        for network in ("none", "full"):
            with space(w, policy.with_network(network)) as box:
                result = box.run(program(f"import socket; A=[{str(o / 's')!r}]; {CONNECT}"))
            (denial,) = result.denials
            assert (denial.kind, denial.what, denial.certain) == ("socket", str(o / "s"), True)
            assert denial.grant is not None and denial.grant.option == f"--unix-socket {o / 's'}"
            assert host.greeted() == 0
        with space(w, denial.grant.apply(policy)) as box:
            assert inside(box, {"granted": CONNECT}, o / "s") == {"granted": "ok"}
            assert host.greeted() == 1


def without_namespaces_no_socket_is_named(w: Path, o: Path) -> None:
    os.environ["SANDBOX_ISOLATION"] = "landlock"
    try:
        with sandbox.Sandbox(workspace_write(w, unix_sockets=[o / "s"]), workspace=w):
            raise AssertionError("a named socket without namespaces")
    except sandbox.Unenforceable as error:
        text = str(error)
        assert f"the Unix socket {o / 's'}" in text and "SANDBOX_ISOLATION=auto" in text, text
