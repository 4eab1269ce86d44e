/* Asking the kernel whether a socket of the file system is one of the sandbox's: one of the host's is
 * not to notice that somebody has asked for it. In a network of the sandbox's own the kernel's list has
 * no others; in the host's it has those too, and who has them open is looked at. */
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

enum { LISTENING = 10, ANSWER_BYTES = 8192, ALIKE = 16 };

/* The sockets, by their own numbers, whose files have one number (the kernel lists half of it), or that
 * have one name. */
struct alike {
    uint32_t inode, device;
    const uint8_t *name; /* NULL: by inode */
    size_t name_size;
    uint32_t count;
    uint32_t sockets[ALIKE];
};

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

/* One attribute of a message of the list, or NULL; *size is its length from there. */
static const uint8_t *find(const uint8_t *message, size_t end, uint16_t type, size_t *size)
{
    struct nlattr head;
    size_t at = sizeof(struct nlmsghdr) + sizeof(struct unix_diag_msg);
    for (; at + sizeof head <= end; at += step(head.nla_len)) {
        memcpy(&head, message + at, sizeof head);
        if (head.nla_len < sizeof head || head.nla_len > end - at) {
            return 0;
        }
        if (head.nla_type == type) {
            *size = head.nla_len - sizeof head;
            return message + at + sizeof head;
        }
    }
    return 0;
}

static int is_alike(const uint8_t *message, size_t end, const struct alike *alike)
{
    size_t size = 0;
    struct unix_diag_vfs file;
    if (alike->name) {
        const uint8_t *name = find(message, end, UNIX_DIAG_NAME, &size);
        return name && size == alike->name_size && memcmp(name, alike->name, size) == 0;
    }
    const uint8_t *found = find(message, end, UNIX_DIAG_VFS, &size);
    if (found == 0 || size < sizeof file) {
        return 0;
    }
    memcpy(&file, found, sizeof file);
    return file.udiag_vfs_ino == alike->inode && file.udiag_vfs_dev == alike->device;
}

static void add(struct alike *alike, const uint8_t *message)
{
    struct unix_diag_msg body;
    memcpy(&body, message + sizeof(struct nlmsghdr), sizeof body);
    if (alike->count < ALIKE) {
        alike->sockets[alike->count++] = body.udiag_ino;
    }
}

/* One part of the list; false when it has ended. */
static int look_through(const uint8_t *part, size_t size, struct alike *alike)
{
    struct nlmsghdr head;
    for (size_t at = 0; at + sizeof head <= size; at += step(head.nlmsg_len)) {
        memcpy(&head, part + at, sizeof head);
        if (head.nlmsg_type == NLMSG_DONE || head.nlmsg_type == NLMSG_ERROR ||
            head.nlmsg_len < sizeof head || head.nlmsg_len > size - at) {
            return 0;
        }
        if (is_alike(part + at, head.nlmsg_len, alike)) {
            add(alike, part + at);
        }
    }
    return 1;
}

/* The kernel's list has the lower half of inode numbers. What is taken for this network's though it is
 * not is refused later, by its owner. */
static void list(const struct supervisor *self, struct alike *alike)
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
                          .udiag_show = UDIAG_SHOW_VFS | UDIAG_SHOW_NAME}};
    if (SYS_6(SYS_sendto, self->diag, &request, sizeof request, 0, 0, 0) < 0) {
        return;
    }
    long size;
    do {
        size = SYS_6(SYS_recvfrom, self->diag, answer, sizeof answer, MSG_DONTWAIT, 0, 0);
    } while (size >= 0 && look_through(answer, (size_t)size, alike));
}

/* With the rights to look at processes that do not want it, which are not the command's. */
static int is_held(const struct supervisor *self, const struct alike *alike)
{
    rights_take(self);
    int held = holders_have(self, alike->sockets, alike->count);
    return rights_drop(self) == 0 && held;
}

/* The number alone would not do: commands choose those of their own files, by making many. The device
 * is not always what stat says (btrfs, overlays): then the mount tells it. */
static int is_here(const struct supervisor *self, const struct connect *connect, int place,
                   const struct statx *file)
{
    int64_t inode = fdinfo_number(self->proc, 1, place, "ino:", 10);
    struct alike alike = {.inode = (uint32_t)inode,
                          .device = file->stx_dev_major << DEVICE_MINOR_BITS | file->stx_dev_minor};
    if (inode < 0) {
        return 0;
    }
    list(self, &alike);
    if (alike.count == 0) {
        int64_t mount = fdinfo_number(self->proc, 1, place, "mnt_id:", 10);
        int64_t device = mount_device(self->proc, (uint64_t)connect->pid, (uint64_t)mount);
        if (mount < 0 || device < 0 || (uint32_t)device == alike.device) {
            return 0;
        }
        alike.device = (uint32_t)device;
        list(self, &alike);
    }
    return alike.count > 0 && (!self->shares_network || is_held(self, &alike));
}

int diag_listens_here(struct supervisor *self, const struct connect *connect, int place,
                      const struct statx *file)
{
    const struct known_socket one = {
        .device = device_of(file),
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

int diag_look_for_name(const struct supervisor *self, const uint8_t *name, size_t size)
{
    struct alike alike = {.name = name, .name_size = size};
    if (!self->shares_network) {
        return 0; /* connecting says whether anybody has the name */
    }
    list(self, &alike);
    if (alike.count == 0) {
        return -ECONNREFUSED;
    }
    return is_held(self, &alike) ? 0 : -EPERM;
}
