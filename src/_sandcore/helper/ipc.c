/* What a command leaves of System V: memory, semaphores and queues are no files, and outlive whoever
 * made them. Each lane has an IPC namespace of its own, so all that is there when the tree is dead was
 * that command's; the next one finds nothing.
 *
 * Message queues of POSIX are in that namespace too, but nothing lists them: the filter refuses them. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"

#include <linux/ipc.h>

/* The kernel's numbers; its headers for these want a C library's. */
enum {
    SHM_INFO = 14,
    SHM_STAT_ANY = 15,
    SEM_INFO = 19,
    SEM_STAT_ANY = 20,
    MSG_INFO = 12,
    MSG_STAT_ANY = 13
};

enum { ANSWER = 64 }; /* words, more than the largest answer has: 14 (struct shmid_ds) */

/* What is there is counted in one word of struct shm_info, seminfo or msginfo. */
static const struct kind {
    int32_t call, info, stat, counted;
} kinds[] = {{SYS_shmctl, SHM_INFO, SHM_STAT_ANY, 0},
             {SYS_semctl, SEM_INFO, SEM_STAT_ANY, 7},
             {SYS_msgctl, MSG_INFO, MSG_STAT_ANY, 0}};

/* semctl has its answer's place one argument later. */
static long control(const struct kind *kind, long id, long what, void *answer)
{
    return kind->call == SYS_semctl ? SYS_4(kind->call, id, 0, what, answer)
                                    : SYS_3(kind->call, id, what, answer);
}

void ipc_clear(void)
{
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        uint64_t answer[ANSWER] = {0};
        uint32_t counted[ANSWER * 2];
        long last = control(&kinds[i], 0, kinds[i].info, answer);
        __builtin_memcpy(counted, answer, sizeof counted);
        if (last < 0 || counted[kinds[i].counted] == 0) {
            continue;
        }
        /* By place in the kernel's table: what nobody may read is told of too. */
        for (long place = 0; place <= last; place++) {
            long id = control(&kinds[i], place, kinds[i].stat, answer);
            if (id >= 0) {
                control(&kinds[i], id, IPC_RMID, answer);
            }
        }
    }
}
