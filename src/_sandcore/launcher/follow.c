/* Being for the caller what the command is: signals, stops, and the end.
 *
 * The command is in our session and process group, so what the terminal sends reaches both: Ctrl-Z
 * stops us by itself, and Ctrl-C is not passed on a second time. Passed on is what somebody sent to
 * us. A command that stops itself, or its own group, does not reach us (its signals end at the
 * sandbox): where there is a terminal we look a few times a second, and stop too. */
#define _GNU_SOURCE
#include "launcher.h"
#include "helper.h"
#include "supervisor.h"
#include "sys.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>

enum { LOOK_NS = 200000000, PATH_BYTES = 64, STAT_BYTES = 512, FROM_KERNEL = 0x80 };

#define BIT(number) (UINT64_C(1) << ((number) - 1))
/* Stopping is done to us as to anybody, and a fault of ours is ours. */
#define NOT_PASSED                                                                                 \
    (BIT(SIGKILL) | BIT(SIGSTOP) | BIT(SIGTSTP) | BIT(SIGTTIN) | BIT(SIGTTOU) | BIT(SIGSEGV) |     \
     BIT(SIGBUS) | BIT(SIGILL) | BIT(SIGFPE) | BIT(SIGTRAP) | BIT(SIGSYS) | BIT(SIGABRT))

int follow_signals(struct follow *follow)
{
    uint64_t wanted = ~NOT_PASSED;
    SYS_4(SYS_rt_sigprocmask, SIG_BLOCK, &wanted, &follow->before, KERNEL_SIGSET_BYTES);
    follow->signals =
        (int32_t)SYS_4(SYS_signalfd4, -1, &wanted, KERNEL_SIGSET_BYTES, SFD_CLOEXEC | SFD_NONBLOCK);
    return follow->signals < 0 ? follow->signals : 0;
}

void follow_nothing(const struct follow *follow)
{
    SYS_1(SYS_close, follow->signals);
    SYS_4(SYS_rt_sigprocmask, SIG_SETMASK, &follow->before, 0, KERNEL_SIGSET_BYTES);
}

static void signal_leader(const struct follow *follow, int number)
{
    SYS_4(SYS_pidfd_send_signal, follow->leader, number, 0, 0);
}

/* A shell continues our group; a command that has made its own would sleep on. */
static void continue_command(const struct follow *follow)
{
    long group = follow->pid > 0 ? SYS_1(SYS_getpgid, follow->pid) : 0;
    signal_leader(follow, SIGCONT);
    if (group > 1 && group != SYS_1(SYS_getpgid, 0)) {
        SYS_2(SYS_kill, -group, SIGCONT);
    }
}

/* Those from before there was a command are for it whoever sent them. A terminal that goes away tells
 * the leader of its session alone, which we may be. */
static void pass_on(const struct follow *follow, int whoever)
{
    struct signalfd_siginfo info[8];
    long size;
    while ((size = SYS_3(SYS_read, follow->signals, info, sizeof info)) > 0) {
        for (long i = 0; i < size / (long)sizeof info[0]; i++) {
            int number = (int)info[i].ssi_signo;
            int is_ours = info[i].ssi_code == FROM_KERNEL && number != SIGHUP;
            if (number == SIGCONT) {
                continue_command(follow);
            } else if (number != SIGCHLD && (whoever || !is_ours)) {
                signal_leader(follow, number);
            }
        }
    }
}

static int has_terminal(void)
{
    long fd = SYS_4(SYS_openat, AT_FDCWD, "/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC, 0);
    if (fd >= 0) {
        SYS_1(SYS_close, fd);
    }
    return fd >= 0;
}

static int is_stopped(const struct follow *follow)
{
    char path[PATH_BYTES] = "/proc/", digits[TEXT_NUMBER], stat[STAT_BYTES];
    const char *number = text_of((uint64_t)follow->pid, digits);
    size_t length = strlen(number);
    memcpy(path + 6, number, length);
    memcpy(path + 6 + length, "/stat", 6);
    long fd = SYS_4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    long size = fd < 0 ? 0 : SYS_3(SYS_read, fd, stat, sizeof stat);
    if (fd >= 0) {
        SYS_1(SYS_close, fd);
    }
    /* "pid (name) S ...", and a name may have anything in it. */
    while (size > 0 && stat[size - 1] != ')') {
        size--;
    }
    return size > 0 && size + 2 < (long)sizeof stat && stat[size + 1] == 'T';
}

/* The command's number here; 0: it cannot be known. */
static int32_t number_of(int pidfd)
{
    long proc = SYS_4(SYS_openat, AT_FDCWD, "/proc", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (proc < 0) {
        return 0;
    }
    int64_t pid = fdinfo_number((int)proc, (uint64_t)SYS_0(SYS_getpid), pidfd, "Pid:", 10);
    SYS_1(SYS_close, proc);
    return pid > 0 ? (int32_t)pid : 0;
}

int follow_command(struct follow *follow, struct wire_reply *done)
{
    struct {
        struct wire_reply reply;
        struct wire_attempt attempts[WIRE_MAX_ATTEMPTS];
    } packet;
    struct pollfd events[2] = {{.fd = follow->lane, .events = POLLIN},
                               {.fd = follow->signals, .events = POLLIN}};
    if (has_terminal()) {
        follow->pid = number_of(follow->leader);
    }
    pass_on(follow, 1);
    for (;;) {
        struct timespec pause = {.tv_nsec = LOOK_NS};
        long ready = SYS_5(SYS_ppoll, events, 2, follow->pid ? &pause : 0, 0, 0);
        if (ready == 0 && is_stopped(follow)) {
            SYS_2(SYS_kill, SYS_0(SYS_getpid), SIGSTOP);
            continue_command(follow); /* somebody continued us */
        }
        if (ready > 0 && events[1].revents) {
            pass_on(follow, 0);
        }
        if (ready > 0 && events[0].revents) {
            break;
        }
        if (ready < 0 && ready != -EINTR) {
            return 0;
        }
    }
    int32_t none;
    long size = helper_receive(follow->lane, &packet, sizeof packet, &none, 0);
    *done = packet.reply;
    return size >= (long)sizeof packet.reply && done->kind == WIRE_DONE;
}

void follow_end(int32_t status)
{
    static const uint64_t no_core[2] = {0, 0};
    int number = status & 0x7f;
    if (number == 0) {
        helper_exit((status >> 8) & 0xff);
    }
    /* As the command died, for whoever waits; but one core file is enough. */
    struct kernel_sigaction standard = {0};
    uint64_t none = 0;
    SYS_4(SYS_prlimit64, 0, RLIMIT_CORE, no_core, 0);
    SYS_4(SYS_rt_sigaction, number, &standard, 0, KERNEL_SIGSET_BYTES);
    SYS_4(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, KERNEL_SIGSET_BYTES);
    SYS_2(SYS_kill, SYS_0(SYS_getpid), number);
    helper_exit(128 + number);
}
