/* Nanoseconds of what programs do all the time, inside of whatever this is run in. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 2000, SPAWNS = 20, ROUNDS = 3 };

static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void act(int what)
{
    struct stat found;
    switch (what) {
    case 0:
        stat("/usr/bin/env", &found);
        break;
    case 1:
        close(open("/usr/bin/env", O_RDONLY));
        break;
    case 2:
        close(open("inner-file", O_CREAT | O_WRONLY, 0600));
        unlink("inner-file");
        break;
    default:
        if (vfork() == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(127);
        }
        wait(NULL);
    }
}

int main(void)
{
    static const char *const names[] = {"stat", "open", "create", "spawn"};
    for (int what = 0; what < 4; what++) {
        int count = what == 3 ? SPAWNS : CALLS;
        long best = 0;
        for (int round = 0; round < ROUNDS; round++) {
            long began = now();
            for (int i = 0; i < count; i++) {
                act(what);
            }
            long took = (now() - began) / count;
            best = best == 0 || took < best ? took : best;
        }
        printf("%s %ld\n", names[what], best);
    }
    return 0;
}
