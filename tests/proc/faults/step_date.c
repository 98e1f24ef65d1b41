/* step_date.c - moves the date of a process and no other clock of it; a library to preload.
 *
 * The file that DATE_STEP names holds the seconds to add; it is read each time that the date is read. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *ret)
{
    if (syscall(SYS_clock_gettime, id, ret) < 0) return -1;
    const char *path = getenv("DATE_STEP");
    int fd = id == CLOCK_REALTIME && path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    char text[32] = { 0 };
    if (read(fd, text, sizeof text - 1) > 0) ret->tv_sec += strtoll(text, NULL, 10);
    close(fd);
    return 0;
}
