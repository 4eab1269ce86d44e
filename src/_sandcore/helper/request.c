/* A request: received, checked, laid out as a plan, and started. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { REQUEST_STACK = 16384, REQUEST_POINTERS = 4096 };

/* Requests are small and come one by one: fixed memory, so that nothing can run out. */
static struct {
    _Alignas(8) union { /* limits in a body are of 8 bytes */
        struct wire_run run;
        struct wire_file file;
        uint8_t bytes[sizeof(struct wire_run) + WIRE_MAX_INLINE];
    } message;
    const char *pointers[REQUEST_POINTERS];
    _Alignas(16) uint8_t stack[REQUEST_STACK];
} memory;

static void *map_bytes(size_t size, int fd)
{
    long at = SYS_6(SYS_mmap, 0, size, fd < 0 ? PROT_READ | PROT_WRITE : PROT_READ,
                    fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_PRIVATE, fd, 0);
    return at < 0 ? 0 : (void *)at;
}

/* The command's fds come first; behind them, when the body is long, the file that it lies in. */
static int take_fds(struct request *request, int in_memfd)
{
    uint32_t count = 0;
    while (count < WIRE_MAX_FDS && request->fds[count] >= 0) {
        count++;
    }
    if (count < 3u + (uint32_t)in_memfd || count - (uint32_t)in_memfd > PLAN_MAX_FDS) {
        return -EBADF;
    }
    request->plan.fd_count = count - (uint32_t)in_memfd;
    for (uint32_t i = 0; i < request->plan.fd_count; i++) {
        request->plan.fds[i] = request->fds[i];
    }
    return 0;
}

/* Where the body is, and where the pointers go: here when they fit, mapped when they do not. */
static const uint8_t *find_body(struct request *request, const struct wire_run *run)
{
    if (!(run->flags & WIRE_IN_MEMFD)) {
        return memory.message.bytes + sizeof *run;
    }
    int memfd = request->fds[request->plan.fd_count];
    if (SYS_3(SYS_lseek, memfd, 0, SEEK_END) < (long)run->body) {
        return 0; /* touching what lies behind a file's end is SIGBUS */
    }
    request->body_bytes = run->body;
    request->mapped_body = map_bytes(run->body, memfd);
    return request->mapped_body;
}

static const char **find_pointers(struct request *request, const struct wire_run *run)
{
    if (wire_pointers(run) <= REQUEST_POINTERS) {
        return memory.pointers;
    }
    request->pointer_bytes = wire_pointers(run) * sizeof(char *);
    request->mapped_pointers = map_bytes(request->pointer_bytes, -1);
    return request->mapped_pointers;
}

static int read_request(struct request *request, size_t size)
{
    const struct wire_run *run = &memory.message.run;
    int error = size < sizeof *run ? -EINVAL : wire_check(run);
    if (error) {
        return error;
    }
    int in_memfd = (run->flags & WIRE_IN_MEMFD) != 0;
    if (in_memfd ? run->body == 0 : size != sizeof *run + run->body) {
        return -EINVAL;
    }
    error = take_fds(request, in_memfd);
    if (error) {
        return error;
    }
    const uint8_t *body = find_body(request, run);
    const char **pointers = find_pointers(request, run);
    if (body == 0 || pointers == 0) {
        return -ENOMEM;
    }
    request->memory = run->memory;
    request->docked = run->docked;
    if (!(run->flags & WIRE_KEEP_SESSION)) {
        request->plan.flags |= PLAN_NEW_SESSION;
    }
    if (run->flags & WIRE_TERMINAL) {
        request->plan.flags |= PLAN_TERMINAL;
    }
    request->background = (run->flags & WIRE_BACKGROUND) != 0;
    request->timeout_ns = run->timeout_ns;
    return wire_parse(run, body, pointers, &request->plan);
}

int request_receive(int socket, struct request *request)
{
    *request = (struct request){.pidfd = -1, .plan = {.ruleset = -1, .umask = -1}};
    long size =
        helper_receive(socket, &memory.message, sizeof memory.message, request->fds, WIRE_MAX_FDS);
    if (size <= 0 || size == sizeof(uint32_t)) {
        request_close_fds(request);
        /* A KILL that crossed the DONE it came too late for; nothing; or what is wrong. */
        return size > 0 ? 0 : size < 0 ? (int)size : -EPIPE;
    }
    if ((size_t)size >= sizeof(struct wire_file) && memory.message.file.kind == WIRE_FILE) {
        request->file = &memory.message.file;
        request->path_bytes = (size_t)size - sizeof(struct wire_file);
    }
    int error = request->file ? -EOPNOTSUPP : read_request(request, (size_t)size);
    if (error) {
        request->plan.report = (struct stage_report){.stage = STAGE_REQUEST, .error = -error};
    }
    return 1;
}

void request_start(const struct helper *helper, struct request *request, unsigned long flags,
                   uint64_t tls)
{
    struct plan *plan = &request->plan;
    if (plan->report.stage != STAGE_NONE) {
        return;
    }
    plan->extra_filter = helper->policy.extra_filter;
    long pid = sys_clone(CLONE_VM | CLONE_PIDFD | flags, memory.stack + REQUEST_STACK,
                         &request->pidfd, tls, child_main, plan);
    if (pid < 0) {
        plan->report = (struct stage_report){.stage = STAGE_CLONE, .error = (int32_t)-pid};
        request->pidfd = -1;
        return;
    }
    request->pid = (int32_t)pid;
}

void request_close_fds(struct request *request)
{
    for (unsigned i = 0; i < WIRE_MAX_FDS; i++) {
        if (request->fds[i] >= 0) {
            SYS_1(SYS_close, request->fds[i]);
            request->fds[i] = -1;
        }
    }
}

void request_release(struct request *request)
{
    request_close_fds(request);
    if (request->mapped_body) {
        SYS_2(SYS_munmap, request->mapped_body, request->body_bytes);
    }
    if (request->mapped_pointers) {
        SYS_2(SYS_munmap, request->mapped_pointers, request->pointer_bytes);
    }
}
