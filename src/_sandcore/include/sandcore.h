/* The C interface of sandcore: compile a policy, spawn a command under it, wait.
 *
 *     struct sandcore_api *api = PyCapsule_Import(SANDCORE_CAPSULE, 0);
 *     if (api && api->version == SANDCORE_API_VERSION) ...
 *
 * `sandbox.get_include()` is the directory of this file. Nothing is linked: all goes through the
 * table. No function takes the GIL or needs it, any thread may call any of them, and none prints or
 * ends the process. Results are zero or a value, or a negative errno.
 *
 * Within a version fields are only added at the end; `size` says how many of them there are. What a
 * caller sets beyond those that the running version knows is refused (-EINVAL), zeros are not.
 * Linux only. What a spawn cannot give is the end of a tree beyond its process group. */
#ifndef SANDCORE_H
#define SANDCORE_H

#include <stddef.h>
#include <stdint.h>

#define SANDCORE_API_VERSION 1
#define SANDCORE_CAPSULE "_sandcore._core.C_API"

enum sandcore_access {
    SANDCORE_READ = 1,   /* read, execute, list */
    SANDCORE_WRITE = 2,  /* that, and change and make all but device nodes */
    SANDCORE_DEVICE = 3, /* read and write, device ioctls; most programs want it for /dev/null */
    SANDCORE_NAMES = 4,  /* list */
};

struct sandcore_rule {
    const char *path;  /* absolute, canonical: a link on the way is an error when it is used */
    uint32_t access;   /* enum sandcore_access */
    uint32_t optional; /* not 0: it may be gone when the policy is used, and then grants nothing */
};

struct sandcore_options {
    size_t size; /* of this struct, as the caller knows it */
    const struct sandcore_rule *rules;
    uint32_t rule_count;
    uint32_t restrict_reads; /* 0: everything may be read, the rules are about writing */
    uint32_t network;        /* 0: none; 1: TCP and UDP */
};

struct sandcore_policy; /* may be used by several threads at once */

struct sandcore_command {
    size_t size;
    const char *const *argv; /* NULL-terminated; argv[0] is executed as it is, without PATH */
    const char *const *envp; /* the whole environment, NULL-terminated */
    const char *cwd;         /* absolute; NULL: the caller's */
    int32_t fds[3];          /* of the caller: become 0, 1, 2; all others are closed */
    int32_t keep_session;    /* not 0: no setsid */
};

struct sandcore_failure {
    int32_t stage; /* for stage_name */
    int32_t error; /* errno, positive */
    int32_t detail;
};

struct sandcore_ended {
    int32_t status; /* as wait(2) gives it */
    int32_t reaped; /* 0: somebody else reaped it; status is still right */
};

struct sandcore_api {
    uint32_t version;
    uint32_t size; /* of this struct */

    /* -EINVAL for what makes no sense, -EOPNOTSUPP where the kernel cannot enforce it (Landlock from
     * ABI 3 on, seccomp filters), -ENOMEM. *out is to be closed. */
    int (*policy_compile)(const struct sandcore_options *options, struct sandcore_policy **out);
    /* Of the bytes of a policy that were kept; -EINVAL when they are none, or of namespaces. */
    int (*policy_open)(const void *blob, size_t size, struct sandcore_policy **out);
    /* Its bytes, which stay as long as it does. */
    const void *(*policy_blob)(const struct sandcore_policy *policy, size_t *size);
    void (*policy_close)(struct sandcore_policy *policy);

    /* Starts a child of this process, confined; policy NULL: as it is. On failure nothing ran, not
     * even in part, no process is left, and *failure says what failed. *pidfd is close-on-exec, and
     * to be closed. */
    int (*spawn)(const struct sandcore_policy *policy, const struct sandcore_command *command,
                 int32_t *pid, int32_t *pidfd, struct sandcore_failure *failure);
    /* 1: it has ended and is reaped; 0: the time (nanoseconds; negative: none) is up; -EINTR. */
    int (*wait)(int32_t pidfd, int64_t timeout_ns, struct sandcore_ended *ended);
    /* SIGKILL to it and, where it leads one, its process group; before it is waited for. */
    int (*kill)(int32_t pid, int32_t pidfd);
    const char *(*stage_name)(int32_t stage);
};

#endif
