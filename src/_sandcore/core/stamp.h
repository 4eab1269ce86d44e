/* Stamps: what tells whether a file is still the one it was.
 *
 * The change time is the kernel's own and no command can set it, so a stamp that is equal before and
 * after means that nothing was written, renamed, replaced or re-permitted there. One call for many
 * paths, because it is made before and after every command. */
#ifndef SANDCORE_STAMP_H
#define SANDCORE_STAMP_H

#include <stddef.h>
#include <stdint.h>

struct stamp {
    uint64_t device, inode, size;
    int64_t change_ns; /* ctime; of an identity: when it was made, where the file system knows */
    uint32_t mode;     /* type and permissions; 0: nothing is there */
    int32_t error;     /* errno of anything but absence */
};

/* Fills in a stamp for each path, symlinks not followed. */
void stamp_paths(const char *const *paths, size_t count, struct stamp *out);

/* Only which file it is. The number of a removed file is soon given to a new one, hence the time. */
void stamp_identities(const char *const *paths, size_t count, struct stamp *out);

#endif
