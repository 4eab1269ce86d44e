/* The floor: what starting and reaping a program costs at least. vfork, execve, waitid; no library,
 * no result. Prints the nanoseconds of each of COUNT runs of PROGRAM, IN_FLIGHT at a time (1). */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1024 };

static struct running {
    pid_t pid;
    long began;
} running[MOST];

static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int start(struct running *one, char **words)
{
    char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    one->began = now();
    one->pid = vfork();
    if (one->pid == 0) {
        execve(words[0], words, environment);
        _exit(127);
    }
    return one->pid < 0;
}

/* The one that ended first, -1: it could not be run. */
static int end(int in_flight, long *took)
{
    siginfo_t ended;
    if (waitid(P_ALL, 0, &ended, WEXITED) < 0 || ended.si_status == 127) {
        return -1;
    }
    for (int i = 0; i < in_flight; i++) {
        if (running[i].pid == ended.si_pid) {
            *took = now() - running[i].began;
            return i;
        }
    }
    return -1;
}

int main(int argc, char **argv)
{
    int in_flight = 1, next = 1;
    long begun = 0;
    if (argc > 2 && strcmp(argv[1], "-n") == 0) {
        in_flight = atoi(argv[2]);
        next = 3;
    }
    if (argc < next + 2 || in_flight < 1 || in_flight > MOST) {
        fprintf(stderr, "usage: floor [-n IN_FLIGHT] COUNT PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    long count = atol(argv[next]), took;
    char **words = argv + next + 1;
    for (; begun < in_flight && begun < count; begun++) {
        if (start(&running[begun], words)) {
            perror("vfork");
            return 1;
        }
    }
    for (long left = count; left > 0; left--) {
        int i = end(in_flight, &took);
        if (i < 0 || (begun < count && start(&running[i], words))) {
            perror(words[0]);
            return 1;
        }
        begun++;
        printf("%ld\n", took);
    }
    return 0;
}
