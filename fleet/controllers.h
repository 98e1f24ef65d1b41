/* controllers.h - chooses which of several controllers a router or an agent asks: one of them leads.
 *
 * Layer:   fleet (base/core)
 * Threads: pure; the caller owns the struct
 * Rules:   (1) the one that replied last as the leader is asked until it does not reply, or replies that it
 *              stands by
 *          (2) one that stands by may name the leader, which is asked next, once; it need not be configured
 *          (3) otherwise the next of the list is asked, so that each is asked once in CONTROLLERS_MAX tries
 *          (4) a reply of an earlier term than one that came within CONTROLLERS_EPOCH_US is out of date and is
 *              not heeded. Later it is: a store that was lost may have begun to count anew
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

#define CONTROLLERS_MAX 8
#define CONTROLLERS_HOST_BYTES 128
#define CONTROLLERS_EPOCH_US 60000000

struct controller_address {
    char host[CONTROLLERS_HOST_BYTES]; /* without brackets */
    uint16_t port;
    bool tls;
};

struct controllers {
    struct controller_address at[CONTROLLERS_MAX];
    uint32_t count, current;
    struct controller_address named; /* by one that stands by; port 0: none */
    bool followed; /* the one asked was named, and has not replied as the leader yet */
    uint64_t epoch;
    int64_t epoch_us; /* when it was heard last */
};

/* Reads "[http[s]://]HOST:PORT". -EINVAL. */
int controller_address_parse(struct str text, struct controller_address *ret, struct err *err);

/* Adds an address, unless it is there. -ENOSPC, -EINVAL. */
int controllers_add(struct controllers *c, struct str text, struct err *err);

/* Returns the one to ask; NULL: none is known. */
const struct controller_address *controllers_next(const struct controllers *c);

/* These take what came of the question: the leader's reply, no usable reply, or the reply of one that stands
 * by and names a leader (empty: it knows none). controllers_stands_by returns true if the named one should be
 * asked at once. */
void controllers_missed(struct controllers *c);
bool controllers_stands_by(struct controllers *c, struct str leader);

/* Returns true if the reply of the leader of this term (0: not given) is to be heeded. */
bool controllers_heard(struct controllers *c, uint64_t epoch, int64_t now_us);
