/* Makes the syncs of SQLite's write-ahead log fail while the file named in FAILING_SYNC exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int fd) {
    const char *mark = getenv("FAILING_SYNC");
    char link[64], path[4096];
    ssize_t length;
    if (mark == NULL || access(mark, F_OK) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path);
    return length > 4 && strncmp(path + length - 4, "-wal", 4) == 0;
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (!fails(fd)) return real(fd);
    errno = EIO;
    return -1;
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (!fails(fd)) return real(fd);
    errno = EIO;
    return -1;
}
