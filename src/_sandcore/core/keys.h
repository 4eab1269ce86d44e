/* Notes that outlive every process and are nothing on the disk: keys of the kernel's key retention
 * service (keyrings(7)), in the keyring of the user. They are gone at their time, or at a reboot.
 *
 * A note is the *description* of a key: that may be read by every process of the user, while reading
 * a payload takes possession, which a session without a link to the user's keyring does not have. */
#ifndef SANDCORE_KEYS_H
#define SANDCORE_KEYS_H

#include <stddef.h>
#include <stdint.h>

enum {
    KEYS_TEXT_MAX = 256,      /* bytes of a note, with its end */
    KEYS_DESCRIBED_MAX = 384, /* and with what the kernel says of it before */
};

struct keys_note {
    int32_t key, ring; /* serial numbers: they mean the same in every user namespace */
};

/* Leaves a note for so many seconds, unless the user's keyring has `most` keys already (-EDQUOT).
 * Zero or a negative errno: EDQUOT, ENOSYS, EPERM and whatever else a filter above us says. */
int keys_leave(const char *text, uint32_t seconds, unsigned most, struct keys_note *out);

/* So many seconds from now on. */
int keys_renew(const struct keys_note *note, uint32_t seconds);

/* Takes a note away. -ENOENT: another process has. Ring 0: the keyring of the user. */
int keys_remove(int32_t key, int32_t ring);

/* The keys in the user's keyring: how many fit, and were written, or a negative errno. With a most
 * of 0: how many there are. */
long keys_list(int32_t *out, size_t most);

/* The note of a key, NULL where it cannot be read; a pointer into `buffer`. */
const char *keys_text(int32_t key, char buffer[KEYS_DESCRIBED_MAX]);

#endif
