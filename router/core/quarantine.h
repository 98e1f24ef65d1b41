/* quarantine.h - suspects and refuses prompts that kill engines.
 *
 * Layer:    router/core (base/core)
 * Threads:  pure; the decision thread only. Time comes in
 * Lifetime: everything is taken at quarantine_new
 * Names:    a fingerprint is a keyed hash of model and prompt, 0 is none; an engine is the hash of
 *           its instance's name and its boot id
 *
 *     blamed once ──► suspect: its requests run without another suspect beside them
 *          │                     │ went on past the token at which the engine died: acquitted
 *          ▼                     ▼
 *     blamed for a second engine ──► refused for everybody; for PROOF_US while a death is unproven,
 *                                    for the whole time once both are proven
 *
 * Rules: (1) a connection that broke is a blame, not a proof: the network may have been cut. An
 *            engine that shows another boot id has died; one that gives tokens, under the same boot
 *            id, to a request sent later has not, and the blame is dropped
 *        (2) two blames are of two engines: requests that died together at one count once
 *        (3) at QUARANTINE_MAX the stalest suspect makes room, then the stalest of all: counted
 *        (4) what other routers refuse is refused here too, as long as they say so: told, not seen
 */
#pragma once
#include "base/core/err.h"

#include <stdbool.h>
#include <stdint.h>

#define QUARANTINE_MAX 1024
#define QUARANTINE_DEATHS 2
/* A blame that is neither proven nor dropped by then is void. */
#define QUARANTINE_PROOF_US 600000000

struct quarantine;

struct quarantine_counts {
    uint32_t suspects, refused_now; /* fingerprints */
    uint64_t caught;                /* fingerprints blamed for QUARANTINE_DEATHS engines */
    uint64_t refusals;              /* requests */
    uint64_t acquitted;             /* suspects that turned out harmless */
    uint64_t forgotten;             /* at the bound */
};

/* One fingerprint as people and other routers see it. */
struct quarantine_item {
    uint64_t fingerprint;
    uint32_t blames, proven;
    bool refused;
    bool told;         /* refused by another router, not seen here */
    int64_t left_us;   /* until it is forgotten or let in again */
    uint64_t refusals; /* of its requests */
};

/* `expiry_us` 0: nobody is ever blamed. -ENOMEM. */
int quarantine_new(int64_t expiry_us, struct quarantine **ret, struct err *err);
void quarantine_free(struct quarantine *q);

/* Returns the microseconds for which requests of this fingerprint are refused; 0: they are not.
 * Counts a refusal. */
int64_t quarantine_refuses(struct quarantine *q, uint64_t fingerprint, int64_t now_us);
/* The same for a request that is refused already; counts nothing. */
int64_t quarantine_left_us(const struct quarantine *q, uint64_t fingerprint, int64_t now_us);

/* Returns the output tokens that acquit a request of this fingerprint; 0: it is no suspect. */
uint32_t quarantine_suspects(const struct quarantine *q, uint64_t fingerprint, int64_t now_us);
void quarantine_passed(struct quarantine *q, uint64_t fingerprint);

/* Blames a fingerprint: the connection to that engine broke after `generated` output tokens. */
void quarantine_blame(struct quarantine *q, uint64_t fingerprint, uint64_t instance, uint64_t boot,
                      uint32_t generated, int64_t now_us);

/* Notes the boot id that an instance has now; blames of another boot id are proven by it. */
void quarantine_boot(struct quarantine *q, uint64_t instance, uint64_t boot);
/* Notes a token, under this boot id, for a request sent at sent_us: earlier blames are dropped. */
void quarantine_alive(struct quarantine *q, uint64_t instance, uint64_t boot, int64_t sent_us);

/* Takes the whole list of fingerprints that other routers refuse. One that is not in it is let in
 * again, unless it was seen here. Only fingerprint and left_us of an item are read. */
void quarantine_told(struct quarantine *q, const struct quarantine_item *list, uint32_t count,
                     int64_t now_us);

/* Forgets one fingerprint, or all with 0; returns how many. */
uint32_t quarantine_clear(struct quarantine *q, uint64_t fingerprint);

uint32_t quarantine_list(const struct quarantine *q, int64_t now_us, struct quarantine_item *ret,
                         uint32_t max);
void quarantine_counts_get(const struct quarantine *q, int64_t now_us,
                           struct quarantine_counts *ret);
uint64_t quarantine_changes(const struct quarantine *q); /* rises with each change but time's */
