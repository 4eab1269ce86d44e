#include "stage.h"

#include <stddef.h>

static const char *const names[] = {
    [STAGE_NONE] = "none",
    [STAGE_CLONE] = "clone",
    [STAGE_SIGNALS] = "signals",
    [STAGE_SESSION] = "session",
    [STAGE_PARENT_DEATH] = "parent-death",
    [STAGE_STREAMS] = "streams",
    [STAGE_CLOSE] = "close",
    [STAGE_CWD] = "cwd",
    [STAGE_LIMITS] = "limits",
    [STAGE_UMASK] = "umask",
    [STAGE_CAPABILITIES] = "capabilities",
    [STAGE_NO_NEW_PRIVS] = "no-new-privs",
    [STAGE_LANDLOCK] = "landlock",
    [STAGE_FILTER] = "filter",
    [STAGE_EXEC] = "exec",
    [STAGE_HELPER] = "helper",
    [STAGE_LANE] = "lane",
    [STAGE_REQUEST] = "request",
    [STAGE_NAMESPACES] = "namespaces",
    [STAGE_MOUNTS] = "mounts",
    [STAGE_TERMINAL] = "terminal",
};

const char *stage_name(int stage)
{
    if (stage < 0 || (size_t)stage >= sizeof names / sizeof names[0]) {
        return "?";
    }
    return names[stage];
}
