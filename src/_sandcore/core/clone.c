/* The one piece of assembly: clone(2) onto another stack. */
#include "sys.h"

#if defined(__x86_64__)
SYS_UNINSTRUMENTED long sys_clone(unsigned long flags, void *stack_top, int *pidfd,
                                  unsigned long tls, int (*entry)(void *), void *argument)
{
    /* The child pops these two, which leaves its stack aligned as a call expects. */
    void **stack = (void **)((uintptr_t)stack_top & ~(uintptr_t)15);
    *--stack = (void *)(uintptr_t)entry;
    *--stack = argument;
    long result;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = (long)tls;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "pop %%rdi\n\t"
                     "pop %%rax\n\t"
                     "call *%%rax\n\t"
                     "mov %%eax, %%edi\n\t"
                     "mov %[exit], %%eax\n\t"
                     "syscall\n\t"
                     "hlt\n"
                     "1:"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"(flags), "S"(stack), "d"(pidfd), "r"(r10),
                       "r"(r8), [exit] "i"(SYS_exit_group)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
SYS_UNINSTRUMENTED long sys_clone(unsigned long flags, void *stack_top, int *pidfd,
                                  unsigned long tls, int (*entry)(void *), void *argument)
{
    void **stack = (void **)((uintptr_t)stack_top & ~(uintptr_t)15);
    *--stack = (void *)(uintptr_t)entry;
    *--stack = argument;
    register long x8 __asm__("x8") = SYS_clone;
    register long x0 __asm__("x0") = (long)flags;
    register long x1 __asm__("x1") = (long)stack;
    register long x2 __asm__("x2") = (long)pidfd;
    register long x3 __asm__("x3") = (long)tls;
    register long x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, #0\n\t"
                     "ldp x0, x1, [sp], #16\n\t"
                     "blr x1\n\t"
                     "mov x8, %[exit]\n\t"
                     "svc 0\n\t"
                     "brk #1\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), [exit] "i"(SYS_exit_group)
                     : "memory", "x30");
    return x0;
}
#endif
