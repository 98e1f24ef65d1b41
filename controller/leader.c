/* leader.c - runs the election (base/io/store/store_election.h) from a timer of the loop, and begins and ends
 * terms.
 *
 * The epoch of a term is at least the date in seconds. A store that was lost forgets the epochs that it gave
 * out, and providers, routers and agents compare them: as long as dates are roughly right, a new store goes on
 * above the old one's. A provider that has seen a later epoch nevertheless names it, and the next term's is
 * higher. */
#include "controller/leader.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/store/store_election.h"
#include "controller/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define BEGIN_AGAIN_US 2000000 /* after a term that could not begin */
#define TROUBLE_EVERY_US 10000000
#define FOUND_BYTES 160
#define COPY_AGE_US 5000000 /* the copy of one that stands by is at most so old, or half a term */

struct leader {
    struct leader_config config;
    char address[STORE_ADDRESS_BYTES];
    struct election election;
    struct loop_timer timer;
    struct log_limit trouble;
    uint64_t epoch_min;
    int64_t refreshed_us;
    int64_t copied_us;              /* the copy was that of the store then; 0: there is none */
    char found[FOUND_BYTES];        /* lost when the term began; empty: nothing */
    int64_t not_before_us;          /* no term begins sooner */
    bool in_term;                   /* on_begin was called */
    char told[STORE_ADDRESS_BYTES]; /* the leader that was logged last */
};

/* ---- terms ---- */

static void fence_set(struct leader *l)
{
    atomic_store(&l->config.fence->until_us, l->election.until_us);
    atomic_store(&l->config.fence->epoch, l->in_term ? l->election.epoch : 0);
}

static void publish(struct leader *l)
{
    struct metrics *m = l->config.metrics;
    metric_set(metric_of(m, CONTROL_M_LEADER), leader_leads(l));
    metric_set(metric_of(m, CONTROL_M_EPOCH), (double)l->election.epoch);
    metric_set(metric_of(m, CONTROL_M_STORE_REACHED), store_is_reached(l->config.store));
}

static void end_term(struct leader *l, const char *why)
{
    atomic_store(&l->config.fence->epoch, 0); /* first: queued calls are not made any more */
    if (!l->in_term) return;
    l->in_term = false;
    log_event(why[0] ? LOG_WARN : LOG_INFO, "term_over", "epoch=%llu why=%s",
              (unsigned long long)l->election.epoch, why);
    l->config.on_end(l->config.arg);
}

/* Steps down before the lease is over. */
static void step_down(struct leader *l, const char *why)
{
    election_lost(&l->election, store_epoch(l->config.store) > 0, clock_mono_us());
    end_term(l, why);
    store_lease_release(l->config.store);
}

static int begin_term(struct leader *l, struct err *err)
{
    l->in_term = true;
    l->told[0] = 0;
    fence_set(l);
    metric_inc(metric_of(l->config.metrics, CONTROL_M_TERMS));
    log_event(LOG_INFO, "term_begins", "epoch=%llu", (unsigned long long)l->election.epoch);
    if (l->found[0]) log_event(LOG_WARN, "store_was_lost", "found=%s", l->found);
    int rc = l->config.on_begin(l->config.arg, l->election.epoch, err);
    if (rc == 0) return 0;
    l->in_term = false;
    l->not_before_us = clock_mono_us() + BEGIN_AGAIN_US;
    step_down(l, "");
    return rc;
}

/* ---- the election ---- */

static void trouble(struct leader *l, const char *event, int rc, const struct err *err)
{
    uint64_t skipped;
    metric_inc(metric_of(l->config.metrics, CONTROL_M_STORE_FAILURES));
    if (log_pass(&l->trouble, clock_mono_us(), TROUBLE_EVERY_US, &skipped))
        log_event(LOG_WARN, event, "error=%s skipped=%llu", err_text(err, rc),
                  (unsigned long long)skipped);
}

static void see(struct leader *l)
{
    struct err err = { 0 };
    struct store_lease lease = { 0 };
    int64_t asked_us = clock_mono_us();
    int rc = store_lease_see(l->config.store, &lease, &err);
    election_saw(&l->election, rc, &lease, asked_us, clock_mono_us());
    if (rc == 0 && asked_us - l->refreshed_us >= min_i64(COPY_AGE_US, l->config.term_us / 2)) {
        l->refreshed_us = asked_us;
        rc = store_refresh(l->config.store, &err);
        if (rc == 0 && !l->election.lost) l->copied_us = asked_us;
    }
    if (rc < 0 && rc != -EBUSY) trouble(l, "lease_not_seen", rc, &err);
    struct str leader = election_leader(&l->election);
    if (leader.len > 0 && strcmp(leader.data, l->told) != 0) {
        snprintf(l->told, sizeof l->told, STR_FMT, STR_ARG(leader));
        log_event(LOG_INFO, "stands_by", "leader=%s epoch=%llu", l->told,
                  (unsigned long long)lease.epoch);
    }
    if (rc == 0) l->config.on_standby(l->config.arg);
}

/* Says what a store that lost content is written anew from, as the candidate sees it. */
static void find(struct leader *l, int64_t now_us)
{
    l->found[0] = 0;
    if (!l->election.lost) return;
    if (election_is_last(&l->election))
        snprintf(l->found, sizeof l->found,
                 "the store lost content; written anew by its last leader: nothing is missing");
    else if (l->copied_us > 0)
        snprintf(l->found, sizeof l->found,
                 "the store lost content, and its last leader did not come back; written anew from "
                 "a copy of "
                 "%lld s ago: later orders are missing",
                 (long long)(now_us - l->copied_us) / 1000000);
    else
        snprintf(l->found, sizeof l->found,
                 "the store is new, or was lost with all copies: begun empty");
}

static int acquire(struct leader *l, struct err *err)
{
    uint64_t epoch = 0, date_s = (uint64_t)max_i64(clock_wall_us() / 1000000, 1);
    const struct store_claim claim = { .holder = str_from(l->election.holder),
                                       .address = str_from(l->address),
                                       .term_us = l->config.term_us,
                                       .epoch_min = max_u64(max_u64(l->epoch_min, date_s),
                                                            l->election.epoch + 1) };
    int64_t asked_us = clock_mono_us();
    find(l, asked_us);
    int rc = store_lease_acquire(l->config.store, &claim, &l->election.seen, &epoch, err);
    election_acquired(&l->election, rc, epoch, asked_us, clock_mono_us());
    if (rc < 0) return rc;
    return leader_leads(l) ? begin_term(l, err) : 0; /* it took too long: not ours any more */
}

static void renew(struct leader *l)
{
    struct err err = { 0 };
    int64_t asked_us = clock_mono_us();
    int rc = store_lease_renew(l->config.store, &err);
    election_renewed(&l->election, rc, asked_us, clock_mono_us());
    if (rc < 0) trouble(l, "lease_not_renewed", rc, &err);
    if (l->election.leads)
        fence_set(l);
    else
        end_term(l, err_text(&err, rc));
}

static void act(struct leader *l)
{
    struct err err = { 0 };
    int rc = 0;
    enum election_act next = election_turn(&l->election, clock_mono_us());
    if (!l->election.leads) end_term(l, "no renewal succeeded for a whole term");
    switch (next) {
    case ELECTION_SEE:
        see(l);
        break;
    case ELECTION_ACQUIRE:
        if (clock_mono_us() >= l->not_before_us) {
            rc = acquire(l, &err);
            break;
        }
        see(l); /* what was seen must not grow old meanwhile */
        l->election.due_us =
            clock_mono_us() + min_i64(l->config.term_us / ELECTION_LOOKS, BEGIN_AGAIN_US);
        break;
    case ELECTION_RENEW_IT:
        renew(l);
        break;
    case ELECTION_WAIT:
        break;
    }
    if (rc < 0 && rc != -EBUSY) trouble(l, "term_not_begun", rc, &err);
    publish(l);
}

static void on_timer(void *arg)
{
    struct leader *l = arg;
    leader_check(l, 0);
    act(l);
    int64_t again_us = max_i64(election_again_us(&l->election), loop_now_us(l->config.loop) + 1000);
    if (again_us < INT64_MAX / 2) (void)loop_timer_set(l->config.loop, &l->timer, again_us);
}

/* ---- for the controller ---- */

bool leader_leads(void *arg)
{
    const struct leader *l = arg;
    const struct store *s = l->config.store;
    return election_leads(&l->election, clock_mono_us()) && (store_epoch(s) || !store_is_shared(s));
}

void leader_check(struct leader *l, uint64_t epoch_seen)
{
    if (!l->in_term) return;
    bool refused = store_is_shared(l->config.store) && !store_epoch(l->config.store);
    if (epoch_seen > 0) l->epoch_min = epoch_seen + 1;
    if (!refused && epoch_seen == 0) return;
    step_down(l, refused ? "the store refused a write, or its reply was lost"
                         : "a provider has seen a later term");
    (void)loop_timer_set(l->config.loop, &l->timer, loop_now_us(l->config.loop));
}

const char *leader_found(const struct leader *l)
{
    return l->found[0] ? l->found : NULL;
}

struct str leader_address(const struct leader *l)
{
    return election_leader(&l->election);
}

/* ---- life ---- */

int leader_new(const struct leader_config *config, struct leader **ret, struct err *err)
{
    CLEANUP(leader_freep) struct leader *l = calloc(1, sizeof *l);
    uint8_t id[16];
    must(l);
    l->config = *config;
    if (config->address.len >= sizeof l->address)
        return err_set(err, -ENAMETOOLONG, "controller: its own address is too long");
    snprintf(l->address, sizeof l->address, STR_FMT, STR_ARG(config->address));
    if (getrandom(id, sizeof id, 0) != sizeof id)
        return err_set(err, -EIO, "the system gives no random bytes");
    hex_from(id, sizeof id, l->election.holder);
    l->election.term_us = config->term_us;
    l->election.shared = store_is_shared(config->store);
    l->timer = (struct loop_timer){ .fn = on_timer, .arg = l };
    if (!l->election.shared) {
        int rc = store_lease_see(config->store, &l->election.seen, err);
        if (rc == 0) rc = acquire(l, err);
        if (rc < 0) return rc;
        publish(l);
        *ret = TAKE(l);
        return 0;
    }
    int rc = loop_timer_set(config->loop, &l->timer, clock_mono_us());
    if (rc < 0) return err_set(err, rc, "controller: no memory for a timer");
    *ret = TAKE(l);
    return 0;
}

void leader_free(struct leader *l)
{
    if (!l) return;
    loop_timer_clear(l->config.loop, &l->timer);
    if (l->in_term) step_down(l, "");
    free(l);
}
