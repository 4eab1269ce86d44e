/* The table. Rows of one reason stand together, the refused ones first; what is allowed follows in
 * the order of x86_64's numbers. It must be read as a list, so the formatter keeps out of it.
 *
 * EPERM is for what exists and is refused. ENOSYS is for what a program tries first and can do
 * without: it then takes the older way, which the filter (or Landlock) sees through. Numbers that lie
 * side by side have one answer where the reasons permit: each change of answer costs the filter two
 * instructions. Calls that no kernel of the last ten years has stand where they are cheapest. */
#include "syscalls.h"

#include <linux/audit.h>

#define OK(name, x86_64, aarch64) {#name, x86_64, aarch64, SYSCALL_ALLOW, RULE_NONE, ""}
#define DENY(name, x86_64, aarch64, why) {#name, x86_64, aarch64, SYSCALL_DENY, RULE_NONE, why}
#define ABSENT(name, x86_64, aarch64, why) {#name, x86_64, aarch64, SYSCALL_ABSENT, RULE_NONE, why}
#define RULE(name, x86_64, aarch64, rule, why) {#name, x86_64, aarch64, SYSCALL_RULE, rule, why}

#define WHY_URING "its operations pass no filter, sockets among them; libraries fall back to epoll"
#define WHY_CLONE3 "flags lie behind a pointer, out of a filter's sight; libc falls back to clone"
#define WHY_ALIAS "new ways to what setxattr and its like do, which programs fall back to"
#define WHY_FILE_ATTR                                                                              \
    "inode flags by path; programs fall back to the ioctl, whose setting is refused"
#define WHY_TREE_ATTR "changes what paths mean; programs fall back to open_tree"
#define WHY_MOUNT_LIST "the host's mounts in detail; programs fall back to /proc/self/mountinfo"
#define WHY_MEMORY "reads, writes or reclaims the memory of another process"
#define WHY_STEAL "looks into, or takes, the file descriptors of another process"
#define WHY_NAMESPACE "a new user namespace has every capability, over much of the kernel's surface"
#define WHY_MOUNT "changes what paths mean"
#define WHY_CHROOT "changes what paths mean, and Landlock does not deny it"
#define WHY_HANDLE "opens files without a path"
#define WHY_SURFACE "much kernel surface that few programs need; side channels; widened races"
#define WHY_KEYS "kernel keyrings are shared with the user's other processes; Landlock sees none"
#define WHY_FANOTIFY "watches what may not be read"
#define WHY_QUEUES "queues that outlive their command, and that nothing lists"
#define WHY_LDT "16-bit segments: a history of holes, needed by emulators only"
#define WHY_PAGES "acts on the memory of other processes"
#define WHY_LSM "sets and tells labels of security modules; programs fall back to /proc/self/attr"
#define WHY_PRIVILEGED "the administrator's; the second layer behind dropped capabilities"
#define WHY_OBSOLETE "obsolete, and not worth its surface"
#define WHY_SOCKET "each family is a way out, and loads its module; datagrams need no connect"
#define WHY_PAIR "datagram pairs can be sent anywhere by sendmsg, whose address no filter sees"
#define WHY_CONNECT "sockets of services on the host; the address lies behind a pointer"
#define WHY_SENDTO "an address to send to needs no connect; a fast open skips Landlock's TCP rules"
#define WHY_FASTOPEN "a fast open skips Landlock's TCP rules"
#define WHY_IOCTL                                                                                  \
    "types into the terminal (CVE-2017-5226, CVE-2019-10063), changes inode flags, takes "         \
    "snapshots past Landlock, or asks the random device for its state"
#define WHY_FCNTL "stalls others for the lease break time, or signals threads when files change"
#define WHY_PRCTL "rewrites what /proc says of the process"
#define WHY_PERSONALITY "turns off address randomisation, makes what is readable executable"
#define WHY_SELF "no Landlock hook: another process could be starved or killed by its limits"
#define WHY_LISTENER "a listener below ours would answer for it"
#define WHY_PTRACE "takes over siblings; outsiders are kept safe by Landlock"
#define WHY_IPC "shared with every process of the user, and not seen by Landlock"

// clang-format off
static const struct syscall_row syscalls_rows[] = {
    ABSENT(io_uring_setup, 425, 425, WHY_URING), ABSENT(io_uring_enter, 426, 426, WHY_URING),
    ABSENT(io_uring_register, 427, 427, WHY_URING),
    ABSENT(clone3, 435, 435, WHY_CLONE3),
    ABSENT(statmount, 457, 457, WHY_MOUNT_LIST), ABSENT(listmount, 458, 458, WHY_MOUNT_LIST),
    ABSENT(lsm_get_self_attr, 459, 459, WHY_LSM), ABSENT(lsm_set_self_attr, 460, 460, WHY_LSM),
    ABSENT(lsm_list_modules, 461, 461, WHY_LSM),
    ABSENT(setxattrat, 463, 463, WHY_ALIAS), ABSENT(getxattrat, 464, 464, WHY_ALIAS),
    ABSENT(listxattrat, 465, 465, WHY_ALIAS), ABSENT(removexattrat, 466, 466, WHY_ALIAS),
    ABSENT(file_getattr, 468, 468, WHY_FILE_ATTR), ABSENT(file_setattr, 469, 469, WHY_FILE_ATTR),
    ABSENT(open_tree_attr, 467, 467, WHY_TREE_ATTR),
    DENY(process_vm_readv, 310, 270, WHY_MEMORY), DENY(process_vm_writev, 311, 271, WHY_MEMORY),
    DENY(process_madvise, 440, 440, WHY_MEMORY), DENY(process_mrelease, 448, 448, WHY_MEMORY),
    DENY(kcmp, 312, 272, WHY_STEAL), DENY(pidfd_getfd, 438, 438, WHY_STEAL),
    DENY(unshare, 272, 97, WHY_NAMESPACE), DENY(setns, 308, 268, WHY_NAMESPACE),
    DENY(mount, 165, 40, WHY_MOUNT), DENY(umount2, 166, 39, WHY_MOUNT),
    DENY(pivot_root, 155, 41, WHY_MOUNT), DENY(move_mount, 429, 429, WHY_MOUNT),
    DENY(open_tree, 428, 428, WHY_MOUNT), DENY(fsopen, 430, 430, WHY_MOUNT),
    DENY(fsconfig, 431, 431, WHY_MOUNT), DENY(fsmount, 432, 432, WHY_MOUNT),
    DENY(fspick, 433, 433, WHY_MOUNT), DENY(mount_setattr, 442, 442, WHY_MOUNT),
    DENY(chroot, 161, 51, WHY_CHROOT),
    DENY(name_to_handle_at, 303, 264, WHY_HANDLE), DENY(open_by_handle_at, 304, 265, WHY_HANDLE),
    DENY(bpf, 321, 280, WHY_SURFACE), DENY(perf_event_open, 298, 241, WHY_SURFACE),
    DENY(userfaultfd, 323, 282, WHY_SURFACE),
    DENY(add_key, 248, 217, WHY_KEYS), DENY(request_key, 249, 218, WHY_KEYS),
    DENY(keyctl, 250, 219, WHY_KEYS),
    DENY(fanotify_init, 300, 262, WHY_FANOTIFY), DENY(fanotify_mark, 301, 263, WHY_FANOTIFY),
    DENY(mq_open, 240, 180, WHY_QUEUES), DENY(mq_unlink, 241, 181, WHY_QUEUES),
    DENY(modify_ldt, 154, -1, WHY_LDT),
    DENY(migrate_pages, 256, 238, WHY_PAGES), DENY(move_pages, 279, 239, WHY_PAGES),
    DENY(create_module, 174, -1, WHY_PRIVILEGED), DENY(init_module, 175, 105, WHY_PRIVILEGED),
    DENY(finit_module, 313, 273, WHY_PRIVILEGED), DENY(delete_module, 176, 106, WHY_PRIVILEGED),
    DENY(get_kernel_syms, 177, -1, WHY_PRIVILEGED), DENY(query_module, 178, -1, WHY_PRIVILEGED),
    DENY(kexec_load, 246, 104, WHY_PRIVILEGED), DENY(kexec_file_load, 320, 294, WHY_PRIVILEGED),
    DENY(reboot, 169, 142, WHY_PRIVILEGED), DENY(swapon, 167, 224, WHY_PRIVILEGED),
    DENY(swapoff, 168, 225, WHY_PRIVILEGED), DENY(acct, 163, 89, WHY_PRIVILEGED),
    DENY(quotactl, 179, 60, WHY_PRIVILEGED), DENY(quotactl_fd, 443, 443, WHY_PRIVILEGED),
    DENY(settimeofday, 164, 170, WHY_PRIVILEGED), DENY(clock_settime, 227, 112, WHY_PRIVILEGED),
    DENY(clock_adjtime, 305, 266, WHY_PRIVILEGED), DENY(adjtimex, 159, 171, WHY_PRIVILEGED),
    DENY(sethostname, 170, 161, WHY_PRIVILEGED), DENY(setdomainname, 171, 162, WHY_PRIVILEGED),
    DENY(iopl, 172, -1, WHY_PRIVILEGED), DENY(ioperm, 173, -1, WHY_PRIVILEGED),
    DENY(vhangup, 153, 58, WHY_PRIVILEGED), DENY(syslog, 103, 116, WHY_PRIVILEGED),
    DENY(nfsservctl, 180, 42, WHY_OBSOLETE), DENY(lookup_dcookie, 212, 18, WHY_OBSOLETE),
    DENY(uselib, 134, -1, WHY_OBSOLETE), DENY(ustat, 136, -1, WHY_OBSOLETE),
    DENY(sysfs, 139, -1, WHY_OBSOLETE), DENY(_sysctl, 156, -1, WHY_OBSOLETE),
    DENY(getpmsg, 181, -1, WHY_OBSOLETE), DENY(putpmsg, 182, -1, WHY_OBSOLETE),
    DENY(afs_syscall, 183, -1, WHY_OBSOLETE), DENY(tuxcall, 184, -1, WHY_OBSOLETE),
    DENY(security, 185, -1, WHY_OBSOLETE), DENY(get_thread_area, 211, -1, WHY_OBSOLETE),
    RULE(clone, 56, 220, RULE_CLONE, WHY_NAMESPACE),
    RULE(socket, 41, 198, RULE_SOCKET, WHY_SOCKET),
    RULE(socketpair, 53, 199, RULE_SOCKETPAIR, WHY_PAIR),
    RULE(connect, 42, 203, RULE_CONNECT, WHY_CONNECT),
    RULE(sendto, 44, 206, RULE_SENDTO, WHY_SENDTO),
    RULE(sendmsg, 46, 211, RULE_SENDMSG, WHY_FASTOPEN),
    RULE(sendmmsg, 307, 269, RULE_SENDMMSG, WHY_FASTOPEN),
    RULE(ioctl, 16, 29, RULE_IOCTL, WHY_IOCTL),
    RULE(fcntl, 72, 25, RULE_FCNTL, WHY_FCNTL),
    RULE(prctl, 157, 167, RULE_PRCTL, WHY_PRCTL),
    RULE(personality, 135, 92, RULE_PERSONALITY, WHY_PERSONALITY),
    RULE(prlimit64, 302, 261, RULE_SELF, WHY_SELF),
    RULE(sched_setaffinity, 203, 122, RULE_SELF, WHY_SELF),
    RULE(sched_setscheduler, 144, 119, RULE_SELF, WHY_SELF),
    RULE(sched_setparam, 142, 118, RULE_SELF, WHY_SELF),
    RULE(sched_setattr, 314, 274, RULE_SELF, WHY_SELF),
    RULE(setpriority, 141, 140, RULE_PRIORITY, WHY_SELF),
    RULE(ioprio_set, 251, 30, RULE_IOPRIO, WHY_SELF),
    RULE(seccomp, 317, 277, RULE_SECCOMP, WHY_LISTENER),
    RULE(ptrace, 101, 117, RULE_PTRACE, WHY_PTRACE),
    RULE(shmget, 29, 194, RULE_IPC, WHY_IPC), RULE(shmat, 30, 196, RULE_IPC, WHY_IPC),
    RULE(shmctl, 31, 195, RULE_IPC, WHY_IPC), RULE(shmdt, 67, 197, RULE_IPC, WHY_IPC),
    RULE(msgget, 68, 186, RULE_IPC, WHY_IPC), RULE(msgsnd, 69, 189, RULE_IPC, WHY_IPC),
    RULE(msgrcv, 70, 188, RULE_IPC, WHY_IPC), RULE(msgctl, 71, 187, RULE_IPC, WHY_IPC),
    RULE(semget, 64, 190, RULE_IPC, WHY_IPC), RULE(semop, 65, 193, RULE_IPC, WHY_IPC),
    RULE(semtimedop, 220, 192, RULE_IPC, WHY_IPC), RULE(semctl, 66, 191, RULE_IPC, WHY_IPC),

    OK(read, 0, 63), OK(write, 1, 64), OK(open, 2, -1), OK(close, 3, 57), OK(stat, 4, -1),
    OK(fstat, 5, 80), OK(lstat, 6, -1), OK(poll, 7, -1), OK(lseek, 8, 62), OK(mmap, 9, 222),
    OK(mprotect, 10, 226), OK(munmap, 11, 215), OK(brk, 12, 214), OK(rt_sigaction, 13, 134),
    OK(rt_sigprocmask, 14, 135), OK(rt_sigreturn, 15, 139), OK(pread64, 17, 67),
    OK(pwrite64, 18, 68), OK(readv, 19, 65), OK(writev, 20, 66), OK(access, 21, -1),
    OK(pipe, 22, -1), OK(select, 23, -1), OK(sched_yield, 24, 124), OK(mremap, 25, 216),
    OK(msync, 26, 227), OK(mincore, 27, 232), OK(madvise, 28, 233), OK(dup, 32, 23),
    OK(dup2, 33, -1), OK(pause, 34, -1), OK(nanosleep, 35, 101), OK(getitimer, 36, 102),
    OK(alarm, 37, -1), OK(setitimer, 38, 103), OK(getpid, 39, 172), OK(sendfile, 40, 71),
    OK(accept, 43, 202), OK(recvfrom, 45, 207), OK(recvmsg, 47, 212), OK(shutdown, 48, 210),
    OK(bind, 49, 200), OK(listen, 50, 201), OK(getsockname, 51, 204), OK(getpeername, 52, 205),
    OK(setsockopt, 54, 208), OK(getsockopt, 55, 209), OK(fork, 57, -1), OK(vfork, 58, -1),
    OK(execve, 59, 221), OK(exit, 60, 93), OK(wait4, 61, 260), OK(kill, 62, 129),
    OK(uname, 63, 160), OK(flock, 73, 32), OK(fsync, 74, 82), OK(fdatasync, 75, 83),
    OK(truncate, 76, 45), OK(ftruncate, 77, 46), OK(getdents, 78, -1), OK(getcwd, 79, 17),
    OK(chdir, 80, 49), OK(fchdir, 81, 50), OK(rename, 82, -1), OK(mkdir, 83, -1), OK(rmdir, 84, -1),
    OK(creat, 85, -1), OK(link, 86, -1), OK(unlink, 87, -1), OK(symlink, 88, -1),
    OK(readlink, 89, -1), OK(chmod, 90, -1), OK(fchmod, 91, 52), OK(chown, 92, -1),
    OK(fchown, 93, 55), OK(lchown, 94, -1), OK(umask, 95, 166), OK(gettimeofday, 96, 169),
    OK(getrlimit, 97, 163), OK(getrusage, 98, 165), OK(sysinfo, 99, 179), OK(times, 100, 153),
    OK(getuid, 102, 174), OK(getgid, 104, 176), OK(setuid, 105, 146), OK(setgid, 106, 144),
    OK(geteuid, 107, 175), OK(getegid, 108, 177), OK(setpgid, 109, 154), OK(getppid, 110, 173),
    OK(getpgrp, 111, -1), OK(setsid, 112, 157), OK(setreuid, 113, 145), OK(setregid, 114, 143),
    OK(getgroups, 115, 158), OK(setgroups, 116, 159), OK(setresuid, 117, 147),
    OK(getresuid, 118, 148), OK(setresgid, 119, 149), OK(getresgid, 120, 150),
    OK(getpgid, 121, 155), OK(setfsuid, 122, 151), OK(setfsgid, 123, 152), OK(getsid, 124, 156),
    OK(capget, 125, 90), OK(capset, 126, 91), OK(rt_sigpending, 127, 136),
    OK(rt_sigtimedwait, 128, 137), OK(rt_sigqueueinfo, 129, 138), OK(rt_sigsuspend, 130, 133),
    OK(sigaltstack, 131, 132), OK(utime, 132, -1), OK(mknod, 133, -1), OK(statfs, 137, 43),
    OK(fstatfs, 138, 44), OK(getpriority, 140, 141), OK(sched_getparam, 143, 121),
    OK(sched_getscheduler, 145, 120), OK(sched_get_priority_max, 146, 125),
    OK(sched_get_priority_min, 147, 126), OK(sched_rr_get_interval, 148, 127), OK(mlock, 149, 228),
    OK(munlock, 150, 229), OK(mlockall, 151, 230), OK(munlockall, 152, 231),
    OK(arch_prctl, 158, -1), OK(setrlimit, 160, 164), OK(sync, 162, 81), OK(gettid, 186, 178),
    OK(readahead, 187, 213), OK(setxattr, 188, 5), OK(lsetxattr, 189, 6), OK(fsetxattr, 190, 7),
    OK(getxattr, 191, 8), OK(lgetxattr, 192, 9), OK(fgetxattr, 193, 10), OK(listxattr, 194, 11),
    OK(llistxattr, 195, 12), OK(flistxattr, 196, 13), OK(removexattr, 197, 14),
    OK(lremovexattr, 198, 15), OK(fremovexattr, 199, 16), OK(tkill, 200, 130), OK(time, 201, -1),
    OK(futex, 202, 98), OK(sched_getaffinity, 204, 123), OK(set_thread_area, 205, -1),
    OK(io_setup, 206, 0), OK(io_destroy, 207, 1), OK(io_getevents, 208, 4), OK(io_submit, 209, 2),
    OK(io_cancel, 210, 3), OK(epoll_create, 213, -1), OK(epoll_ctl_old, 214, -1),
    OK(epoll_wait_old, 215, -1), OK(remap_file_pages, 216, 234), OK(getdents64, 217, 61),
    OK(set_tid_address, 218, 96), OK(restart_syscall, 219, 128), OK(fadvise64, 221, 223),
    OK(timer_create, 222, 107), OK(timer_settime, 223, 110), OK(timer_gettime, 224, 108),
    OK(timer_getoverrun, 225, 109), OK(timer_delete, 226, 111), OK(clock_gettime, 228, 113),
    OK(clock_getres, 229, 114), OK(clock_nanosleep, 230, 115), OK(exit_group, 231, 94),
    OK(epoll_wait, 232, -1), OK(epoll_ctl, 233, 21), OK(tgkill, 234, 131), OK(utimes, 235, -1),
    OK(vserver, 236, -1), OK(mbind, 237, 235), OK(set_mempolicy, 238, 237),
    OK(get_mempolicy, 239, 236), OK(mq_timedsend, 242, 182), OK(mq_timedreceive, 243, 183),
    OK(mq_notify, 244, 184), OK(mq_getsetattr, 245, 185), OK(waitid, 247, 95),
    OK(ioprio_get, 252, 31), OK(inotify_init, 253, -1), OK(inotify_add_watch, 254, 27),
    OK(inotify_rm_watch, 255, 28), OK(openat, 257, 56), OK(mkdirat, 258, 34), OK(mknodat, 259, 33),
    OK(fchownat, 260, 54), OK(futimesat, 261, -1), OK(newfstatat, 262, 79), OK(unlinkat, 263, 35),
    OK(renameat, 264, 38), OK(linkat, 265, 37), OK(symlinkat, 266, 36), OK(readlinkat, 267, 78),
    OK(fchmodat, 268, 53), OK(faccessat, 269, 48), OK(pselect6, 270, 72), OK(ppoll, 271, 73),
    OK(set_robust_list, 273, 99), OK(get_robust_list, 274, 100), OK(splice, 275, 76),
    OK(tee, 276, 77), OK(sync_file_range, 277, 84), OK(vmsplice, 278, 75), OK(utimensat, 280, 88),
    OK(epoll_pwait, 281, 22), OK(signalfd, 282, -1), OK(timerfd_create, 283, 85),
    OK(eventfd, 284, -1), OK(fallocate, 285, 47), OK(timerfd_settime, 286, 86),
    OK(timerfd_gettime, 287, 87), OK(accept4, 288, 242), OK(signalfd4, 289, 74),
    OK(eventfd2, 290, 19), OK(epoll_create1, 291, 20), OK(dup3, 292, 24), OK(pipe2, 293, 59),
    OK(inotify_init1, 294, 26), OK(preadv, 295, 69), OK(pwritev, 296, 70),
    OK(rt_tgsigqueueinfo, 297, 240), OK(recvmmsg, 299, 243), OK(syncfs, 306, 267),
    OK(getcpu, 309, 168), OK(sched_getattr, 315, 275), OK(renameat2, 316, 276),
    OK(getrandom, 318, 278), OK(memfd_create, 319, 279), OK(execveat, 322, 281),
    OK(membarrier, 324, 283), OK(mlock2, 325, 284), OK(copy_file_range, 326, 285),
    OK(preadv2, 327, 286), OK(pwritev2, 328, 287), OK(pkey_mprotect, 329, 288),
    OK(pkey_alloc, 330, 289), OK(pkey_free, 331, 290), OK(statx, 332, 291),
    OK(io_pgetevents, 333, 292), OK(rseq, 334, 293), OK(uretprobe, 335, -1), OK(uprobe, 336, -1),
    OK(pidfd_send_signal, 424, 424), OK(pidfd_open, 434, 434), OK(close_range, 436, 436),
    OK(openat2, 437, 437), OK(faccessat2, 439, 439), OK(epoll_pwait2, 441, 441),
    OK(landlock_create_ruleset, 444, 444), OK(landlock_add_rule, 445, 445),
    OK(landlock_restrict_self, 446, 446), OK(memfd_secret, 447, 447), OK(futex_waitv, 449, 449),
    OK(set_mempolicy_home_node, 450, 450), OK(cachestat, 451, 451), OK(fchmodat2, 452, 452),
    OK(map_shadow_stack, 453, 453), OK(futex_wake, 454, 454), OK(futex_wait, 455, 455),
    OK(futex_requeue, 456, 456), OK(mseal, 462, 462),
};

static const char *const syscalls_rule_texts[RULE_COUNT] = {
    [RULE_CLONE] = "flags without CLONE_NEW* and CLONE_PARENT",
    [RULE_SOCKET] = "AF_UNIX stream and seqpacket without network or with a supervisor; with network AF_INET and "
                    "AF_INET6 stream and datagram (protocol 0, TCP, UDP) and NETLINK_ROUTE; any AF_UNIX where "
                    "Landlock resolves it",
    [RULE_SOCKETPAIR] = "AF_UNIX stream and seqpacket; any AF_UNIX where Landlock resolves it",
    [RULE_CONNECT] = "allowed with network, or where Landlock resolves unix sockets; a supervisor is asked first",
    [RULE_SENDTO] = "no address without network; no MSG_FASTOPEN with it",
    [RULE_SENDMSG] = "no MSG_FASTOPEN with network",
    [RULE_SENDMMSG] = "no MSG_FASTOPEN with network",
    [RULE_IOCTL] = "not TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, "
                   "FS_IOC_ENABLE_VERITY, FS_IOC_*_ENCRYPTION_{POLICY,KEY}; no subvolumes of btrfs and "
                   "bcachefs, no OCFS2_IOC_REFLINK",
    [RULE_FCNTL] = "not F_SETLEASE, F_SETDELEG, F_NOTIFY, F_SETOWN_EX",
    [RULE_PRCTL] = "not PR_SET_MM",
    [RULE_PERSONALITY] = "only 0, and 0xffffffff which asks",
    [RULE_SELF] = "only on pid 0, the caller itself",
    [RULE_PRIORITY] = "only (PRIO_PROCESS, 0), the caller itself",
    [RULE_IOPRIO] = "only (IOPRIO_WHO_PROCESS, 0), the caller itself",
    [RULE_SECCOMP] = "no SECCOMP_FILTER_FLAG_NEW_LISTENER",
    [RULE_PTRACE] = "allowed where the policy lets debuggers work",
    [RULE_IPC] = "allowed where the sandbox has its own IPC namespace",
};
// clang-format on

const struct syscall_row *syscalls_table(size_t *count)
{
    *count = sizeof(syscalls_rows) / sizeof(syscalls_rows[0]);
    return syscalls_rows;
}

int32_t syscalls_number(const struct syscall_row *row, uint32_t arch)
{
    switch (arch) {
    case AUDIT_ARCH_X86_64:
        return row->x86_64;
    case AUDIT_ARCH_AARCH64:
        return row->aarch64;
    default:
        return -1;
    }
}

const char *syscalls_rule_text(uint32_t rule)
{
    return rule < RULE_COUNT ? syscalls_rule_texts[rule] : NULL;
}
