/* Connects of internet sockets: the command's own socket, with the address that was copied. */
#define _GNU_SOURCE
#include "supervisor.h"
#include "sys.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

/* The number of a socket's network, which no other one has; 0: this kernel does not say. */
static uint64_t network_of(int socket)
{
    uint64_t cookie = 0;
    uint32_t size = sizeof cookie;
    long error = SYS_5(SYS_getsockopt, socket, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size);
    return error ? 0 : cookie;
}

uint64_t inet_own_network(void)
{
    int own = (int)SYS_3(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint64_t network = own < 0 ? 0 : network_of(own);
    tree_drop(own);
    return network;
}

/* A socket that the caller gave the command (its stdin, say) may be of the host's network. */
static int is_of_this_network(const struct supervisor *self, int socket)
{
    return self->shares_network || (self->network && network_of(socket) == self->network);
}

static long set_blocking(const struct connect *connect, int blocking)
{
    int flags = blocking ? connect->flags & ~O_NONBLOCK : connect->flags | O_NONBLOCK;
    return SYS_3(SYS_fcntl, connect->socket, F_SETFL, flags);
}

/* What the handshake in the loopback answered has been taken in when the first call returns, and is
 * seen by a second one. */
static long connect_at_once(const struct connect *connect)
{
    long error = SYS_3(SYS_connect, connect->socket, connect->address, connect->size);
    if (error == -EINPROGRESS && !(connect->flags & O_NONBLOCK)) {
        error = SYS_3(SYS_connect, connect->socket, connect->address, connect->size);
    }
    return error == -EINTR ? -EALREADY : error; /* its O_NONBLOCK was taken away meanwhile */
}

int inet_connect(const struct supervisor *self, struct connect *connect)
{
    int known =
        connect->domain == AF_INET || connect->domain == AF_INET6 || connect->domain == AF_NETLINK;
    if (!known || !is_of_this_network(self, connect->socket)) {
        return -EPERM;
    }
    int blocking = connect->type == SOCK_STREAM && !(connect->flags & O_NONBLOCK);
    if (blocking && set_blocking(connect, 0) < 0) {
        return -EPERM; /* the supervisor would sleep */
    }
    long error = rights_drop(self);
    if (error == 0) {
        error = connect_at_once(connect);
        rights_take(self);
    }
    if (blocking) {
        set_blocking(connect, 1);
    }
    int going_on = error == -EINPROGRESS || error == -EALREADY;
    return blocking && going_on ? CONNECT_LATER : (int)error;
}

/* ::, ::1, and IPv4 behind ::ffff:; 0.0.0.0 and 127. */
int inet_is_outside(const struct connect *connect)
{
    static const uint8_t zeros[15] = {0}, mapped[12] = {[10] = 0xff, [11] = 0xff};
    uint16_t family = 0;
    const uint8_t *four = connect->address + 4, *six = connect->address + 8;
    memcpy(&family, connect->address, sizeof family);
    if (family == AF_INET6) {
        if (memcmp(six, zeros, sizeof zeros) == 0 && six[15] <= 1) {
            return 0;
        }
        if (memcmp(six, mapped, sizeof mapped) != 0) {
            return 1;
        }
        four = six + 12;
    } else if (family != AF_INET) {
        return 0;
    }
    return four[0] != 127 && memcmp(four, zeros, 4) != 0;
}
