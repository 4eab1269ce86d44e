/* core/wire.h */
#define WIRE_MAX_INLINE ...
#define WIRE_MAX_BODY ...
#define WIRE_MAX_LIMITS ...
#define WIRE_MAX_STRINGS ...
#define WIRE_MAX_FDS ...
#define WIRE_MAX_PATH ...
enum wire_kind {
    WIRE_LANE,
    WIRE_RUN,
    WIRE_KILL,
    WIRE_SWEEP,
    WIRE_DIRECT,
    WIRE_READY,
    WIRE_FAILED,
    WIRE_EXITED,
    WIRE_DONE,
    WIRE_STARTED,
    WIRE_FILE,
    WIRE_FILED,
    ...
};
enum wire_flags { WIRE_IN_MEMFD, WIRE_KEEP_SESSION, WIRE_BACKGROUND, WIRE_TERMINAL, ... };
struct wire_run {
    uint32_t kind;
    uint32_t flags;
    uint32_t body;
    int32_t umask;
    int32_t group;
    uint32_t targets;
    uint32_t limits, programs, args, envs;
    uint32_t docked, reserved;
    uint64_t timeout_ns;
    uint64_t memory;
};
enum wire_file_kind {
    WIRE_FILE_LOOK,
    WIRE_FILE_READ,
    WIRE_FILE_CREATE,
    WIRE_FILE_MAKE,
    WIRE_FILE_CLEAR,
    WIRE_FILE_KINDS,
    ...
};
enum wire_file_flags { WIRE_FILE_HERE, WIRE_FILE_NO_LINK, WIRE_FILE_FLAGS, ... };
struct wire_file {
    uint32_t kind;
    uint32_t what;
    uint32_t flags;
    uint32_t mode;
};
struct wire_usage {
    uint64_t user_us, system_us;
    uint64_t max_rss_kib;
    uint64_t minor_faults, major_faults, in_blocks, out_blocks;
    uint64_t voluntary_switches, involuntary_switches;
};
struct wire_reply {
    uint32_t kind;
    int32_t pid;
    struct stage_report report;
    int32_t status;
    uint32_t swept;
    uint32_t scoped;
    uint32_t timed_out;
    uint32_t over_memory;
    uint32_t unwatched;
    uint32_t attempts;
    uint32_t missed;
    uint32_t reserved;
    struct wire_usage usage;
    int64_t duration_ns;
};
size_t wire_pointers(const struct wire_run *run);
int wire_check(const struct wire_run *run);
int wire_parse(const struct wire_run *run, const uint8_t *body, const char **pointers,
               struct plan *plan);
int wire_check_file(const struct wire_file *file, const char *path, size_t size);
