/* The command line of sandcore-exec, and what it says when it cannot do it. */
#define _GNU_SOURCE
#include "launcher.h"
#include "helper.h"
#include "sys.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { STDERR = 2, LINE_BYTES = 512 };

static const char usage[] =
    "usage: sandcore-exec --policy FILE [--isolation auto|namespaces|landlock] [-v] -- CMD...\n"
    "Runs CMD under a policy that `sandbox compile ... -o FILE` has compiled, in the place of "
    "this\n"
    "process. Exits as CMD does; 125: it could not be confined, 126: not executed, 127: not "
    "found.\n";

static char *append(char *at, const char *end, const char *text)
{
    while (text && *text && at < end) {
        *at++ = *text++;
    }
    return at;
}

void say(const char *one, const char *two, const char *three)
{
    const char *parts[] = {one, two, three};
    char line[LINE_BYTES], *end = line + sizeof line - 1;
    char *at = append(line, end, "sandcore-exec");
    for (unsigned i = 0; i < 3; i++) {
        if (parts[i]) {
            at = append(append(at, end, ": "), end, parts[i]);
        }
    }
    *at++ = '\n'; /* in one piece, or it mixes with what others say */
    SYS_3(SYS_write, STDERR, line, at - line);
}

void fail(int status, const char *one, const char *two)
{
    say(one, two, 0);
    helper_exit(status);
}

static const char *text_of_errno(long error)
{
    static char other[sizeof "errno " + TEXT_NUMBER] = "errno ";
    static const struct {
        int number;
        const char *text;
    } table[] = {
        {EPERM, "operation not permitted"},
        {ENOENT, "no such file or directory"},
        {E2BIG, "arguments are too long"},
        {ENOEXEC, "neither a program nor a script with an interpreter"},
        {EAGAIN, "too many processes at the moment"},
        {ENOMEM, "out of memory"},
        {EACCES, "permission denied"},
        {ENOTDIR, "not a directory"},
        {EISDIR, "is a directory"},
        {EINVAL, "damaged, of another version, or of another kernel: compile it again"},
        {EMFILE, "too many open files"},
        {ENOSPC, "no space, or too many namespaces"},
        {ENOSYS, "this kernel does not have it"},
        {EOPNOTSUPP, "this kernel does not have it"},
        {ELOOP, "leads through a symbolic link now: compile the policy again"},
        {ESTALE, "leads elsewhere than when the policy was compiled: compile it again"},
    };
    for (unsigned i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].number == -error) {
            return table[i].text;
        }
    }
    char digits[TEXT_NUMBER];
    const char *number = text_of((uint64_t)-error, digits);
    memcpy(other + sizeof "errno " - 1, number, strlen(number) + 1);
    return other;
}

void fail_errno(int status, const char *what, long error)
{
    fail(status, what, text_of_errno(error));
}

void fail_stage(const struct stage_report *report, const char *program)
{
    if (report->stage != STAGE_EXEC) {
        fail_errno(LAUNCH_OURS, stage_name(report->stage), -report->error);
    }
    int is_missing = report->error == ENOENT || report->error == ENOTDIR;
    fail_errno(is_missing ? LAUNCH_NOT_FOUND : LAUNCH_CANNOT, program, -report->error);
}

/* A value may be the next word, or stand behind '='. NULL: this is another option. */
static const char *value_of(char ***at, const char *name)
{
    const char *word = **at;
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++) {
        if (word[i] != name[i]) {
            return 0;
        }
    }
    if (word[length] == '=') {
        return word + length + 1;
    }
    if (word[length] != '\0') {
        return 0;
    }
    if (!(*at)[1]) {
        fail(LAUNCH_OURS, name, "needs a value");
    }
    return *++*at;
}

static int is(const char *one, const char *other)
{
    return strlen(one) == strlen(other) && memcmp(one, other, strlen(one)) == 0;
}

static uint32_t isolation_of(const char *name)
{
    if (is(name, "auto")) {
        return 0;
    }
    if (!is(name, "namespaces") && !is(name, "landlock")) {
        fail(LAUNCH_OURS, name, "is no isolation: auto, namespaces, landlock");
    }
    return is(name, "landlock") ? FILE_LANDLOCK : FILE_NAMESPACES;
}

static void parse(char **at, struct options *options)
{
    for (; *at && **at == '-'; at++) {
        const char *value;
        if (is(*at, "--")) {
            at++;
            break;
        }
        if (is(*at, "-v") || is(*at, "--verbose")) {
            options->verbose = 1;
        } else if (is(*at, "-h") || is(*at, "--help")) {
            SYS_3(SYS_write, 1, usage, sizeof usage - 1);
            helper_exit(0);
        } else if ((value = value_of(&at, "--policy"))) {
            options->file = value;
        } else if ((value = value_of(&at, "--isolation"))) {
            options->isolation = isolation_of(value);
        } else {
            fail(LAUNCH_OURS, *at, "is no option (see --help); a policy's are `sandbox compile`'s");
        }
    }
    options->words = at;
    if (!options->file) {
        fail(LAUNCH_OURS, "no policy", "--policy FILE, from `sandbox compile ... -o FILE`");
    }
    if (!*at) {
        fail(LAUNCH_OURS, "no command", "write it after --");
    }
}

/* What is closed is not to become a file of ours, nor one of the command's own. */
static void fill_streams(void)
{
    for (int fd = 0; fd < 3; fd++) {
        if (SYS_2(SYS_fcntl, fd, F_GETFD) < 0) {
            SYS_4(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
        }
    }
}

static void open_part(const struct options *options, const struct file *file, uint32_t isolation,
                      struct view *view)
{
    const char *path = 0;
    int error = file_part(file, isolation, view);
    if (error == -ENOENT) {
        fail(LAUNCH_OURS, options->file, "is not compiled for this isolation");
    }
    if (error) {
        fail_errno(LAUNCH_OURS, options->file, error);
    }
    error = file_is_current(view, &path);
    if (error) {
        fail_errno(LAUNCH_OURS, path, error);
    }
}

/* Whether the host gives no namespaces. What it has too little of at the moment is another thing: a
 * command that uses it up would see to it that the next one is confined less. */
static int is_refusal(const struct stage_report *report)
{
    static const int shortages[] = {EAGAIN, ENOMEM, EMFILE, ENFILE, EPIPE};
    for (unsigned i = 0; i < sizeof shortages / sizeof shortages[0]; i++) {
        if (report->error == shortages[i]) {
            return 0;
        }
    }
    return 1;
}

void launcher_main(char **stack)
{
    long count = (long)(uintptr_t)stack[0];
    struct options options = {.environment = stack + 1 + count + 1};
    struct file file;
    struct view view;
    fill_streams();
    parse(stack + 1 + (count > 0), &options);
    int error = file_read(options.file, &file);
    if (error == -EPERM) {
        fail(LAUNCH_OURS, options.file, "others could have written it: chmod go-w, chown");
    }
    if (error) {
        fail_errno(LAUNCH_OURS, options.file, error);
    }
    open_part(&options, &file, options.isolation, &view);
    if (view.part->isolation == FILE_NAMESPACES) {
        struct stage_report report = {0};
        spaces_run(&options, &view, &report);
        if (options.isolation != 0 || !is_refusal(&report) ||
            file_part(&file, FILE_LANDLOCK, &view) == -ENOENT) {
            say("isolation 'namespaces'", stage_name(report.stage), text_of_errno(-report.error));
            helper_exit(LAUNCH_OURS);
        }
        if (options.verbose) {
            say("landlock, for there are no namespaces", stage_name(report.stage),
                text_of_errno(-report.error));
        }
        open_part(&options, &file, FILE_LANDLOCK, &view);
    }
    place_run(&options, &view);
}
