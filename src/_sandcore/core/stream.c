/* One pipe; stream.h has the theory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_SETPIPE_SZ */
#endif
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
    SOURCE_TURN = 512 * 1024,   /* bytes in one turn, about: under 1 ms of work */
    SOURCE_FLOOD = 1024 * 1024, /* a source that gave more than this is a flood */
    SOURCE_PIPE = 512 * 1024,   /* and gets a pipe of this size */
};

void stream_close(int *fd, int set)
{
    if (*fd >= 0 && set >= 0) {
        epoll_ctl(set, EPOLL_CTL_DEL, *fd, NULL);
    }
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

/* Checks one stream fd and makes it non-blocking. A fresh pipe end has no other status flags, so
 * they need not be read first. */
int stream_prepare(int fd)
{
    if (fd == -1) {
        return 0;
    }
    if (fd < 0) {
        return -EBADF;
    }
    return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* A flood gets a larger pipe, so that the producer sleeps less often and both sides can work at the
 * same time; 1 MiB was no better, and would use up sooner what an ordinary user may have in pipes
 * (64 MiB). What is left beside `cat > /dev/null` is the ring: written over and over it has to
 * stay in the caches (copying through 1 MiB of it costs 1.06 of copying into one hot block,
 * through 5 MiB 1.2). Failure (that limit; not a pipe) changes nothing. */
static void source_widen(struct source *s)
{
    s->flood = true;
    (void)fcntl(s->fd, F_SETPIPE_SZ, (int)SOURCE_PIPE);
}

/* Takes what is there, about `most` bytes; closes at the end of the stream. Returns the bytes
 * taken or a negative errno. A read that returned less than asked has emptied the pipe (or took
 * one packet): what comes next is told by poll, except in a flood, where the next bytes are there
 * before poll could say so. */
static int64_t source_take(struct source *s, size_t most)
{
    size_t taken = 0;

    while (taken < most) {
        uint8_t *where;
        size_t room;
        ssize_t n;
        int err = buffer_room(&s->kept, &where, &room);

        if (err < 0) {
            return err;
        }
        if (room > most - taken) {
            room = most - taken;
        }
        n = read(s->fd, where, room);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return -errno;
        }
        if (n == 0) {
            stream_close(&s->fd, s->set);
        }
        if (n <= 0) {
            break;
        }
        buffer_commit(&s->kept, (size_t)n);
        taken += (size_t)n;
        if (!s->flood && (size_t)n < room) {
            break;
        }
    }
    if (!s->flood && s->fd >= 0 && s->kept.total > SOURCE_FLOOD) {
        source_widen(s);
    }
    return (int64_t)taken;
}

int64_t source_turn(struct source *s, short revents)
{
    if (revents & POLLNVAL) {
        return -EBADF;
    }
    if (revents & POLLIN) {
        return source_take(s, SOURCE_TURN);
    }
    if (revents != 0) { /* POLLHUP or POLLERR alone: empty, and no writer is left */
        stream_close(&s->fd, s->set);
    }
    return 0;
}

int source_drain(struct source *s)
{
    int left = 0;

    if (s->fd < 0) {
        return 0;
    }
    if (ioctl(s->fd, FIONREAD, &left) < 0) {
        return -errno;
    }
    while (left > 0 && s->fd >= 0) {
        int64_t n = source_take(s, (size_t)left);

        if (n < 0) {
            return (int)n;
        }
        if (n == 0) {
            break;
        }
        left -= (int)n;
    }
    return 0;
}

/* write that cannot raise SIGPIPE in the caller, whatever it does with that signal: blocked in
 * this thread for the moment, and taken out of the pending set if we put it there. One that was
 * pending before stays. */
static ssize_t write_quietly(int fd, const uint8_t *data, size_t len)
{
    static const struct timespec at_once = {0, 0};
    sigset_t pipe_set;
    sigset_t old;
    sigset_t pending;
    bool was_pending;
    ssize_t n;
    int err;

    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
    was_pending =
        sigismember(&old, SIGPIPE) && sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE);
    n = write(fd, data, len);
    err = errno;
    if (n < 0 && err == EPIPE && !was_pending) {
        while (sigtimedwait(&pipe_set, NULL, &at_once) < 0 && errno == EINTR)
            ;
    }
    if (!sigismember(&old, SIGPIPE)) {
        pthread_sigmask(SIG_UNBLOCK, &pipe_set, NULL);
    }
    errno = err;
    return n;
}

/* One write fills a pipe. */
int sink_feed(struct sink *s)
{
    ssize_t n = write_quietly(s->fd, s->data, s->left);

    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR) {
            return 0;
        }
        if (errno != EPIPE) {
            return -errno;
        }
        s->left = 0; /* the command does not want the rest */
    } else {
        s->data += n;
        s->left -= (size_t)n;
    }
    if (s->left == 0) {
        stream_close(&s->fd, s->set);
    }
    return 0;
}

int sink_turn(struct sink *s, short revents)
{
    if (revents & POLLNVAL) {
        return -EBADF;
    }
    if (revents & POLLERR) { /* nobody reads any more; not writing saves a SIGPIPE */
        stream_close(&s->fd, s->set);
        return 0;
    }
    return sink_feed(s);
}
