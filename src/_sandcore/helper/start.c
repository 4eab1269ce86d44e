/* Where the kernel enters the program: no C library, so no crt0. */
#include "helper.h"

__attribute__((noreturn, used)) static void enter(void)
{
    root_main();
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tand $-16, %rsp\n\tcall enter\n\thlt\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start:\n\tmov x29, #0\n\tbl enter\n\tbrk #1\n");
#endif
