/* quarantine.c - keeps at most QUARANTINE_MAX fingerprints in a table.
 *
 * The table is walked, not hashed: it is empty but for the minutes after an engine died, fingerprints lie
 * side by side, and a thousand of them are read within a microsecond.
 *
 * Counting deaths within one request would refuse that request alone. The table is for those that
 * follow: the client asks again, or another one does, and each time two engines would die. */
#include "router/core/quarantine.h"

#include <stdlib.h>
#include <string.h>

struct blame {
    uint64_t instance, boot;
    int64_t at_us;
    bool proven;
};

struct suspect {
    struct blame blame[QUARANTINE_DEATHS];
    uint32_t blames;
    uint32_t died_at; /* most tokens that were there when an engine died */
    int64_t until_us; /* then its blames are void */
    uint64_t refusals;
};

/* A fingerprint that another router refuses. */
struct told {
    uint64_t fingerprint;
    int64_t until_us;
    uint64_t refusals;
};

struct quarantine {
    int64_t expiry_us;
    uint32_t count, unproven; /* unproven: blames that a boot id or a token may still decide */
    uint64_t changes;
    struct quarantine_counts total; /* the running counters only */
    uint64_t fingerprint[QUARANTINE_MAX];
    struct suspect suspect[QUARANTINE_MAX];
    struct told told[QUARANTINE_MAX], next[QUARANTINE_MAX]; /* next: while a list is taken over */
    uint32_t told_count;
};

int quarantine_new(int64_t expiry_us, struct quarantine **ret, struct err *err)
{
    struct quarantine *q = calloc(1, sizeof *q);
    if (!q) return err_set(err, -ENOMEM, "quarantine: no memory");
    q->expiry_us = expiry_us;
    *ret = q;
    return 0;
}

void quarantine_free(struct quarantine *q)
{
    free(q);
}

static uint32_t find(const struct quarantine *q, uint64_t fingerprint)
{
    uint32_t at = 0;
    while (at < q->count && q->fingerprint[at] != fingerprint)
        at++;
    return at;
}

static uint32_t find_told(const struct quarantine *q, uint64_t fingerprint)
{
    uint32_t at = 0;
    while (at < q->told_count && q->told[at].fingerprint != fingerprint)
        at++;
    return at;
}

static uint32_t unproven_of(const struct suspect *s)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->blames; i++)
        count += !s->blame[i].proven;
    return count;
}

static void forget(struct quarantine *q, uint32_t at)
{
    q->unproven -= unproven_of(&q->suspect[at]);
    q->count--;
    q->fingerprint[at] = q->fingerprint[q->count];
    q->suspect[at] = q->suspect[q->count];
    q->changes++;
}

static bool is_refused(const struct suspect *s)
{
    return s->blames == QUARANTINE_DEATHS;
}

/* A refusal lasts for the whole time only where both deaths are proven. */
static void set_until(const struct quarantine *q, struct suspect *s, int64_t now_us)
{
    int64_t most = unproven_of(s) > 0 ? QUARANTINE_PROOF_US : q->expiry_us;
    s->until_us = now_us + (most < q->expiry_us ? most : q->expiry_us);
}

static void drop_blame(struct quarantine *q, uint32_t at, uint32_t i)
{
    struct suspect *s = &q->suspect[at];
    q->unproven -= !s->blame[i].proven;
    s->blame[i] = s->blame[--s->blames];
    q->changes++;
}

static void expire(struct quarantine *q, int64_t now_us)
{
    for (uint32_t at = q->count; at-- > 0;)
        if (q->suspect[at].until_us <= now_us) forget(q, at);
}

/* Returns until when a fingerprint is refused for deaths seen here; 0: it is not. */
static int64_t seen_until(const struct quarantine *q, uint64_t fingerprint)
{
    uint32_t at = find(q, fingerprint);
    return at < q->count && is_refused(&q->suspect[at]) ? q->suspect[at].until_us : 0;
}

static int64_t told_until(const struct quarantine *q, uint64_t fingerprint)
{
    uint32_t at = find_told(q, fingerprint);
    return at < q->told_count ? q->told[at].until_us : 0;
}

int64_t quarantine_left_us(const struct quarantine *q, uint64_t fingerprint, int64_t now_us)
{
    if (fingerprint == 0) return 0;
    int64_t seen = seen_until(q, fingerprint), told = told_until(q, fingerprint);
    int64_t until = seen > told ? seen : told;
    return until > now_us ? until - now_us : 0;
}

int64_t quarantine_refuses(struct quarantine *q, uint64_t fingerprint, int64_t now_us)
{
    int64_t left = quarantine_left_us(q, fingerprint, now_us);
    if (left == 0) return 0;
    if (seen_until(q, fingerprint) > now_us)
        q->suspect[find(q, fingerprint)].refusals++;
    else
        q->told[find_told(q, fingerprint)].refusals++;
    q->total.refusals++;
    q->changes++;
    return left;
}

uint32_t quarantine_suspects(const struct quarantine *q, uint64_t fingerprint, int64_t now_us)
{
    uint32_t at = fingerprint ? find(q, fingerprint) : q->count;
    if (at == q->count || q->suspect[at].until_us <= now_us) return 0;
    return q->suspect[at].died_at + 1;
}

void quarantine_passed(struct quarantine *q, uint64_t fingerprint)
{
    uint32_t at = find(q, fingerprint);
    if (at == q->count) return;
    forget(q, at);
    q->total.acquitted++;
}

/* Makes room for a fingerprint and returns its place. At the bound the stalest suspect goes; where there
 * is none, the stalest refused one. */
static uint32_t take(struct quarantine *q, uint64_t fingerprint, int64_t now_us)
{
    if (q->count == QUARANTINE_MAX) expire(q, now_us);
    if (q->count == QUARANTINE_MAX) {
        uint32_t victim = 0;
        for (uint32_t i = 1; i < q->count; i++) {
            const struct suspect *a = &q->suspect[i], *b = &q->suspect[victim];
            bool milder = is_refused(a) < is_refused(b);
            bool alike = is_refused(a) == is_refused(b);
            if (milder || (alike && a->until_us < b->until_us)) victim = i;
        }
        forget(q, victim);
        q->total.forgotten++;
    }
    q->fingerprint[q->count] = fingerprint;
    q->suspect[q->count] = (struct suspect){ 0 };
    return q->count++;
}

void quarantine_blame(struct quarantine *q, uint64_t fingerprint, uint64_t instance, uint64_t boot,
                      uint32_t generated, int64_t now_us)
{
    if (fingerprint == 0 || q->expiry_us == 0) return;
    uint32_t at = find(q, fingerprint);
    if (at < q->count && q->suspect[at].until_us <= now_us) {
        forget(q, at);
        at = q->count;
    }
    if (at == q->count) at = take(q, fingerprint, now_us);
    struct suspect *s = &q->suspect[at];
    if (generated > s->died_at) s->died_at = generated;
    for (uint32_t i = 0; i < s->blames; i++)
        if (s->blame[i].instance == instance && s->blame[i].boot == boot) return;
    if (is_refused(s)) return;
    s->blame[s->blames++] = (struct blame){ instance, boot, now_us, false };
    q->unproven++;
    q->total.caught += is_refused(s);
    set_until(q, s, now_us);
    q->changes++;
}

void quarantine_boot(struct quarantine *q, uint64_t instance, uint64_t boot)
{
    for (uint32_t at = 0; q->unproven > 0 && at < q->count; at++) {
        struct suspect *s = &q->suspect[at];
        for (uint32_t i = 0; i < s->blames; i++) {
            struct blame *b = &s->blame[i];
            if (b->proven || b->instance != instance || b->boot == boot) continue;
            b->proven = true;
            q->unproven--;
            q->changes++;
            if (unproven_of(s) == 0) set_until(q, s, s->blame[s->blames - 1].at_us);
        }
    }
}

void quarantine_alive(struct quarantine *q, uint64_t instance, uint64_t boot, int64_t sent_us)
{
    for (uint32_t at = q->count; q->unproven > 0 && at-- > 0;) {
        struct suspect *s = &q->suspect[at];
        for (uint32_t i = s->blames; i-- > 0;) {
            const struct blame *b = &s->blame[i];
            if (b->proven || b->instance != instance || b->boot != boot) continue;
            if (b->at_us < sent_us) drop_blame(q, at, i);
        }
        if (s->blames == 0) {
            forget(q, at);
            q->total.acquitted++;
        }
    }
}

void quarantine_told(struct quarantine *q, const struct quarantine_item *list, uint32_t count,
                     int64_t now_us)
{
    if (q->expiry_us == 0 || q->told_count + count == 0) return;
    if (count > QUARANTINE_MAX) count = QUARANTINE_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = find_told(q, list[i].fingerprint);
        q->next[i] = (struct told){ list[i].fingerprint, now_us + list[i].left_us,
                                    at < q->told_count ? q->told[at].refusals : 0 };
    }
    memcpy(q->told, q->next, count * sizeof *q->next);
    q->told_count = count;
    q->changes++;
}

static uint32_t clear_told(struct quarantine *q, uint64_t fingerprint)
{
    uint32_t kept = 0, had = q->told_count;
    for (uint32_t i = 0; i < had; i++)
        if (fingerprint != 0 && q->told[i].fingerprint != fingerprint) q->told[kept++] = q->told[i];
    q->told_count = kept;
    q->changes += kept < had;
    return had - kept;
}

uint32_t quarantine_clear(struct quarantine *q, uint64_t fingerprint)
{
    uint32_t cleared = clear_told(q, fingerprint);
    for (uint32_t at = q->count; at-- > 0;) {
        if (fingerprint != 0 && q->fingerprint[at] != fingerprint) continue;
        forget(q, at);
        cleared++;
    }
    return cleared;
}

uint32_t quarantine_list(const struct quarantine *q, int64_t now_us, struct quarantine_item *ret,
                         uint32_t max)
{
    uint32_t count = 0;
    for (uint32_t at = 0; at < q->count && count < max; at++) {
        const struct suspect *s = &q->suspect[at];
        if (s->until_us <= now_us) continue;
        ret[count++] = (struct quarantine_item){ .fingerprint = q->fingerprint[at],
                                                 .blames = s->blames,
                                                 .proven = s->blames - unproven_of(s),
                                                 .refused = is_refused(s),
                                                 .left_us = s->until_us - now_us,
                                                 .refusals = s->refusals };
    }
    for (uint32_t i = 0; i < q->told_count && count < max; i++) {
        const struct told *t = &q->told[i];
        if (t->until_us <= now_us || seen_until(q, t->fingerprint) > now_us) continue;
        ret[count++] = (struct quarantine_item){ .fingerprint = t->fingerprint,
                                                 .refused = true,
                                                 .told = true,
                                                 .left_us = t->until_us - now_us,
                                                 .refusals = t->refusals };
    }
    return count;
}

void quarantine_counts_get(const struct quarantine *q, int64_t now_us,
                           struct quarantine_counts *ret)
{
    *ret = q->total;
    for (uint32_t at = 0; at < q->count; at++) {
        if (q->suspect[at].until_us <= now_us) continue;
        ret->refused_now += is_refused(&q->suspect[at]);
        ret->suspects += !is_refused(&q->suspect[at]);
    }
    for (uint32_t i = 0; i < q->told_count; i++) {
        const struct told *t = &q->told[i];
        ret->refused_now += t->until_us > now_us && seen_until(q, t->fingerprint) <= now_us;
    }
}

uint64_t quarantine_changes(const struct quarantine *q)
{
    return q->changes;
}
