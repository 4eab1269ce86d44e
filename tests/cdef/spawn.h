/* core/spawn.h */
struct rusage { ...; };
struct spawn_status {
    int32_t status;
    int32_t reaped;
    struct rusage usage;
};
int spawn_child(struct plan *plan, int32_t *pid, int32_t *pidfd);
int spawn_wait(int pidfd, int64_t deadline_ns, struct spawn_status *out);
int spawn_signal(int pidfd, int number);
int spawn_kill(int32_t pid, int pidfd);
