"""Attempts to make the supervisor of connects sleep: all connects of a sandbox wait for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from casekit import cc
from spacekit import space

# A child connects to a server that answers, and takes the time; threads do the mischief meanwhile:
# "flag" takes O_NONBLOCK from a socket that connects to a server whose queue is full; "linger" lets
# go of a socket with unsent data that is being connected once more, so that who else has it closes
# it, for as long as the socket lingers.
CODE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 4, LINGER = 30, QUEUE = 4000, MANY = 3000 };
static volatile int current = -1;
static double end;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static void ring(int number) { (void)number; }

static int server(struct sockaddr_in *at, int backlog)
{
    int listening = socket(AF_INET, SOCK_STREAM, 0), small = 2048;
    setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    socklen_t size = sizeof *at;
    memset(at, 0, size);
    at->sin_family = AF_INET;
    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listening, (void *)at, size);
    listen(listening, backlog);
    getsockname(listening, (void *)at, &size);
    return listening;
}

static void serve(int listening)
{
    fcntl(listening, F_SETFL, O_NONBLOCK);
    while (now() < end + 30 && getppid() != 1) {
        int one = accept(listening, 0, 0);
        if (one >= 0) close(one); else usleep(500);
    }
    _exit(0);
}

static void take_times(const struct sockaddr_in *at, int out)
{
    double worst = 0;
    while (now() < end) {
        int one = socket(AF_INET, SOCK_STREAM, 0);
        double began = now();
        connect(one, (void *)at, sizeof *at);
        worst = now() - began > worst ? now() - began : worst;
        close(one);
        usleep(1000);
    }
    write(out, &worst, sizeof worst);
    _exit(0);
}

static void *take_flag(void *unused)
{
    while (now() < end)
        for (int i = 0; i < 1000; i++) {
            int fd = current;
            if (fd >= 0) fcntl(fd, F_SETFL, 0);
        }
    return unused;
}

static int flags(const struct sockaddr_in *full)
{
    int tries = 0;
    pthread_t thread;
    struct itimerval clock = {{0, 2000}, {0, 2000}}, none = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = ring};
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigaction(SIGALRM, &action, 0);
    pthread_sigmask(SIG_BLOCK, &alarms, 0);
    pthread_create(&thread, 0, take_flag, 0);
    pthread_sigmask(SIG_UNBLOCK, &alarms, 0);
    setitimer(ITIMER_REAL, &clock, 0);
    for (; now() < end; tries++) {
        int one = socket(AF_INET, SOCK_STREAM, 0);
        current = one;
        connect(one, (void *)full, sizeof *full);
        current = -1;
        close(one);
    }
    setitimer(ITIMER_REAL, &none, 0);
    return tries;
}

static void *let_go(void *fd)
{
    int one = (int)(long)fd;
    for (volatile int i = rand() % 30000; i > 0; i--) ;
    close(one);
    return 0;
}

static int lingering(const struct sockaddr_in *mute)
{
    int tries = 0, small = 4096;
    struct linger linger = {1, LINGER};
    static char data[65536];
    for (; now() < end && tries < MANY; tries++) {
        pthread_t thread;
        int one = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(one, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
        if (connect(one, (void *)mute, sizeof *mute) < 0) { close(one); usleep(1000); continue; }
        do {
            while (send(one, data, sizeof data, MSG_DONTWAIT) > 0) ;
            usleep(200); /* what the other end has no room for stays */
        } while (send(one, data, sizeof data, MSG_DONTWAIT) > 0);
        setsockopt(one, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        pthread_create(&thread, 0, let_go, (void *)(long)one);
        pthread_detach(thread);
        connect(one, (void *)mute, sizeof *mute);
    }
    return tries;
}

int main(int count, char **words)
{
    struct sockaddr_in good, bad;
    int out[2], flag = words[1][0] == 'f', listening = server(&good, QUEUE);
    double worst = -1;
    (void)count;
    end = now() + SECONDS;
    server(&bad, flag ? 0 : QUEUE);
    for (int i = 0; flag && i < 3; i++)
        connect(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), (void *)&bad, sizeof bad);
    pipe(out);
    if (fork() == 0) serve(listening);
    if (fork() == 0) take_times(&good, out[1]);
    int tries = flag ? flags(&bad) : lingering(&bad);
    read(out[0], &worst, sizeof worst);
    printf("%d %.3f\n", tries > 100, worst);
    fflush(stdout);
    _exit(0);
}
"""


def a_command_cannot_put_the_supervisor_to_sleep(w: Path, o: Path) -> None:
    program = cc(CODE, w / "sleeps")
    for what in ("flag", "linger"):
        said = subprocess.check_output([program, what], text=True)
        assert said.split()[0] == "1", said
        with space(w) as box:
            result = box.run([str(program), what], timeout=80)
            assert result.out.split()[0] == "1", result.text
            assert 0 <= float(result.out.split()[1]) < 5, result.text
