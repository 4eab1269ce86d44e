# What became of a request.

Outcome = namedtuple(
    "Outcome",
    "started status timed_out stage errno detail stdout stdout_head stdout_total "
    "stderr stderr_head stderr_total swept drained_early over_memory usage duration "
    "attempts attempts_missed refusals")
Outcome.__doc__ = """What became of one request.

`started` is False when a stage failed: then `stage`, `errno` and `detail` say which, and nothing ran.
`status` is the leader's wait status. `stdout` and `stderr` hold what was kept: all of it, or the
first `*_head` bytes and the last ones when `*_total` is more than their length. `swept`: processes
that outlived the leader and were ended. `drained_early`: output was still open when they were.
`over_memory`: the tree was ended because it had too much.
`usage`: (user s, system s, max rss KiB, minor faults, major faults, blocks in, blocks out, voluntary
switches, involuntary switches) of the whole tree. `duration` is in seconds.
`attempts`: connects to what is outside of the sandbox, which were refused: (errno, SOCK_*, address as
bytes) each, the same one once; `attempts_missed`: how many more there were. `refusals`: empty, for
who listens to the kernel's audit."""


cdef _kept(const run_c *state, int which):
    cdef pump_output_c kept
    if state.pump == NULL:
        return b"", 0, 0
    pump_output(state.pump, which, &kept)
    data = PyBytes_FromStringAndSize(NULL, kept.head_len + kept.tail_a_len + kept.tail_b_len)
    cdef char *at = data
    if kept.head_len:
        memcpy(at, kept.head, kept.head_len)
    if kept.tail_a_len:
        memcpy(at + kept.head_len, kept.tail_a, kept.tail_a_len)
    if kept.tail_b_len:
        memcpy(at + kept.head_len + kept.tail_a_len, kept.tail_b, kept.tail_b_len)
    return data, kept.head_len, kept.total


cdef _attempts(const wire_reply *reply, const wire_attempt *attempts):
    if reply.kind != WIRE_DONE or reply.attempts == 0:
        return (), 0
    found = []
    for i in range(reply.attempts):
        one = &attempts[i]
        found.append((one.error, one.type, (<const char *>one.address)[: one.size]))
    return tuple(found), reply.missed


cdef _outcome(const run_c *state, const wire_attempt *attempts, double duration):
    cdef const wire_reply *reply = &state.reply
    cdef const wire_usage *usage = &reply.usage
    out, out_head, out_total = _kept(state, 1)
    err, err_head, err_total = _kept(state, 2)
    return tuple.__new__(Outcome, (
        reply.kind != WIRE_FAILED, reply.status, bool(state.timed_out),
        stage_name(reply.report.stage).decode(), reply.report.error, reply.report.detail,
        out, out_head, out_total, err, err_head, err_total,
        reply.swept, bool(state.drained_early), bool(reply.over_memory),
        (usage.user_us / 1e6, usage.system_us / 1e6, usage.max_rss_kib, usage.minor_faults,
         usage.major_faults, usage.in_blocks, usage.out_blocks, usage.voluntary_switches,
         usage.involuntary_switches),
        duration, *_attempts(reply, attempts), ()))


cdef _started_outcome(const wire_reply *reply, const wire_attempt *attempts):
    """The same for a command that was started: its streams are the caller's own."""
    cdef run_c state
    memset(&state, 0, sizeof(state))
    state.reply = reply[0]
    if reply.kind == WIRE_DONE:
        state.timed_out = reply.timed_out
        return _outcome(&state, attempts, reply.duration_ns / 1e9)
    return _outcome(&state, NULL, 0.0)
