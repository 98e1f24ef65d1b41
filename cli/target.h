/* target.h - a server named by URL: where to connect, and what it serves.
 *
 * Layer: cli (base/core, base/io)
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

#define TARGET_URL_DEFAULT "http://127.0.0.1:8080"

struct target {
    struct str host; /* points into the URL */
    uint16_t port;
};

/* "http://HOST[:PORT][/]"; -EINVAL for anything else (https is not spoken). */
int target_parse(struct str url, struct target *ret, struct err *err);

/* Appends the id of the first model that GET /v1/models lists. */
int target_model(const struct target *t, struct str api_key, struct buf *ret, struct err *err);
