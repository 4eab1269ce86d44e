/* The table of functions that other extensions get by a capsule; what each does stands in
 * include/sandcore.h, which is installed. */
#ifndef SANDCORE_API_H
#define SANDCORE_API_H

#include "../include/sandcore.h"

/* The table of this process; constant. */
const struct sandcore_api *api_table(void);

#endif
