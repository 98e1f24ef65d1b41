/* descriptors.c - raises RLIMIT_NOFILE and divides it.
 *
 * The soft limit is 1,024 in most shells and services because select() cannot see descriptors beyond
 * it. Nothing here uses select(), so the hard limit is ours to use (systemd's advice to daemons). */
#include "base/io/net/descriptors.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/io/log.h"

#include <string.h>
#include <sys/resource.h>

void descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    int rc = before == limit.rlim_max ? 0 : setrlimit(RLIMIT_NOFILE, &limit);
    if (rc < 0) limit.rlim_cur = before;
    log_event(rc < 0 ? LOG_WARN : LOG_INFO, "descriptors",
              "limit=%lu before=%lu usable=%u error=%s", (unsigned long)limit.rlim_cur,
              (unsigned long)before, descriptors_usable(), rc < 0 ? strerror(errno) : "");
}

uint32_t descriptors_usable(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return DESCRIPTORS_RESERVE;
    uint64_t all = limit.rlim_cur;
    uint64_t reserve = all / 2 < DESCRIPTORS_RESERVE ? all / 2 : DESCRIPTORS_RESERVE;
    uint64_t usable = all - reserve;
    return usable > UINT32_MAX ? UINT32_MAX : (uint32_t)(usable > 0 ? usable : 1);
}

uint32_t descriptors_share(uint32_t of_100, uint32_t parts, uint32_t most)
{
    uint64_t share = (uint64_t)descriptors_usable() * of_100 / 100 / (parts > 0 ? parts : 1);
    if (most > 0 && share > most) share = most;
    return share > 0 ? (uint32_t)share : 1;
}
