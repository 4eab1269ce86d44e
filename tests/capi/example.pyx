# cython: language_level=3
"""The same from Cython."""
from cpython.pycapsule cimport PyCapsule_Import
from libc.stdint cimport int32_t
from posix.unistd cimport close
from sandcore cimport *

cdef const sandcore_api *api = <const sandcore_api *>PyCapsule_Import(SANDCORE_CAPSULE, 0)


def run(bytes writable, bytes script):
    """The wait status of a script of sh that may write below one directory."""
    cdef sandcore_rule[2] rules
    cdef sandcore_options options
    cdef sandcore_command command
    cdef sandcore_policy *policy
    cdef sandcore_failure failure
    cdef sandcore_ended ended
    cdef int32_t pid, pidfd
    cdef const char *argv[4]
    cdef const char *envp[2]
    argv[:] = [b"/bin/sh", b"-c", script, NULL]
    envp[:] = [b"PATH=/usr/bin:/bin", NULL]
    rules[0] = sandcore_rule(path=writable, access=SANDCORE_WRITE, optional=0)
    rules[1] = sandcore_rule(path=b"/dev/null", access=SANDCORE_DEVICE, optional=0)
    options.size, options.rules, options.rule_count = sizeof(options), &rules[0], 2
    options.restrict_reads = options.network = 0
    command.size = sizeof(command)
    command.argv, command.envp, command.cwd, command.keep_session = &argv[0], &envp[0], NULL, 0
    command.fds[0], command.fds[1], command.fds[2] = 0, 1, 2
    error = api.policy_compile(&options, &policy)
    if error:
        raise OSError(-error, "compile")
    error = api.spawn(policy, &command, &pid, &pidfd, &failure)
    api.policy_close(policy)
    if error:
        raise OSError(-error, api.stage_name(failure.stage).decode())
    api.wait(pidfd, -1, &ended)
    close(pidfd)
    return ended.status
