/* free_port.h - finds a TCP port of the loopback interface for a server of a test.
 *
 * It is one from which the kernel gives none to clients: between here and the server's start nobody's connection takes
 * it. Two tests that choose at once draw from thousands.
 */
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define FREE_PORT_FIRST 10240u
#define FREE_PORT_TRIES 1000

/* Returns the first port of those that clients are given. */
static inline unsigned free_port_end(void)
{
    unsigned first = 32768;
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    if (f && fscanf(f, "%u", &first) != 1) first = 32768;
    if (f) fclose(f);
    return first > FREE_PORT_FIRST + FREE_PORT_TRIES ? first : 32768;
}

/* Ends the test if there is none. */
static inline uint16_t free_port(void)
{
    unsigned count = free_port_end() - FREE_PORT_FIRST, drawn;
    for (int i = 0; i < FREE_PORT_TRIES; i++) {
        if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) abort();
        uint16_t port = (uint16_t)(FREE_PORT_FIRST + drawn % count);
        struct sockaddr_in at = { .sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(port) };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool free = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
        if (fd >= 0) close(fd);
        if (free) return port;
    }
    abort();
}
