/* What commands tried to reach and did not, told by the supervisor to their lane.
 *
 * One page for each lane, shared with nobody else: commands have no way to either process. The lane
 * counts its commands in it, the supervisor writes the rest. Which command a connect belongs to is
 * read while it waits for its answer, and so while the command cannot have ended; what is noted late,
 * of a command that was killed meanwhile, therefore has that command's number and is not shown for
 * the next one. The lane reads when all processes of its command are dead. */
#define _GNU_SOURCE
#include "helper.h"
#include "sys.h"

#include <string.h>
#include <sys/mman.h>

struct attempts {
    uint32_t command;       /* the number of the lane's command; the rest is the supervisor's */
    uint32_t noted;         /* for which command */
    uint32_t count, missed; /* those below, and how many there was no room for */
    struct wire_attempt all[WIRE_MAX_ATTEMPTS];
};

struct attempts *attempts_share(void)
{
    long page = SYS_6(SYS_mmap, 0, sizeof(struct attempts), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return page < 0 ? 0 : (struct attempts *)page;
}

void attempts_drop(struct attempts *attempts)
{
    if (attempts) {
        SYS_2(SYS_munmap, attempts, sizeof *attempts);
    }
}

void attempts_begin(struct attempts *attempts)
{
    if (attempts) {
        __atomic_add_fetch(&attempts->command, 1, __ATOMIC_SEQ_CST);
    }
}

uint32_t attempts_current(const struct attempts *attempts)
{
    return __atomic_load_n(&attempts->command, __ATOMIC_SEQ_CST);
}

/* Who tries again and again is one attempt. */
void attempts_note(struct attempts *attempts, uint32_t command, const struct wire_attempt *one)
{
    if (attempts_current(attempts) != command) {
        return;
    }
    if (attempts->noted != command) {
        attempts->count = attempts->missed = 0;
        __atomic_store_n(&attempts->noted, command, __ATOMIC_SEQ_CST);
    }
    for (uint32_t i = 0; i < attempts->count; i++) {
        if (memcmp(&attempts->all[i], one, sizeof *one) == 0) {
            return;
        }
    }
    if (attempts->count < WIRE_MAX_ATTEMPTS) {
        attempts->all[attempts->count] = *one;
        __atomic_add_fetch(&attempts->count, 1, __ATOMIC_SEQ_CST);
    } else {
        attempts->missed++;
    }
}

void attempts_end(const struct attempts *attempts, struct wire_reply *reply)
{
    if (attempts && __atomic_load_n(&attempts->noted, __ATOMIC_SEQ_CST) == attempts->command) {
        reply->attempts = attempts->count;
        reply->missed = attempts->missed;
    }
}

const struct wire_attempt *attempts_all(const struct attempts *attempts)
{
    return attempts ? attempts->all : 0;
}
