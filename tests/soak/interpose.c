/* Lets a program watch its own calls that change files, and make them fail. Loaded with LD_PRELOAD.

   Before each call on a path below the watched folder, the hook gets the call's name and path. It returns 0 to let the
   call happen, or the error number that the call fails with. After a successful call, it is called again with `done`
   set. What the hook itself does is not watched.

   Calls are watched where programs enter the C library. Rust's `tempfile`, with which safetensors writes, makes the system
   call `renameat` itself. On x86-64, a filter turns that one into a signal, whose handler does the same. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

typedef int (*hook_type)(const char *call, const char *path, int done);
static hook_type hook;
static char root[PATH_MAX];
static __thread int inside;

static int told(const char *call, const char *path, int done) {
    if (!hook || inside || !path || strncmp(path, root, strlen(root))) return 0;
    int saved = errno;
    inside = 1;
    int answer = hook(call, path, done);
    inside = 0;
    errno = saved;
    return answer;
}

static const char *path_of(int fd, char *buffer) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, buffer, PATH_MAX - 1);
    buffer[length < 0 ? 0 : length] = 0;
    return buffer;
}

static const char *path_at(int folder, const char *path, char *buffer) {
    if (path[0] == '/' || folder == AT_FDCWD) return path;
    path_of(folder, buffer);
    size_t length = strlen(buffer);
    snprintf(buffer + length, PATH_MAX - length, "/%s", path);
    return buffer;
}

#ifdef __x86_64__
static void renameat_called(int number, siginfo_t *info, void *place) {
    greg_t *values = ((ucontext_t *)place)->uc_mcontext.gregs;
    char buffer[PATH_MAX];
    int saved = errno, new = (int)values[REG_RDX];
    const char *path = path_at(new, (const char *)values[REG_R10], buffer);
    long result = -told("rename", path, 0);
    if (!result) {
        result = syscall(SYS_renameat2, values[REG_RDI], values[REG_RSI], values[REG_RDX], values[REG_R10], 0);
        if (result < 0) result = -errno;
        else told("rename", path, 1);
    }
    values[REG_RAX] = result;
    errno = saved;
}

static void catch_renameat(void) {
    static int caught;
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof lines / sizeof lines[0], lines};
    struct sigaction action = {.sa_sigaction = renameat_called, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (caught++) return;
    sigaction(SIGSYS, &action, NULL);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) perror("seccomp");
}
#else
static void catch_renameat(void) {}
#endif

void watch(const char *folder, hook_type function) {
    strncpy(root, folder, sizeof root - 1);
    hook = function;
    catch_renameat();
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define WATCHED(call, path, expression)                                                                               \
    do {                                                                                                              \
        const char *watched = hook && !inside ? (path) : NULL;                                                          \
        int error = told(call, watched, 0);                                                                            \
        if (error) { errno = error; return -1; }                                                                      \
        __typeof__(expression) result = (expression);                                                                 \
        if (result >= 0) told(call, watched, 1);                                                                      \
        return result;                                                                                                \
    } while (0)

static int changes(int flags) { return flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR); }

#define OPEN(name)                                                                                                    \
    int name(const char *path, int flags, ...) {                                                                      \
        va_list rest;                                                                                                 \
        va_start(rest, flags);                                                                                        \
        mode_t mode = va_arg(rest, mode_t);                                                                           \
        va_end(rest);                                                                                                 \
        REAL(name);                                                                                                   \
        if (!changes(flags)) return real(path, flags, mode);                                                          \
        WATCHED("open", path, real(path, flags, mode));                                                               \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                                                  \
    int name(int folder, const char *path, int flags, ...) {                                                          \
        char buffer[PATH_MAX];                                                                                        \
        va_list rest;                                                                                                 \
        va_start(rest, flags);                                                                                        \
        mode_t mode = va_arg(rest, mode_t);                                                                           \
        va_end(rest);                                                                                                 \
        REAL(name);                                                                                                   \
        if (!changes(flags)) return real(folder, path, flags, mode);                                                  \
        WATCHED("open", path_at(folder, path, buffer), real(folder, path, flags, mode));                              \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t count) {
    char buffer[PATH_MAX];
    REAL(write);
    WATCHED("write", path_of(fd, buffer), real(fd, data, count));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    char buffer[PATH_MAX];
    REAL(writev);
    WATCHED("write", path_of(fd, buffer), real(fd, parts, count));
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t place) {
    char buffer[PATH_MAX];
    REAL(pwrite64);
    WATCHED("write", path_of(fd, buffer), real(fd, data, count, place));
}

ssize_t sendfile(int to, int from, off_t *place, size_t count) {
    char buffer[PATH_MAX];
    REAL(sendfile);
    WATCHED("write", path_of(to, buffer), real(to, from, place, count));
}

ssize_t sendfile64(int to, int from, off64_t *place, size_t count) {
    char buffer[PATH_MAX];
    REAL(sendfile64);
    WATCHED("write", path_of(to, buffer), real(to, from, place, count));
}

ssize_t copy_file_range(int from, off64_t *first, int to, off64_t *second, size_t count, unsigned flags) {
    char buffer[PATH_MAX];
    REAL(copy_file_range);
    WATCHED("write", path_of(to, buffer), real(from, first, to, second, count, flags));
}

int ftruncate64(int fd, off64_t length) {
    char buffer[PATH_MAX];
    REAL(ftruncate64);
    WATCHED("truncate", path_of(fd, buffer), real(fd, length));
}

int fsync(int fd) {
    char buffer[PATH_MAX];
    REAL(fsync);
    WATCHED("fsync", path_of(fd, buffer), real(fd));
}

int fdatasync(int fd) {
    char buffer[PATH_MAX];
    REAL(fdatasync);
    WATCHED("fsync", path_of(fd, buffer), real(fd));
}

int rename(const char *from, const char *to) {
    REAL(rename);
    WATCHED("rename", to, real(from, to));
}

int renameat2(int old, const char *from, int new, const char *to, unsigned flags) {
    char buffer[PATH_MAX];
    REAL(renameat2);
    WATCHED("rename", path_at(new, to, buffer), real(old, from, new, to, flags));
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    WATCHED("mkdir", path, real(path, mode));
}

int rmdir(const char *path) {
    REAL(rmdir);
    WATCHED("rmdir", path, real(path));
}

int unlink(const char *path) {
    REAL(unlink);
    WATCHED("unlink", path, real(path));
}

int unlinkat(int folder, const char *path, int flags) {
    char buffer[PATH_MAX];
    REAL(unlinkat);
    WATCHED(flags & AT_REMOVEDIR ? "rmdir" : "unlink", path_at(folder, path, buffer), real(folder, path, flags));
}

int chmod(const char *path, mode_t mode) {
    REAL(chmod);
    WATCHED("chmod", path, real(path, mode));
}

int utimensat(int folder, const char *path, const struct timespec times[2], int flags) {
    char buffer[PATH_MAX];
    REAL(utimensat);
    WATCHED("touch", path_at(folder, path, buffer), real(folder, path, times, flags));
}
