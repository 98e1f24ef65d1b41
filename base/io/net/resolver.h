/* resolver.h - resolves host names to addresses without blocking a loop.
 *
 * Layer:    base/io (loop, addr)
 * Threads:  the loop's. One helper thread asks the system (getaddrinfo); it starts with the first
 *           name, and an eventfd brings its answers to the loop. resolver_counts_get: any thread.
 * Lifetime: resolver_free waits for nothing: a helper that is inside the system's resolver ends by
 *           itself later
 * Rules:    (1) a name that was resolved once is answered at once from then on, with its last good
 *               address, for as long as it is in the table, whatever the system's resolver says or
 *               does not say
 *           (2) after RESOLVER_FRESH_US, or when resolver_doubt is called, the next use has the
 *               helper ask again, beside the answer; after a failure no sooner than
 *               RESOLVER_AGAIN_US
 *           (3) the loops of one process share what they learned in a name_book: a name that one of
 *               them knows is known to all
 *           (4) names that a use waits for are asked before names that are refreshed
 * Bounds:   RESOLVER_NAMES_MAX names; the name without a use that was used longest ago makes room;
 *           -ENOSPC when all are in use. At most one question per name is under way
 */
#pragma once
#include "base/core/err.h"
#include "base/core/list.h"
#include "base/core/own.h"
#include "base/io/loop/loop.h"
#include "base/io/net/addr.h"

#define RESOLVER_NAMES_MAX 1024
#define RESOLVER_FRESH_US 30000000
#define RESOLVER_AGAIN_US 1000000

struct resolver;
struct resolver_name;

struct resolver_counts {
    uint64_t asked;   /* questions put to the system */
    uint64_t failed;  /* of those, that brought no address */
    uint64_t stale;   /* uses of an address that could not be refreshed */
    uint64_t refused; /* -ENOSPC, -ENOMEM */
};

/* One use of a name; holds it in the table until resolver_leave. */
struct resolver_use {
    struct list node; /* while it waits */
    struct resolver_name *name;
    void (*fn)(void *arg, int rc, const struct addr *found);
    void *arg;
};

/* The last good addresses of a process; any thread. Outlives the resolvers that have it. At
 * RESOLVER_NAMES_MAX the name that was last put or found longest ago is forgotten. */
struct name_book;
int name_book_new(struct name_book **ret, struct err *err);
void name_book_free(struct name_book *b);
CLEANUP_FREEP(name_book, struct name_book)

/* Makes a resolver on a loop. `book` NULL: it shares no addresses. */
int resolver_new(struct loop *l, struct name_book *book, struct resolver **ret, struct err *err);
void resolver_free(struct resolver *r); /* uses that wait are forgotten */
CLEANUP_FREEP(resolver, struct resolver)
void resolver_counts_get(const struct resolver *r, struct resolver_counts *ret);

/* Asks for the address of a host. 0 and *ret: known. -EINPROGRESS: use->fn (filled by the caller, with
 * arg) is called once from the loop, with 0 and the address or -ENOENT. -ENOENT: asked a moment ago and
 * not known. -EINVAL: not a host name. -ENOSPC, -ENOMEM: no room. The port of the address is 0. After 0
 * and -EINPROGRESS resolver_leave is due. */
int resolver_ask(struct resolver *r, struct str host, struct resolver_use *use, struct addr *ret);
void resolver_leave(struct resolver *r, struct resolver_use *use); /* may be out already */

/* Tells that connecting to the address of `use` failed, so that the name is asked again at its next use:
 * it may have another address by now. */
void resolver_doubt(struct resolver *r, const struct resolver_use *use);
