/* The signal scope of the root, where lanes are not in pid namespaces. */
#define _GNU_SOURCE
#include "helper.h"
#include "landlock.h"
#include "sys.h"
#include "tree.h"

#include <fcntl.h>

/* Under a layer with file rights, a layer that does not grant REFER makes every rename between
 * directories EXDEV (seen on 6.18), so this one, which is about signals, grants it everywhere. */
static int allow_renames(int ruleset, int abi, uint32_t handle)
{
    long top = SYS_4(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0);
    if (top < 0) {
        return (int)top;
    }
    int error =
        landlock_add_path(ruleset, (int)top, landlock_granted(abi, LANDLOCK_CLASS_READ, 1, handle));
    tree_drop((int)top);
    return error;
}

int helper_take_scope(struct helper *helper)
{
    struct landlock_rights scopes;
    int abi = (int)helper->policy.header->abi;
    uint32_t handle = LANDLOCK_HANDLE_SCOPES | LANDLOCK_HANDLE_REFER;
    if (!(helper->policy.header->flags & POLICY_LANDLOCK) || helper_has_namespaces(helper)) {
        return 0;
    }
    int error = landlock_handled(abi, handle, &scopes);
    if (error || scopes.scoped == 0) {
        return error; /* an ABI without scopes: the caller reports what that weakens */
    }
    int ruleset = landlock_create(&scopes);
    error = ruleset < 0 ? ruleset : allow_renames(ruleset, abi, handle);
    if (error == 0) {
        error = landlock_restrict(ruleset, 0);
    }
    tree_drop(ruleset);
    helper->scoped = !error && helper_prove_scope(helper->caller);
    return error;
}
