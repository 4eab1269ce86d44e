/* Connects of AF_UNIX sockets: a socket of the supervisor's own, put in the place of the command's
 * when it is known who listens. */
#define _GNU_SOURCE
#include "supervisor.h"
#include "sys.h"
#include "text.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/seccomp.h>
#include <linux/stat.h>
#include <linux/un.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

enum { PATH = offsetof(struct sockaddr_un, sun_path) };

/* Goes where the paths of the command begin: its root is its lane's, because nothing that changes
 * that passes the filter. */
static int enter_view(struct supervisor *self, const struct ward *ward)
{
    if (self->at == ward->top) {
        return 0;
    }
    long error = SYS_1(SYS_fchdir, ward->top);
    if (error == 0) {
        error = SYS_1(SYS_chroot, ".");
    }
    self->at = error == 0 ? ward->top : -1;
    return (int)error;
}

static int enter_directory(const struct supervisor *self, int32_t pid)
{
    char path[TEXT_NUMBER + sizeof "/cwd"];
    text_put(text_put_number(path, (uint64_t)pid), "/cwd");
    long cwd = SYS_4(SYS_openat, self->proc, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    long error = cwd < 0 ? cwd : SYS_1(SYS_fchdir, cwd);
    tree_drop((int)cwd);
    return (int)error;
}

/* By the fd that holds it, as "N" in the directory of our own fds. */
static int connect_to(const struct supervisor *self, int own, int place)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    text_put_number(name.sun_path, (uint64_t)place);
    long error = SYS_1(SYS_fchdir, self->own_fds);
    return error < 0 ? -EPERM : (int)SYS_3(SYS_connect, own, &name, sizeof name);
}

/* Holds what is at the path: from here on it cannot be another. Without rights of our own. */
static int connect_held(struct supervisor *self, struct connect *connect, int own)
{
    const char *path = (const char *)connect->address + PATH;
    long place = SYS_4(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
    if (place < 0) {
        return place == -EMFILE || place == -ENFILE ? -EPERM : (int)place;
    }
    struct statx file = {0};
    int error = -ECONNREFUSED; /* what connecting to a file says */
    if (SYS_5(SYS_statx, place, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_BTIME, &file)) {
        error = -EPERM;
    } else if ((file.stx_mode & S_IFMT) == S_IFSOCK) {
        connect->named = named_has(self, &file);
        connect->outside = !connect->named && !diag_listens_here(self, connect, (int)place, &file);
        error = connect->outside ? -EPERM : connect_to(self, own, (int)place);
    }
    SYS_1(SYS_close, place);
    return error;
}

static int connect_path(struct supervisor *self, const struct ward *ward, struct connect *connect,
                        int own)
{
    const char *path = (const char *)connect->address + PATH;
    int error = enter_view(self, ward);
    if (error == 0 && path[0] != '/') {
        error = enter_directory(self, connect->pid);
    }
    if (error || rights_drop(self)) {
        return -EPERM;
    }
    error = connect_held(self, connect, own);
    rights_take(self);
    return error;
}

static int connect_name(const struct supervisor *self, struct connect *connect, int own)
{
    if (rights_drop(self)) {
        return -EPERM;
    }
    long error = diag_look_for_name(self, connect->address + PATH, connect->size - PATH);
    connect->outside = error == -EPERM;
    if (error == 0) {
        error = SYS_3(SYS_connect, own, connect->address, connect->size);
    }
    rights_take(self);
    return (int)error;
}

/* Who listens has a number in the pid namespace that is around all lanes, also when it is dead by
 * now; who has none is of the host. */
static int is_ours(int own)
{
    struct {
        int32_t pid;
        uint32_t user, group;
    } peer = {0};
    uint32_t size = sizeof peer;
    return SYS_5(SYS_getsockopt, own, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
}

/* What a program may have set before: the rest (a name of the client's, what was said of the file to
 * others: epoll, copies of the fd) stays with the old socket. */
static const struct {
    int16_t name;
    uint8_t size, halved; /* halved: the kernel doubles what it is told */
} options[OPTIONS] = {{SO_SNDBUF, 4, 1},
                      {SO_RCVBUF, 4, 1},
                      {SO_PASSCRED, 4, 0},
                      {SO_SNDTIMEO, 16, 0},
                      {SO_RCVTIMEO, 16, 0}};

static void read_option(int socket, int which, int32_t *value)
{
    uint32_t size = options[which].size;
    SYS_5(SYS_getsockopt, socket, SOL_SOCKET, options[which].name, value, &size);
}

void unix_learn_options(struct supervisor *self)
{
    int own = (int)SYS_3(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (int i = 0; i < OPTIONS; i++) {
        read_option(own, i, self->options[i]);
    }
    tree_drop(own);
}

static void copy_options(const struct supervisor *self, const struct connect *connect, int own)
{
    for (int i = 0; i < OPTIONS; i++) {
        int32_t value[4] = {0};
        read_option(connect->socket, i, value);
        if (memcmp(value, self->options[i], sizeof value) != 0) {
            value[0] = options[i].halved ? value[0] / 2 : value[0];
            SYS_5(SYS_setsockopt, own, SOL_SOCKET, options[i].name, value, options[i].size);
        }
    }
    if (!(connect->flags & O_NONBLOCK)) {
        SYS_3(SYS_fcntl, own, F_SETFL, connect->flags);
    }
}

static int replace(const struct supervisor *self, const struct ward *ward,
                   const struct connect *connect, int own)
{
    int64_t flags = fdinfo_number(self->proc, (uint64_t)connect->pid, connect->fd, "flags:", 8);
    struct seccomp_notif_addfd order = {.id = connect->id,
                                        .flags = SECCOMP_ADDFD_FLAG_SETFD,
                                        .srcfd = (uint32_t)own,
                                        .newfd = (uint32_t)connect->fd};
    if (flags == -EACCES) {
        flags = O_CLOEXEC; /* a process that is not dumpable does not show it */
    }
    if (flags < 0) {
        return -EPERM;
    }
    order.newfd_flags = flags & O_CLOEXEC ? O_CLOEXEC : 0;
    copy_options(self, connect, own);
    long fd;
    do { /* by the supervisor's clock: then it has not been done */
        fd = SYS_3(SYS_ioctl, ward->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &order);
    } while (fd == -EINTR);
    return fd < 0 ? -EPERM : 0;
}

/* As the kernel answers before it looks at the address. */
static int check_state(const struct connect *connect)
{
    uint8_t name[ADDRESS_BYTES];
    uint32_t size = sizeof name, flag_size = sizeof(int32_t);
    int32_t listens = 0;
    uint16_t family = 0;
    memcpy(&family, connect->address, sizeof family);
    if (connect->type != SOCK_STREAM && connect->type != SOCK_SEQPACKET) {
        return -EPERM; /* a datagram socket of the caller's: it would reach anybody */
    }
    if (connect->size <= PATH || connect->size > sizeof(struct sockaddr_un) || family != AF_UNIX) {
        return -EINVAL;
    }
    if (SYS_3(SYS_getpeername, connect->socket, name, &size) == 0) {
        return -EISCONN;
    }
    SYS_5(SYS_getsockopt, connect->socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag_size);
    return listens ? -EINVAL : 0;
}

int unix_connect(struct supervisor *self, const struct ward *ward, struct connect *connect)
{
    int error = check_state(connect);
    if (error) {
        return error;
    }
    int kind = connect->type | SOCK_CLOEXEC | SOCK_NONBLOCK;
    int own = (int)SYS_3(SYS_socket, AF_UNIX, kind, 0);
    if (own < 0) {
        return -EPERM;
    }
    if (connect->address[PATH]) {
        error = connect_path(self, ward, connect, own);
    } else {
        error = connect_name(self, connect, own);
    }
    if (error == 0 && !connect->named && !is_ours(own)) {
        connect->outside = 1;
        error = -EPERM;
    }
    if (error == 0) {
        error = replace(self, ward, connect, own);
    }
    SYS_1(SYS_close, own);
    return error == -EAGAIN && !(connect->flags & O_NONBLOCK) ? CONNECT_LATER : error;
}
