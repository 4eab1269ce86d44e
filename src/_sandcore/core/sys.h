/* System calls without a C library.
 *
 * Everything that runs between clone and exec, and everything in sandcore-helper, goes through here:
 * no errno (it lives in thread-local storage that a vforked child shares with its parent), no
 * cancellation points, no locks. Results are the kernel's own: a value, or a negative errno. */
#ifndef SANDCORE_SYS_H
#define SANDCORE_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

/* Instrumented code must not run on a stack, or in a child, that the sanitizer does not know. */
#define SYS_UNINSTRUMENTED __attribute__((no_sanitize("address", "undefined")))

#if defined(__x86_64__)
static inline long sys_call(long nr, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static inline long sys_call(long nr, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "sandcore knows x86_64 and aarch64"
#endif

#define SYS_0(nr) sys_call(nr, 0, 0, 0, 0, 0, 0)
#define SYS_1(nr, a) sys_call(nr, (long)(a), 0, 0, 0, 0, 0)
#define SYS_2(nr, a, b) sys_call(nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define SYS_3(nr, a, b, c) sys_call(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS_4(nr, a, b, c, d) sys_call(nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define SYS_5(nr, a, b, c, d, e)                                                                   \
    sys_call(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define SYS_6(nr, a, b, c, d, e, f)                                                                \
    sys_call(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* Numbers that older kernel headers lack; the same on both architectures. */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_move_mount 429
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

/* The kernel's struct sigaction, not the C library's; and the size of its sets of signals. */
enum { KERNEL_SIGSET_BYTES = 8, KERNEL_SA_RESTORER = 0x04000000 };
struct kernel_sigaction {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void); /* with KERNEL_SA_RESTORER */
    uint64_t mask;
};

/* Clones with a stack of the child's own and runs entry(argument) there; the child ends with what
 * entry returns. A vforked child on its parent's stack would overwrite frames that the compiler
 * believes untouched, hence the second stack. pidfd may be NULL when flags lack CLONE_PIDFD. `tls`
 * means nothing to the kernel (flags lack CLONE_SETTLS), but a filter sees it. */
long sys_clone(unsigned long flags, void *stack_top, int *pidfd, unsigned long tls,
               int (*entry)(void *), void *argument);

#endif
