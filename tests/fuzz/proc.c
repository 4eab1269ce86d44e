/* What a lane reads in /proc of the processes of its command, whose names are the command's own. An
 * input is what the files and directories there say. */
#include "fuzz.h"
#include "helper.h"
#include "kernel.h"

void fuzz_start(void) {}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct memory_watch watch;
    kernel_begin((struct fuzz_bytes){data, data + size});
    if (memory_open(&watch, 4096) == 0) {
        int exceeded = memory_look(&watch) | memory_look(&watch);
        FUZZ_CHECK(exceeded == watch.exceeded && watch.pause_ns > 0);
        memory_close(&watch);
    }
    FUZZ_CHECK(kernel_open_fds() == 0);
}
