/* core/stamp.h */
struct stamp {
    uint64_t device, inode, size;
    int64_t change_ns;
    uint32_t mode;
    int32_t error;
};
void stamp_paths(const char *const *paths, size_t count, struct stamp *out);
void stamp_identities(const char *const *paths, size_t count, struct stamp *out);
