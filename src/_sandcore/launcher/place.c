/* `landlock`: confined and executed in this process's own place. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>

void place_run(const struct options *options, const struct view *view)
{
    struct words words;
    words_make(options, view, &words);
    struct plan plan = {
        .programs = words.programs,
        .argv = words.args,
        .envp = (char *const *)(uintptr_t)words.envs,
        .limits = view->limits,
        .limit_count = view->limit_count,
        /* A prefix is to change nothing else: signals stay blocked or ignored, as with `nohup`. */
        .flags = PLAN_KEEP_MASK | PLAN_DROP_CAPABILITIES | PLAN_NO_NEW_PRIVS,
        .fds = {0, 1, 2},
        .fd_count = 3,
        .umask = -1,
        .filter = view->policy.filter,
        .extra_filter = view->policy.extra_filter,
    };
    int failed = -1;
    if (view->part->memory != 0 || view->part->processes != 0) {
        fail(LAUNCH_OURS, options->file, "its limits take namespaces");
    }
    plan.ruleset = policy_ruleset(&view->policy, &failed);
    if (plan.ruleset < 0) {
        const char *what =
            failed < 0 ? "landlock" : view->policy.strings + view->policy.rules[failed].path;
        fail_errno(LAUNCH_OURS, what, plan.ruleset);
    }
    child_main(&plan);
    fail_stage(&plan.report, words.args[0]);
}
