/* kube_elect.h - decides, for one candidate, when to read and write a Lease and when it may believe that it leads.
 *
 * Layer:  base/io/kube (base/core). Pure: time and chance are arguments; kube_lease.h does the I/O
 * Times:  the candidate's own monotonic clock. No date is compared, so clocks need not agree; only their
 *         rates must, within renew_us : lease_us
 *
 *     A writes           A's belief ends             B may write
 *     |--- renew_us ------------|                        |
 *     '-- accepted ... B sees it |--- lease_us ----------|      B's wait starts later and is longer
 *
 * Rules:  (1) a belief lasts renew_us from the moment at which a write that succeeded was begun
 *         (2) another's record is overwritten only after this candidate has seen it unchanged for lease_us
 *             (its own, or the record's if that is longer); a released one at once
 *         (3) a Lease that this candidate made gives no belief for lease_us: there may have been another,
 *             whose holder does not know yet that it was deleted. Who installs the fleet makes the Lease,
 *             without a holder, so that the first start does not wait
 *         (4) each write names the version that it was decided on, so that of two writes one fails
 *         (5) the epoch, leaseTransitions, grows with each change of the holder. It fences what a former
 *             leader has under way. In a Lease that a candidate made it is the date of its first belief,
 *             in seconds since 2026, which is above all epochs of the Leases before
 *         (6) an identity is of one process, never used again
 */
#pragma once
#include "base/core/rng.h"
#include "base/core/str.h"
#include "base/io/kube/kube_api.h"

#define KUBE_HOLDER_BYTES 128
#define KUBE_LEASE_US 15000000
#define KUBE_RENEW_US 10000000
#define KUBE_RETRY_US 2000000
#define KUBE_LEASE_US_MAX 3600000000

struct kube_elect_config { /* 0: the default */
    int64_t lease_us;      /* KUBE_LEASE_US: how long others wait */
    int64_t renew_us;      /* KUBE_RENEW_US: how long a leader believes; below lease_us */
    int64_t retry_us;    /* KUBE_RETRY_US: between renewals, and between looks of those who wait */
    int64_t absent_us;   /* lease_us; see rule 3 */
    int64_t epoch_least; /* epochs up to this were used: from the store that they fence */
};

struct kube_lease_record { /* a Lease, as far as elections need it */
    bool exists;
    char holder[KUBE_HOLDER_BYTES]; /* empty: released, or never held */
    char version[KUBE_VERSION_BYTES];
    int64_t lease_us;
    int64_t transitions;
};

enum kube_elect_act {
    KUBE_ELECT_WAIT,
    KUBE_ELECT_READ,
    KUBE_ELECT_CREATE,
    KUBE_ELECT_WRITE, /* over the record that was read last, at its version */
};

struct kube_elect {
    struct kube_elect_config config;
    char identity[KUBE_HOLDER_BYTES];
    struct kube_lease_record seen;
    bool known;               /* `seen` is the present state as far as this candidate knows */
    bool looked;              /* `seen` was read at least once */
    int64_t seen_us;          /* when `seen` was first seen in this version */
    int64_t next_us;          /* not to act before */
    enum kube_elect_act busy; /* under way */
    struct kube_lease_record wanted; /* what the write under way makes of the record */
    int64_t begun_us;
    bool leads, resigned;
    bool made;        /* a create of ours was or may have been carried out */
    bool anew;        /* the record that is ours was made by us and has given no belief yet */
    int64_t quiet_us; /* no belief before; see rule 3 */
    int64_t until_us; /* of the belief */
    int64_t epoch, epoch_seen;
};

/* -EINVAL when renew_us is not below lease_us, or the identity is empty or too long. */
int kube_elect_init(struct kube_elect *e, const struct kube_elect_config *config,
                    struct str identity, struct err *err);

/* Returns what to do now, and in *ret_at_us when to ask again. */
enum kube_elect_act kube_elect_next(const struct kube_elect *e, int64_t now_us, int64_t *ret_at_us);

/* Tells that the act has begun; for a write *ret_write is what to write. Its end follows. `date_us` is used
 * for rule 5 alone. */
void kube_elect_begin(struct kube_elect *e, enum kube_elect_act act, int64_t now_us,
                      int64_t date_us, struct kube_lease_record *ret_write);

/* The end of a read: rc 0 and the record (exists false: not there), or a failure. */
void kube_elect_read(struct kube_elect *e, int rc, const struct kube_lease_record *record,
                     int64_t now_us, struct rng *rng);

/* The end of a write or create: rc 0 and the version that it made; -ESTALE, -EEXIST, -ENOENT: it was not
 * carried out; another: it may have been. */
void kube_elect_wrote(struct kube_elect *e, int rc, const char *version, int64_t now_us,
                      struct rng *rng);

/* Returns true while this candidate may act as the leader of `epoch`. The caller asks with a clock that it
 * has just read. */
bool kube_elect_leads(const struct kube_elect *e, int64_t now_us);

/* Gives up: not a leader from now on, and never again. Returns true and fills *ret_write when the record
 * names us and should be released. */
bool kube_elect_resign(struct kube_elect *e, struct kube_lease_record *ret_write);
