# Many commands at a time, each in a lane of its own, behind one fd.

cdef enum:
    _FINISHED_MAX = 64


@cython.final
cdef class Job:
    """A command that an engine runs.

    `token` is the caller's. Once it is over, `outcome` is its Outcome, or `lost` says why there is
    none: its lane and the whole sandbox were lost."""

    cdef job_c c
    cdef int64_t began
    cdef void *home  # the engine that runs it, which does not live by that; NULL: none does
    cdef object request, input  # lent to the run
    cdef readonly Lane lane
    cdef readonly bint at_once  # it never was in the engine: over when it came out of `start`
    cdef public object token
    cdef readonly object outcome
    cdef readonly str lost

    def __dealloc__(self):
        if self.began:
            run_free(&self.c.run)

    cdef over(self, int result):
        """It has come out of its engine, or never was in it."""
        self.home = NULL
        self.lane.running = False
        if result == RUN_DONE:
            self.outcome = _outcome(&self.c.run, self.c.run.attempts, (self.c.ended_ns - self.began) / 1e9)
        else:
            self.lane.lose()
            self.lost = f"the sandbox was lost: {strerror(-result)}"
        if self.lane.closed:
            self.lane.end()
        run_free(&self.c.run)
        self.began = 0
        self.request = self.input = None


@cython.final
cdef class Engine:
    """Commands at the same time; `fileno` is readable when some are over. A thread of its own sees to
    them. Not for a forked copy of the process. OSError when there is no fd or thread for it."""

    # A job that is in the engine counts as referred to from there: what Python collects of a cycle, in
    # whatever order, is never what the thread is working on.
    cdef engine_c c
    cdef Py_ssize_t count
    cdef int owner
    cdef bint closed

    def __cinit__(self):
        cdef int error = engine_open(&self.c)
        if error:
            raise OSError(-error, strerror(-error))
        self.owner = getpid()

    def __dealloc__(self):
        if self.owner:  # it was opened
            self.end()

    def __len__(self):  # how many run, or are over and were not taken
        return self.count

    def fileno(self):
        """To wait for; -1 once it was closed."""
        return -1 if self.closed else self.c.done

    @cython.critical_section
    def start(self, Lane lane not None, programs, argv, bytes env not None, int env_count,
              bytes cwd not None, *, limits=(), bytes input=None, int stdin=-1, int stdout=-1,
              int stderr=-1, Py_ssize_t out_cap=0, Py_ssize_t err_cap=0, timeout=None,
              uint64_t memory=0, token=None):
        """Starts a command in a lane; parameters as for `Lane.run`, and what is given back as `token`.

        Returns its Job, which comes out of `take` when it is over; one that could not be asked for
        is over at once. Raises LaneLost and ValueError."""
        cdef run_setup setup
        cdef int result
        if not lane.is_open() or self.owner != getpid() or self.closed:
            raise LaneLost("the lane is closed")
        if lane.running:
            raise ValueError("a lane runs one command at a time")
        cdef Job job = Job.__new__(Job)
        job.request = _request(programs, argv, env, env_count, cwd, limits, False, -1, 0, 0, memory,
                               lane.helper.c.docks)
        job.input = input
        job.lane, job.token = lane, token
        _give(&setup, lane.socket, job.request, input)
        setup.stdin_fd, setup.stdout_fd, setup.stderr_fd = stdin, stdout, stderr
        setup.out_cap, setup.err_cap = out_cap, err_cap
        span = None if timeout is None else _nanoseconds(timeout)
        job.began = packet_now()
        setup.deadline_ns = INT64_MAX if span is None else job.began + <int64_t>span
        job.c.whose = <void *>job
        lane.running = True
        job.home = <void *>self
        self.count += 1
        Py_INCREF(job)
        with nogil:
            result = engine_start(&self.c, &setup, &job.c)
        if result:
            Py_DECREF(job)
            self.count -= 1
            job.at_once = True
            job.over(result)
        if result and job.lost is not None:
            raise LaneLost(job.lost)
        return job

    @cython.critical_section
    def take(self, timeout=0.0):
        """The jobs that are over, maybe none; waits for one so many seconds at the most, None: for
        ever. None at once when none runs. Raises what a Python signal handler raises."""
        cdef job_c *found[_FINISHED_MAX]
        cdef int64_t until = INT64_MAX if timeout is None else packet_now() + _nanoseconds(timeout)
        cdef int64_t turn
        cdef unsigned count = 0
        cdef Job job
        if self.owner != getpid():
            raise LaneLost("the engine is another process's")
        while self.count and not self.closed:
            count = engine_take(&self.c, found, _FINISHED_MAX)
            now = packet_now()
            if count or now >= until:
                break
            turn = min(until, now + 1000000000)  # a signal may come just before the sleep
            with nogil:
                packet_await(self.c.done, turn)
            PyErr_CheckSignals()
        over = []
        for i in range(count):
            job = <Job>found[i].whose
            job.over(job.c.result)
            over.append(job)
            Py_DECREF(job)
        self.count -= count
        return over

    @cython.critical_section
    def kill(self, Job job not None):
        """Asks for the end of a job and all below it; `take` has it when that is dead."""
        if job.home == <void *>self and self.owner == getpid():
            with nogil:
                engine_kill(&self.c, &job.c)

    @cython.critical_section
    def close(self):
        """Ends what runs: their lanes are closed, and are dead when their helper is. Idempotent."""
        self.end()

    cdef end(self):
        cdef job_c *left
        cdef Job job
        cdef bint forked = self.owner != getpid()
        if self.closed:
            return
        self.closed = True
        with nogil:
            engine_close(&self.c, forked)
        self.count = 0
        left = NULL if forked else engine_left(&self.c)
        while left != NULL:
            job = <Job>left.whose
            job.home = NULL
            job.lost = "the engine was closed"
            job.lane.running = False
            job.lane.end()
            Py_DECREF(job)
            left = engine_left(&self.c)
