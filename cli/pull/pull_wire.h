/* pull_wire.h - makes one GET succeed: asks again after what may pass, and ends with a sentence after what may not.
 *
 * Layer:   cli (base/io/fetch.h)
 * Threads: one, in pull_wire_get, which turns the loop until the reply is whole or given up
 * Again:   no connection, a cut, silence, a local want of memory; 408, 429 and 5xx. A wait doubles from PULL_WAIT_US
 *          to PULL_WAIT_US_MAX, less up to half by chance; Retry-After counts up to PULL_RETRY_AFTER_US_MAX
 * Bounds:  `retries` in a row that bring nothing new, PULL_TRIES_MAX in all; PULL_IDLE_US without a byte;
 *          FETCH_REDIRECTS_MAX redirects. The body's bound is its reader's
 * Login:   of an object store: it is asked for before a try, and once more when it is refused (pull_login.h)
 * Secrets: the bearer goes to the first origin only (fetch.h); sentences hold no query of a URL
 */
#pragma once
#include "base/core/rng.h"
#include "base/io/fetch.h"
#include "cli/pull/pull_login.h"

#define PULL_WAIT_US 500000
#define PULL_WAIT_US_MAX 30000000
#define PULL_RETRY_AFTER_US_MAX 300000000
#define PULL_TRIES_MAX 1000u
#define PULL_IDLE_US 60000000
#define PULL_AGAIN (-ERESTART) /* of a reader: ask once more */
/* Of pull_wire_get: the bucket is in another region, make the URL anew. */
#define PULL_MOVED (-EREMCHG)

struct pull_wire {
    struct loop *loop;
    struct fetch *fetch;
    struct rng rng;
    uint32_t retries;
    bool stopped; /* SIGINT or SIGTERM came */
};

/* `environment` may name proxies. On failure, too, the caller closes it. */
int pull_wire_open(struct pull_wire *w, uint32_t retries, const char *const *environment,
                   struct err *err);
void pull_wire_close(struct pull_wire *w);

/* Looks for a signal while nothing else turns the loop. Returns true if one came. */
bool pull_wire_stopped(struct pull_wire *w);

/* The head of a reply with status 200, 206 or 416. Texts live during the call. */
struct pull_head {
    int status;
    struct str etag, modified, range, link; /* Content-Range; empty: absent */
    uint64_t length;                        /* of this body; UINT64_MAX: not said */
};

struct pull_ask {
    struct str url, bearer;   /* empty bearer: none */
    struct pull_login *login; /* signs each try; NULL: none */
    /* The members below are called with `arg`. A result other than 0 ends the call and is returned, except
     * PULL_AGAIN. */
    int (*before)(void *arg, struct pull_ask *ask,
                  struct err *err); /* each try; sets from, if_range */
    int (*on_head)(void *arg, const struct pull_head *head, struct err *err);
    int (*on_data)(void *arg, struct str data, struct err *err);
    void *arg;
    uint64_t from;       /* first byte that is asked for */
    struct str if_range; /* with from > 0 */
    /* The furthest byte that the reader ever had; a try that moves it is no failure. */
    uint64_t reached;
};

/* Returns 0 once a body is whole. -EINTR: stopped; -EACCES: 401 or 403; -ENOENT: 404; -EIO: given up; PULL_MOVED. */
int pull_wire_get(struct pull_wire *w, struct pull_ask *ask, struct err *err);

/* Gets a small body whole, at most `bytes_max`, and the Link header into ret_link (may be NULL). */
int pull_wire_text(struct pull_wire *w, struct str url, struct str bearer, struct pull_login *login,
                   size_t bytes_max, struct buf *ret_body, struct buf *ret_link, struct err *err);
