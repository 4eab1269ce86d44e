/* See notices.h. */
#define _GNU_SOURCE
#include "notices.h"

#include "sys.h"

#include <errno.h>
#include <linux/inotify.h>
#include <string.h>

enum {
    OF_NAMES = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO,
    OF_CONTENTS = IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB,
    OF_ITSELF = IN_MOVE_SELF | IN_DELETE_SELF | IN_UNMOUNT | IN_IGNORED,
    NAME_BYTES = 256,
};

int notices_open(void)
{
    return (int)SYS_1(SYS_inotify_init1, IN_NONBLOCK | IN_CLOEXEC);
}

int notices_watch(int fd, const char *path, int of_contents)
{
    uint32_t wanted = OF_NAMES | IN_MOVE_SELF | IN_DELETE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW;
    wanted |= of_contents ? OF_CONTENTS : 0;
    return (int)SYS_3(SYS_inotify_add_watch, fd, path, wanted);
}

int notices_forget(int fd, int32_t number)
{
    return (int)SYS_2(SYS_inotify_rm_watch, fd, number);
}

long notices_take(int fd, struct notice *out, size_t most)
{
    /* No more than fit: an event is at least its head. */
    char buffer[NOTICES_AT_LEAST * (sizeof(struct inotify_event) + NAME_BYTES)];
    size_t room = most * sizeof(struct inotify_event);
    long length = SYS_3(SYS_read, fd, buffer, room < sizeof buffer ? room : sizeof buffer);
    if (length < 0) {
        return length == -EAGAIN ? 0 : length;
    }
    long count = 0;
    struct inotify_event event;
    for (long at = 0; at < length; at += (long)(sizeof event + event.len)) {
        memcpy(&event, buffer + at, sizeof event);
        int is_lost = event.mask & IN_Q_OVERFLOW;
        out[count++] = (struct notice){.number = is_lost ? NOTICES_ALL : event.wd,
                                       .is_of_itself = (event.mask & OF_ITSELF) != 0};
    }
    return count;
}
