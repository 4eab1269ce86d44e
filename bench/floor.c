/* The floor: what starting and reaping a program costs at least. vfork, execve, waitid; no library,
 * no result. Prints the nanoseconds of each of COUNT runs of PROGRAM. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

int main(int argc, char **argv)
{
    char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    if (argc < 3) {
        fprintf(stderr, "usage: floor COUNT PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    for (long left = atol(argv[1]); left > 0; left--) {
        siginfo_t ended;
        long began = now();
        pid_t pid = vfork();
        if (pid == 0) {
            execve(argv[2], argv + 2, environment);
            _exit(127);
        }
        if (pid < 0 || waitid(P_PID, (id_t)pid, &ended, WEXITED) < 0 || ended.si_status == 127) {
            perror(argv[2]);
            return 1;
        }
        printf("%ld\n", now() - began);
    }
    return 0;
}
