/* reroute.c - sends connections from one part of Muster to another to the relay; a library to preload.
 *
 * It replaces connect() only, only for IPv4 addresses of this machine, and only in the processes
 * of the four roles: the program's own first argument is its role. */
#include "tests/proc/faults/reroute.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define CMDLINE_MAX 4096

static int (*real_connect)(int, const struct sockaddr *, socklen_t);
static struct reroute_table *table;
static enum part self;

static const char *const part_names[PART_COUNT] = { "", "controller", "router", "agent", "engine" };

/* Reads the part from the second word of the command line: `muster ROLE ...`. */
static enum part part_of_process(void)
{
    char line[CMDLINE_MAX];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return PART_OTHER;
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    if (n <= 0) return PART_OTHER;
    line[n] = '\0';
    size_t second = strlen(line) + 1;
    for (unsigned p = PART_CONTROLLER; second < (size_t)n && p < PART_COUNT; p++)
        if (strcmp(line + second, part_names[p]) == 0) return (enum part)p;
    return PART_OTHER;
}

__attribute__((constructor)) static void reroute_open(void)
{
    *(void **)&real_connect = dlsym(RTLD_NEXT, "connect");
    const char *path = getenv(REROUTE_ENV);
    self = part_of_process();
    if (!path || self == PART_OTHER) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED) table = map;
}

/* Binds the socket to a port of the kernel's choice, and notes under it the part and the port meant. */
static void leave_note(int fd, uint16_t port)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof in;
    if (bind(fd, (struct sockaddr *)&in, len) < 0) return;
    if (getsockname(fd, (struct sockaddr *)&in, &len) < 0) return;
    table->note[ntohs(in.sin_port)] = (uint32_t)self | (uint32_t)port << 16;
}

int connect(int fd, const struct sockaddr *to, socklen_t len)
{
    int kind = 0;
    socklen_t kind_len = sizeof kind;
    if (!table || !to || to->sa_family != AF_INET || len < sizeof(struct sockaddr_in) ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &kind_len) < 0 || kind != SOCK_STREAM)
        return real_connect(fd, to, len);
    struct sockaddr_in in;
    memcpy(&in, to, sizeof in);
    if (ntohl(in.sin_addr.s_addr) >> 24 != 127) return real_connect(fd, to, len);
    uint16_t port = ntohs(in.sin_port);
    enum cut cut = reroute_cut_of(table, self, port);
    leave_note(fd, port);
    in.sin_port = htons(cut == CUT_NONE    ? table->relay_port
                        : cut == CUT_RESET ? table->closed_port
                                           : table->hole_port);
    return real_connect(fd, (const struct sockaddr *)&in, sizeof in);
}
