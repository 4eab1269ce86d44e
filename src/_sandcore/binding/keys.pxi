# Notes of helpers in the user's keyring.


def notes(bytes head not None):
    """The notes that begin so: (key, text) each; nothing where there are none to be had."""
    cdef long i, count = keys_list(NULL, 0)
    cdef char buffer[KEYS_DESCRIBED_MAX]
    cdef const char *text
    cdef int32_t *keys
    found = []
    if count <= 0:
        return found
    keys = <int32_t *>calloc(count, sizeof(int32_t))
    if keys == NULL:
        raise MemoryError
    try:
        count = keys_list(keys, count)
        for i in range(count):
            text = keys_text(keys[i], buffer)
            if text != NULL and strncmp(text, head, len(head)) == 0:
                found.append((keys[i], <bytes>text))
        return found
    finally:
        free(keys)


def forget(int32_t key):
    """Takes a note away; whether it was there until now."""
    return keys_remove(key, 0) == 0
