/* Files for the caller, reached by a lane: with the view, the identity and the rights of a command.
 *
 * The caller reads and writes what it gets a fd of, so nothing may come to it that is no plain file or
 * directory, and nothing that is the lane's own. Commands choose what lies at a path, and change it at
 * any moment; so it is looked at twice: by O_PATH before it is opened, because to open a FIFO or a
 * device already does something, and once more when it is open, because that is what the caller gets.
 * Whatever was put there between the two is opened as the command could have opened it itself.
 *
 * What a name in /proc leads to depends on who asks, and here a lane asks: its memory, its fds. So no
 * magic link is followed and nothing is opened there. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"
#include "tree.h"

#include <asm/statfs.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <linux/stat.h>

/* What is opened, and how. Never to wait (a lease, a FIFO that was put there meanwhile), and never a
 * terminal of ours. */
static const unsigned open_always = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

static const struct way {
    unsigned flags;
    int type; /* what it must be; 0: anything */
} ways[WIRE_FILE_KINDS] = {
    [WIRE_FILE_LOOK] = {O_PATH, 0},
    [WIRE_FILE_PLACE] = {O_PATH | O_DIRECTORY, S_IFDIR},
    [WIRE_FILE_LIST] = {O_RDONLY | O_DIRECTORY, S_IFDIR},
    [WIRE_FILE_READ] = {O_RDONLY, S_IFREG},
    [WIRE_FILE_WRITE] = {O_WRONLY, S_IFREG},
    [WIRE_FILE_APPEND] = {O_WRONLY | O_APPEND, S_IFREG},
    [WIRE_FILE_CREATE] = {O_WRONLY, S_IFREG},
};

static int open_at(int directory, const char *path, unsigned flags, uint32_t mode, uint64_t resolve)
{
    struct open_how how = {.flags = flags, .mode = mode, .resolve = resolve};
    return (int)SYS_4(SYS_openat2, directory, path, &how, sizeof how);
}

/* Zero when the caller may have what a fd is on. */
static int check(int fd, int wanted)
{
    struct statfs system = {0};
    int type = tree_type(fd);
    if (type < 0 || wanted == 0) {
        return type < 0 ? type : 0;
    }
    if (type != wanted) {
        return type == S_IFDIR     ? -EISDIR
               : type == S_IFLNK   ? -ELOOP
               : wanted == S_IFDIR ? -ENOTDIR
                                   : -EPERM;
    }
    long error = SYS_2(SYS_fstatfs, fd, &system);
    return error ? (int)error : system.f_type == PROC_SUPER_MAGIC ? -EPERM : 0;
}

/* Gives back the fd, or what is wrong with what it is on. */
static int checked(int fd, int wanted)
{
    int error = fd < 0 ? fd : check(fd, wanted);
    if (error && fd >= 0) {
        SYS_1(SYS_close, fd);
    }
    return error ? error : fd;
}

/* A directory is shown with what its names are, which takes the right to search it. */
static int searchable(int fd)
{
    int place = open_at(fd, ".", O_PATH | O_CLOEXEC, 0, 0);
    if (place >= 0) {
        SYS_1(SYS_close, place);
        return fd;
    }
    SYS_1(SYS_close, fd);
    return place;
}

/* Not through a link that leads nowhere: where to would be a command's choice. */
static int create(const struct wire_file *file, int directory, const char *path)
{
    unsigned flags = ways[file->what].flags | open_always | O_CREAT | O_EXCL;
    int fd = open_at(directory, path, flags, file->mode, RESOLVE_NO_MAGICLINKS);
    return checked(fd, S_IFREG);
}

static int reach(const struct wire_file *file, int directory, const char *path)
{
    const struct way *way = &ways[file->what];
    unsigned link = file->flags & WIRE_FILE_NO_LINK ? O_NOFOLLOW : 0;
    unsigned look = (way->flags & O_DIRECTORY) | O_PATH | O_CLOEXEC | link;
    if (file->what == WIRE_FILE_CREATE) {
        return create(file, directory, path);
    }
    int place = open_at(directory, path, look, 0, RESOLVE_NO_MAGICLINKS);
    if (place == -ENOENT && file->what >= WIRE_FILE_WRITE) {
        int made = create(file, directory, path);
        return made == -EEXIST ? -ENOENT : made;
    }
    place = checked(place, way->type);
    if (place < 0 || way->flags & O_PATH) {
        return place;
    }
    SYS_1(SYS_close, place);
    int fd = open_at(directory, path, way->flags | open_always | link, 0, RESOLVE_NO_MAGICLINKS);
    fd = checked(fd, way->type);
    return fd >= 0 && file->what == WIRE_FILE_LIST ? searchable(fd) : fd;
}

void files_serve(int socket, const struct request *request)
{
    const struct wire_file *file = request->file;
    const char *path = (const char *)(file + 1);
    int here = (file->flags & WIRE_FILE_HERE) != 0;
    int directory = here ? request->fds[0] : AT_FDCWD;
    int32_t fd = -1;
    int error = wire_check_file(file, path, request->path_bytes);
    if (error == 0 && here && directory < 0) {
        error = -EBADF;
    }
    if (error == 0) {
        switch (file->what) {
        case WIRE_FILE_MAKE:
            error = (int)SYS_3(SYS_mkdirat, directory, path, file->mode);
            break;
        case WIRE_FILE_REMOVE:
            error = (int)SYS_3(SYS_unlinkat, directory, path, 0);
            break;
        case WIRE_FILE_CLEAR:
            error = (int)SYS_3(SYS_unlinkat, directory, path, AT_REMOVEDIR);
            break;
        default:
            fd = reach(file, directory, path);
            error = fd < 0 ? fd : 0;
        }
    }
    struct wire_reply reply = {.kind = WIRE_FILED, .status = -error};
    helper_send(socket, &reply, &fd, fd >= 0);
    if (fd >= 0) {
        SYS_1(SYS_close, fd);
    }
}
