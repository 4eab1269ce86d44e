/* Where the kernel enters the program: no C library, so no crt0. The stack has argc, argv, envp. */
#include "launcher.h"

__attribute__((noreturn, used)) static void enter(char **stack)
{
    launcher_main(stack);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\t"
        "call enter\n\thlt\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n\tmov x29, #0\n\tmov x0, sp\n\tbl enter\n\tbrk #1\n");
#endif
