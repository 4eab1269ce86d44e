/* The policy blob: what policy_open lets through can be read to its end. */
#include "fuzz.h"
#include "landlock.h"
#include "policy.h"

#include <errno.h>
#include <string.h>

void fuzz_start(void) {}

static void use_path(const struct policy_view *view, uint32_t path)
{
    FUZZ_CHECK(view->strings[path] == '/');
    fuzz_use_text(view->strings + path);
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct policy_view view;
    int error = policy_open(data, size, &view);
    if (error) {
        FUZZ_CHECK(error == -EINVAL);
        return;
    }
    for (uint32_t i = 0; i < view.header->rule_count; i++) {
        use_path(&view, view.rules[i].path);
        FUZZ_CHECK(view.rules[i].access <= LANDLOCK_CLASS_NAMES);
    }
    for (uint32_t i = 0; i < view.header->mount_count; i++) {
        use_path(&view, view.mounts[i].path);
        fuzz_use(&view.mounts[i], sizeof view.mounts[i]);
    }
    fuzz_use(view.filter.code, view.filter.count * sizeof *view.filter.code);
    fuzz_use(view.extra_filter.code, view.extra_filter.count * sizeof *view.extra_filter.code);
    fuzz_use(view.strings, view.header->string_bytes);
}
