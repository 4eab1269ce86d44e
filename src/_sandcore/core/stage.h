/* The steps between clone and exec, by number, and the record that leaves a failing child. */
#ifndef SANDCORE_STAGE_H
#define SANDCORE_STAGE_H

#include <stdint.h>

/* In the order of child.c. The numbers are in records and on the wire: add at the end only. */
enum stage {
    STAGE_NONE = 0,
    STAGE_CLONE = 1,
    STAGE_SIGNALS = 2,
    STAGE_SESSION = 3,
    STAGE_PARENT_DEATH = 4,
    STAGE_STREAMS = 5,
    STAGE_CLOSE = 6,
    STAGE_CWD = 7,
    STAGE_LIMITS = 8,
    STAGE_UMASK = 9,
    STAGE_CAPABILITIES = 10,
    STAGE_NO_NEW_PRIVS = 11,
    STAGE_LANDLOCK = 12,
    STAGE_FILTER = 13,
    STAGE_EXEC = 14,
    /* The helper's own, before it serves. */
    STAGE_HELPER = 15,
    STAGE_LANE = 16,
    STAGE_REQUEST = 17,
    STAGE_NAMESPACES = 18,
    STAGE_MOUNTS = 19,
    /* After STAGE_STREAMS. */
    STAGE_TERMINAL = 20,
};

struct stage_report {
    int32_t stage; /* enum stage; STAGE_NONE: nothing failed */
    int32_t error; /* errno, positive */
    int32_t
        detail; /* STAGE_EXEC: which candidate; STAGE_STREAMS, STAGE_LIMITS: which entry; STAGE_MOUNTS:
                     * which mount; -1: none */
};

/* A short name for messages and logs, "?" for a number that is not a stage. */
const char *stage_name(int stage);

#endif
