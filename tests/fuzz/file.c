/* The file of a compiled policy, as sandcore-exec reads it: what file_check lets through can be read
 * to its end. Size and checksum are put right first, else nearly every input would end there. */
#include "file.h"
#include "fuzz.h"
#include "kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void fuzz_start(void) {}

static void put_right(uint8_t *base, size_t size)
{
    struct file_header *header = (void *)base;
    uint64_t sum = UINT64_C(0xcbf29ce484222325), word;
    for (size_t i = sizeof *header; i + 8 <= size; i += 8) {
        memcpy(&word, base + i, sizeof word);
        sum = (sum ^ word) * UINT64_C(0x100000001b3);
    }
    header->size = (uint32_t)size;
    header->checksum = sum;
}

static void use_texts(const struct view *view, const struct file_span *span)
{
    const char *at = NULL, *text;
    size_t bytes = 0;
    while ((text = file_text(view, span, &at))) {
        fuzz_use_text(text);
        bytes += strlen(text) + 1;
    }
    FUZZ_CHECK(bytes == span->size);
}

static void use_part(const struct file *file, uint32_t isolation)
{
    struct view view;
    const char *path;
    int error = file_part(file, isolation, &view);
    if (error) {
        FUZZ_CHECK(error == -EINVAL || error == -ENOENT);
        return;
    }
    FUZZ_CHECK(isolation == 0 || view.part->isolation == isolation);
    fuzz_use(view.limits, view.limit_count * sizeof *view.limits);
    use_texts(&view, &view.part->keep);
    use_texts(&view, &view.part->set);
    use_texts(&view, &view.part->plain);
    use_texts(&view, &view.part->links);
    fuzz_use(view.policy.strings, view.policy.header->string_bytes);
    error = file_is_current(&view, &path);
    FUZZ_CHECK(error == 0 || (error == -ESTALE && path));
}

void fuzz_one(const uint8_t *data, size_t size)
{
    struct file file;
    size &= ~(size_t)7;
    uint8_t *copy = malloc(size ? size : 1); /* aligned, as the launcher's mapping is */
    memcpy(copy, data, size);
    if (size >= sizeof(struct file_header)) {
        put_right(copy, size);
    }
    kernel_begin((struct fuzz_bytes){copy, copy});
    if (file_check(copy, size, &file) == 0) {
        for (uint32_t isolation = 0; isolation <= FILE_LANDLOCK; isolation++) {
            use_part(&file, isolation);
        }
    }
    FUZZ_CHECK(kernel_open_fds() == 0);
    free(copy);
}
