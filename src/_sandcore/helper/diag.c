/* Asking the kernel whether a socket of the file system is of this network: one of the host's is not,
 * and is not to notice that somebody has asked for it. */
#define _GNU_SOURCE
#include "supervisor.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/stat.h>
#include <linux/unix_diag.h>
#include <string.h>
#include <sys/socket.h>

enum { LISTENING = 10, ANSWER_BYTES = 8192 };

int diag_open(void)
{
    enum { SOCK_DIAG = 4 }; /* NETLINK_SOCK_DIAG */
    return (int)SYS_3(SYS_socket, AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, SOCK_DIAG);
}

/* Messages and attributes begin with their length, and the next one at a multiple of four. */
static size_t step(size_t length)
{
    return (length + 3) & ~(size_t)3;
}

/* Whether one message of the list is of this file. */
static int is_of(const uint8_t *message, size_t size, const struct unix_diag_vfs *wanted)
{
    struct nlattr head;
    struct unix_diag_vfs file;
    size_t at = sizeof(struct nlmsghdr) + sizeof(struct unix_diag_msg);
    for (; at + sizeof head <= size; at += step(head.nla_len)) {
        memcpy(&head, message + at, sizeof head);
        if (head.nla_len < sizeof head) {
            return 0;
        }
        if (head.nla_type == UNIX_DIAG_VFS && at + sizeof head + sizeof file <= size) {
            memcpy(&file, message + at + sizeof head, sizeof file);
            return file.udiag_vfs_ino == wanted->udiag_vfs_ino &&
                   file.udiag_vfs_dev == wanted->udiag_vfs_dev;
        }
    }
    return 0;
}

/* 1: it is in this part of the list; 0: not; -1: the list has ended. */
static int look_through(const uint8_t *part, size_t size, const struct unix_diag_vfs *wanted)
{
    struct nlmsghdr head;
    for (size_t at = 0; at + sizeof head <= size; at += step(head.nlmsg_len)) {
        memcpy(&head, part + at, sizeof head);
        if (head.nlmsg_type == NLMSG_DONE || head.nlmsg_type == NLMSG_ERROR ||
            head.nlmsg_len < sizeof head || head.nlmsg_len > size - at) {
            return -1;
        }
        if (is_of(part + at, head.nlmsg_len, wanted)) {
            return 1;
        }
    }
    return 0;
}

/* The kernel's list has the lower half of inode numbers. What is taken for this network's though it is
 * not is refused later, by its owner. */
static int is_listed(const struct supervisor *self, const struct unix_diag_vfs *wanted)
{
    static uint8_t answer[ANSWER_BYTES] __attribute__((aligned(8)));
    struct {
        struct nlmsghdr header;
        struct unix_diag_req body;
    } request = {.header = {.nlmsg_len = sizeof request,
                            .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                            .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                 .body = {.sdiag_family = AF_UNIX,
                          .udiag_states = 1u << LISTENING,
                          .udiag_show = UDIAG_SHOW_VFS}};
    if (SYS_6(SYS_sendto, self->diag, &request, sizeof request, 0, 0, 0) < 0) {
        return 0;
    }
    int found = 0;
    for (;;) {
        long size = SYS_6(SYS_recvfrom, self->diag, answer, sizeof answer, MSG_DONTWAIT, 0, 0);
        int part = size < 0 ? -1 : look_through(answer, (size_t)size, wanted);
        if (part < 0) {
            return found;
        }
        found |= part;
    }
}

/* The number alone would not do: commands choose those of their own files, by making many. The device
 * is not always what stat says (btrfs, overlays): then the mount tells it. */
static int is_here(const struct supervisor *self, const struct connect *connect, int place,
                   const struct statx *file)
{
    int64_t inode = fdinfo_number(self->proc, 1, place, "ino:", 10);
    struct unix_diag_vfs wanted = {.udiag_vfs_ino = (uint32_t)inode,
                                   .udiag_vfs_dev = file->stx_dev_major << DEVICE_MINOR_BITS |
                                                    file->stx_dev_minor};
    if (inode < 0 || is_listed(self, &wanted)) {
        return inode >= 0;
    }
    int64_t mount = fdinfo_number(self->proc, 1, place, "mnt_id:", 10);
    int64_t device = mount_device(self->proc, (uint64_t)connect->pid, (uint64_t)mount);
    if (mount < 0 || device < 0 || (uint32_t)device == wanted.udiag_vfs_dev) {
        return 0;
    }
    wanted.udiag_vfs_dev = (uint32_t)device;
    return is_listed(self, &wanted);
}

int diag_listens_here(struct supervisor *self, const struct connect *connect, int place,
                      const struct statx *file)
{
    const struct known_socket one = {
        .device = (uint64_t)file->stx_dev_major << 32 | file->stx_dev_minor,
        .inode = file->stx_ino,
        .born_s = file->stx_btime.tv_sec,
        .born_ns = file->stx_btime.tv_nsec,
    };
    int timed = (file->stx_mask & STATX_BTIME) != 0;
    for (uint32_t i = 0; timed && i < KNOWN_SOCKETS; i++) {
        if (memcmp(&self->known[i], &one, sizeof one) == 0) {
            return 1;
        }
    }
    int here = is_here(self, connect, place, file);
    if (here && timed) {
        self->known[self->next_known++ % KNOWN_SOCKETS] = one;
    }
    return here;
}
