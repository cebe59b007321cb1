/* Preloaded into a broker and its checkpointer: notes every call that changes files below one folder, and makes the Nth
 * call of a kind fail.
 *
 *     PROOF_ROOT     the folder
 *     PROOF_LOG      a folder for one log per process (shim.py reads it); unset = no notes
 *     PROOF_CONTROL  a file of struct control, mapped by every process; unset = no faults
 *
 * A note is written after its call returned, with the instants before and after it (CLOCK_MONOTONIC). What is written
 * through a map is not seen: LMDB maps its lock file, SQLite its log's index, and nothing durable is in either.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { WRITE, SYNC, ALLOC, TRUNCATE, RENAME, UNLINK, MKDIR, CREATE, KINDS };
enum manner { BEFORE, AFTER, SHORT };
#define ROLES 2 /* 0 the broker, 1 its checkpointer */
#define FILES 4096

struct control {
    uint32_t armed, role, kind, manner, error;
    uint32_t nth;             /* from 1 */
    uint32_t calls[ROLES][KINDS];
    uint32_t fired;           /* how often: 0 or 1 */
    int64_t fired_at;
    char path[512];           /* of the call that failed */
};

struct note {                 /* followed by path, second path, data */
    uint32_t kind, flags;
    int64_t before, after;
    uint64_t inode;
    int64_t offset, size;
    uint32_t path_size, path2_size;
    uint64_t data_size;
};

#define FLAG_DSYNC 1 /* the write is durable when it returns */
#define FLAG_DIR 2   /* a folder was flushed */

static char root[PATH_MAX];
static size_t root_size;
static int log_fd = -1, role;
static struct control *control;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static signed char known[FILES]; /* 0 unknown, 1 below root, -1 elsewhere */

#define REAL(name) ({ static __typeof__(&name) found; if (!found) found = dlsym(RTLD_NEXT, #name); found; })

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Again in a child that was forked with other variables than its parent had; see warm.py. */
__attribute__((constructor)) void proof_begin(void) {
    const char *folder = getenv("PROOF_ROOT"), *logs = getenv("PROOF_LOG"), *map = getenv("PROOF_CONTROL");
    char text[PATH_MAX + 32];
    if (!folder) return;
    root_size = snprintf(root, sizeof root, "%s", folder);
    int words = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = read(words, text, sizeof text);
    close(words);
    role = size > 0 && memmem(text, size, "checkpointer", 12) != NULL;
    if (logs) {
        snprintf(text, sizeof text, "%s/%d-%d.log", logs, role, getpid());
        int fd = syscall(SYS_openat, AT_FDCWD, text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 900);
        syscall(SYS_close, fd);
    }
    if (map) {
        int fd = syscall(SYS_openat, AT_FDCWD, map, O_RDWR | O_CLOEXEC, 0);
        control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (control == MAP_FAILED) abort();
        syscall(SYS_close, fd);
    }
}

static int below(const char *path) {
    return root_size && !strncmp(path, root, root_size) && (path[root_size] == '/' || !path[root_size]);
}

static int path_of(int fd, char *path) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size > 0 ? size : 0] = 0;
    return size > 0;
}

static int ours(int fd, char *path) {
    if (!root_size || fd < 0 || fd >= FILES || known[fd] < 0) return 0;
    if (!path_of(fd, path)) return 0;
    known[fd] = below(path) ? 1 : -1;
    return known[fd] > 0;
}

static void absolute(int dir, const char *path, char *out) {
    char base[PATH_MAX];
    if (path[0] == '/') { snprintf(out, PATH_MAX, "%s", path); return; }
    if (dir == AT_FDCWD) { if (!getcwd(base, sizeof base)) base[0] = 0; }
    else path_of(dir, base);
    if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) out[0] = 0;
}

/* The error that this call is to end with, and how; 0 = it is not the one. A short write has an error that nobody sees. */
static int fails(enum kind kind, const char *path, enum manner *manner) {
    if (!control) return 0;
    uint32_t count = __atomic_add_fetch(&control->calls[role][kind], 1, __ATOMIC_SEQ_CST);
    if (!control->armed || control->role != (uint32_t)role || control->kind != kind || control->nth != count) return 0;
    control->fired_at = now();
    snprintf(control->path, sizeof control->path, "%s", path);
    __atomic_store_n(&control->fired, 1, __ATOMIC_SEQ_CST);
    *manner = control->manner;
    return *manner == SHORT ? EINTR : (int)control->error;
}

static void keep(const struct iovec *parts, int count) {
    size_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    /* A note that lacks bytes would prove nothing. */
    if (syscall(SYS_writev, log_fd, parts, count) != (ssize_t)size) abort();
}

static void put(struct note *n, const char *path, const char *path2, const struct iovec *parts, int count) {
    if (log_fd < 0) return;
    int saved = errno;
    n->path_size = strlen(path);
    n->path2_size = path2 ? strlen(path2) : 0;
    struct iovec head[3] = {{n, sizeof *n}, {(void *)path, n->path_size}, {(void *)path2, n->path2_size}};
    uint64_t left = n->data_size;
    pthread_mutex_lock(&lock);
    keep(head, 3);
    for (int i = 0; i < count && left; i++) {
        struct iovec part = {parts[i].iov_base, parts[i].iov_len < left ? parts[i].iov_len : left};
        keep(&part, 1);
        left -= part.iov_len;
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
}

static uint64_t inode_of(int fd) {
    struct stat s;
    return fstat(fd, &s) ? 0 : s.st_ino;
}

/* -- writes: all of them come here as an offset and parts --------------------------------------------------------- */

static ssize_t do_write(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    static __typeof__(&pwritev2) real;
    if (!real) real = dlsym(RTLD_NEXT, "pwritev2");
    return real(fd, parts, count, offset, flags);
}

static ssize_t noted_write(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    char path[PATH_MAX];
    int mode = ours(fd, path) ? fcntl(fd, F_GETFL) : O_RDONLY;
    /* What is open for reading only is not written: SQLite tries when such a connection closes. */
    if ((mode & O_ACCMODE) == O_RDONLY) return do_write(fd, parts, count, offset, flags);
    enum manner manner = BEFORE;
    int error = fails(WRITE, path, &manner);
    if (error && manner == BEFORE) { errno = error; return -1; }
    struct note n = {.kind = WRITE, .inode = inode_of(fd), .offset = offset};
    if ((mode & O_DSYNC) || (flags & (RWF_DSYNC | RWF_SYNC))) n.flags |= FLAG_DSYNC;
    n.before = now();
    if (offset < 0) n.offset = mode & O_APPEND ? lseek(fd, 0, SEEK_END) : lseek(fd, 0, SEEK_CUR);
    struct iovec half;
    if (error && manner == SHORT) {
        half = (struct iovec){parts[0].iov_base, (parts[0].iov_len + 1) / 2};
        parts = &half;
        count = 1;
    }
    ssize_t done = do_write(fd, parts, count, offset, flags);
    n.after = now();
    if (done > 0) {
        n.size = n.data_size = done;
        put(&n, path, NULL, parts, count);
    }
    if (error && manner == AFTER) { errno = error; return -1; }
    return done;
}

ssize_t write(int fd, const void *data, size_t size) {
    if (fd < 0 || fd >= FILES || known[fd] < 0 || !root_size) return syscall(SYS_write, fd, data, size);
    char path[PATH_MAX];
    if (!ours(fd, path)) return syscall(SYS_write, fd, data, size);
    struct iovec part = {(void *)data, size};
    return noted_write(fd, &part, 1, -1, 0);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    char path[PATH_MAX];
    if (!ours(fd, path)) return syscall(SYS_writev, fd, parts, count);
    return noted_write(fd, parts, count, -1, 0);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    struct iovec part = {(void *)data, size};
    return noted_write(fd, &part, 1, offset, 0);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }
ssize_t pwritev(int fd, const struct iovec *p, int n, off_t offset) { return noted_write(fd, p, n, offset, 0); }
ssize_t pwritev64(int fd, const struct iovec *p, int n, off_t offset) { return noted_write(fd, p, n, offset, 0); }
ssize_t pwritev2(int fd, const struct iovec *p, int n, off_t o, int f) { return noted_write(fd, p, n, o, f); }
ssize_t pwritev64v2(int fd, const struct iovec *p, int n, off_t o, int f) { return noted_write(fd, p, n, o, f); }

/* -- everything else ------------------------------------------------------------------------------------------------ */

/* Runs the call `expression`, unless it is the one to fail; evaluates to its result (-1 and errno on failure). */
#define AROUND(k, path, path2, expression, ...) ({                                                   \
    enum manner manner = BEFORE;                                                                     \
    int error = fails(k, path, &manner), result = -1;                                                \
    struct note n = {.kind = k, __VA_ARGS__};                                                        \
    if (error && manner != AFTER) errno = error;                                                     \
    else {                                                                                           \
        n.before = now();                                                                            \
        result = (expression);                                                                       \
        n.after = now();                                                                             \
        if (result >= 0) put(&n, path, path2, NULL, 0);                                              \
        if (error) { errno = error; result = -1; }                                                   \
    }                                                                                                \
    result; })

static int noted_sync(int fd, int number) {
    char path[PATH_MAX];
    struct stat s;
    if (!ours(fd, path) || fstat(fd, &s)) return syscall(number, fd);
    return AROUND(SYNC, path, NULL, syscall(number, fd), .inode = s.st_ino, .flags = S_ISDIR(s.st_mode) ? FLAG_DIR : 0);
}
int fsync(int fd) { return noted_sync(fd, SYS_fsync); }
int fdatasync(int fd) { return noted_sync(fd, SYS_fdatasync); }

static int noted_allocate(int fd, int mode, off_t offset, off_t size) {
    char path[PATH_MAX];
    if (!ours(fd, path)) return syscall(SYS_fallocate, fd, mode, offset, size);
    return AROUND(ALLOC, path, NULL, syscall(SYS_fallocate, fd, mode, offset, size), .inode = inode_of(fd),
                  .flags = mode, .offset = offset, .size = size);
}
int fallocate(int fd, int mode, off_t offset, off_t size) { return noted_allocate(fd, mode, offset, size); }
int fallocate64(int fd, int mode, off64_t offset, off64_t size) { return noted_allocate(fd, mode, offset, size); }
int posix_fallocate(int fd, off_t offset, off_t size) {
    int saved = errno, result = noted_allocate(fd, 0, offset, size) ? errno : 0;
    errno = saved;
    return result;
}
int posix_fallocate64(int fd, off64_t offset, off64_t size) { return posix_fallocate(fd, offset, size); }

int ftruncate(int fd, off_t size) {
    char path[PATH_MAX];
    if (!ours(fd, path)) return syscall(SYS_ftruncate, fd, size);
    return AROUND(TRUNCATE, path, NULL, syscall(SYS_ftruncate, fd, size), .inode = inode_of(fd), .size = size);
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
int truncate(const char *name, off_t size) {
    char path[PATH_MAX];
    struct stat s;
    absolute(AT_FDCWD, name, path);
    if (!below(path) || stat(path, &s)) return syscall(SYS_truncate, name, size);
    return AROUND(TRUNCATE, path, NULL, syscall(SYS_truncate, name, size), .inode = s.st_ino, .size = size);
}
int truncate64(const char *name, off64_t size) { return truncate(name, size); }

static int noted_rename(int from, const char *old, int to, const char *new, unsigned flags) {
    char path[PATH_MAX], path2[PATH_MAX];
    absolute(from, old, path);
    absolute(to, new, path2);
    if (!below(path) && !below(path2)) return syscall(SYS_renameat2, from, old, to, new, flags);
    return AROUND(RENAME, path, path2, syscall(SYS_renameat2, from, old, to, new, flags), .flags = 0);
}
int rename(const char *old, const char *new) { return noted_rename(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int f, const char *old, int t, const char *new) { return noted_rename(f, old, t, new, 0); }
int renameat2(int f, const char *old, int t, const char *new, unsigned x) { return noted_rename(f, old, t, new, x); }

static int noted_unlink(int dir, const char *name, int flags) {
    char path[PATH_MAX];
    absolute(dir, name, path);
    if (!below(path)) return syscall(SYS_unlinkat, dir, name, flags);
    return AROUND(UNLINK, path, NULL, syscall(SYS_unlinkat, dir, name, flags), .flags = flags);
}
int unlink(const char *name) { return noted_unlink(AT_FDCWD, name, 0); }
int unlinkat(int dir, const char *name, int flags) { return noted_unlink(dir, name, flags); }
int rmdir(const char *name) { return noted_unlink(AT_FDCWD, name, AT_REMOVEDIR); }

static int noted_mkdir(int dir, const char *name, mode_t mode) {
    char path[PATH_MAX];
    absolute(dir, name, path);
    if (!below(path)) return syscall(SYS_mkdirat, dir, name, mode);
    return AROUND(MKDIR, path, NULL, syscall(SYS_mkdirat, dir, name, mode), .flags = 0);
}
int mkdir(const char *name, mode_t mode) { return noted_mkdir(AT_FDCWD, name, mode); }
int mkdirat(int dir, const char *name, mode_t mode) { return noted_mkdir(dir, name, mode); }

static int noted_open(int dir, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    struct stat s;
    absolute(dir, name, path);
    int there = stat(path, &s) == 0, fd;
    if (below(path) && (flags & O_CREAT) && !there) {
        enum manner manner = BEFORE;
        int error = fails(CREATE, path, &manner);
        if (error) { errno = error; return -1; }
        struct note n = {.kind = CREATE, .before = now()};
        fd = syscall(SYS_openat, dir, name, flags, mode);
        n.after = now();
        n.inode = inode_of(fd);
        if (fd >= 0) put(&n, path, NULL, NULL, 0);
    } else {
        struct note n = {.kind = TRUNCATE, .before = now(), .inode = there ? s.st_ino : 0};
        fd = syscall(SYS_openat, dir, name, flags, mode);
        n.after = now();
        if (fd >= 0 && there && below(path) && (flags & O_TRUNC) && s.st_size) put(&n, path, NULL, NULL, 0);
    }
    if (fd >= 0 && fd < FILES) known[fd] = 0;
    return fd;
}

#define MODE_OF(flags) ({ mode_t m = 0; if ((flags) & (O_CREAT | __O_TMPFILE)) {                      \
    va_list rest; va_start(rest, flags); m = va_arg(rest, int); va_end(rest); } m; })

int open(const char *name, int flags, ...) { return noted_open(AT_FDCWD, name, flags, MODE_OF(flags)); }
int open64(const char *name, int flags, ...) { return noted_open(AT_FDCWD, name, flags | O_LARGEFILE, MODE_OF(flags)); }
int openat(int dir, const char *name, int flags, ...) { return noted_open(dir, name, flags, MODE_OF(flags)); }
int openat64(int dir, const char *name, int flags, ...) { return noted_open(dir, name, flags | O_LARGEFILE, MODE_OF(flags)); }
int close(int fd) {
    if (fd >= 0 && fd < FILES) known[fd] = 0;
    return syscall(SYS_close, fd);
}
