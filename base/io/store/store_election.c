/* store_election.c - counts the time of terms and of waits.
 *
 * Rejected: a key that expires in the store. It is simpler, and whoever sets the store's date then ends a
 * term; and a store that lost the key would make every candidate a leader at once. */
#include "base/io/store/store_election.h"

#include "base/core/bits.h"

#define LATE_LOOKS 3 /* a look that comes so many periods after the last one is late */

bool election_is_last(const struct election *e)
{
    return e->own_epoch > 0 && e->own_epoch == e->heard_epoch;
}

static int64_t look_us(const struct election *e)
{
    return e->term_us / ELECTION_LOOKS;
}

static void stand_by(struct election *e, int64_t now_us)
{
    e->leads = false;
    e->has_seen = false;
    e->due_us = now_us;
}

/* Returns true if nobody else can believe in the lease that was seen last. */
static bool may_take(const struct election *e, int64_t now_us)
{
    if (!e->shared) return true;
    if (e->lost && election_is_last(e) && now_us < e->until_us) return true;
    bool is_free = e->seen.epoch > 0 && !e->seen.held;
    int64_t term_us = max_i64(e->term_us, e->seen.term_us); /* the holder may have a longer one */
    int64_t wait_us = term_us + term_us / ELECTION_SLACK;
    if ((e->lost || e->moved) && !election_is_last(e)) wait_us += term_us; /* for the last leader */
    return now_us - (is_free ? e->line_us : e->since_us) >= wait_us;
}

enum election_act election_turn(struct election *e, int64_t now_us)
{
    if (e->leads && now_us >= e->until_us) stand_by(e, now_us);
    if (now_us < e->due_us) return ELECTION_WAIT;
    if (e->leads) return ELECTION_RENEW_IT;
    bool fresh = e->has_seen && now_us - e->looked_us < look_us(e);
    return fresh && may_take(e, now_us) ? ELECTION_ACQUIRE : ELECTION_SEE;
}

int64_t election_again_us(const struct election *e)
{
    return e->leads ? min_i64(e->due_us, e->until_us) : e->due_us;
}

static void hear(struct election *e, uint64_t epoch, uint64_t beat)
{
    e->heard_epoch = epoch;
    e->heard_beat = beat;
}

/* Notes if the store has lost content, or else the lease as the latest. */
static void compare(struct election *e, const struct store_lease *lease)
{
    bool behind = lease->epoch < e->heard_epoch ||
                  (lease->epoch == e->heard_epoch && lease->beat < e->heard_beat);
    bool renewed = e->seen.line == lease->line && !store_lease_same(&e->seen, lease);
    e->moved = e->seen.line > 0 && (e->seen.line != lease->line || (e->moved && !renewed));
    e->lost = lease->lost || behind;
    if (behind) return;
    /* A term of our own that did not begin: the content was not written anew to its end. */
    if (election_is_last(e) && strcmp(lease->holder, e->holder) == 0) e->own_epoch = lease->epoch;
    hear(e, lease->epoch, lease->beat);
}

void election_saw(struct election *e, int rc, const struct store_lease *lease, int64_t asked_us,
                  int64_t now_us)
{
    e->due_us = now_us + look_us(e);
    if (rc < 0) {
        e->has_seen = false;
        return;
    }
    bool late = asked_us - e->looked_us > LATE_LOOKS * look_us(e);
    if (!e->has_seen || late || !store_lease_same(&e->seen, lease)) e->since_us = now_us;
    if (late || e->seen.line != lease->line) e->line_us = now_us;
    compare(e, lease);
    e->has_seen = true;
    e->seen = *lease;
    e->looked_us = now_us;
    if (lease->epoch > e->epoch) e->epoch = lease->epoch;
    if (may_take(e, now_us)) e->due_us = now_us;
}

void election_acquired(struct election *e, int rc, uint64_t epoch, int64_t asked_us, int64_t now_us)
{
    e->has_seen = false;
    e->due_us = now_us + look_us(e);
    if (rc < 0) return;
    e->leads = true;
    e->epoch = e->own_epoch = epoch;
    hear(e, epoch, 0);
    e->until_us = e->shared ? asked_us + e->term_us : INT64_MAX;
    e->due_us = e->shared ? asked_us + e->term_us / ELECTION_RENEW : INT64_MAX;
}

void election_renewed(struct election *e, int rc, int64_t asked_us, int64_t now_us)
{
    if (!e->leads) return;
    if (rc == -EKEYREVOKED) {
        stand_by(e, now_us);
        return;
    }
    if (rc == 0) e->until_us = asked_us + e->term_us;
    if (rc == 0) e->heard_beat++;
    e->due_us =
        rc == 0 ? asked_us + e->term_us / ELECTION_RENEW : now_us + e->term_us / ELECTION_AGAIN;
}

void election_lost(struct election *e, bool gives_back, int64_t now_us)
{
    if (gives_back) e->until_us = now_us;
    if (e->leads) stand_by(e, now_us);
}

bool election_leads(const struct election *e, int64_t now_us)
{
    return e->leads && now_us < e->until_us;
}

struct str election_leader(const struct election *e)
{
    bool other = e->has_seen && e->seen.held && strcmp(e->seen.holder, e->holder) != 0;
    return other ? str_from(e->seen.address) : (struct str){ 0 };
}
