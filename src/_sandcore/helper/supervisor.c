/* The supervisor: a process between root and lanes; see supervisor.h for what it is there for.
 *
 * It is the first process of a pid namespace in which those of the lanes lie, so that the kernel can be
 * asked of any process whether it belongs to this sandbox, and so that all of it ends with this one. It
 * is not the root, which must be free to watch caller and masks whatever commands do. */
#define _GNU_SOURCE
#include "supervisor.h"
#include "alarm.h"
#include "seccomp.h"
#include "sys.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/ioctl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>

enum {
    WARDS = 4096,
    FIRST = 3, /* in the list that is polled: behind root, orders and signals */
};
static const unsigned long set_flags = SECCOMP_IOW(4, uint64_t);
static const uint64_t same_processor = 1; /* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, from Linux 6.6 */

static struct supervisor self;
static struct ward wards[WARDS];
static uint32_t ward_count; /* those behind were never used */
static struct pollfd polled[FIRST + WARDS];

static void drop_ward(struct ward *ward)
{
    tree_drop(ward->handover);
    tree_drop(ward->listener);
    if (self.at == ward->top) {
        self.at = -1;
    }
    tree_drop(ward->top);
    attempts_drop(ward->attempts);
    SYS_2(SYS_munmap, ward->connects, CONNECT_WAITING * sizeof *ward->connects);
    *ward = (struct ward){0};
}

/* A place for a lane, and in the helper what the lane takes with it: its end of the handover, and its
 * attempts, which are not the ward's yet: the lane drops what wards have. */
static struct ward *new_ward(struct helper *helper)
{
    uint32_t at = 0;
    while (at < ward_count && wards[at].used) {
        at++;
    }
    if (at == WARDS) {
        return 0;
    }
    int32_t pair[2];
    struct attempts *attempts = attempts_share();
    long memory = SYS_6(SYS_mmap, 0, CONNECT_WAITING * sizeof(struct connect),
                        PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (attempts == 0 || memory < 0 ||
        SYS_4(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        attempts_drop(attempts);
        if (memory >= 0) {
            SYS_2(SYS_munmap, memory, CONNECT_WAITING * sizeof(struct connect));
        }
        return 0;
    }
    ward_count = at < ward_count ? ward_count : at + 1;
    wards[at] = (struct ward){.used = 1,
                              .handover = pair[0],
                              .listener = -1,
                              .top = -1,
                              .connects = (struct connect *)memory};
    helper->handover = pair[1];
    helper->attempts = attempts;
    return &wards[at];
}

void supervisor_drop(void)
{
    if (!self.started) {
        return;
    }
    for (uint32_t i = 0; i < ward_count; i++) {
        if (wards[i].used) {
            drop_ward(&wards[i]);
        }
    }
    tree_drop(self.orders);
    tree_drop(self.signals);
    tree_drop(self.own_fds);
    tree_drop(self.proc);
    tree_drop(self.top);
    tree_drop(self.diag);
    named_close(&self);
    self.started = 0;
}

/* Lanes begin in the tree of the root, not in that of another lane. */
static int go_home(void)
{
    long error = SYS_1(SYS_fchdir, self.top);
    if (error == 0) {
        error = SYS_1(SYS_chroot, ".");
    }
    self.at = -1;
    return (int)error;
}

static void start_lane(struct helper *helper, int socket)
{
    int is_supervised = (helper->policy.header->filter_flags & SECCOMP_SUPERVISED) != 0;
    struct ward *ward = 0;
    helper->handover = -1;
    helper->attempts = 0;
    int error = go_home();
    if (error == 0 && is_supervised) {
        ward = new_ward(helper);
        error = ward ? 0 : -EMFILE;
    }
    if (error) {
        struct stage_report failed = {.stage = STAGE_LANE, .error = -error, .detail = -1};
        helper_send_ready(helper, socket, &failed, 0, 0);
        SYS_1(SYS_close, socket);
        return;
    }
    helper_start_lane(helper, socket);
    if (ward) {
        ward->attempts = helper->attempts;
        SYS_1(SYS_close, helper->handover);
    }
}

static int take_order(struct helper *helper)
{
    struct wire_lane order = {0};
    int32_t socket;
    long size = helper_receive(self.orders, &order, sizeof order, &socket, 1);
    if (size != sizeof order || socket < 0) {
        return 0;
    }
    helper->processes = order.processes;
    helper->joint = order.kind == WIRE_JOIN;
    self.joined |= helper->joint;
    start_lane(helper, socket);
    return 1;
}

static int take_signals(void)
{
    struct signalfd_siginfo info[8];
    SYS_3(SYS_read, self.signals, info, sizeof info);
    return helper_children_are_well();
}

/* The listener comes, or its lane has ended without. */
static void take_listener(struct ward *ward)
{
    char word = 0;
    int32_t fds[2] = {-1, -1};
    long size = helper_receive(ward->handover, &word, sizeof word, fds, 2);
    ward->listener = fds[0];
    ward->top = fds[1];
    if (size != sizeof word || ward->listener < 0 || ward->top < 0) {
        drop_ward(ward); /* without a listener the kernel refuses */
        return;
    }
    SYS_3(SYS_ioctl, ward->listener, set_flags, same_processor);
    tree_drop(ward->handover);
    ward->handover = -1;
}

/* One thing of each lane in a round, so that no lane has to wait for another's many. */
static void serve_ward(struct ward *ward, short events)
{
    if (ward->handover >= 0) {
        take_listener(ward);
    } else if (events & POLLIN) {
        connect_serve(&self, ward);
    } else {
        drop_ward(ward); /* nobody is left who could ask */
    }
}

/* Fills in what is polled; when a connect that waits is to be tried again. */
static int64_t list_wards(void)
{
    int64_t next = INT64_MAX;
    for (uint32_t i = 0; i < ward_count; i++) {
        const struct ward *ward = &wards[i];
        int fd = ward->handover >= 0 ? ward->handover : ward->listener;
        int full = ward->waiting == CONNECT_WAITING;
        polled[FIRST + i] = (struct pollfd){.fd = ward->used && !full ? fd : -1, .events = POLLIN};
        if (ward->used && ward->waiting && ward->next_ns < next) {
            next = ward->next_ns;
        }
    }
    return next;
}

static void serve_all(void)
{
    for (uint32_t i = 0; i < ward_count; i++) {
        if (polled[FIRST + i].revents) {
            serve_ward(&wards[i], polled[FIRST + i].revents);
        }
    }
}

static void try_again(int64_t now)
{
    for (uint32_t i = 0; i < ward_count; i++) {
        if (wards[i].used && wards[i].waiting && wards[i].next_ns <= now) {
            connect_again(&self, &wards[i]);
        }
    }
}

/* Until the root ends, or a lane is attacked. */
static void serve(struct helper *helper)
{
    for (;;) {
        int64_t next = list_wards(), now = next < INT64_MAX ? helper_now() : 0;
        int64_t rest = next > now ? next - now : 0;
        uint32_t count = FIRST + ward_count;
        polled[0] = (struct pollfd){.fd = helper->root_fd, .events = POLLIN};
        polled[1] = (struct pollfd){.fd = self.orders, .events = POLLIN};
        polled[2] = (struct pollfd){.fd = self.signals, .events = POLLIN};
        struct timespec pause = {.tv_nsec = rest};
        long ready = SYS_5(SYS_ppoll, polled, count, next < INT64_MAX ? &pause : 0, 0, 0);
        if ((ready < 0 && ready != -EINTR) || (ready > 0 && polled[0].revents) ||
            (ready > 0 && polled[2].revents && !take_signals()) ||
            (ready > 0 && polled[1].revents && !take_order(helper))) {
            return;
        }
        if (ready > 0) {
            serve_all();
        }
        if (next < INT64_MAX) {
            try_again(helper_now());
        }
    }
}

/* Joints end when the caller has waited for what joined them, perhaps never, and do not tell of it by
 * SIGCHLD: waiting for children that do is waiting for all else. */
static void end_all_but_joints(void)
{
    long pid;
    SYS_2(SYS_kill, -1, SIGKILL);
    do {
        pid = SYS_4(SYS_wait4, -1, 0, 0, 0);
    } while (pid >= 0 || pid == -EINTR);
    helper_send_bytes(self.orders, "!", 1, 0, 0);
}

/* What is not to be had here (an old kernel) makes what needs it fail later, and closed. */
static void set_up(const struct helper *helper)
{
    static const char *const none[] = {0};
    const uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    uint64_t wanted = UINT64_C(1) << (SIGCHLD - 1);
    self.at = -1;
    self.top = (int32_t)SYS_4(SYS_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    self.signals =
        (int32_t)SYS_4(SYS_signalfd4, -1, &wanted, KERNEL_SIGSET_BYTES, SFD_CLOEXEC | SFD_NONBLOCK);
    self.proc = self.own_fds = self.diag = -1;
    if (helper->policy.header->filter_flags & SECCOMP_SUPERVISED) {
        self.proc = tree_new("proc", none, attributes);
        self.own_fds =
            (int32_t)SYS_4(SYS_openat, self.proc, "self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
        self.diag = diag_open();
        self.shares_network = !(helper->policy.header->flags & POLICY_OWN_NETWORK);
        named_open(&self, &helper->policy);
        unix_learn_options(&self);
        self.network = inet_own_network();
        self.alarm = alarm_open();
    }
    SYS_2(SYS_capget, &header, self.rights);
    self.none[0].permitted = self.rights[0].permitted;
    self.none[1].permitted = self.rights[1].permitted;
    self.started = 1;
}

int supervisor_start(struct helper *helper)
{
    int32_t pair[2];
    long error = SYS_4(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
    if (error < 0) {
        return (int)error;
    }
    long pid = SYS_5(SYS_clone, SIGCHLD | CLONE_NEWPID, 0, 0, 0, 0);
    if (pid == 0) {
        SYS_5(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        SYS_1(SYS_close, pair[0]);
        self.orders = pair[1];
        root_drop(helper);
        set_up(helper);
        serve(helper);
        if (self.joined) {
            end_all_but_joints();
        }
        helper_exit(1); /* the kernel ends all that is below */
    }
    SYS_1(SYS_close, pair[1]);
    helper->supervisor = pair[0];
    return pid < 0 ? (int)pid : 0;
}
