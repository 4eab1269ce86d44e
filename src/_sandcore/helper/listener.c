/* The filter of a lane that is supervised: installed, and its listener handed to the supervisor. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>

enum { FILTER_WAIT_KILLABLE = 1 << 5 };

/* Whoever holds the listener answers for the commands, so it goes to the supervisor at once, and with
 * it the top of this lane's tree, where their paths begin. */
static int take_asking_filter(const struct helper *helper)
{
    const struct plan_filter *filter = &helper->policy.filter;
    struct sock_fprog program = {.len = (unsigned short)filter->count,
                                 .filter = (struct sock_filter *)(uintptr_t)filter->code};
    unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | FILTER_WAIT_KILLABLE;
    long top = SYS_4(SYS_openat, AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (top < 0) {
        return (int)top;
    }
    long listener = SYS_3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (listener == -EINVAL) { /* before Linux 5.19 */
        flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
        listener = SYS_3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    }
    int error = (int)listener;
    if (listener >= 0) {
        const int32_t fds[2] = {(int32_t)listener, (int32_t)top};
        error = helper_send_bytes(helper->handover, "!", 1, fds, 2);
        SYS_1(SYS_close, listener);
    }
    SYS_1(SYS_close, top);
    return error;
}

int listener_take_filter(struct helper *helper)
{
    if (helper->handover < 0) {
        return child_install_filter(&helper->policy.filter);
    }
    int error = take_asking_filter(helper);
    SYS_1(SYS_close, helper->handover);
    helper->handover = -1;
    return error;
}
