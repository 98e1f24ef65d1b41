/* slow_names.c - replaces the resolver with one that fails as in an outage; a library to preload.
 *
 * Names that end in ".test" resolve to 127.0.0.1. While the file $SLOW_NAMES_DOWN exists, each look-up of
 * such a name takes HANG_S seconds and fails; a byte in $SLOW_NAMES_SEEN shows that it began.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANG_S 10 /* two tries of five seconds, as glibc makes them */

typedef int getaddrinfo_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static void note(void)
{
    const char *path = getenv("SLOW_NAMES_SEEN");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    if (write(fd, "x", 1) < 0) abort();
    close(fd);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    getaddrinfo_fn *real;
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&real, &symbol, sizeof real);
    size_t len = name ? strlen(name) : 0;
    if (len < 5 || strcmp(name + len - 5, ".test") != 0) return real(name, service, hints, ret);
    const char *down = getenv("SLOW_NAMES_DOWN");
    if (!down || access(down, F_OK) != 0) return real("127.0.0.1", service, hints, ret);
    note();
    sleep(HANG_S);
    return EAI_AGAIN;
}
