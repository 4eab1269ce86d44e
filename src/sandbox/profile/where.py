"""Where profiles lie on a disk. Reads none of them."""

from __future__ import annotations

import os

from sandbox.errors import InvalidProfile
from sandbox.paths import below, follow

__all__ = [
    "PROFILE",
    "check_user_directory",
    "in_workspace",
    "profile_names",
    "project_file",
    "there_are_files",
    "user_directory",
    "user_file",
    "user_profile",
]

PROFILE = "sandbox.toml"


def user_directory() -> str:
    """The user's directory for profiles: `sandbox` in XDG_CONFIG_HOME, or in ~/.config."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    if not config.startswith("/"):  # a relative one is to be ignored, says the specification
        return _usual_directory()
    return os.path.join(config, "sandbox")


def _usual_directory() -> str:
    return os.path.expanduser("~/.config/sandbox")


def check_user_directory(workspace: str) -> None:
    """Refuses user's files that are the project's: put there by a variable, or reached by a link.

    Not where the workspace contains HOME: that is never writable. Raises ``InvalidProfile``.
    """
    own, home = os.path.realpath(user_directory()), os.path.realpath(os.path.expanduser("~"))
    if below(home, workspace):
        return
    if below(own, workspace) and own != os.path.realpath(_usual_directory()):
        cause = "the workspace contains it, and XDG_CONFIG_HOME says that it is the user's"
        raise InvalidProfile(user_directory(), 0, "", cause, "another XDG_CONFIG_HOME")
    if in_workspace(user_file(), workspace):
        cause = "leads into the workspace: a command may have written what is there"
        raise InvalidProfile(user_file(), 0, "", cause, "a copy in the place of the link")


def user_file() -> str:
    """The user's own profile, which always counts."""
    return os.path.join(user_directory(), PROFILE)


def user_profile(name: str) -> str:
    """The file of a profile that a user knows by its name."""
    return os.path.join(user_directory(), "profiles", f"{name}.toml")


def profile_names() -> list[str]:
    """The names of all profiles of the user."""
    try:
        files = os.listdir(os.path.join(user_directory(), "profiles"))
    except OSError:
        return []
    return sorted(file.removesuffix(".toml") for file in files if file.endswith(".toml"))


def project_file(workspace: str) -> str:
    """The profile of the project in a workspace."""
    return os.path.join(workspace, PROFILE)


def there_are_files(workspace: str) -> bool:
    """Whether there is any profile that counts without being named."""
    return os.path.lexists(user_file()) or os.path.lexists(project_file(workspace))


def in_workspace(file: str, workspace: str) -> bool:
    """Whether a file, or a link on the way, lies in the workspace: a command may have made it.

    Not so in the user's own directory for profiles; nor where the workspace contains HOME, which is
    never writable, for the links that lead to that.
    """
    top, home = os.path.realpath(workspace), os.path.realpath(os.path.expanduser("~"))
    target, links = follow(os.path.join(os.getcwd(), file))
    own, known = follow(user_directory())
    names = (target, *(one for one in links if one not in known or not below(home, top)))
    if all(below(one, own) for one in names):
        return False
    return any(below(one, top) for one in (*names, os.path.abspath(file)))
