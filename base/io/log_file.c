/* log_file.c - turned by its own writer.
 *
 * Nobody else is there to do it: the command that started us has ended, and a fleet on a laptop has
 * no logrotate. The writer counts what it writes, and once the count may have reached the bound it
 * asks for the size, because a process may share the file with its children. The new file takes the
 * old descriptor's number, so that every line goes on through the same number. */
#include "base/io/log_file.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock; /* over the turn */
    int fd;
    char path[PATH_MAX];
    uint64_t bytes_max; /* atomic; 0: nothing is watched */
    int64_t left;       /* atomic: bytes until the size is looked at */
} file = { .lock = PTHREAD_MUTEX_INITIALIZER };

void log_file_keep(int fd, uint64_t bytes_max)
{
    struct stat st;
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    bool ours = bytes_max > 0 && n > 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    file.fd = fd;
    if (ours) memcpy(file.path, path, (size_t)n);
    if (ours) file.path[n] = 0;
    __atomic_store_n(&file.left, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&file.bytes_max, ours ? bytes_max : 0, __ATOMIC_RELEASE);
}

/* "PATH.N", or PATH itself for 0. */
static bool name(char ret[PATH_MAX], int number)
{
    int n = number ? snprintf(ret, PATH_MAX, "%s.%d", file.path, number)
                   : snprintf(ret, PATH_MAX, "%s", file.path);
    return n > 0 && n < PATH_MAX;
}

/* True when the path still names what `st` describes. */
static bool is_there(const struct stat *st)
{
    struct stat now;
    return stat(file.path, &now) == 0 && now.st_dev == st->st_dev && now.st_ino == st->st_ino;
}

/* What fails leaves the old file in use; it is tried again when as much was written once more. */
static void turn(const struct stat *st)
{
    char from[PATH_MAX], to[PATH_MAX];
    if (!is_there(st)) return;
    for (int k = LOG_FILE_COUNT; k > 0; k--)
        if (name(from, k - 1) && name(to, k)) (void)rename(from, to);
    int fd = open(file.path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    struct stat out;
    bool both = file.fd != STDOUT_FILENO && fstat(STDOUT_FILENO, &out) == 0 &&
                out.st_dev == st->st_dev && out.st_ino == st->st_ino;
    if (both) (void)dup2(fd, STDOUT_FILENO);
    (void)dup2(fd, file.fd);
    close(fd);
}

static void look(uint64_t bytes_max)
{
    struct stat st;
    if (fstat(file.fd, &st) < 0) return;
    uint64_t size = (uint64_t)st.st_size;
    /* Before the turn: what others write meanwhile counts for the file that comes. */
    int64_t left = (int64_t)(size < bytes_max ? bytes_max - size : bytes_max);
    __atomic_store_n(&file.left, left, __ATOMIC_RELAXED);
    if (size >= bytes_max) turn(&st);
}

void log_file_wrote(size_t bytes)
{
    uint64_t bytes_max = __atomic_load_n(&file.bytes_max, __ATOMIC_ACQUIRE);
    if (bytes_max == 0) return;
    if (__atomic_sub_fetch(&file.left, (int64_t)bytes, __ATOMIC_RELAXED) > 0) return;
    if (pthread_mutex_trylock(&file.lock) != 0) return; /* another thread is at it */
    look(bytes_max);
    pthread_mutex_unlock(&file.lock);
}
