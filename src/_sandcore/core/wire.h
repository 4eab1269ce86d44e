/* Messages between the caller and the helper, one per packet of a SOCK_SEQPACKET pair.
 *
 * caller -> root     WIRE_LANE  + [lane socket]             a new lane, please
 *                    WIRE_JOIN  + [lane socket]             a new joint, please
 * caller -> root     WIRE_DIRECT                            be a nursery: spawn children of mine
 *                                + [what a joint sent]      in there
 *                    WIRE_DOCK                              another workspace, please; its mounts
 *                    WIRE_CLOSE                             I end this; without it, I was ended
 * caller -> lane     WIRE_RUN   + [fds 0, 1, 2, ...]         a command; the body follows the header,
 *         or nursery            + [memfd]                   or lies in a memory file when it is long
 *                    WIRE_KILL                              end the command and all below it, now
 *                    WIRE_SWEEP                             the leader has ended: end what is left
 *                    WIRE_FILE  + [directory]               between commands: reach one file for me
 * root, lane -> caller
 *                    WIRE_READY + [directories]             serves; or what failed on the way
 *                    WIRE_FAILED                            the command did not start: stage, errno
 *                    WIRE_EXITED                            the leader has ended, others live on
 *                    WIRE_DONE                              nothing of the command is left
 *                    WIRE_FILED + [fd]                      what came of WIRE_FILE: status, an errno
 * joint -> caller    WIRE_READY + [WIRE_JOINT_FDS]          what a nursery joins it with
 *                    WIRE_DONE                              nothing is left but for the caller to reap
 * nursery -> caller  WIRE_STARTED + [pidfd]                 it runs, and is the caller's child
 *                    WIRE_FAILED + [pidfd]                  it did not start, and is to be reaped
 *
 * One command at a time per lane, so that no message needs a name. The usual command costs two
 * packets: RUN and DONE. It may be asked for before the workspace is there that it is for.
 * A command of which WIRE_BACKGROUND was asked goes on while the caller does other things, and may be
 * forgotten: the lane says WIRE_STARTED + [pidfd] or WIRE_FAILED, and then sees to its end by itself.
 * It watches the clock, sweeps when the leader ends, and says WIRE_DONE.
 * A joint hears WIRE_KILL (end all that is in here), and the end of the stream (and yourself), before
 * which it says WIRE_DONE. */
#ifndef SANDCORE_WIRE_H
#define SANDCORE_WIRE_H

#include "plan.h"

#include <stddef.h>
#include <stdint.h>

#define WIRE_MAX_INLINE (64u << 10)
#define WIRE_MAX_BODY (64u << 20)
#define WIRE_MAX_LIMITS 16u
#define WIRE_MAX_DOCK (16u << 10)
#define WIRE_MAX_STRINGS (1u << 20)
#define WIRE_MAX_SCRATCH 4u /* directories of the sandbox's own that come with the first READY */
#define WIRE_MAX_PATH 4096u /* with its NUL, as the kernel has it */
#define WIRE_MAX_FDS (PLAN_MAX_FDS + 1) /* of the command, and the memory file */
#define WIRE_MAX_ATTEMPTS 32u
#define WIRE_ADDRESS_BYTES 112u /* the longest, struct sockaddr_un, has 110 */

/* The status of a root process that leaves its notes to the caller. */
enum { HELPER_DUE = 2 };

/* What a joint hands out: its user, mount, ipc, uts, network and pid namespaces, its Landlock ruleset,
 * and a socket to the supervisor. */
enum { WIRE_SPACES = 6, WIRE_JOINT_FDS = 8 };

enum wire_kind {
    WIRE_LANE = 1,
    WIRE_RUN = 2,
    WIRE_KILL = 3,
    WIRE_SWEEP = 4,
    WIRE_DIRECT = 5,
    WIRE_CLOSE = 6,
    WIRE_FILE = 7,
    WIRE_JOIN = 8,
    WIRE_DOCK = 9,
    WIRE_READY = 16,
    WIRE_FAILED = 17,
    WIRE_EXITED = 18,
    WIRE_DONE = 19,
    WIRE_STARTED = 20,
    WIRE_FILED = 21,
};

enum wire_flags {
    WIRE_IN_MEMFD = 1u << 0,     /* the body is in the fourth fd */
    WIRE_KEEP_SESSION = 1u << 1, /* stay in the caller's session and group: a terminal's job */
    WIRE_BACKGROUND = 1u << 2,   /* see above */
    WIRE_TERMINAL = 1u << 3,     /* its fd 0 becomes its controlling terminal */
    WIRE_FLAGS = (1u << 4) - 1,
};

/* The packet of WIRE_LANE and of WIRE_JOIN. */
struct wire_lane {
    uint32_t kind;
    uint32_t processes; /* and threads at one time, of a command or all that joined; 0: any */
};

/* The packet of WIRE_DIRECT. */
struct wire_direct {
    uint32_t kind;
    uint32_t joins;  /* what a joint sent comes with it */
    uint64_t cookie; /* that of the policy's filter */
};

/* The packet of WIRE_DOCK; behind it the blob. Without one the workspace that lies there only leaves. */
struct wire_dock {
    uint32_t kind;
    uint32_t device_major, device_minor; /* which directory it is, as the caller sees it */
    uint32_t size;                       /* of the blob; WIRE_MAX_DOCK at the most */
    uint64_t inode;
    uint32_t once; /* it is there for one command, and leaves when that has ended */
    uint32_t reserved;
};

/* The body: struct plan_limit each, int32_t targets, NUL-terminated cwd, programs, args, envs. */
struct wire_run {
    uint32_t kind; /* enum wire_kind; the short messages consist of this field alone */
    uint32_t flags;
    uint32_t body; /* bytes */
    int32_t umask; /* -1: as it is */
    int32_t group; /* with WIRE_KEEP_SESSION: the group to join; 0: as it is; -1: one of its own */
    uint32_t targets; /* numbers that the fds get in the command; 0: from 0 up, without a gap */
    uint32_t limits, programs, args, envs; /* counts */
    uint32_t docked; /* not before so many WIRE_DOCK were served; the last one must have been */
    uint32_t reserved;
    uint64_t timeout_ns; /* with WIRE_BACKGROUND: the tree is killed after so long; 0: never */
    uint64_t memory;     /* bytes that the whole tree may have; 0: any number; not for a nursery */
};

/* What is wanted of a file. The fd that comes back is the caller's to use. Those from MAKE on bring
 * none, and name one thing in a directory that came as a fd. */
enum wire_file_kind {
    WIRE_FILE_LOOK,   /* to fstat: anything */
    WIRE_FILE_PLACE,  /* to come back as the directory of another one */
    WIRE_FILE_LIST,   /* a directory's names */
    WIRE_FILE_READ,   /* a regular file, as all below */
    WIRE_FILE_WRITE,  /* one that is there, as it is, or a new one */
    WIRE_FILE_APPEND, /* the same, to write at its end */
    WIRE_FILE_CREATE, /* a new one only */
    WIRE_FILE_MAKE,   /* a directory */
    WIRE_FILE_REMOVE, /* anything but a directory */
    WIRE_FILE_CLEAR,  /* an empty directory */
    WIRE_FILE_KINDS,
};

enum wire_file_flags {
    WIRE_FILE_HERE = 1u << 0, /* a name in the directory that came as a fd; else an absolute path */
    WIRE_FILE_NO_LINK = 1u << 1, /* follow none; with LOOK the link itself */
    WIRE_FILE_FLAGS = (1u << 2) - 1,
};

/* The packet of WIRE_FILE; behind it the path, with its NUL. */
struct wire_file {
    uint32_t kind;
    uint32_t what;  /* enum wire_file_kind */
    uint32_t flags; /* enum wire_file_flags */
    uint32_t mode;  /* permissions of what is new, less the umask */
};

struct wire_usage {
    uint64_t user_us, system_us; /* CPU time of the whole tree, in microseconds */
    uint64_t max_rss_kib;        /* of the largest process */
    uint64_t minor_faults, major_faults, in_blocks, out_blocks;
    uint64_t voluntary_switches, involuntary_switches;
};

struct wire_reply {
    uint32_t kind;
    int32_t pid; /* READY: of the lane or root; else of the leader, as the helper sees it */
    struct stage_report report; /* READY, FAILED: what failed */
    int32_t status;             /* EXITED, DONE: wait status of the leader; FILED: an errno, or 0 */
    uint32_t swept;             /* DONE: how many processes outlived the leader and were ended */
    uint32_t scoped;      /* READY: the signal scope was proved; kill(-1) ends just this tree */
    uint32_t timed_out;   /* DONE, in the background: its time was up */
    uint32_t over_memory; /* DONE: the tree was ended because it had too much */
    uint32_t unwatched; /* READY of the root: directories in which a replaced file stays unmasked */
    uint32_t attempts;  /* DONE: how many struct wire_attempt follow in the packet */
    uint32_t missed;    /* DONE: how many more there were; the same one twice is one */
    uint32_t reserved;
    struct wire_usage usage; /* DONE */
    int64_t duration_ns;     /* DONE, in the background: from start to end */
};

/* A connect to something outside of the sandbox, which was refused. */
struct wire_attempt {
    int32_t error; /* errno, positive */
    uint16_t type; /* SOCK_STREAM, ... */
    uint16_t size; /* bytes of the address */
    uint8_t address[WIRE_ADDRESS_BYTES];
};

/* How many pointers wire_parse needs for this request: three arrays with their terminators. */
size_t wire_pointers(const struct wire_run *run);

/* Checks a request's header: zero or -EINVAL, -E2BIG. */
int wire_check(const struct wire_run *run);

/* Fills in the plan from a checked header and its body. pointers has room for wire_pointers; the
 * plan points into body and pointers. -EINVAL when the body is not what the header says. */
int wire_parse(const struct wire_run *run, const uint8_t *body, const char **pointers,
               struct plan *plan);

/* Checks a packet of WIRE_FILE with its path (`size` bytes): zero, -EINVAL, -ENAMETOOLONG. */
int wire_check_file(const struct wire_file *file, const char *path, size_t size);

#endif
