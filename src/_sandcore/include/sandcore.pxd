# For `cimport sandcore`, with sandbox.get_include() in Cython's include path; see sandcore.h.
from libc.stdint cimport int32_t, int64_t, uint32_t


cdef extern from "sandcore.h" nogil:
    const char *SANDCORE_CAPSULE
    enum:
        SANDCORE_API_VERSION
        SANDCORE_READ
        SANDCORE_WRITE
        SANDCORE_DEVICE
        SANDCORE_NAMES

    struct sandcore_policy:
        pass

    struct sandcore_rule:
        const char *path
        uint32_t access, optional

    struct sandcore_options:
        size_t size
        const sandcore_rule *rules
        uint32_t rule_count, restrict_reads, network

    struct sandcore_command:
        size_t size
        const char *const *argv
        const char *const *envp
        const char *cwd
        int32_t fds[3]
        int32_t keep_session

    struct sandcore_failure:
        int32_t stage, error, detail

    struct sandcore_ended:
        int32_t status, reaped

    struct sandcore_api:
        uint32_t version, size
        int (*policy_compile)(const sandcore_options *, sandcore_policy **)
        int (*policy_open)(const void *, size_t, sandcore_policy **)
        const void *(*policy_blob)(const sandcore_policy *, size_t *)
        void (*policy_close)(sandcore_policy *)
        int (*spawn)(const sandcore_policy *, const sandcore_command *, int32_t *, int32_t *,
                     sandcore_failure *)
        int (*wait)(int32_t, int64_t, sandcore_ended *)
        int (*kill)(int32_t, int32_t)
        const char *(*stage_name)(int32_t)
