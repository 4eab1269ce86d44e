/* core/keys.h */
#define KEYS_DESCRIBED_MAX 384
struct keys_note {
    int32_t key, ring;
};
int keys_leave(const char *text, uint32_t seconds, unsigned most, struct keys_note *out);
int keys_renew(const struct keys_note *note, uint32_t seconds);
int keys_remove(int32_t key, int32_t ring);
long keys_list(int32_t *out, size_t most);
const char *keys_text(int32_t key, char *buffer);
