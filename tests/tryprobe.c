/* Probes the host and prints what was found, and what it did to its process, as JSON.
 * With an argument SIGCHLD is ignored first. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
    (void)number;
    signals++;
}

int main(int argc, char **argv)
{
    struct probe p;
    sigset_t before, after;
    (void)argv;
    signal(SIGCHLD, argc > 1 ? SIG_IGN : count_signal);
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    sigprocmask(SIG_SETMASK, &before, NULL);
    int dumpable = prctl(PR_GET_DUMPABLE), first_fd = dup(0);
    close(first_fd);
    int result = probe_host(&p);
    int next_fd = dup(0);
    sigprocmask(SIG_SETMASK, NULL, &after);
    int child = waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD;
    printf("{\"result\": %d, \"landlock_abi\": %d, \"landlock_errno\": %d, \"landlock_errata\": %u,"
           " \"seccomp_actions\": %u, \"seccomp_filter\": %d, \"pidfd_open\": %d,"
           " \"close_range\": %d, \"userns\": %d, \"userns_errno\": %d, \"pidfd_info_exit\": %d,"
           " \"release\": \"%s\", \"left_as_it_was\": [%d, %d, %d, %d, %d]}\n",
           result, p.landlock_abi, p.landlock_errno, p.landlock_errata, p.seccomp_actions,
           p.seccomp_filter, p.pidfd_open, p.close_range, p.userns, p.userns_errno,
           p.pidfd_info_exit, p.release, child, first_fd == next_fd,
           prctl(PR_GET_DUMPABLE) == dumpable, memcmp(&before, &after, 8) == 0, signals == 0);
    return 0;
}
