"""The options that make a policy, the same for all commands, and the policy that they make."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from sandbox.cli.text import complain
from sandbox.environ import Environment
from sandbox.errors import InvalidArgument
from sandbox.limits import size
from sandbox.paths import has_pattern
from sandbox.policy import SandboxPolicy
from sandbox.presets import preset

if TYPE_CHECKING:
    from sandbox.profile.values import Mode, Profile

__all__ = [
    "Chosen",
    "command_argument",
    "network_option",
    "policy_of",
    "policy_options",
    "profile_options",
]

Command = Callable[..., Any]


NETWORKS = ("none", "loopback", "full")
ISOLATIONS = ("auto", "landlock", "namespaces")

network_option = click.option(
    "--network",
    type=click.Choice(NETWORKS),
    help="Default: none; full with --full-access.",
)

_OPTIONS = (
    click.option("--profile", metavar="NAME|FILE", help="A mode, a profile of yours, or a file."),
    click.option("--read-only", is_flag=True, help="Write nothing but a private TMPDIR."),
    click.option("--auto", is_flag=True, help="Write below the working directory too (default)."),
    click.option("--full-access", is_flag=True, help="No confinement of files and network."),
    click.option("--write", metavar="PATH", multiple=True, help="Writable as well."),
    click.option("--read", metavar="PATH", multiple=True, help="Readable, and not writable."),
    click.option("--deny", metavar="PATH", multiple=True, help="Neither."),
    click.option(
        "--allow-secret",
        metavar="NAME",
        multiple=True,
        help="A place of secrets that may be read, by name or path (such as npm).",
    ),
    click.option(
        "--unix-socket",
        metavar="PATH",
        multiple=True,
        help="A Unix socket of the host that may be connected to.",
    ),
    network_option,
    click.option(
        "--isolation",
        type=click.Choice(ISOLATIONS),
        default="auto",
        help="This one, or nothing is run; auto: the strongest that this host offers.",
    ),
    click.option(
        "--env",
        metavar="NAME[=VALUE]",
        multiple=True,
        help="A further variable: yours, or with this value.",
    ),
    click.option(
        "--memory", metavar="SIZE", type=size, help="Of all processes together, such as 512M."
    ),
    click.option(
        "--tmp", metavar="SIZE", type=size, help="Of /tmp and /dev/shm each, where it has its own."
    ),
    click.option("--processes", metavar="N", type=int, help="At one time, threads counted."),
)

# Words after the first that is no option belong to the command, whatever they look like.
command_argument = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")


class Chosen(NamedTuple):
    """What the options make: a policy, and the profile that it is based on, if any."""

    policy: SandboxPolicy
    profile: Profile | None


def policy_options(command: Command) -> Command:
    """Gives a command the options; it gets a `policy` instead of their values."""
    return _with_options(lambda made, **others: command(policy=made.policy, **others), command)


def profile_options(command: Command) -> Command:
    """As `policy_options`; it gets `chosen`, with a profile in any case."""
    return _with_options(lambda made, **others: command(chosen=made, **others), command, True)


def _with_options(call: Command, command: Command, always: bool = False) -> Command:
    @functools.wraps(command)
    def with_policy(
        *,
        profile: str | None,
        read_only: bool,
        auto: bool,
        full_access: bool,
        write: Sequence[str],
        read: Sequence[str],
        deny: Sequence[str],
        allow_secret: Sequence[str],
        unix_socket: Sequence[str],
        network: str | None,
        isolation: str,
        env: Sequence[str],
        memory: int | None,
        processes: int | None,
        tmp: int | None,
        **others: Any,
    ) -> Any:
        mode = _mode(read_only, auto, full_access)
        base = _profile(profile, mode, always)
        policy = base.policy if base is not None else preset(mode or "auto")
        policy = _with_paths(policy, read, write, deny)
        if base is not None and write:
            policy = _guarded_again(policy, base)
        for name in allow_secret:
            policy = policy.allow_secret(name)
        for path in unix_socket:
            policy = policy.with_unix_socket(absolute(path))
            _note_missing("--unix-socket", absolute(path), "can be connected to")
        policy = policy_of(policy, network, isolation, env)
        policy = _with_limits(policy, memory=memory, processes=processes, tmp=tmp)
        return call(Chosen(policy, base), **others)

    for option in reversed(_OPTIONS):
        with_policy = option(with_policy)
    return with_policy


def _profile(name: str | None, mode: Mode | None, always: bool) -> Profile | None:
    """The profile that is named or that counts in any case; None where there is no file.

    Who has none does not pay for what reads them.
    """
    from sandbox.profile.where import there_are_files

    if name is None and not always and not there_are_files(os.curdir):
        return None
    from sandbox.profile.load import check_paths, load

    profile = load(name, mode=mode)
    if not always:
        check_paths(profile)
    return profile


def _guarded_again(policy: SandboxPolicy, profile: Profile) -> SandboxPolicy:
    """The policy, in which what was granted here opens no file that profiles are made of."""
    from sandbox.profile.guarding import guarded_again

    return guarded_again(policy, profile)


def policy_of(
    policy: SandboxPolicy, network: str | None, isolation: str, env: Sequence[str]
) -> SandboxPolicy:
    """A policy with what was said of network, isolation and environment."""
    changes: dict[str, Any] = {}
    if network is not None:
        changes["network"] = network
    if isolation != "auto":
        changes["require"] = isolation
    if isolation == "landlock":
        os.environ["SANDBOX_ISOLATION"] = isolation  # of this process, which runs one command
    if env:
        changes["environment"] = _environment(policy.environment, env)
    return replace(policy, **changes) if changes else policy


def _with_limits(policy: SandboxPolicy, **limits: int | None) -> SandboxPolicy:
    """A policy with the limits that were given."""
    given = {name: value for name, value in limits.items() if value is not None}
    return policy.with_limits(replace(policy.limits, **given)) if given else policy


def _mode(read_only: bool, auto: bool, full_access: bool) -> Mode | None:
    """The one mode that was chosen, if any."""
    table: tuple[tuple[Mode, bool], ...] = (
        ("read-only", read_only),
        ("auto", auto),
        ("full-access", full_access),
    )
    named = [name for name, wanted in table if wanted]
    if len(named) > 1:
        raise click.UsageError(f"--{named[0]} and --{named[1]} exclude each other")
    return named[0] if named else None


def _with_paths(
    policy: SandboxPolicy, read: Sequence[str], write: Sequence[str], deny: Sequence[str]
) -> SandboxPolicy:
    # The stricter one last: of two options for the same path it is the one that stays.
    for path in write:
        policy = policy.with_write(absolute(path))
    for path in read:
        policy = policy.with_read(absolute(path))
    for path in deny:
        policy = policy.with_deny(absolute(path))
        _note_missing("--deny", absolute(path), "is denied")
    return policy


def _note_missing(option: str, path: str, then: str) -> None:
    """Says that a path is not there: what was said of it holds later, or is a slip of the pen."""
    if not has_pattern(path) and not os.path.lexists(os.path.expanduser(path)):
        complain(f"{option} {path}: nothing is there; should it come into being, it {then}")


def absolute(path: str) -> str:
    """A path as a person types it in a shell, from the root: policies know no working directory.

    Where it goes upwards, what that means depends on the links before it: only then they are
    followed here.
    """
    if not path or path.startswith("~"):
        return path
    joined = os.path.join(os.getcwd(), path)
    return os.path.realpath(joined) if ".." in joined.split("/") else joined


def _environment(base: Environment, given: Sequence[str]) -> Environment:
    """`NAME` is inherited by exactly that name, `NAME=VALUE` is set."""
    own = dict(base.set)
    names = list(base.allow)
    for item in given:
        name, equals, value = item.partition("=")
        if equals:
            own[name] = value
        else:
            names.append(name)
    try:
        return replace(
            base,
            set=tuple(own.items()),
            allow=tuple(names),
            only=(*base.only, *names) if base.only else (),
            within=tuple((*patterns, *names) for patterns in base.within),
        )
    except InvalidArgument as error:
        mend = f"--env {error.value}=VALUE" if error.mend else ""
        raise InvalidArgument("--env", error.value, error.cause, mend) from None
