/* What connects in the place of commands: the supervisor, and its ways to a command's socket.
 *
 * A filter sees numbers, and the address of a connect is behind a pointer: it cannot tell a server of
 * the sandbox from a service of the host. So each connect of a command waits for the supervisor, a
 * process that commands cannot reach, and the supervisor makes it:
 *   - the address is copied once, and never looked at in the command's memory again;
 *   - sockets of the file system are looked up where the command sees them and with its rights, then
 *     held; the host's are told by the kernel's list of this network's sockets, in which they are not;
 *   - the supervisor connects a socket of its own, asks the kernel who listens there, and only then
 *     puts it in the place of the command's. Who has no number in the pid namespace that is around all
 *     lanes is outside;
 *   - a socket of the host's that the policy names is told by its inode, which is held from the start:
 *     no other has that number, whatever lies at the path by now;
 *   - internet sockets are connected themselves; in a network of the sandbox's own, if they belong to it.
 * No call is ever let through to the kernel as the command made it: it could have changed meanwhile.
 * What the supervisor cannot do for whatever reason (no fds, memory that cannot be read) is refused,
 * and without a supervisor the kernel refuses. It never sleeps but in its poll: what takes time waits
 * and is tried again, and what a command makes sleep all the same is interrupted. */
#ifndef SANDCORE_SUPERVISOR_H
#define SANDCORE_SUPERVISOR_H

#include "helper.h"

#include <linux/capability.h>
#include <linux/stat.h>

enum {
    CONNECT_WAITING =
        256,             /* connects of a lane that may wait at one time; more wait in the kernel */
    CONNECT_LATER = 1,   /* it would have to sleep */
    ADDRESS_BYTES = 128, /* struct sockaddr_storage */
    KNOWN_SOCKETS = 16,
    NAMED_SOCKETS = 64,     /* by the policy; the caller refuses more */
    OPTIONS = 5,            /* of sockets, that are copied */
    DEVICE_MINOR_BITS = 20, /* in the kernel's number of a device */
};

/* One connect of a command. Its thread sleeps until it is answered, or is killed. */
struct connect {
    uint64_t id;                 /* of the notification */
    int32_t pid;                 /* of the thread, as numbered here */
    int32_t fd;                  /* there */
    uint32_t command;            /* of the lane; for what is noted */
    uint32_t size;               /* of the address */
    int64_t since_ns, again_ns;  /* when it began to wait, and is tried next; 0: it does not wait */
    int64_t until_ns;            /* when a blocking one gives up */
    int32_t socket;              /* the command's, while it is looked at; -1 */
    int32_t domain, type, flags; /* flags: of the open file */
    int32_t outside;             /* it is about what is not the sandbox's, and not named */
    int32_t named;               /* a socket of the host's that the policy names */
    _Alignas(8) uint8_t address[ADDRESS_BYTES]; /* with zeros behind it */
};

/* A lane, as the supervisor sees it. */
struct ward {
    int32_t used;
    int32_t handover;        /* -1: the listener has come */
    int32_t listener, top;   /* -1: not yet; a fd on the top of its tree */
    uint32_t waiting, tried; /* connects that wait; those tried in this turn */
    int64_t next_ns;         /* when one of those that wait is tried next */
    struct attempts *attempts;
    struct connect *connects; /* those that wait */
};

/* A socket of the file system that was found to be this network's. */
struct known_socket {
    uint64_t device, inode;
    int64_t born_s, born_ns;
};

/* A socket of the host's that commands may connect to. As long as it is held nothing else gets its
 * number. */
struct named_socket {
    uint64_t device, inode;
    int32_t place;
};

struct supervisor {
    int32_t started;
    int32_t joined;          /* there was a joint */
    int32_t orders, signals; /* from the root; signalfd */
    int32_t proc, own_fds;   /* a /proc of the pid namespace; in it the fds of this process */
    int32_t top, at;         /* of the supervisor's own tree; the tree that it is in */
    int32_t diag;            /* asks for sockets; -1: this kernel does not say */
    int32_t alarm;           /* see alarm.h */
    int32_t shares_network;  /* with the host, whose sockets are then in the kernel's list too */
    uint64_t network;        /* cookie of the network namespace; 0: none is this one */
    struct __user_cap_data_struct rights[2], none[2];
    struct known_socket known[KNOWN_SOCKETS];
    uint32_t next_known;
    struct named_socket named[NAMED_SOCKETS];
    uint32_t named_count;
    int32_t options[OPTIONS][4]; /* as a new socket has them */
};

/* One notification of a lane, received and answered, or kept as waiting. */
void connect_serve(struct supervisor *self, struct ward *ward);

/* Tries those that wait, and whose time has come, once more. */
void connect_again(struct supervisor *self, struct ward *ward);

/* Connects the socket of the command, which is of an internet family: zero, CONNECT_LATER, or a
 * negative errno. */
int inet_connect(const struct supervisor *self, struct connect *connect);
int inet_is_outside(const struct connect *connect);
uint64_t inet_own_network(void);

/* Puts a socket that is connected in the place of the command's, which is of AF_UNIX. As above. */
int unix_connect(struct supervisor *self, const struct ward *ward, struct connect *connect);

/* The number of a file as the kernel tells files apart. */
uint64_t device_of(const struct statx *file);

/* Holds the sockets that the policy names, and whether a file is one of them. */
void named_open(struct supervisor *self, const struct policy_view *policy);
int named_has(const struct supervisor *self, const struct statx *file);
void named_close(struct supervisor *self);

/* Whether a socket of the file system, to which a command connects and which is held by a fd, is taken
 * for one that commands listen on. */
int diag_listens_here(struct supervisor *self, const struct connect *connect, int place,
                      const struct statx *file);

/* Whether a process of the lanes has one of these open; `sockets` are their inodes' numbers. */
int holders_have(const struct supervisor *self, const uint32_t *sockets, uint32_t count);
int diag_open(void);

/* The same of an abstract name: zero, -EPERM, or -ECONNREFUSED where nobody has it. */
int diag_look_for_name(const struct supervisor *self, const uint8_t *name, size_t size);

void unix_learn_options(struct supervisor *self);

/* The rights of who may do no more than the command, for connecting and looking up, and back. */
int rights_drop(const struct supervisor *self);
void rights_take(const struct supervisor *self);

/* A number in a line of what /proc says of a process or thread, or of an open file of it; a negative
 * errno. Signal 64, the topmost bit of a mask, makes one of those negative. */
int64_t status_number(int proc, uint64_t process, const char *line, int base);
int64_t fdinfo_number(int proc, uint64_t process, int fd, const char *line, int base);

/* The device of a mount that a process sees, as the kernel numbers it. */
int64_t mount_device(int proc, uint64_t process, uint64_t mount);

#endif
