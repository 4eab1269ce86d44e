/* The C interface for other extensions: the core's own functions behind a table that stays as it is.
 *
 * A command is confined by itself between clone and exec, from a ruleset that its policy makes once. */
#define _GNU_SOURCE
#include "api.h"

#include "landlock.h"
#include "policy.h"
#include "seccomp.h"
#include "spawn.h"
#include "sys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ABI_LEAST = 3, ASK_VERSION = 1 };

struct sandcore_policy {
    uint8_t *blob;
    struct policy_view view;
    int32_t ruleset; /* -1: it has none */
};

static void policy_close(struct sandcore_policy *policy)
{
    if (policy) {
        if (policy->ruleset >= 0) {
            close(policy->ruleset);
        }
        free(policy->blob);
        free(policy);
    }
}

/* Takes the blob, whatever comes of it. */
static int adopt(uint8_t *blob, size_t size, struct sandcore_policy **out)
{
    struct sandcore_policy *policy = calloc(1, sizeof *policy);
    int failed, error = policy ? 0 : -ENOMEM;
    if (error) {
        free(blob);
        return error;
    }
    policy->blob = blob;
    policy->ruleset = -1;
    error = policy_open(blob, size, &policy->view);
    if (error == 0 && policy->view.header->flags & POLICY_NAMESPACES) {
        error = -EINVAL; /* they are a helper's to make */
    }
    if (error == 0 && policy->view.header->flags & POLICY_LANDLOCK) {
        policy->ruleset = policy_ruleset(&policy->view, &failed);
        error = policy->ruleset < 0 ? policy->ruleset : 0;
    }
    if (error) {
        policy_close(policy);
        return error;
    }
    *out = policy;
    return 0;
}

static int open_blob(const void *blob, size_t size, struct sandcore_policy **out)
{
    uint8_t *copy = blob && size > 0 && size <= POLICY_MAX_BYTES ? malloc(size) : NULL;
    if (copy == NULL) {
        return blob && size > 0 && size <= POLICY_MAX_BYTES ? -ENOMEM : -EINVAL;
    }
    memcpy(copy, blob, size);
    return adopt(copy, size, out);
}

static int usable_abi(void)
{
    long abi = SYS_3(SYS_landlock_create_ruleset, 0, 0, ASK_VERSION);
    if (abi < ABI_LEAST) {
        return -EOPNOTSUPP;
    }
    return abi < LANDLOCK_ABI_KNOWN ? (int)abi : LANDLOCK_ABI_KNOWN;
}

static int write_blob(struct policy_parts *parts, struct sandcore_policy **out)
{
    int64_t size = policy_size(parts);
    uint8_t *blob = size < 0 ? NULL : malloc((size_t)size);
    if (blob == NULL) {
        return size < 0 ? (int)size : -ENOMEM;
    }
    int error = policy_write(parts, blob, (size_t)size);
    if (error) {
        free(blob);
        return error;
    }
    return adopt(blob, (size_t)size, out);
}

static int fill_rules(const struct sandcore_options *options, struct policy_rule *rules,
                      const char **paths)
{
    for (uint32_t i = 0; i < options->rule_count; i++) {
        const struct sandcore_rule *rule = &options->rules[i];
        if (rule->path == NULL || rule->access < SANDCORE_READ || rule->access > SANDCORE_NAMES) {
            return -EINVAL;
        }
        paths[i] = rule->path;
        rules[i].access = (uint16_t)rule->access;
        rules[i].flags = rule->optional ? POLICY_RULE_OPTIONAL : 0;
    }
    return 0;
}

static int compile_with(const struct sandcore_options *options, struct policy_rule *rules,
                        const char **paths, struct sandcore_policy **out)
{
    struct sock_filter code[SECCOMP_MAX_INSNS];
    int abi = usable_abi(), none = options->network == SECCOMP_NET_NONE;
    struct seccomp_options wanted = {
        .arch = SECCOMP_NATIVE_ARCH, .network = options->network, .flags = SECCOMP_ALLOW_PTRACE};
    int error = abi < 0 ? abi : fill_rules(options, rules, paths);
    int count = error ? error : seccomp_compile(&wanted, code, SECCOMP_MAX_INSNS);
    if (count < 0) {
        return count;
    }
    struct policy_parts parts = {
        .arch = wanted.arch,
        .abi = (uint32_t)abi,
        .flags = POLICY_CONFINED | POLICY_LANDLOCK | POLICY_FILTER,
        .handle = LANDLOCK_HANDLE_WRITE | LANDLOCK_HANDLE_SCOPES | LANDLOCK_HANDLE_UNIX,
        .network = wanted.network,
        .filter_flags = wanted.flags,
        .rules = rules,
        .paths = paths,
        .rule_count = options->rule_count,
        .filter = {code, (uint32_t)count},
    };
    parts.handle |= none ? LANDLOCK_HANDLE_TCP | LANDLOCK_HANDLE_UDP : 0u;
    parts.handle |= options->restrict_reads ? LANDLOCK_HANDLE_READ | LANDLOCK_HANDLE_NAMES : 0u;
    return write_blob(&parts, out);
}

/* A caller of a later header may ask for what is not known here: ignored, it would be enforced by
 * nobody. Fields that it left zero ask for nothing. */
static int fits(const void *given, size_t size, size_t known)
{
    const uint8_t *bytes = given;
    for (size_t i = known; i < size; i++) {
        if (bytes[i] != 0) {
            return 0;
        }
    }
    return size >= known;
}

static int policy_compile(const struct sandcore_options *options, struct sandcore_policy **out)
{
    if (!fits(options, options->size, sizeof *options) || options->rule_count > POLICY_MAX_RULES ||
        (options->rule_count > 0 && options->rules == NULL)) {
        return -EINVAL;
    }
    struct policy_rule *rules = calloc((size_t)options->rule_count + 1, sizeof *rules);
    const char **paths = calloc((size_t)options->rule_count + 1, sizeof *paths);
    int error = rules && paths ? compile_with(options, rules, paths, out) : -ENOMEM;
    free(rules);
    free(paths);
    return error;
}

static const void *policy_blob(const struct sandcore_policy *policy, size_t *size)
{
    *size = policy->view.header->size;
    return policy->blob;
}

static int spawn(const struct sandcore_policy *policy, const struct sandcore_command *command,
                 int32_t *pid, int32_t *pidfd, struct sandcore_failure *failure)
{
    if (!fits(command, command->size, sizeof *command) || !command->argv || !command->argv[0] ||
        !command->envp || (command->cwd && command->cwd[0] != '/')) {
        *failure = (struct sandcore_failure){STAGE_REQUEST, EINVAL, -1};
        *pidfd = -1;
        return -EINVAL;
    }
    const char *programs[] = {command->argv[0], NULL};
    struct plan plan = {
        .programs = programs,
        .argv = (char *const *)(uintptr_t)command->argv,
        .envp = (char *const *)(uintptr_t)command->envp,
        .cwd = command->cwd,
        .flags = command->keep_session ? 0 : PLAN_NEW_SESSION,
        .fds = {command->fds[0], command->fds[1], command->fds[2]},
        .fd_count = 3,
        .umask = -1,
        .ruleset = -1,
    };
    if (policy) {
        plan.ruleset = policy->ruleset;
        plan.filter = policy->view.filter;
        plan.extra_filter = policy->view.extra_filter;
        if (policy->view.header->flags & POLICY_CONFINED) {
            plan.flags |= PLAN_NO_NEW_PRIVS | PLAN_DROP_CAPABILITIES;
        }
    }
    int error = spawn_child(&plan, pid, pidfd);
    *failure = (struct sandcore_failure){plan.report.stage, plan.report.error, plan.report.detail};
    return error;
}

static int wait_for(int32_t pidfd, int64_t timeout_ns, struct sandcore_ended *ended)
{
    struct spawn_status status;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t at = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    int is_bounded = timeout_ns >= 0 && timeout_ns < INT64_MAX - at;
    int result = spawn_wait(pidfd, is_bounded ? at + timeout_ns : INT64_MAX, &status);
    if (result == 1) {
        *ended = (struct sandcore_ended){status.status, status.reaped};
    }
    return result;
}

static const char *name_of(int32_t stage)
{
    return stage_name(stage);
}

const struct sandcore_api *api_table(void)
{
    static const struct sandcore_api table = {
        .version = SANDCORE_API_VERSION,
        .size = sizeof table,
        .policy_compile = policy_compile,
        .policy_open = open_blob,
        .policy_blob = policy_blob,
        .policy_close = policy_close,
        .spawn = spawn,
        .wait = wait_for,
        .kill = spawn_kill,
        .stage_name = name_of,
    };
    return &table;
}
