/* Reading a request; see wire.h. The caller is trusted with the policy, not with arithmetic. */
#include "wire.h"

#include <errno.h>
#include <string.h>

int wire_check(const struct wire_run *run)
{
    if (run->kind != WIRE_RUN || (run->flags & ~(uint32_t)WIRE_FLAGS) != 0 || run->reserved != 0) {
        return -EINVAL;
    }
    if (run->programs == 0 || run->args == 0 || run->limits > WIRE_MAX_LIMITS ||
        run->targets > PLAN_MAX_FDS) {
        return -EINVAL;
    }
    if (run->programs > WIRE_MAX_STRINGS || run->args > WIRE_MAX_STRINGS ||
        run->envs > WIRE_MAX_STRINGS || run->body > WIRE_MAX_BODY) {
        return -E2BIG;
    }
    return 0;
}

/* The streams, and each further one once. */
static int are_targets(const int32_t *targets, uint32_t count, uint32_t fds)
{
    if (count != fds || count < 3) {
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        int32_t least = i < 3 ? (int32_t)i : targets[i - 1] + 1;
        if (targets[i] < least || (i < 3 && targets[i] > least) || targets[i] == INT32_MAX) {
            return 0;
        }
    }
    return 1;
}

size_t wire_pointers(const struct wire_run *run)
{
    return (size_t)run->programs + run->args + run->envs + 3;
}

/* Takes the next string, or NULL when no terminator is left. */
static const char *take(const char **at, const char *end)
{
    const char *text = *at;
    for (const char *cursor = text; cursor < end; cursor++) {
        if (*cursor == '\0') {
            *at = cursor + 1;
            return text;
        }
    }
    return NULL;
}

static const char **take_array(const char **at, const char *end, uint32_t count,
                               const char **pointers)
{
    for (uint32_t i = 0; i < count; i++) {
        *pointers = take(at, end);
        if (*pointers++ == NULL) {
            return NULL;
        }
    }
    *pointers++ = NULL;
    return pointers;
}

int wire_parse(const struct wire_run *run, const uint8_t *body, const char **pointers,
               struct plan *plan)
{
    size_t limits = run->limits * sizeof(struct plan_limit);
    size_t targets = run->targets * sizeof(int32_t);
    if (limits + targets > run->body) {
        return -EINVAL;
    }
    plan->targets = run->targets ? (const int32_t *)(const void *)(body + limits) : NULL;
    if (plan->targets && !are_targets(plan->targets, run->targets, plan->fd_count)) {
        return -EINVAL;
    }
    const char *at = (const char *)body + limits + targets;
    const char *end = (const char *)body + run->body;
    plan->limits = (const struct plan_limit *)(const void *)body;
    plan->limit_count = run->limits;
    plan->umask = run->umask;
    plan->group = run->group;
    plan->cwd = take(&at, end);
    if (plan->cwd == NULL || plan->cwd[0] != '/') {
        return -EINVAL;
    }
    plan->programs = pointers;
    const char **next = take_array(&at, end, run->programs, pointers);
    plan->argv = (char *const *)(uintptr_t)next;
    next = next ? take_array(&at, end, run->args, next) : NULL;
    plan->envp = (char *const *)(uintptr_t)next;
    next = next ? take_array(&at, end, run->envs, next) : NULL;
    return next != NULL && at == end ? 0 : -EINVAL;
}

/* One component, which cannot lead out of its directory. */
static int is_name(const char *text)
{
    int dots = text[0] == '.' && (text[1] == '\0' || (text[1] == '.' && text[2] == '\0'));
    while (*text != '\0' && *text != '/') {
        text++;
    }
    return !dots && *text == '\0';
}

int wire_check_file(const struct wire_file *file, const char *path, size_t size)
{
    if (file->kind != WIRE_FILE || file->what >= WIRE_FILE_KINDS || file->mode > 0777 ||
        (file->flags & ~(uint32_t)WIRE_FILE_FLAGS) != 0) {
        return -EINVAL;
    }
    if (size > WIRE_MAX_PATH) {
        return -ENAMETOOLONG;
    }
    if (size < 2 || path[size - 1] != '\0' || strlen(path) != size - 1) {
        return -EINVAL;
    }
    if (file->flags & WIRE_FILE_HERE) {
        return is_name(path) ? 0 : -EINVAL;
    }
    return path[0] == '/' && file->what < WIRE_FILE_MAKE ? 0 : -EINVAL;
}
