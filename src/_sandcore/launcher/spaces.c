/* `namespaces`: the caller's side of a helper that is a fork of this process.
 *
 * The fork has nothing of the caller's but the words of the command: its environment is wiped before
 * it serves, and it is not dumpable. All that is to be said is said before it answers: the lane is
 * ordered, and the command for the lane, so that nobody waits twice. Where either cannot be had the
 * request is never read, and nothing ran. */
#define _GNU_SOURCE
#include "launcher.h"
#include "helper.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { ABOVE = 16, CWD_BYTES = 4096, MEMORY_FILE_CLOEXEC = 1 };

/* The ends of this process, and what the root takes in the order of enum helper_fds. */
struct ends {
    int32_t control, lane, root; /* root: its pid */
    int32_t theirs[4];
    int32_t lane_theirs;
};

static int32_t sound(long value, const char *what)
{
    if (value < 0) {
        fail_errno(LAUNCH_OURS, what, value);
    }
    return (int32_t)value;
}

static int32_t memory_file(const void *bytes, size_t size)
{
    int32_t fd = sound(SYS_2(SYS_memfd_create, "sandcore", MEMORY_FILE_CLOEXEC), "memory file");
    if (SYS_3(SYS_write, fd, bytes, size) != (long)size) {
        fail(LAUNCH_OURS, "memory file", "no space");
    }
    return fd;
}

static void gather(const struct view *view, struct ends *ends)
{
    int32_t control[2], lane[2];
    int failed = -1;
    sound(SYS_4(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), "socket");
    sound(SYS_4(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, lane), "socket");
    ends->control = control[0];
    ends->lane = lane[0];
    ends->lane_theirs = lane[1];
    ends->theirs[0] = control[1];
    ends->theirs[1] = memory_file(view->policy.header, view->policy.header->size);
    ends->theirs[2] = sound(SYS_2(SYS_pidfd_open, SYS_0(SYS_getpid), 0), "pidfd");
    ends->theirs[3] = -1;
    if (view->policy.header->flags & POLICY_LANDLOCK) {
        ends->theirs[3] = policy_ruleset(&view->policy, &failed);
        sound(ends->theirs[3],
              failed < 0 ? "landlock" : view->policy.strings + view->policy.rules[failed].path);
    }
}

/* In the fork. Its streams are not the command's, or their readers would wait for it too. */
static void become_root(const struct options *options, const struct ends *ends)
{
    int32_t moved[4], last = HELPER_CALLER;
    for (char **one = options->environment; *one; one++) {
        memset(*one, 0, strlen(*one));
    }
    long null = SYS_4(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
    for (int i = 0; i < 3; i++) {
        null = SYS_3(SYS_dup3, null, i, 0) < 0 ? -1 : null;
    }
    for (int i = 0; i < 4; i++) {
        moved[i] = ends->theirs[i] < 0
                       ? -1
                       : (int32_t)SYS_3(SYS_fcntl, ends->theirs[i], F_DUPFD_CLOEXEC, ABOVE);
    }
    for (int i = 0; i < 4; i++) {
        if (moved[i] >= 0) {
            last = HELPER_CONTROL + i;
            null = SYS_3(SYS_dup3, moved[i], last, O_CLOEXEC) < 0 ? -1 : null;
        }
    }
    if (null < 0 || SYS_3(SYS_close_range, last + 1, ~0u, 0) < 0) {
        helper_exit(1);
    }
    root_main();
}

static void start_root(const struct options *options, struct ends *ends)
{
    ends->root = sound(SYS_5(SYS_clone, SIGCHLD, 0, 0, 0, 0), "clone");
    if (ends->root == 0) {
        become_root(options, ends);
    }
    for (int i = 0; i < 4; i++) {
        if (ends->theirs[i] >= 0) {
            SYS_1(SYS_close, ends->theirs[i]);
        }
    }
}

static uint8_t *put(uint8_t *at, const char *text)
{
    size_t size = strlen(text) + 1;
    memcpy(at, text, size);
    return at + size;
}

static size_t bytes_of(const char *const *texts)
{
    size_t size = 0;
    for (; *texts; texts++) {
        size += strlen(*texts) + 1;
    }
    return size;
}

static uint8_t *put_all(uint8_t *at, const char *const *texts)
{
    for (; *texts; texts++) {
        at = put(at, *texts);
    }
    return at;
}

/* The request: its head, limits, and texts in the order of wire.h. */
static struct wire_run *make_request(const struct view *view, const struct words *words)
{
    char cwd[CWD_BYTES];
    const char *const *args = (const char *const *)(uintptr_t)words->args;
    long length = sound(SYS_2(SYS_getcwd, cwd, sizeof cwd), "working directory");
    size_t limits = view->limit_count * sizeof(struct plan_limit);
    size_t size = limits + (size_t)length + bytes_of(words->programs) + bytes_of(args) +
                  bytes_of(words->envs);
    if (size > WIRE_MAX_BODY || cwd[0] != '/') {
        fail(LAUNCH_OURS, size > WIRE_MAX_BODY ? "arguments" : "working directory",
             size > WIRE_MAX_BODY ? "too long" : "cannot be reached from the root");
    }
    struct wire_run *run = words_take(sizeof *run + size);
    *run = (struct wire_run){
        .kind = WIRE_RUN,
        .flags = WIRE_KEEP_SESSION | WIRE_BACKGROUND,
        .body = (uint32_t)size,
        .umask = -1,
        .limits = view->limit_count,
        .programs = words->program_count,
        .args = words->arg_count,
        .envs = words->env_count,
        .memory = view->part->memory,
    };
    uint8_t *at = (uint8_t *)(run + 1);
    if (limits > 0) {
        memcpy(at, view->limits, limits);
    }
    at = put(at + limits, cwd);
    put_all(put_all(put_all(at, words->programs), args), words->envs);
    return run;
}

static void order(const struct view *view, const struct words *words, const struct ends *ends)
{
    struct wire_lane lane = {.kind = WIRE_LANE, .processes = view->part->processes};
    struct wire_run *run = make_request(view, words);
    int32_t fds[] = {0, 1, 2, -1};
    size_t size = sizeof *run + run->body;
    unsigned count = 3;
    if (run->body > WIRE_MAX_INLINE) {
        run->flags |= WIRE_IN_MEMFD;
        fds[count++] = memory_file(run + 1, run->body);
        size = sizeof *run;
    }
    /* One that has failed already has closed its end, and says why where we read. */
    int error = helper_send_bytes(ends->control, &lane, sizeof lane, &ends->lane_theirs, 1);
    SYS_1(SYS_close, ends->lane_theirs);
    if (error == 0) {
        helper_send_bytes(ends->lane, run, size, fds, count);
    }
    if (count > 3) {
        SYS_1(SYS_close, fds[3]);
    }
}

/* The tree is dead when the root has ended, and what it planted is moved aside. */
static void close_root(const struct ends *ends)
{
    SYS_2(SYS_shutdown, ends->control, SHUT_RDWR);
    SYS_1(SYS_close, ends->lane);
    while (SYS_4(SYS_wait4, ends->root, 0, 0, 0) == -EINTR) {
    }
    SYS_1(SYS_close, ends->control);
}

static int await(int socket, uint32_t kind, struct wire_reply *reply, int32_t *fds, unsigned max,
                 struct stage_report *report)
{
    long size = helper_receive(socket, reply, sizeof *reply, fds, max);
    if (size ==
        -ECONNRESET) { /* it ended with an order unread: told once, before what it had said */
        size = helper_receive(socket, reply, sizeof *reply, fds, max);
    }
    *report = (struct stage_report){.stage = STAGE_HELPER, .error = EPIPE, .detail = -1};
    if (size != sizeof *reply || (reply->kind != kind && reply->kind != WIRE_FAILED)) {
        return -EPIPE;
    }
    if (reply->kind == WIRE_FAILED || reply->report.stage != STAGE_NONE) {
        *report = reply->report;
        return -EPIPE;
    }
    return 0;
}

static int await_sandbox(const struct ends *ends, struct stage_report *report)
{
    struct wire_reply reply;
    int32_t scratch[WIRE_MAX_SCRATCH];
    int error = await(ends->control, WIRE_READY, &reply, scratch, WIRE_MAX_SCRATCH, report);
    for (unsigned i = 0; i < WIRE_MAX_SCRATCH; i++) {
        if (scratch[i] >= 0) {
            SYS_1(SYS_close, scratch[i]);
        }
    }
    return error ? error : await(ends->lane, WIRE_READY, &reply, 0, 0, report);
}

/* What a mount says of a path is no reason for a weaker isolation: that path is to be looked at. */
static void fail_path(const struct view *view, const struct stage_report *report)
{
    int about_path = report->error == ENOENT || report->error == ENOTDIR ||
                     report->error == ELOOP || report->error == EMFILE;
    if (report->stage == STAGE_MOUNTS && about_path && report->detail >= 0 &&
        (uint32_t)report->detail < view->policy.header->mount_count) {
        fail_errno(LAUNCH_OURS, view->policy.strings + view->policy.mounts[report->detail].path,
                   -report->error);
    }
}

void spaces_run(const struct options *options, const struct view *view, struct stage_report *report)
{
    struct words words;
    struct ends ends;
    struct follow follow = {.leader = -1};
    struct wire_reply reply;
    words_make(options, view, &words);
    sound(follow_signals(&follow), "signals");
    gather(view, &ends);
    start_root(options, &ends);
    order(view, &words, &ends);
    if (await_sandbox(&ends, report)) {
        close_root(&ends);
        fail_path(view, report);
        follow_nothing(&follow);
        return;
    }
    follow.lane = ends.lane;
    if (await(ends.lane, WIRE_STARTED, &reply, &follow.leader, 1, report)) {
        close_root(&ends);
        fail_stage(report, words.args[0]);
    }
    int ended = follow_command(&follow, &reply);
    close_root(&ends);
    if (!ended) {
        fail(LAUNCH_OURS, "the sandbox was ended", "by its command, or from outside");
    }
    if (reply.over_memory) {
        say("the command had more memory than its policy allows", 0, 0);
    }
    follow_end(reply.status);
}
