/* kube_elect.c - the state machine of a candidate for a Lease.
 *
 * The same rules as client-go's leader election, with three differences. A belief starts when the write was
 * begun and not when its answer came. A Lease that was made anew gives none at first: the create may have
 * been under way for long, and another Lease been made, held and deleted meanwhile, so that only the time
 * after its answer counts. And an answer that never came is looked up before anything is concluded from it. */
#include "base/io/kube/kube_elect.h"

#include "base/core/bits.h"

#include <stdio.h>

#define EPOCH_DATE_S 1767225600 /* 2026-01-01 UTC; lasts until 2094 */

int kube_elect_init(struct kube_elect *e, const struct kube_elect_config *config,
                    struct str identity, struct err *err)
{
    struct kube_elect_config c = *config;
    if (c.lease_us == 0) c.lease_us = KUBE_LEASE_US;
    if (c.renew_us == 0) c.renew_us = KUBE_RENEW_US;
    if (c.retry_us == 0) c.retry_us = KUBE_RETRY_US;
    if (c.lease_us < 1000000 || c.lease_us > KUBE_LEASE_US_MAX)
        return err_set(err, -EINVAL, "a lease lasts 1 s to %lld s",
                       (long long)(KUBE_LEASE_US_MAX / 1000000));
    if (c.renew_us >= c.lease_us || c.retry_us >= c.renew_us || c.retry_us <= 0)
        return err_set(
            err, -EINVAL,
            "the times of a lease must grow: retry %lld us, renew %lld us, lease %lld us",
            (long long)c.retry_us, (long long)c.renew_us, (long long)c.lease_us);
    if (identity.len == 0 || identity.len >= KUBE_HOLDER_BYTES)
        return err_set(err, -EINVAL, "an identity has 1 to %d bytes", KUBE_HOLDER_BYTES - 1);
    *e = (struct kube_elect){ .config = c, .epoch_seen = c.epoch_least };
    snprintf(e->identity, sizeof e->identity, STR_FMT, STR_ARG(identity));
    return 0;
}

static bool is_ours(const struct kube_elect *e)
{
    return e->seen.exists && strcmp(e->seen.holder, e->identity) == 0;
}

/* Returns when the record that was seen may be written over, or a Lease be made. */
static int64_t free_us(const struct kube_elect *e)
{
    if (!e->seen.exists || is_ours(e)) return 0;
    /* Without a holder, and older epochs than were seen: it is another Lease, which nobody released. */
    if (e->seen.holder[0] == 0 && e->seen.transitions >= e->epoch_seen) return 0;
    return e->seen_us + max_i64(e->config.lease_us, e->seen.lease_us);
}

enum kube_elect_act kube_elect_next(const struct kube_elect *e, int64_t now_us, int64_t *ret_at_us)
{
    *ret_at_us = INT64_MAX;
    if (e->resigned) return KUBE_ELECT_WAIT;
    /* The end of a belief is an event too. */
    if (e->leads && now_us < e->until_us) *ret_at_us = e->until_us;
    if (e->busy != KUBE_ELECT_WAIT) return KUBE_ELECT_WAIT;
    if (now_us < e->next_us) {
        *ret_at_us = min_i64(*ret_at_us, e->next_us);
        return KUBE_ELECT_WAIT;
    }
    if (!e->known || now_us < free_us(e)) return KUBE_ELECT_READ;
    return e->seen.exists ? KUBE_ELECT_WRITE : KUBE_ELECT_CREATE;
}

void kube_elect_begin(struct kube_elect *e, enum kube_elect_act act, int64_t now_us,
                      int64_t date_us, struct kube_lease_record *ret_write)
{
    must(e->busy == KUBE_ELECT_WAIT && act != KUBE_ELECT_WAIT);
    e->busy = act;
    e->begun_us = now_us;
    if (act == KUBE_ELECT_READ) return;
    struct kube_lease_record *w = &e->wanted;
    *w = e->seen;
    w->exists = true;
    w->lease_us = e->config.lease_us;
    if (!is_ours(e)) w->transitions = max_i64(e->epoch_seen, e->seen.transitions) + 1;
    if (act == KUBE_ELECT_CREATE || (e->anew && is_ours(e)))
        w->transitions = max_i64(w->transitions, date_us / 1000000 - EPOCH_DATE_S);
    w->transitions = min_i64(w->transitions, INT32_MAX); /* the field's type */
    snprintf(w->holder, sizeof w->holder, "%s", e->identity);
    *ret_write = *w;
}

static int64_t jittered(const struct kube_elect *e, struct rng *rng)
{
    return e->config.retry_us + (int64_t)(rng_f64(rng) * 0.2 * (double)e->config.retry_us);
}

void kube_elect_read(struct kube_elect *e, int rc, const struct kube_lease_record *record,
                     int64_t now_us, struct rng *rng)
{
    must(e->busy == KUBE_ELECT_READ);
    e->busy = KUBE_ELECT_WAIT;
    e->next_us = now_us + jittered(e, rng);
    if (rc < 0 || e->resigned) return;
    bool was_ours = is_ours(e);
    bool same = e->looked && e->seen.exists == record->exists &&
                strcmp(e->seen.version, record->version) == 0;
    if (!same) e->seen_us = now_us;
    e->seen = *record;
    if (!record->exists) e->seen.holder[0] = e->seen.version[0] = 0;
    e->seen.lease_us = max_i64(0, min_i64(e->seen.lease_us, KUBE_LEASE_US_MAX));
    e->known = e->looked = true;
    e->epoch_seen = max_i64(e->epoch_seen, e->seen.transitions);
    if (!is_ours(e)) e->leads = false;
    /* It may be that create, which came late. */
    if (e->made && is_ours(e) && !was_ours) {
        e->anew = true;
        e->quiet_us = now_us + e->config.lease_us;
    }
    if (now_us >= free_us(e)) e->next_us = now_us;
}

void kube_elect_wrote(struct kube_elect *e, int rc, const char *version, int64_t now_us,
                      struct rng *rng)
{
    must(e->busy == KUBE_ELECT_WRITE || e->busy == KUBE_ELECT_CREATE);
    bool created = e->busy == KUBE_ELECT_CREATE;
    e->busy = KUBE_ELECT_WAIT;
    e->next_us = now_us + jittered(e, rng);
    if (rc < 0) {
        e->made |= created && rc != -EEXIST;
        /* Look what there is now. At once when somebody else was faster: it may be a new leader. */
        e->known = false;
        if (rc == -ESTALE || rc == -EEXIST || rc == -ENOENT) e->next_us = now_us;
        if (rc == -ENOENT) e->leads = false;
        return;
    }
    e->seen = e->wanted;
    snprintf(e->seen.version, sizeof e->seen.version, "%s", version);
    e->seen_us = now_us;
    e->known = e->looked = true;
    e->epoch_seen = max_i64(e->epoch_seen, e->seen.transitions);
    if (e->resigned) return;
    if (created) {
        e->anew = true;
        e->quiet_us = now_us + e->config.lease_us;
    }
    if (e->begun_us < e->quiet_us) return;
    e->leads = true;
    e->anew = false;
    e->epoch = e->seen.transitions;
    e->until_us = e->begun_us + e->config.renew_us;
    if (now_us >= e->until_us) e->next_us = now_us; /* so slow that nothing is left of it */
}

bool kube_elect_leads(const struct kube_elect *e, int64_t now_us)
{
    return e->leads && !e->resigned && now_us < e->until_us;
}

bool kube_elect_resign(struct kube_elect *e, struct kube_lease_record *ret_write)
{
    bool release = e->known && is_ours(e);
    e->leads = false;
    e->resigned = true;
    if (!release) return false;
    *ret_write = e->seen;
    ret_write->holder[0] = 0;
    ret_write->lease_us = 1000000; /* others that do not know an empty holder wait no longer */
    return true;
}
