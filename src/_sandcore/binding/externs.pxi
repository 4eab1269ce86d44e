# What the binding uses of the C core. The headers are the documentation.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t, INT64_MAX

cdef extern from "stage.h" nogil:
    enum: STAGE_NONE
    enum: STAGE_EXEC
    struct stage_report:
        int32_t stage
        int32_t error
        int32_t detail
    const char *stage_name(int stage)

cdef extern from "<linux/filter.h>" nogil:
    struct sock_filter:
        uint16_t code
        uint8_t jt
        uint8_t jf
        uint32_t k

cdef extern from "plan.h" nogil:
    enum: PLAN_MAX_FDS
    enum: PLAN_NEW_SESSION
    enum: PLAN_DIE_WITH_PARENT
    enum: PLAN_DROP_CAPABILITIES
    enum: PLAN_NO_NEW_PRIVS
    struct plan_limit:
        uint32_t resource
        uint32_t reserved
        uint64_t soft
        uint64_t hard
    struct plan_filter:
        const sock_filter *code
        uint32_t count
    struct plan_c "plan":
        const char *const *programs
        char *const *argv
        char *const *envp
        const char *cwd
        const plan_limit *limits
        uint32_t limit_count
        uint32_t flags
        int32_t *fds
        uint32_t fd_count
        int32_t umask
        int32_t group
        int32_t ruleset
        plan_filter filter
        plan_filter extra_filter
        stage_report report

cdef extern from "policy.h" nogil:
    enum: POLICY_CONFINED
    enum: POLICY_LANDLOCK
    enum: POLICY_FILTER
    enum: POLICY_NAMESPACES
    enum: POLICY_OWN_NETWORK
    enum: POLICY_READ_ONLY
    enum: POLICY_TELL
    enum: POLICY_MOUNT_OPTIONAL
    enum: POLICY_MOUNT_MAKE
    enum: POLICY_MOUNT_LATER
    enum: POLICY_MOUNT_SOCKET
    enum: POLICY_MOUNT_DOCK
    enum: POLICY_MOUNT_WRITE
    enum: POLICY_MOUNT_READ
    enum: POLICY_MOUNT_PIN
    enum: POLICY_MOUNT_MASK
    enum: POLICY_MOUNT_HOLLOW
    enum: POLICY_MOUNT_SCRATCH
    enum: POLICY_MOUNT_DEVICES
    enum: POLICY_MOUNT_PROC
    enum: POLICY_MOUNT_ABSENT
    struct policy_rule:
        uint32_t path
        uint16_t access
        uint16_t flags
    struct policy_mount:
        uint32_t path
        uint8_t kind
        uint8_t flags
        uint8_t access
        uint8_t reserved
        uint64_t size
    struct policy_header:
        uint32_t arch
        uint32_t abi
        uint32_t flags
        uint32_t handle
        uint32_t rule_count
        uint32_t network
        uint32_t filter_flags
        uint32_t mount_count
    struct policy_view:
        const policy_header *header
        const policy_rule *rules
        const policy_mount *mounts
        plan_filter filter
        plan_filter extra_filter
        const char *strings
    struct policy_parts:
        uint32_t arch, abi, flags, handle
        uint32_t network, filter_flags
        policy_rule *rules
        policy_mount *mounts
        const char *const *paths
        uint32_t rule_count, mount_count
        plan_filter filter
        plan_filter extra_filter
    int64_t policy_size(const policy_parts *parts)
    int policy_write(const policy_parts *parts, uint8_t *out, size_t size)
    int policy_open(const void *blob, size_t size, policy_view *view)
    int policy_ruleset(const policy_view *view, int *failed)

cdef extern from "spawn.h" nogil:
    struct timeval_c "timeval":
        long tv_sec
        long tv_usec
    struct rusage_c "rusage":
        timeval_c ru_utime
        timeval_c ru_stime
        long ru_maxrss
        long ru_minflt
        long ru_majflt
        long ru_inblock
        long ru_oublock
        long ru_nvcsw
        long ru_nivcsw
    int spawn_check_fds(const int32_t *fds, unsigned fd_count, stage_report *report)
    struct spawn_status:
        int32_t status
        int32_t reaped
        rusage_c usage
    int spawn_child(plan_c *p, int32_t *pid, int32_t *pidfd)
    int spawn_wait(int pidfd, int64_t deadline_ns, spawn_status *out)
    int spawn_signal(int pidfd, int number)
    int spawn_kill(int32_t pid, int pidfd)

cdef extern from "wire.h" nogil:
    enum: WIRE_RUN
    enum: WIRE_MAX_SCRATCH
    enum: WIRE_JOINT_FDS
    enum: WIRE_FAILED
    enum: WIRE_KEEP_SESSION
    enum: WIRE_BACKGROUND
    enum: WIRE_TERMINAL
    enum: WIRE_KILL
    enum: WIRE_DONE
    enum: WIRE_MAX_BODY
    enum: WIRE_MAX_LIMITS
    enum: WIRE_MAX_PATH
    enum: WIRE_FILE
    enum: WIRE_FILED
    enum: WIRE_FILE_HERE
    enum: WIRE_FILE_NO_LINK
    enum:
        WIRE_FILE_LOOK
        WIRE_FILE_PLACE
        WIRE_FILE_LIST
        WIRE_FILE_READ
        WIRE_FILE_WRITE
        WIRE_FILE_APPEND
        WIRE_FILE_CREATE
        WIRE_FILE_MAKE
        WIRE_FILE_REMOVE
        WIRE_FILE_CLEAR
    struct wire_file:
        uint32_t kind
        uint32_t what
        uint32_t flags
        uint32_t mode
    struct wire_run:
        uint32_t kind
        uint32_t flags
        uint32_t body
        int32_t umask
        int32_t group
        uint32_t targets
        uint32_t limits
        uint32_t programs
        uint32_t args
        uint32_t envs
        uint32_t docked
        uint32_t reserved
        uint64_t timeout_ns
        uint64_t memory
    struct wire_usage:
        uint64_t user_us, system_us, max_rss_kib
        uint64_t minor_faults, major_faults, in_blocks, out_blocks
        uint64_t voluntary_switches, involuntary_switches
    enum: WIRE_MAX_ATTEMPTS
    struct wire_attempt:
        int32_t error
        uint16_t type
        uint16_t size
        uint8_t *address
    struct wire_dock:
        uint32_t device_major
        uint32_t device_minor
        uint64_t inode
        uint32_t once

    struct wire_reply:
        uint32_t kind
        int32_t pid
        stage_report report
        int32_t status
        uint32_t swept
        uint32_t scoped
        uint32_t timed_out
        uint32_t over_memory
        uint32_t attempts
        uint32_t missed
        uint32_t unwatched
        wire_usage usage
        int64_t duration_ns

cdef extern from "client.h" nogil:
    struct client:
        int32_t control
        int32_t pid
        int32_t pidfd
        int32_t owner
        int32_t scoped
        uint32_t unwatched
        uint32_t docks
        int32_t *scratch
    int client_start(const char *helper, const void *blob, size_t size, client *out,
                     stage_report *report)
    int client_await(client *c, stage_report *report)
    int client_order_lane(const client *c, uint32_t processes)
    int client_await_lane(int lane, wire_reply *ready)
    int client_end(const client *c)
    void client_close(client *c)
    void client_end_lane(int lane)
    int client_direct(client *c, uint64_t cookie, const int32_t *fds, wire_reply *ready)
    int client_dock(client *c, const void *blob, size_t size, const wire_dock *which)
    int client_await_dock(client *c, wire_reply *ready)
    int client_join(const client *c, uint32_t processes, int32_t *fds, wire_reply *ready)
    void client_end_joint(const client *nursery, int joint)
    bint client_joint_is_lost(int joint)
    int client_spawn(client *c, const uint8_t *request, size_t size, const int32_t *fds,
                     unsigned fd_count, int32_t *pid, int32_t *pidfd, stage_report *report)

cdef extern from "packet.h" nogil:
    int64_t packet_now()
    int packet_await(int fd, int64_t deadline_ns)
    int packet_send(int socket, const void *packet, size_t size, const int32_t *fds, unsigned count)
    int packet_receive(int socket, int64_t deadline_ns, wire_reply *reply,
                       wire_attempt *attempts)
    int packet_receive_fd(int socket, int64_t deadline_ns, wire_reply *reply, int32_t *fd)

cdef extern from "syscalls.h" nogil:
    struct syscall_row:
        const char *name
        uint8_t rule
        const char *reason
    const syscall_row *syscalls_table(size_t *count)
    int32_t syscalls_number(const syscall_row *row, uint32_t arch)
    const char *syscalls_rule_text(uint32_t rule)

cdef extern from "seccomp.h" nogil:
    const uint32_t SECCOMP_NATIVE_ARCH
    enum: SECCOMP_NET_NONE
    enum: SECCOMP_NET_FULL
    enum: SECCOMP_ALLOW_PTRACE
    enum: SECCOMP_PRIVATE_IPC
    enum: SECCOMP_UNIX_SCOPED
    enum: SECCOMP_SUPERVISED
    enum: SECCOMP_MAX_INSNS
    struct seccomp_options:
        uint32_t arch
        uint32_t network
        uint32_t flags
        uint64_t cookie
    int seccomp_compile(const seccomp_options *options, sock_filter *out, size_t cap)
    int seccomp_action(const seccomp_options *options, const syscall_row *row)

cdef extern from "landlock.h" nogil:
    enum: LANDLOCK_CLASS_READ
    enum: LANDLOCK_CLASS_WRITE
    enum: LANDLOCK_CLASS_DEVICE
    enum: LANDLOCK_CLASS_NAMES
    enum: LANDLOCK_HANDLE_READ
    enum: LANDLOCK_HANDLE_MOUNTED
    enum: LANDLOCK_HANDLE_NAMES
    enum: LANDLOCK_HANDLE_WRITE
    enum: LANDLOCK_HANDLE_TCP
    enum: LANDLOCK_HANDLE_SCOPES
    enum: LANDLOCK_HANDLE_UNIX
    enum: LANDLOCK_HANDLE_UDP
    struct landlock_rights_c "landlock_rights":
        uint64_t fs
        uint64_t net
        uint64_t scoped
    int landlock_handled(int abi, uint32_t handle, landlock_rights_c *out)
    uint64_t landlock_granted(int abi, int cls, int is_dir, uint32_t handle)
    const char *landlock_right_name(uint64_t bit)
    const char *landlock_net_name(uint64_t bit)
    const char *landlock_scope_name(uint64_t bit)

cdef extern from "probe.h" nogil:
    struct probe_c "probe":
        int32_t landlock_abi
        int32_t landlock_errno
        uint32_t landlock_errata
        uint32_t seccomp_actions
        uint8_t seccomp_filter
        uint8_t pidfd_open
        uint8_t close_range
        uint8_t userns
        int32_t userns_errno
        uint8_t pidfd_info_exit
        char release[65]
    int probe_host(probe_c *out)

cdef extern from "survey.h" nogil:
    enum: SURVEY_NAMES_MAX
    struct survey:
        uint64_t present
        int directories

    int survey_directory(const char *path, const char *const *names, const char *const *passed,
                         survey *out)

cdef extern from "stamp.h" nogil:
    struct stamp:
        uint64_t size
        int64_t change_ns
        uint32_t mode
    void stamp_paths(const char *const *paths, size_t count, stamp *out)
    void stamp_identities(const char *const *paths, size_t count, stamp *out)

cdef extern from "notices.h" nogil:
    struct notice:
        int32_t number
        int32_t is_of_itself
    int notices_open()
    int notices_watch(int fd, const char *path, int of_contents)
    int notices_forget(int fd, int32_t number)
    long notices_take(int fd, notice *out, size_t most)

cdef extern from "keys.h" nogil:
    enum:
        KEYS_DESCRIBED_MAX
    int keys_remove(int32_t key, int32_t ring)
    long keys_list(int32_t *out, size_t most)
    const char *keys_text(int32_t key, char *buffer)
