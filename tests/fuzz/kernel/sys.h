/* In the place of core/sys.h for files of the helper: its system calls come to a function of the
 * fuzz program, which answers itself or asks the real kernel. Files of the core find their own. */
#ifndef SANDCORE_FUZZ_SYS_H
#define SANDCORE_FUZZ_SYS_H

#define sys_call sys_call_real
#include "../../../src/_sandcore/core/sys.h"
#undef sys_call

long sys_call(long nr, long a, long b, long c, long d, long e, long f);

#endif
