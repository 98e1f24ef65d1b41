/* metadata.h - asks a machine's own metadata service whether its provider takes the machine away: requests out,
 * replies in, no socket.
 *
 * Layer:   agent (base/core, base/io/date)
 * Threads: pure; time is an argument
 * Use:     metadata_ask names the next request; its reply goes to metadata_take, which says what follows
 * Rules:   (1) a service that does not answer, or answers what nobody knows, is no notice: a machine is not given
 *              up by mistake
 *          (2) a notice is not taken back: what it says later may only be sooner
 * Sources: Amazon EC2 User Guide, "Spot Instance interruption notices", "EC2 instance rebalance recommendations";
 *          Compute Engine, "Spot VMs" (a machine has 30 s); Azure, "Scheduled Events" (Preempt, Terminate)
 */
#pragma once
#include "base/core/buf.h"

enum notice_source { NOTICE_NONE, NOTICE_EC2, NOTICE_GCE, NOTICE_AZURE, NOTICE_SOURCE_COUNT };
extern const char *const notice_source_names[NOTICE_SOURCE_COUNT + 1]; /* ends with NULL */

#define METADATA_TOKEN_BYTES 128
#define NOTICE_WHY_BYTES 128
#define METADATA_URL_BYTES 256
#define METADATA_REPLY_BYTES ((size_t)64 << 10)

struct metadata {
    enum notice_source source;
    struct str base;    /* of the service, without a slash at its end; empty: the source's own */
    struct str machine; /* the name that its provider knows it by */
    char token[METADATA_TOKEN_BYTES]; /* of EC2; empty: it has to be asked for */
    bool asks_risk;                   /* of EC2: the next question is whether it is at risk */
};

struct metadata_request {
    const char *method; /* static, as the next two */
    const char *header;
    const char *value; /* the service's, until it takes the reply */
    char url[METADATA_URL_BYTES];
};

enum notice_found {
    NOTICE_NOTHING, /* the machine stays, as far as is known: ask again later */
    NOTICE_AGAIN,   /* ask now: this reply was a step on the way */
    NOTICE_AT_RISK, /* it may be taken sooner than others: no date, and not certain */
    NOTICE_LEAVES,
};

/* -E2BIG: the URL is too long. */
int metadata_ask(const struct metadata *n, struct metadata_request *ret);

/* Takes the reply to the last request; `status` 0: none came. LEAVES: *ret_left_us is the time that is left by the
 * date `wall_us`, 0 and above, and `why` has the provider's words, as with AT_RISK. */
enum notice_found metadata_take(struct metadata *n, int status, struct str body, int64_t wall_us,
                                int64_t *ret_left_us, char why[NOTICE_WHY_BYTES]);
