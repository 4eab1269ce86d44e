/* What lies in a directory, as far as somebody wants to know: before each command of a new workspace.
 *
 * Names are compared here because a directory may hold thousands of others. */
#ifndef SANDCORE_SURVEY_H
#define SANDCORE_SURVEY_H

#include <stddef.h>
#include <stdint.h>

enum { SURVEY_NAMES_MAX = 64 };

struct survey {
    uint64_t present;    /* a bit for each of the names */
    int32_t directories; /* there are some that are not called as one of the `passed` */
};

/* Lists a directory, no link. `names`: SURVEY_NAMES_MAX at the most; both lists end with NULL. Zero or
 * a negative errno. */
int survey_directory(const char *path, const char *const *names, const char *const *passed,
                     struct survey *out);

#endif
