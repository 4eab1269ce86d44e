/* sandcore-exec: runs one command under a policy that was compiled to a file, for callers that spawn
 * by themselves and take a prefix of argv: terminals, make, clients of servers on stdin and stdout.
 *
 * In `landlock` it confines itself and executes the command in its own place: no process is left
 * that could wait, sweep or forward. In `namespaces` it stays outside as the caller of a helper that
 * is a fork of itself, and is for its own caller what the command is: stops when that stops, passes
 * on signals that were sent to it alone, and ends as that ended. It has no C library and no
 * privilege; what it cannot enforce it does not run. */
#ifndef SANDCORE_LAUNCHER_H
#define SANDCORE_LAUNCHER_H

#include "file.h"
#include "wire.h"

#include <stddef.h>
#include <stdint.h>

/* The statuses of `env` and `timeout`: ours, not executable, not found. */
enum launch_status { LAUNCH_OURS = 125, LAUNCH_CANNOT = 126, LAUNCH_NOT_FOUND = 127 };

/* What the command line says. */
struct options {
    const char *file;
    uint32_t isolation; /* enum file_isolation; 0: the strongest that the file has */
    int verbose;
    char **words; /* the command, NULL-terminated */
    char **environment;
};

/* What is executed, by the command's own environment. Arrays are NULL-terminated. */
struct words {
    const char **programs;
    char **args;
    const char **envs;
    uint32_t program_count, arg_count, env_count;
};

/* Memory that is never given back; ends the launcher where there is none. */
void *words_take(size_t size);

/* Works out the environment that the part lets through and where the program may be. */
void words_make(const struct options *options, const struct view *view, struct words *out);

/* One line on stderr: the name of this program, and what there is of the three, with colons. */
void say(const char *one, const char *two, const char *three);

/* The same as the reason for ending. An error is a negative errno. */
__attribute__((noreturn)) void fail(int status, const char *one, const char *two);
__attribute__((noreturn)) void fail_errno(int status, const char *what, long error);

/* What a failed stage means for the command: does not return. */
__attribute__((noreturn)) void fail_stage(const struct stage_report *report, const char *program);

/* Confines this process and executes the command in its place. */
__attribute__((noreturn)) void place_run(const struct options *options, const struct view *view);

/* Runs the command in namespaces and ends as it did. Returns only where the host refuses them, with
 * what failed, and then nothing ran. */
void spaces_run(const struct options *options, const struct view *view,
                struct stage_report *report);

/* A command that runs, and whom it is to be followed for. */
struct follow {
    int32_t lane;    /* socket */
    int32_t leader;  /* pidfd */
    int32_t signals; /* signalfd */
    int32_t pid;     /* of the leader as we number it; 0: not known */
    uint64_t before; /* the mask of signals that we were born with */
};

/* Blocks what is passed on, and opens the fd that tells of it: zero or a negative errno. Before there
 * is a command, or a signal for it could end us alone. And back. */
int follow_signals(struct follow *follow);
void follow_nothing(const struct follow *follow);

/* Follows the command to the end of its tree, which *done tells. False: the sandbox was lost. */
int follow_command(struct follow *follow, struct wire_reply *done);

/* Ends this process as a wait status says. */
__attribute__((noreturn)) void follow_end(int32_t status);

__attribute__((noreturn)) void launcher_main(char **stack);

#endif
