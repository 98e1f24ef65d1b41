/* store_redis_url.h - reads the URL of a Redis: how it is reached, and which servers there are.
 *
 * Layer:   base/io, private to store_redis_link.c
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"
#include "base/io/store/store_redis_conn.h"

#include <sys/un.h>

#define REDIS_HOSTS_MAX 8

struct redis_url {
    bool unix_socket, sentinel, is_tls;
    struct redis_host host[REDIS_HOSTS_MAX]; /* of servers, or of sentinels */
    uint32_t host_count;
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path];
    char master[REDIS_HOST_BYTES], user[REDIS_HOST_BYTES];
    uint64_t db;
};

/* Reads a URL of STORE_REDIS_FORMS. -EINVAL with a sentence; *ret holds a part of it then. */
int redis_url_read(struct str url, struct redis_url *ret, struct err *err);
