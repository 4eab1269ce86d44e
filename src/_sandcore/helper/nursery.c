/* A nursery: spawns children of the caller's own, confined because it is.
 *
 * The caller waits for them as for any child; they die with the caller, because this process ends
 * everything in its signal scope when it does. For that a child of it stays, after the caller has
 * closed it, until the commands that it started have ended. A command can kill the nursery, which ends nothing
 * but that promise: the caller starts another. */
#define _GNU_SOURCE
#include "helper.h"
#include "landlock.h"
#include "sys.h"

#include <errno.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

enum { CONTROL, CALLER, FIRST_CHILD, WATCHED = 512 };

/* Control socket, caller, and a pidfd for each command. While the caller is there the latter are
 * passed over (poll ignores negative numbers): a command's end is no reason to wake up. */
static struct pollfd watched[WATCHED];
static unsigned watched_count;
static int lost_count; /* there were more than can be watched: stay until the caller ends */

static void flip_children(void)
{
    for (unsigned i = FIRST_CHILD; i < watched_count; i++) {
        watched[i].fd = ~watched[i].fd;
    }
}

/* Forgets the commands that have ended; children are not flipped. */
static void forget_ended(void)
{
    unsigned kept = FIRST_CHILD;
    for (unsigned i = FIRST_CHILD; i < watched_count; i++) {
        if (watched[i].revents) {
            SYS_1(SYS_close, watched[i].fd);
        } else {
            watched[kept++] = watched[i];
        }
    }
    watched_count = kept;
}

static int commands_left(void)
{
    struct timespec at_once = {0};
    flip_children();
    SYS_5(SYS_ppoll, watched + FIRST_CHILD, watched_count - FIRST_CHILD, &at_once, 0, 0);
    forget_ended();
    flip_children();
    return watched_count > FIRST_CHILD || lost_count;
}

static void watch_child(int pidfd)
{
    if (watched_count == WATCHED) {
        commands_left();
    }
    if (watched_count == WATCHED) {
        SYS_1(SYS_close, pidfd);
        lost_count = 1;
        return;
    }
    watched[watched_count++] = (struct pollfd){.fd = ~pidfd, .events = POLLIN};
}

static int confine_nursery(struct helper *helper)
{
    int error = 0;
    if (helper->policy.header->flags & POLICY_LANDLOCK) {
        error = landlock_restrict(HELPER_RULESET);
        helper->scoped = error == 0 && helper_prove_scope(helper->caller);
    }
    SYS_1(SYS_close, HELPER_RULESET);
    return error ? error : child_install_filter(&helper->policy.filter);
}

static void serve(const struct helper *helper, struct request *request, uint64_t cookie)
{
    request_start(helper, request, CLONE_VFORK | CLONE_PARENT | SIGCHLD, cookie);
    request_release(request);
    int started = request->plan.report.stage == STAGE_NONE;
    struct wire_reply reply = {
        .kind = started ? WIRE_STARTED : WIRE_FAILED,
        .pid = request->pid,
        .report = request->plan.report,
    };
    helper_send(HELPER_CONTROL, &reply, &request->pidfd, request->pidfd >= 0);
    if (started) {
        watch_child(request->pidfd);
    } else if (request->pidfd >= 0) {
        SYS_1(SYS_close, request->pidfd);
    }
}

/* Until the caller closes (1) or ends (0). */
static int serve_all(const struct helper *helper, uint64_t cookie)
{
    for (;;) {
        long ready = SYS_5(SYS_ppoll, watched, FIRST_CHILD, 0, 0, 0);
        if (ready == -EINTR) {
            continue;
        }
        if (ready < 0 || watched[CALLER].revents) {
            return 0;
        }
        struct request request;
        int received = request_receive(HELPER_CONTROL, &request);
        if (received < 0) {
            return 1;
        }
        if (received > 0) {
            serve(helper, &request, cookie);
        }
    }
}

/* Closed, but commands may be running: they are ended with the caller, or end by themselves. */
static void stay(void)
{
    flip_children();
    while (watched_count > FIRST_CHILD || lost_count) {
        long ready = SYS_5(SYS_ppoll, watched + CALLER, watched_count - CALLER, 0, 0, 0);
        if ((ready < 0 && ready != -EINTR) || watched[CALLER].revents) {
            return;
        }
        forget_ended();
    }
}

void nursery_main(struct helper *helper, uint64_t cookie)
{
    watched[CONTROL] = (struct pollfd){.fd = HELPER_CONTROL, .events = POLLIN};
    watched[CALLER] = (struct pollfd){.fd = HELPER_CALLER, .events = POLLIN};
    watched_count = FIRST_CHILD;
    int error = confine_nursery(helper);
    struct stage_report report = {
        .stage = error ? STAGE_LANE : STAGE_NONE, .error = -error, .detail = -1};
    helper_send_ready(helper, HELPER_CONTROL, &report, 0, 0);
    if (error == 0 && serve_all(helper, cookie)) {
        SYS_1(SYS_close, HELPER_CONTROL);
        /* A child stays, so that the caller can reap this process now. */
        if (commands_left() && SYS_5(SYS_clone, SIGCHLD, 0, 0, 0, 0) > 0) {
            helper_exit(0);
        }
        stay();
    }
    if (helper->scoped) {
        SYS_2(SYS_kill, -1, SIGKILL);
    }
    helper_exit(error ? 1 : 0);
}
