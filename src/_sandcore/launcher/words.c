/* The command's environment, and the places where its program may be. */
#define _GNU_SOURCE
#include "launcher.h"
#include "sys.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { FIRST_BYTES = 64 << 10 };

void *words_take(size_t size)
{
    static _Alignas(16) uint8_t first[FIRST_BYTES];
    static size_t used;
    size = (size + 15) & ~(size_t)15;
    if (size <= sizeof first - used) {
        used += size;
        return first + used - size;
    }
    long more =
        SYS_6(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more < 0) {
        fail_errno(LAUNCH_OURS, "memory", more);
    }
    return (void *)more;
}

static size_t name_length(const char *variable)
{
    size_t length = 0;
    while (variable[length] && variable[length] != '=') {
        length++;
    }
    return length;
}

static int has_name(const char *variable, const char *name, size_t length)
{
    return name_length(variable) == length && memcmp(variable, name, length) == 0;
}

static int is_kept(const struct view *view, const char *variable)
{
    size_t length = name_length(variable);
    const char *at = 0, *text;
    if (length == 0 || variable[length] != '=') {
        return 0;
    }
    while ((text = file_text(view, &view->part->set, &at))) {
        if (has_name(text, variable, length)) {
            return 0; /* what the policy says wins */
        }
    }
    at = 0;
    while ((text = file_text(view, &view->part->keep, &at))) {
        if (has_name(text, variable, length)) {
            return 1;
        }
    }
    return 0;
}

static const char *path_of(const struct words *words)
{
    for (uint32_t i = 0; i < words->env_count; i++) {
        if (has_name(words->envs[i], "PATH", 4)) {
            return words->envs[i] + 5;
        }
    }
    return 0;
}

static void make_environment(const struct options *options, const struct view *view,
                             struct words *out)
{
    static const char standard[] =
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    size_t count = 2; /* PATH, the end */
    const char *at = 0, *text;
    for (char **one = options->environment; *one; one++) {
        count++;
    }
    while (file_text(view, &view->part->set, &at)) {
        count++;
    }
    out->envs = words_take(count * sizeof *out->envs);
    out->env_count = 0;
    for (char **one = options->environment; *one; one++) {
        if (is_kept(view, *one)) {
            out->envs[out->env_count++] = *one;
        }
    }
    at = 0;
    while ((text = file_text(view, &view->part->set, &at))) {
        out->envs[out->env_count++] = text;
    }
    if (!path_of(out)) {
        out->envs[out->env_count++] = standard;
    }
    out->envs[out->env_count] = 0;
}

/* As a shell looks; but an empty entry of PATH, which means the working directory, is passed over:
 * strangers write there. */
static void find_programs(const char *name, const char *path, struct words *out)
{
    size_t places = 1, length = strlen(name), slashes = 0;
    for (const char *at = path; *at; at++) {
        places += *at == ':';
    }
    for (const char *at = name; *at; at++) {
        slashes += *at == '/';
    }
    out->programs = words_take((places + 1) * sizeof *out->programs);
    char *to = words_take(strlen(path) + places * (length + 2));
    out->program_count = 0;
    for (const char *at = path; slashes == 0 && *at;) {
        const char *end = at;
        while (*end && *end != ':') {
            end++;
        }
        if (end > at) {
            out->programs[out->program_count++] = to;
            memcpy(to, at, (size_t)(end - at));
            to += end - at;
            *to++ = '/';
            memcpy(to, name, length + 1);
            to += length + 1;
        }
        at = *end ? end + 1 : end;
    }
    if (out->program_count == 0) {
        out->programs[out->program_count++] = name;
    }
    out->programs[out->program_count] = 0;
}

void words_make(const struct options *options, const struct view *view, struct words *out)
{
    make_environment(options, view, out);
    out->args = options->words;
    out->arg_count = 0;
    while (out->args[out->arg_count]) {
        out->arg_count++;
    }
    find_programs(out->args[0], path_of(out), out);
}
