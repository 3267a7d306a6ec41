/* A preloaded library that makes the N-th file operation under one folder fail, or kills the process before it.

Counted are the operations that change files: open for writing, write, pwrite, writev, rename, mkdir, unlink, rmdir,
fsync, fdatasync and ftruncate. The test arms it after a fork, so that one process can serve many cases.

  fault_arm(folder, at, error): at = 0 only counts; error = 0 kills with SIGKILL, else the operation fails with it
  fault_count(): the operations so far
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long fault_at;
static int fault_error;
static long counter;

void fault_arm(const char *under, long at, int error) {
    snprintf(folder, sizeof folder, "%s", under);
    fault_at = at;
    fault_error = error;
    counter = 0;
}

long fault_count(void) { return counter; }

static int is_under(int directory, const char *path) {
    char whole[PATH_MAX * 2];
    if (!folder[0]) return 0;
    if (path[0] == '/') {
        snprintf(whole, sizeof whole, "%s", path);
    } else {
        char base[PATH_MAX], link[64];
        ssize_t size;
        snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", directory);
        size = readlink(link, base, sizeof base - 1);
        if (size < 0) return 0;
        base[size] = 0;
        snprintf(whole, sizeof whole, "%s/%s", base, path);
    }
    return strncmp(whole, folder, strlen(folder)) == 0;
}

static int is_open_under(int file) {
    char link[64], path[PATH_MAX];
    ssize_t size;
    if (!folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

/* Count one operation; return whether it must fail, with errno set. */
static int fails(int concerned) {
    if (!concerned || ++counter != fault_at) return 0;
    if (!fault_error) kill(getpid(), SIGKILL);
    errno = fault_error;
    return 1;
}

#define REAL(type, name, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list list;                                                                                                  \
        va_start(list, flags);                                                                                         \
        mode_t mode = va_arg(list, mode_t);                                                                            \
        va_end(list);                                                                                                  \
        REAL(int, name, const char *, int, ...);                                                                       \
        if (WRITES(flags) && fails(is_under(AT_FDCWD, path))) return -1;                                               \
        return real(path, flags, mode);                                                                                \
    }
#define OPENAT(name)                                                                                                   \
    int name(int directory, const char *path, int flags, ...) {                                                        \
        va_list list;                                                                                                  \
        va_start(list, flags);                                                                                         \
        mode_t mode = va_arg(list, mode_t);                                                                            \
        va_end(list);                                                                                                  \
        REAL(int, name, int, const char *, int, ...);                                                                  \
        if (WRITES(flags) && fails(is_under(directory, path))) return -1;                                              \
        return real(directory, path, flags, mode);                                                                     \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

#define ON_FILE(type, name, arguments, names)                                                                          \
    type name arguments {                                                                                              \
        static type(*real) arguments;                                                                                  \
        if (!real) real = (type(*) arguments)dlsym(RTLD_NEXT, #name);                                                  \
        if (fails(is_open_under(file))) return -1;                                                                     \
        return real names;                                                                                             \
    }
ON_FILE(ssize_t, write, (int file, const void *data, size_t size), (file, data, size))
ON_FILE(ssize_t, pwrite, (int file, const void *data, size_t size, off_t at), (file, data, size, at))
ON_FILE(ssize_t, pwrite64, (int file, const void *data, size_t size, off_t at), (file, data, size, at))
ON_FILE(ssize_t, writev, (int file, const struct iovec *data, int count), (file, data, count))
ON_FILE(int, fsync, (int file), (file))
ON_FILE(int, fdatasync, (int file), (file))
ON_FILE(int, ftruncate, (int file, off_t size), (file, size))
ON_FILE(int, ftruncate64, (int file, off_t size), (file, size))

#define ON_PATH(name, arguments, directory, names)                                                                     \
    int name arguments {                                                                                               \
        static int(*real) arguments;                                                                                   \
        if (!real) real = (int(*) arguments)dlsym(RTLD_NEXT, #name);                                                   \
        if (fails(is_under(directory, path))) return -1;                                                               \
        return real names;                                                                                             \
    }
ON_PATH(rename, (const char *path, const char *to), AT_FDCWD, (path, to))
ON_PATH(renameat, (int from, const char *path, int other, const char *to), from, (from, path, other, to))
ON_PATH(mkdir, (const char *path, mode_t mode), AT_FDCWD, (path, mode))
ON_PATH(unlink, (const char *path), AT_FDCWD, (path))
ON_PATH(unlinkat, (int from, const char *path, int flags), from, (from, path, flags))
ON_PATH(rmdir, (const char *path), AT_FDCWD, (path))
