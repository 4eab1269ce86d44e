// seccomp.h
#define SECCOMP_MAX_INSNS ...
#define AUDIT_ARCH_X86_64 ...
#define AUDIT_ARCH_AARCH64 ...
enum seccomp_network { SECCOMP_NET_NONE, SECCOMP_NET_FULL, ... };
enum { SECCOMP_ALLOW_PTRACE, SECCOMP_PRIVATE_IPC, SECCOMP_UNIX_SCOPED, SECCOMP_SUPERVISED, ... };
struct seccomp_options {
    uint32_t arch;
    uint32_t network;
    uint32_t flags;
    uint64_t cookie;
};
int seccomp_compile(const struct seccomp_options *options, struct sock_filter *out, size_t cap);
int seccomp_action(const struct seccomp_options *options, const struct syscall_row *row);
