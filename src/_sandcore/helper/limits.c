/* Limits of a lane as a whole: how many processes its command may have at one time.
 *
 * Process numbers are what binds root as well: a pid namespace has a highest one (per namespace since
 * Linux 6.14). Numbers below 300 are given once only, until the count has gone past them (RESERVED_PIDS
 * in kernel/pid.c). A lane therefore starts its count behind them, and then there are exactly as many
 * as are left below the highest. A number is in use by a thread too, and as long as a group or session
 * of that number has a member. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"
#include "text.h"
#include "tree.h"

#include <errno.h>
#include <linux/mount.h>
#include <linux/utsname.h>
#include <string.h>

enum { RESERVED = 300, MAJOR = 6, MINOR = 14 };

/* Before, the number is the whole machine's, and root could write it from in here. */
static int is_per_namespace(void)
{
    struct new_utsname name;
    if (SYS_1(SYS_uname, &name)) {
        return 0;
    }
    const char *at = name.release, *end = name.release + sizeof name.release;
    uint64_t major = text_take(&at, end);
    at += at < end && *at == '.';
    uint64_t minor = text_take(&at, end);
    return major > MAJOR || (major == MAJOR && minor >= MINOR);
}

/* In a /proc that is nowhere attached: the one that commands see is read-only from its birth. */
int limits_take_processes(uint32_t most)
{
    static const char *const none[] = {0};
    if (most == 0) {
        return 0;
    }
    if (SYS_0(SYS_getpid) != 1 || !is_per_namespace()) {
        return -EOPNOTSUPP;
    }
    int proc = tree_new("proc", none, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (proc < 0) {
        return proc;
    }
    int error = text_write_number(proc, "sys/kernel/pid_max", (uint64_t)RESERVED + most);
    if (error == 0) {
        error = text_write_number(proc, "sys/kernel/ns_last_pid", RESERVED);
    }
    tree_drop(proc);
    return error;
}
