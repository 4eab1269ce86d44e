"""What an isolation cannot do, in one place.

`BEYOND`: cases that state what is right and fail, by isolation and function. `NOT_APPLICABLE`: ids
of cases about something that this version does not have.
"""

from __future__ import annotations

_LANDLOCK: dict[str, str] = {
    "case_32_nor_behind_a_nested_repository_that_nobody_named": (
        "needs read-only mounts: only names directly in a writable directory are put back"
    ),
    "case_43_semaphores_work": "needs a /dev/shm of its own",
    "case_47_a_program_may_open_a_terminal_of_its_own": "needs a devpts of its own",
    "case_56_a_server_in_the_temporary_directory_works": (
        "needs a mount namespace: below ABI 9 no filter tells its own sockets from a service's"
    ),
    "case_61_a_program_reaches_its_own_listener": "needs a network namespace",
    "case_71_java_opens_a_datagram_socket_offline": "needs a network namespace",
}

BEYOND: dict[str, dict[str, str]] = {"landlock": _LANDLOCK, "namespaces": {}}

NOT_APPLICABLE: dict[int, str] = {
    18: "no supervisor decides while a command runs: the kernel does",
}
