# What runs commands in lanes, for the caller: see run.h and engine.h.

cdef extern from "pump.h" nogil:
    struct pump
    struct pump_output_c "pump_output":
        const uint8_t *head
        size_t head_len
        const uint8_t *tail_a
        size_t tail_a_len
        const uint8_t *tail_b
        size_t tail_b_len
        uint64_t total
    void pump_output(const pump *p, int which, pump_output_c *out)

cdef extern from "run.h" nogil:
    enum: RUN_DONE
    enum: RUN_SIGNAL
    const int64_t RUN_KILL_PATIENCE_NS
    struct run_setup:
        int lane
        const uint8_t *request
        size_t request_size
        const uint8_t *input
        size_t input_len
        int stdin_fd
        int stdout_fd
        int stderr_fd
        size_t out_cap
        size_t err_cap
        int64_t deadline_ns
    struct run_c "run":
        wire_reply reply
        int timed_out
        int killed
        int drained_early
        wire_attempt *attempts
        pump *pump
    int run_start(const run_setup *setup, run_c *r)
    int run_step(run_c *r)
    int run_kill(run_c *r)
    void run_free(run_c *r)
    int run_launch(int lane, const uint8_t *request, size_t size, const int32_t *fds,
                   unsigned fd_count, wire_reply *reply, int32_t *pidfd)

cdef extern from "engine.h" nogil:
    struct job_c "job":
        run_c run
        int result
        int64_t ended_ns
        void *whose
    struct engine_c "engine":
        int done
    int engine_open(engine_c *e)
    void engine_close(engine_c *e, int forked)
    job_c *engine_left(engine_c *e)
    int engine_start(engine_c *e, const run_setup *setup, job_c *job)
    unsigned engine_take(engine_c *e, job_c **over, unsigned most)
    void engine_kill(engine_c *e, job_c *job)
