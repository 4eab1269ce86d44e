/* What a sandbox refuses: each line says what was tried and 1 where it was refused or had no effect.
 *
 *     probe OUTSIDE TCP_PORT UDP_PORT SOCKET ABSTRACT PID GIT SURVIVED
 *
 * Tried without a sandbox each of them succeeds, or it says nothing. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, int refused)
{
    printf("%s %d\n", what, refused != 0);
}

static int try_internet(int type, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, type, 0);
    if (fd < 0) {
        return 1;
    }
    if (type == SOCK_STREAM) {
        return connect(fd, (struct sockaddr *)&to, sizeof to) != 0;
    }
    sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to);
    return 0; /* whether it came is for the listener to say */
}

static int try_unix(const char *path, int abstract)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path + abstract, sizeof to.sun_path - 1, "%s", path);
    socklen_t size = abstract ? (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(path))
                              : sizeof to;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 || connect(fd, (struct sockaddr *)&to, size) != 0;
}

/* In a process of its own: some kill who asks. */
static int try_namespace(void)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(unshare(CLONE_NEWUSER) != 0);
    }
    waitpid(pid, &status, 0);
    return status;
}

/* One that leaves the tree, to write into the workspace later. */
static void leave_behind(const char *name)
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            int null = open("/dev/null", O_RDWR);
            for (int fd = 0; fd < 3; fd++) {
                dup2(null, fd);
            }
            usleep(1500000);
            close(open(name, O_CREAT | O_WRONLY, 0600));
        }
        _exit(0);
    }
}

int main(int argc, char **argv)
{
    char path[4096];
    if (argc != 9) {
        return 2;
    }
    snprintf(path, sizeof path, "%s/file", argv[1]);
    say("write", open(path, O_WRONLY) < 0);
    say("metadata", chmod(path, 0640) != 0);
    say("tcp", try_internet(SOCK_STREAM, atoi(argv[2])));
    try_internet(SOCK_DGRAM, atoi(argv[3]));
    say("unix", try_unix(argv[4], 0));
    say("abstract", try_unix(argv[5], 1));
    say("signal", kill(atoi(argv[6]), 0) != 0);
    say("env", getenv("BENCH_SECRET") == NULL);
    say("fd", fcntl(77, F_GETFD) < 0);
    snprintf(path, sizeof path, "%s/planted", argv[7]);
    say("git", open(path, O_CREAT | O_WRONLY, 0600) < 0);
    say("userns", try_namespace());
    say("secret", open("/etc/shadow", O_RDONLY) < 0);
    fflush(stdout);
    leave_behind(argv[8]);
    return 0;
}
