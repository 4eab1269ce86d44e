"""A world for the assessment of commands: programs that are there, and places commands write."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.command import Assessment, Context, Rules, Verdict, assess_command_safety

PROGRAMS = (
    "arch awk basename bash base64 cat chmod cp cut date dd df diff dirname du echo env expr false"
    " file find git grep head id jq kill less ln ls man mkdir mv nice nohup node npm od perl"
    " printf ps pwd python3 readlink rg rm rmdir sed seq sh dash sleep sort stat stdbuf tac tail"
    " tar tee test time timeout touch tr tree true uname uniq wc wget which whoami xargs xxd zsh"
    " ssh curl sudo docker make gcc strings column hexdump hostname tree"
)
TREE = {f"/usr/bin/{name}": f"/usr/bin/{name}" for name in PROGRAMS.split()}
TREE |= {f"/bin/{name}": f"/usr/bin/{name}" for name in PROGRAMS.split()}
TREE |= {
    "/opt/tools/ls": "/opt/tools/ls",
    "/opt/tools/link": "/work/cat",  # leads to where commands write
    "/work/ls": "/work/ls",
    "/work/bin/git": "/work/bin/git",
    "/tmp/git": "/tmp/git",
    "/tmp/cat": "/tmp/cat",
}

FOLLOW = {"/opt/linked": "/work/bin", "/ws": "/data/ws"}
TREE["/data/ws/ls"] = "/data/ws/ls"


def resolve(path: str) -> str:
    return TREE.get(path, "")


def context(
    path: Sequence[str] = ("/usr/local/bin", "/usr/bin", "/bin"),
    writable: Sequence[str] = ("/work",),
    rules: Rules | None = None,
    helpers_off: bool = True,
    login: bool = False,
    environment: Sequence[str] = (),
) -> Context:
    return Context(
        path=tuple(path),
        writable=tuple(writable),
        environment=tuple(environment),
        rules=rules or Rules(),
        git_helpers_off=helpers_off,
        login_files_trusted=login,
        resolve=resolve,
        follow=lambda path: FOLLOW.get(path, path),
    )


CONTEXT = context()


def assess(command: str | bytes | Sequence[str | bytes], where: Context = CONTEXT) -> Assessment:
    return assess_command_safety(command, where)


def is_safe(command: str | bytes | Sequence[str | bytes], where: Context = CONTEXT) -> bool:
    return assess(command, where).verdict is Verdict.SAFE
