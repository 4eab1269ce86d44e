/* Installs a filter and tries system calls under it, each in a child of its own.
 *
 * trysyscall FILTER           reads attempts from stdin, prints one result a line
 * trysyscall FILTER CMD...    executes a command under the filter
 * FILTER is a file of struct sock_filter, or "-" for none (the control).
 *
 * An attempt is "KIND NUMBER A0 A1 A2 A3 A4 A5". KIND is native or i386 (int 0x80). An argument is
 * a number, P (a zeroed page), SELF or OTHER (a pid).
 * A result is "ok", the errno, or "signal N". Open in it: 10 and 11 a stream pair, 12 a terminal of
 * its own, 13 a memory file. The children are session leaders without a controlling terminal. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_INSNS 4096

static void fail(const char *what)
{
    perror(what);
    exit(99);
}

static void open_files(void)
{
    int pair[2];
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || dup2(pair[0], 10) < 0 ||
        dup2(pair[1], 11) < 0) {
        fail("socketpair");
    }
    if (master < 0 || grantpt(master) || unlockpt(master)) {
        fail("terminal");
    }
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (slave < 0 || dup2(slave, 12) < 0 || dup2(memfd_create("file", 0), 13) < 0) {
        fail("files");
    }
}

static void install(const char *path)
{
    static struct sock_filter insns[MAX_INSNS];
    if (strcmp(path, "-") == 0) {
        return;
    }
    FILE *file = fopen(path, "rb");
    if (!file) {
        fail(path);
    }
    size_t count = fread(insns, sizeof(insns[0]), MAX_INSNS, file);
    struct sock_fprog program = {(unsigned short)count, insns};
    fclose(file);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
        fail("no_new_privs");
    }
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) {
        fail("seccomp");
    }
}

static long argument(const char *text, char *page)
{
    if (strcmp(text, "P") == 0) {
        return (long)page;
    }
    if (strcmp(text, "SELF") == 0) {
        return getpid();
    }
    if (strcmp(text, "OTHER") == 0) {
        return getppid();
    }
    return (long)strtoull(text, NULL, 0);
}

static long call_i386(long nr, const long a[6])
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(nr), "b"(a[0]), "c"(a[1]), "d"(a[2]), "S"(a[3]), "D"(a[4])
                     : "memory", "r8", "r9", "r10", "r11");
    return (int)result;
#else
    (void)nr, (void)a;
    return -ENOSYS;
#endif
}

/* In the child: the result goes to shared memory; a child of a tried clone just ends. */
static void attempt(char *line, volatile long *result, char *page)
{
    char kind[16], number[32], text[6][32];
    long a[6];
    pid_t self = getpid();
    if (sscanf(line, "%15s %31s %31s %31s %31s %31s %31s %31s", kind, number, text[0], text[1],
               text[2], text[3], text[4], text[5]) != 8) {
        _exit(98);
    }
    for (int i = 0; i < 6; i++) {
        a[i] = argument(text[i], page);
    }
    long nr = (long)strtoll(number, NULL, 0), got;
    if (strcmp(kind, "i386") == 0) {
        got = call_i386(nr, a);
    } else {
        got = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
        got = got == -1 ? -errno : got;
    }
    if (syscall(SYS_getpid) != self) {
        _exit(0);
    }
    *result = got;
    _exit(0);
}

static void report(char *line, volatile long *result, char *page)
{
    int status;
    *result = -9999;
    memset(page, 0, 4096);
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        fail("fork");
    }
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        setsid();
        attempt(line, result, page);
    }
    if (waitpid(pid, &status, 0) != pid) {
        fail("waitpid");
    }
    if (WIFSIGNALED(status)) {
        printf("signal %d\n", WTERMSIG(status));
    } else if (WEXITSTATUS(status) != 0 || *result == -9999) {
        printf("broken %d\n", WEXITSTATUS(status));
    } else if (*result < 0) {
        printf("%ld\n", -*result);
    } else {
        printf("ok\n");
    }
}

int main(int argc, char **argv)
{
    static char line[512];
    if (argc < 2) {
        return 99;
    }
    if (argc > 2) {
        install(argv[1]);
        execvp(argv[2], argv + 2);
        fail(argv[2]);
    }
    char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        fail("mmap");
    }
    open_files();
    install(argv[1]);
    while (fgets(line, sizeof(line), stdin)) {
        report(line, (volatile long *)(void *)(shared + 4096), shared);
    }
    return 0;
}
