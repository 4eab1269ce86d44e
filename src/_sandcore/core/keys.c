/* See keys.h. */
#include "keys.h"

#include "sys.h"

#include <errno.h>
#include <linux/keyctl.h>

int keys_leave(const char *text, uint32_t seconds, unsigned most, struct keys_note *out)
{
    long ring = SYS_3(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 1);
    if (ring < 0) {
        return (int)ring;
    }
    long count = keys_list(0, 0);
    if (count < 0 || count >= (long)most) {
        return count < 0 ? (int)count : -EDQUOT;
    }
    long key = SYS_5(SYS_add_key, "user", text, "", 1, ring);
    if (key < 0) {
        return (int)key;
    }
    *out = (struct keys_note){.key = (int32_t)key, .ring = (int32_t)ring};
    int error = keys_renew(out, seconds);
    if (error) {
        keys_remove(out->key, out->ring); /* it would stay for ever */
    }
    return error;
}

int keys_renew(const struct keys_note *note, uint32_t seconds)
{
    long error = SYS_3(SYS_keyctl, KEYCTL_SET_TIMEOUT, note->key, seconds);
    if (error == -EACCES) {
        /* Without possession: a service's session, or a user namespace. A link makes it, and is gone
         * with this thread. */
        error = SYS_3(SYS_keyctl, KEYCTL_LINK, note->ring, KEY_SPEC_THREAD_KEYRING);
        if (error == 0) {
            error = SYS_3(SYS_keyctl, KEYCTL_SET_TIMEOUT, note->key, seconds);
        }
    }
    return (int)error;
}

int keys_remove(int32_t key, int32_t ring)
{
    return (int)SYS_3(SYS_keyctl, KEYCTL_UNLINK, key, ring ? ring : KEY_SPEC_USER_KEYRING);
}

long keys_list(int32_t *out, size_t most)
{
    /* Where there are more than fit the kernel writes none of them. */
    long bytes = SYS_4(SYS_keyctl, KEYCTL_READ, KEY_SPEC_USER_KEYRING, out, most * sizeof *out);
    long count = bytes < 0 ? bytes : bytes / (long)sizeof *out;
    return most > 0 && count > (long)most ? 0 : count;
}

const char *keys_text(int32_t key, char buffer[KEYS_DESCRIBED_MAX])
{
    long size = SYS_4(SYS_keyctl, KEYCTL_DESCRIBE, key, buffer, KEYS_DESCRIBED_MAX);
    if (size <= 0 || size > KEYS_DESCRIBED_MAX) {
        return 0;
    }
    /* "type;uid;gid;permissions;note" */
    const char *at = buffer;
    for (int fields = 0; fields < 4; at++) {
        if (*at == '\0') {
            return 0;
        }
        fields += *at == ';';
    }
    return at;
}
