# What is asked of a lane, as bytes.


cdef void _give(run_setup *setup, int lane, bytes request, bytes input) noexcept:
    setup.lane = lane
    setup.request = <const uint8_t *><const char *>request
    setup.request_size = len(request)
    setup.input = NULL
    setup.input_len = 0
    if input is not None:
        setup.input = <const uint8_t *><const char *>input
        setup.input_len = len(input)


cdef bytes _file_request(uint32_t what, bytes path, bint here, uint32_t mode, bint follow):
    cdef wire_file header
    header.kind = WIRE_FILE
    header.what = what
    header.flags = (WIRE_FILE_HERE if here else 0) | (0 if follow else WIRE_FILE_NO_LINK)
    header.mode = mode
    if len(path) >= WIRE_MAX_PATH:
        raise OSError(ENAMETOOLONG, strerror(ENAMETOOLONG))
    return (<const char *>&header)[: sizeof(header)] + path + b"\0"


cdef bytes _request(programs, argv, bytes env, Py_ssize_t env_count, bytes cwd, limits,
                    bint keep_session, int umask, uint32_t flags=0, uint64_t timeout_ns=0,
                    uint64_t memory=0, uint32_t docked=0, int group=0, tuple targets=()):
    cdef wire_run header
    cdef plan_limit limit
    cdef int32_t target
    strings = b"\0".join((cwd, *programs, *argv, env))
    if not programs or not argv or len(limits) > WIRE_MAX_LIMITS:
        raise ValueError("a command has at least one word, and at most 16 limits")
    if strings.count(b"\0") != 1 + len(programs) + len(argv) + env_count:
        raise ValueError("a string contains NUL")
    table = []
    for resource, soft, hard in limits:
        limit = plan_limit(resource, 0, soft, hard)
        table.append((<const char *>&limit)[: sizeof(limit)])
    for target in targets:
        table.append((<const char *>&target)[: sizeof(target)])
    header.kind = WIRE_RUN
    header.flags = flags | (WIRE_KEEP_SESSION if keep_session else 0)
    header.body = len(limits) * sizeof(limit) + len(targets) * sizeof(target) + len(strings)
    header.umask = umask
    header.group = 0 if not keep_session else group if group else getpgrp()
    header.targets = len(targets)
    header.limits = len(limits)
    header.programs = len(programs)
    header.args = len(argv)
    header.envs = env_count
    header.memory = memory
    header.docked = docked
    header.reserved = 0
    header.timeout_ns = timeout_ns
    table.insert(0, (<const char *>&header)[: sizeof(header)])
    table.append(strings)
    return b"".join(table)
