/* The root process: makes the sandbox, starts lanes, watches, and runs nothing. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/stat.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>

enum { NEVER = -1 };
#define LANE_SPACES (CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC)

static void close_fd(int fd)
{
    SYS_1(SYS_close, fd);
}

static int open_policy(struct policy_view *view)
{
    struct statx found;
    long error = SYS_5(SYS_statx, HELPER_POLICY, "", AT_EMPTY_PATH, STATX_SIZE, &found);
    if (error < 0) {
        return (int)error;
    }
    if (found.stx_size == 0 || found.stx_size > POLICY_MAX_BYTES) {
        return -EINVAL;
    }
    long blob = SYS_6(SYS_mmap, 0, found.stx_size, PROT_READ, MAP_PRIVATE, HELPER_POLICY, 0);
    if (blob < 0) {
        return (int)blob;
    }
    close_fd(HELPER_POLICY);
    return policy_open((const void *)blob, found.stx_size, view);
}

static int confine_root(struct helper *helper)
{
    long error = SYS_5(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (error == 0) {
        error = SYS_5(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
    if (error == 0 && helper->policy.header->flags & POLICY_CONFINED) {
        /* In namespaces lanes are yet to be made, and what is left is worth nothing outside. */
        error = helper_has_namespaces(helper) ? 0 : child_drop_capabilities();
        if (error == 0) {
            error = SYS_5(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        }
    }
    return error == 0 ? helper_take_scope(helper) : (int)error;
}

static int enter_namespaces(struct helper *helper, struct stage_report *report)
{
    if (!helper_has_namespaces(helper)) {
        return 0;
    }
    int ruleset = helper->policy.header->flags & POLICY_LANDLOCK ? HELPER_RULESET : -1;
    struct namespaces spaces = {.pid = 0};
    report->stage = STAGE_NAMESPACES;
    int error = namespaces_begin(&helper->policy, &spaces);
    if (error == 0) {
        report->stage = STAGE_MOUNTS;
        error = masks_watch(&helper->policy, &helper->masks);
    }
    if (error == 0) {
        error = mounts_make(&helper->policy, ruleset, &helper->dock, &report->detail);
    }
    error = error ? error : dock_share(&helper->dock);
    report->stage = error ? report->stage : STAGE_NAMESPACES;
    return namespaces_finish(&spaces, error);
}

/* Where protected names are missing: what is to be known of them at the end, and after it. */
static int expect_plants(struct helper *helper)
{
    if (helper->policy.header->mount_count == 0) {
        return 0;
    }
    journal_open(helper);
    return plants_share(helper);
}

/* Before the scope is taken the caller must be in reach, or the proof would prove nothing. */
static int set_up(struct helper *helper, struct stage_report *report)
{
    helper->root = (int32_t)SYS_0(SYS_getpid);
    helper->caller = (int32_t)SYS_0(SYS_getppid);
    helper->group = (int32_t)SYS_1(SYS_getpgid, 0);
    helper->root_fd = (int32_t)SYS_2(SYS_pidfd_open, helper->root, 0);
    report->stage = STAGE_HELPER;
    long error = helper->root_fd < 0 ? helper->root_fd : SYS_2(SYS_kill, helper->caller, 0);
    if (error == 0) {
        error = open_policy(&helper->policy);
    }
    if (error == 0) {
        error = expect_plants(helper);
    }
    if (error == 0) {
        helper->children = helper_open_children(); /* needs a dumpable process */
        error = enter_namespaces(helper, report);
    }
    if (error == 0 && !helper_has_namespaces(helper)) {
        /* A group of our own: `kill 0` of a terminal's job is not for us. */
        error = SYS_2(SYS_setpgid, 0, 0);
    }
    if (error == 0) {
        report->stage = STAGE_HELPER;
        error = confine_root(helper);
    }
    if (error == 0 && helper_has_namespaces(helper)) {
        report->stage = STAGE_LANE;
        error = supervisor_start(helper);
    }
    if (error == 0) {
        report->stage = STAGE_NONE;
    }
    report->error = (int32_t)-error;
    return (int)error;
}

void root_drop(struct helper *helper)
{
    if (helper->signals >= 0) {
        close_fd(HELPER_CONTROL);
        close_fd(HELPER_CALLER);
        close_fd(helper->signals);
        close_fd(helper->children);
        masks_drop(&helper->masks);
        dock_drop(&helper->dock);
        helper->signals = -1;
    }
}

void helper_start_lane(struct helper *helper, int socket)
{
    unsigned long spaces = helper_has_namespaces(helper) ? LANE_SPACES : 0;
    unsigned long told = helper->joint ? 0 : SIGCHLD;
    long pid = SYS_5(SYS_clone, told | spaces, 0, 0, 0, 0);
    if (pid == 0) {
        root_drop(helper);
        supervisor_drop();
        if (helper->joint) {
            joint_main(helper, socket);
        }
        lane_main(helper, socket);
    }
    if (pid < 0) {
        struct stage_report failed = {.stage = STAGE_LANE, .error = (int32_t)-pid, .detail = -1};
        helper_send_ready(helper, socket, &failed, 0, 0);
    }
    close_fd(socket);
}

/* A lane that ends by itself with status 0 was closed by the caller. Anything else (killed, stopped,
 * an orphan that only a dead lane leaves) means that a command has turned on its lane. What has lanes
 * below it in the root's place ends likewise. */
int helper_children_are_well(void)
{
    for (;;) {
        int32_t status = 0;
        long pid = SYS_4(SYS_wait4, -1, &status, WNOHANG | WUNTRACED | __WALL, 0);
        if (pid <= 0) {
            return 1;
        }
        if (status != 0) {
            return 0;
        }
    }
}

/* Children that ended, directories that changed. False: all of this must end. */
static int take_signals(struct helper *helper)
{
    struct signalfd_siginfo info[8];
    long size = SYS_3(SYS_read, helper->signals, info, sizeof info);
    int error = 0;
    for (long i = 0; error == 0 && i < size / (long)sizeof info[0]; i++) {
        int is_mask = info[i].ssi_signo == MASKS_SIGNAL;
        if (is_mask || info[i].ssi_signo == SIGIO) {
            int changed = is_mask ? info[i].ssi_fd : -1;
            error = masks_mend(&helper->masks, changed);
            error = error ? error : masks_mend(&helper->dock.masks, changed);
        }
    }
    return error == 0 && helper_children_are_well();
}

/* The caller's next word: a lane, a workspace, or to be a nursery, which does not come back. */
static int take_order(struct helper *helper)
{
    union {
        uint32_t kind;
        struct wire_lane lane;
        struct wire_direct direct;
        struct {
            struct wire_dock head;
            uint8_t blob[WIRE_MAX_DOCK];
        } dock;
    } order;
    int32_t fds[WIRE_JOINT_FDS], socket;
    order.kind = 0;
    long size = helper_receive(HELPER_CONTROL, &order, sizeof order, fds, WIRE_JOINT_FDS);
    if (size == sizeof order.direct && order.kind == WIRE_DIRECT) {
        close_fd(helper->signals);
        if (order.direct.joins && fds[WIRE_JOINT_FDS - 1] >= 0) {
            nursery_join(helper, order.direct.cookie, fds);
        }
        if (order.direct.joins || fds[0] >= 0) {
            return 0;
        }
        nursery_main(helper, order.direct.cookie);
    }
    if (size >= (long)sizeof order.dock.head && order.kind == WIRE_DOCK && fds[0] < 0) {
        size -= (long)sizeof order.dock.head;
        return size == order.dock.head.size &&
               dock_serve(helper, &order.dock.head, order.dock.blob);
    }
    int joins = order.kind == WIRE_JOIN && helper_has_namespaces(helper);
    socket = fds[1] < 0 ? fds[0] : -1;
    helper->closed = size == sizeof order.kind && order.kind == WIRE_CLOSE;
    if (size != sizeof order.lane || socket < 0 || !(order.kind == WIRE_LANE || joins)) {
        return 0;
    }
    helper->joined |= joins;
    if (helper_has_namespaces(helper)) {
        int error =
            helper_send_bytes(helper->supervisor, &order.lane, sizeof order.lane, &socket, 1);
        close_fd(socket);
        return error == 0;
    }
    helper->processes = order.lane.processes;
    helper_start_lane(helper, socket);
    return 1;
}

/* Serves until the caller closes, the caller ends, a lane is attacked, or a mask cannot be kept. */
static void watch(struct helper *helper)
{
    struct pollfd events[4] = {{.fd = HELPER_CONTROL, .events = POLLIN},
                               {.fd = HELPER_CALLER, .events = POLLIN},
                               {.fd = helper->signals, .events = POLLIN},
                               {.fd = helper->dock.over, .events = POLLIN}};
    for (;;) {
        struct timespec pause = {.tv_sec = JOURNAL_RENEW_NS / 1000000000};
        long ready = SYS_5(SYS_ppoll, events, 4, &pause, 0, 0);
        if (ready < 0 && ready != -EINTR) {
            return;
        }
        journal_renew(helper);
        if (ready <= 0) {
            continue;
        }
        if (events[1].revents) {
            return;
        }
        if (events[2].revents && !take_signals(helper)) {
            return;
        }
        if (events[0].revents && !take_order(helper)) {
            return;
        }
        if (events[3].revents && !dock_expire(&helper->dock)) {
            return;
        }
    }
}

/* Opens the directories of the SCRATCH mounts, in their order: how many, at most max. */
static unsigned open_scratch(const struct policy_view *policy, int32_t *fds, unsigned max)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    unsigned count = 0;
    for (uint32_t i = 0; i < policy->header->mount_count && count < max; i++) {
        const struct policy_mount *mount = &policy->mounts[i];
        if (mount->kind == POLICY_MOUNT_SCRATCH) {
            const char *path = policy->strings + mount->path;
            fds[count] = (int32_t)SYS_4(SYS_openat, AT_FDCWD, path, flags, 0);
            count += fds[count] >= 0;
        }
    }
    return count;
}

/* The caller looks after what commands leave in the sandbox's own directories. */
static void send_ready(const struct helper *helper, const struct stage_report *report)
{
    int32_t scratch[WIRE_MAX_SCRATCH];
    unsigned count = 0;
    if (report->stage == STAGE_NONE && helper_has_namespaces(helper)) {
        count = open_scratch(&helper->policy, scratch, WIRE_MAX_SCRATCH);
    }
    helper_send_ready(helper, HELPER_CONTROL, report, scratch, count);
    for (unsigned i = 0; i < count; i++) {
        close_fd(scratch[i]);
    }
}

void root_main(void)
{
    struct helper helper = {.children = -1,
                            .supervisor = -1,
                            .handover = -1,
                            .dock = {.place = -1, .hollow = -1, .top = -1, .over = -1}};
    uint64_t all = ~UINT64_C(0), wanted = UINT64_C(1) << (SIGCHLD - 1) |
                                          UINT64_C(1) << (SIGIO - 1) |
                                          UINT64_C(1) << (MASKS_SIGNAL - 1);
    /* A terminal's Ctrl-C and Ctrl-Z are for the command, not for us. */
    SYS_4(SYS_rt_sigprocmask, SIG_SETMASK, &all, 0, KERNEL_SIGSET_BYTES);
    helper.signals = (int32_t)SYS_4(SYS_signalfd4, NEVER, &wanted, KERNEL_SIGSET_BYTES,
                                    SFD_CLOEXEC | SFD_NONBLOCK);
    struct stage_report report = {.stage = STAGE_HELPER, .error = -helper.signals, .detail = -1};
    int error = helper.signals < 0 ? helper.signals : set_up(&helper, &report);
    send_ready(&helper, &report);
    if (error == 0) {
        watch(&helper);
        int fresh = !helper.closed && plants_are_fresh(&helper);
        if (helper.joined) {
            joint_sweep(&helper);
        } else {
            helper_sweep(&helper, 0, 0, 0);
        }
        if (fresh) {
            plants_settle(&helper);
        }
    }
    if (plants_are_due(&helper)) {
        helper_exit(HELPER_DUE); /* the notes are the caller's to take away, when it has looked */
    }
    journal_close(&helper);
    helper_exit(error ? 1 : 0);
}
