/* sandcore-helper: the process that stays.
 *
 * All who run this program have no C library and nothing secret in them. The *root* is exec'ed once
 * per sandbox by the caller with an empty environment; it takes the outer signal scope, starts
 * lanes, and watches: it never runs a command. A *lane* is a fork of the root that takes all of the
 * policy upon itself, once, and then vforks one command at a time. In namespaces a third, the
 * *supervisor* (supervisor.h), is between them: lanes are its children.
 *
 * Commands share their lane's Landlock domain, so they may signal it and could trace it. It is not
 * dumpable, which ends the tracing; that they may kill or stop it cannot be had without copying
 * every rule into a nested domain for each command (1.4 times the cost with 1,000 rules). Hence the
 * root: its domain encloses theirs, so their signals do not reach it, and the moment a lane dies or
 * stops it ends the whole sandbox. Killing the lane is suicide, not escape.
 *
 * Each is watched by another, so that no single death leaves anything behind: the caller and the
 * lanes by the root, the root by the lanes (a parent-death signal would kill a lane before it could
 * end its tree). Both are in a process group of their own, because whoever kills the caller's group
 * would kill all of them at once.
 *
 * A *nursery* is a root that the caller asked to spawn children of the caller's own (CLONE_PARENT),
 * for libraries that wait for them themselves. It confines itself and has no lanes. One that joins a
 * sandbox does so by a *joint* (joint.c), a lane of that sandbox's. */
#ifndef SANDCORE_HELPER_H
#define SANDCORE_HELPER_H

#include "keys.h"
#include "masks.h"
#include "policy.h"
#include "wire.h"

#include <stdint.h>

/* What the caller leaves open for the root. */
enum helper_fds {
    HELPER_CONTROL = 3, /* SOCK_SEQPACKET to the caller */
    HELPER_POLICY = 4,  /* memory file: the blob */
    HELPER_CALLER = 5,  /* pidfd of the caller */
    HELPER_RULESET = 6, /* Landlock ruleset, where the policy has one */
};

/* Notes for the next start, and when they are to be renewed. */
enum { JOURNAL_MAX = 8 };
#define JOURNAL_RENEW_NS (INT64_C(6) * 3600 * 1000000000)
struct journal {
    struct keys_note notes[JOURNAL_MAX];
    unsigned count;
    int64_t renew_ns;
};

/* A directory of the host's that holds workspaces, hidden but for the one that lies in it. */
struct dock {
    const char *path;
    int32_t place;    /* what is hidden; -1: the policy has none, or this is another process */
    int32_t hollow;   /* what hides it, to be changed by this fd alone */
    int32_t top;      /* what hides it, as it is seen: what is mounted in there is by this fd */
    int32_t lies;     /* a workspace does, or may */
    int32_t attached; /* and is mounted */
    int32_t over;     /* eventfd by which lanes say that a command has ended; theirs, too */
    int32_t expired;  /* it has left by itself: nobody looked after it, so far as is known here */
    struct wire_dock order;
    struct dock_log *log; /* shared with lanes: what became of the orders; NULL: there is no dock */
    void *blob;           /* its own; room for the longest */
    struct policy_view policy;
    struct masks masks;
};

struct helper {
    struct policy_view policy;
    int32_t caller, root; /* pids */
    int32_t root_fd;      /* pidfd of the root; lanes inherit it */
    int32_t scoped;       /* the signal scope of the process at hand was proved */
    int32_t group;        /* of the root, as numbered outside of all namespaces */
    uint32_t processes;   /* of the lane to start: how many at one time; 0: any number */
    int32_t signals;      /* signalfd of the root; -1: this is another process */
    int32_t children;     /* fd of its /proc list of children, for where there is no scope; -1 */
    struct masks masks;   /* of the root */
    struct dock dock;     /* of the root */
    struct plants *plants;
    struct journal journal;
    int32_t closed;            /* the caller said so, and looks after its own */
    int32_t supervisor;        /* of the root: socket to the process that has the lanes; -1 */
    int32_t handover;          /* of a lane: socket on which its listener goes there; -1 */
    int32_t joint;             /* the lane to start is one that the caller's children join */
    int32_t joined;            /* of the root: there was such a lane */
    struct attempts *attempts; /* of a lane; NULL: nobody notes any */
};

/* Ends every process below this one and reaps it. *leader_status gets the wait status of `leader`
 * when it is among them; usage, when not NULL, is added to. Returns how many were reaped. */
uint32_t helper_sweep(const struct helper *helper, int32_t leader, int32_t *leader_status,
                      struct wire_usage *usage);

/* Adds a process's resource use (struct rusage) to the sum. */
struct rusage;
void helper_add_usage(struct wire_usage *sum, const struct rusage *one);

/* CLOCK_MONOTONIC in nanoseconds. */
int64_t helper_now(void);

/* True when a wait status tells of a stop and not of an end. A command whose parent is a lane makes
 * the lane its tracer by PTRACE_TRACEME, and tracers are told of stops unasked. */
int helper_is_stop(int32_t status);

/* True when signals of this process to `outsider` are refused by its Landlock domain. Only after
 * this may kill(-1) be used: without a scope it ends the user's session. */
int helper_prove_scope(int32_t outsider);

/* The outer scope: lanes and commands may be ended from here, and reach nothing from there. With pid
 * namespaces nobody there has a name for anybody here, and lanes could not mount any more. */
int helper_take_scope(struct helper *helper);

/* More fds than the soft limit that commands are to have, for a moment. */
int helper_raise_fds(uint64_t before[2]);
int helper_restore_fds(const uint64_t before[2]);

/* Opens /proc's list of this process's children. */
int helper_open_children(void);

/* Sends a READY packet; the report's stage is STAGE_NONE when all is well. */
void helper_send_ready(const struct helper *helper, int fd, const struct stage_report *report,
                       const int32_t *fds, unsigned count);

/* Whether lanes are in namespaces of their own. */
int helper_has_namespaces(const struct helper *helper);

/* Receives one packet; its fds (at most max) go to fds, -1 where there are none. Returns the size, 0
 * at the end of the stream, or a negative errno; -EMSGSIZE when it did not fit. */
long helper_receive(int fd, void *buffer, size_t size, int32_t *fds, unsigned max);

/* Sends bytes, with fds (WIRE_MAX_FDS at the most). Zero or a negative errno. */
int helper_send_bytes(int socket, const void *bytes, size_t size, const int32_t *fds,
                      unsigned count);

/* The same for a reply, behind which attempts follow where it says so. It goes without its fds where
 * they cannot go with it (a user has too many in flight): who waits for them sees that at once. */
void helper_send(int socket, const struct wire_reply *reply, const int32_t *fds, unsigned count);
void helper_send_done(int socket, const struct wire_reply *reply,
                      const struct wire_attempt *attempts);

/* In a copy of the root that is to be something else: closes what is the root's own. */
void root_drop(struct helper *helper);

/* Starts a lane as a child of this process. */
void helper_start_lane(struct helper *helper, int socket);

/* Reaps children: false when one was killed or stopped, or ended otherwise than its owner asked. */
int helper_children_are_well(void);

/* In namespaces: the process between root and lanes. It is the first one of a pid namespace that is
 * around those of the lanes, starts them for the root, and connects in the place of their commands.
 * Zero or a negative errno. */
int supervisor_start(struct helper *helper);

/* Of a lane: limits, a /proc of its own, and no capabilities. Zero or a negative errno. */
int lane_enter(struct helper *helper, struct stage_report *report);

/* Enters a joint with what the caller got from it (WIRE_JOINT_FDS): what is for a process, which then
 * still has capabilities in there; and what is for the thread that clones commands, which then has
 * none, and the ruleset to take. */
int joint_enter(const int32_t *fds);
int joint_enter_thread(struct helper *helper, const int32_t *fds, int32_t *ruleset);

/* In a root with joints: ends all that is below the supervisor, without waiting for what the caller
 * has still to wait for. */
void joint_sweep(const struct helper *helper);

/* In its copy that is to be a lane: closes what is its own. */
void supervisor_drop(void);

/* In a lane: takes the policy's filter; where it asks, the listener goes to the supervisor. */
int listener_take_filter(struct helper *helper);

/* What the commands of a lane tried to reach and did not, in memory that it shares with who answers
 * their connects; a lane says where one command ends and the next begins. */
struct attempts *attempts_share(void);
void attempts_begin(struct attempts *attempts);
uint32_t attempts_current(const struct attempts *attempts);
void attempts_note(struct attempts *attempts, uint32_t command, const struct wire_attempt *one);
void attempts_end(const struct attempts *attempts, struct wire_reply *reply);
const struct wire_attempt *attempts_all(const struct attempts *attempts);
void attempts_drop(struct attempts *attempts);

/* One request from its packet to its child. */
struct request {
    struct plan plan; /* report: what failed, STAGE_NONE if nothing */
    int32_t fds[WIRE_MAX_FDS];
    int32_t pid, pidfd; /* of the child; 0 and -1 when there is none */
    int32_t background; /* goes on by itself */
    uint64_t timeout_ns;
    uint64_t memory; /* bytes for its tree; 0: any */
    uint32_t docked; /* how many workspaces must have been ordered and served before */
    void *mapped_body, *mapped_pointers;
    size_t body_bytes, pointer_bytes;
    /* Not a command but this, with its path behind it; or 0. Who does not know it sees a request that
     * is not sound. */
    const struct wire_file *file;
    size_t path_bytes;
};

/* Waits for a packet and reads it: 1: a request, sound or with what is wrong in its report; 0: none
 * that means anything now; negative: the other side is gone. Not for two requests at once. */
int request_receive(int socket, struct request *request);

/* Clones its command: clone flags beside CLONE_VM | CLONE_PIDFD, and what to pass in the place of
 * TLS. Without CLONE_VFORK the child goes on while this process does: the request and its memory
 * then stay as they are until the child has ended, and what failed is in the report only then. */
void request_start(const struct helper *helper, struct request *request, unsigned long flags,
                   uint64_t tls);

/* Closes the command's fds here, or no reader ever sees the end of its output. */
void request_close_fds(struct request *request);

/* Gives back all that it holds but the pidfd. */
void request_release(struct request *request);

/* Reaches the one file that a request asks for, with this process's own rights, and replies. */
void files_serve(int socket, const struct request *request);

/* Memory that the root shares with its lanes; in these a command begins, and has ended, with or without
 * its caller there to hear of it. */
int plants_share(struct helper *helper);
void plants_begin(const struct helper *helper);
void plants_end(const struct helper *helper, int present);

/* Whether a command is running or has just ended. Asked before its tree is ended, for which the root may
 * wait longer than what counts as just. */
int plants_are_fresh(const struct helper *helper);

/* At the end of the root, when its tree is dead: where the caller has ended without a word, moves
 * what a command put at protected names aside. */
void plants_settle(struct helper *helper);

/* Whether the caller has closed while a command was running, or lost its lane: then it has still to
 * look after what that put there, and may be killed before. */
int plants_are_due(const struct helper *helper);

/* Notes that say which protected names are missing now: left before there are namespaces, whose users
 * have other keyrings; renewed when it is time; taken away at every end that is not a kill and leaves
 * nothing due. */
void journal_open(struct helper *helper);
void journal_renew(struct helper *helper);
void journal_close(struct helper *helper);

/* Namespaces that are being made, by a process that shares our memory: stays where it is meanwhile. */
struct namespaces {
    unsigned long slow;          /* CLONE_NEW*: what that process makes */
    int32_t pid, maker;          /* that process, 0: none; its pidfd */
    int32_t root_end, maker_end; /* of a socket pair */
};

/* Enters new user and mount namespaces, with the capabilities to mount in them; others are still
 * being made when this returns. Finish, which is to be called in any case, enters them unless
 * something has failed meanwhile, and hands that on. Still dumpable: it writes in /proc. */
int namespaces_begin(const struct policy_view *policy, struct namespaces *spaces);
int namespaces_finish(const struct namespaces *spaces, int failed);

/* Of one row (WRITE, READ, PIN): a detached clone of what `place` is a fd on, with the flags that it
 * shall have; and what masks a file, or a directory, detached. */
int mounts_tree(const struct policy_mount *mount, const char *path, int place);
int mounts_mask(int is_directory);

/* Makes the policy's mounts; *failed is the one that could not be made, -1: none in particular. What
 * is new is granted in the ruleset, -1: none. */
int mounts_make(const struct policy_view *policy, int ruleset, struct dock *dock, int *failed);

/* The workspace that lies in the dock leaves, and the one that was ordered takes its place. No command
 * may run. False: it is neither here nor there, and all of this must end. */
int dock_serve(struct helper *helper, const struct wire_dock *order, const uint8_t *blob);

/* Where the policy has a dock: memory to tell lanes by. Zero or a negative errno. */
int dock_share(struct dock *dock);

/* In a lane: waits until so many orders were served. Zero, or the negative errno of the last one. */
int dock_await(const struct helper *helper, uint32_t orders);

/* In a lane: a command that had waited for so many orders has ended, with its tree. */
void dock_leave(const struct helper *helper, uint32_t orders);

/* In the root, when lanes have said so: what lies there for one command leaves. False as dock_serve. */
int dock_expire(struct dock *dock);

/* Whether a workspace lies there; one that has left by itself comes back for that. */
int dock_has(struct dock *dock);

void dock_drop(struct dock *dock);

/* Grants a class of rights on what is new at a path; without a ruleset (-1) that is nothing to do. */
int mounts_grant(const struct policy_view *policy, int ruleset, const char *path, unsigned access);

/* In a pid namespace: makes the mounts that show its processes. */
int mounts_make_proc(const struct policy_view *policy, int ruleset);

/* Opens the sandbox's own directories again where a command has closed them. */
void mounts_reopen(const struct policy_view *policy);

/* Removes what commands left in this process's IPC namespace, whose objects are all of its user's. */
void ipc_clear(void);

/* As the first process of a pid namespace, with capabilities: at most this many others at one time,
 * threads counted; 0: any number. -EOPNOTSUPP where the kernel cannot. */
int limits_take_processes(uint32_t most);

/* Looking at the memory of a command's tree. */
struct memory_watch {
    uint64_t most;      /* bytes; 0: there is no limit, and nothing to look at */
    int64_t pause_ns;   /* from here to the next look */
    int64_t doubted_ns; /* since when it may be too much; 0: it is not */
    int32_t proc;       /* fd of /proc, -1: none */
    int32_t exceeded;
};

/* Begins; the watch is to be closed whatever this returns. Zero or a negative errno. */
int memory_open(struct memory_watch *watch, uint64_t most);

/* True when all processes below this one, in whose signal scope nobody else is, have more memory. */
int memory_look(struct memory_watch *watch);

void memory_close(struct memory_watch *watch);

/* Never return. */
__attribute__((noreturn)) void helper_exit(int status);
__attribute__((noreturn)) void lane_main(struct helper *helper, int socket);
__attribute__((noreturn)) void joint_main(struct helper *helper, int socket);
__attribute__((noreturn)) void nursery_main(struct helper *helper, uint64_t cookie);
__attribute__((noreturn)) void nursery_join(struct helper *helper, uint64_t cookie,
                                            const int32_t *fds);
__attribute__((noreturn)) void root_main(void);

#endif
