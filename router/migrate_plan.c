/* migrate_plan.c - lets the director choose migrations from the engines' loads and the router's requests.
 *
 * The chosen migrations are mailed to the byte loops, which carry them out (migrate_request.c) and report
 * the result. A report that comes late, about a migration that is over, changes nothing.
 */
#include "router/migrate_plan.h"

#include "base/io/log.h"
#include "router/decide.h"

#include <stdlib.h>

struct migrate_plan {
    struct decide *d;
    struct loop_timer timer;
};

static void on_look(void *arg);

int migrate_plan_new(struct decide *d, struct migrate_plan **ret, struct err *err)
{
    struct migrate_plan *m = calloc(1, sizeof *m);
    if (!m) return err_set(err, -ENOMEM, "router: no memory");
    m->d = d;
    m->timer = (struct loop_timer){ .fn = on_look, .arg = m };
    int rc = loop_timer_set(d->loop, &m->timer, 0);
    if (rc < 0) {
        free(m);
        return err_set(err, rc, "router: no memory for a timer");
    }
    *ret = m;
    return 0;
}

void migrate_plan_free(struct migrate_plan *m)
{
    if (!m) return;
    loop_timer_clear(m->d->loop, &m->timer);
    free(m);
}

/* ---- what byte loops say -------------------------------------------------------------------- */

void migrate_plan_arrives(struct migrate_plan *m, struct request *r, int64_t now_us)
{
    const struct kv_transfer *x = &r->placed.routed.kv;
    if (!director_is_copied(&r->placed.routed)) return;
    log_event(LOG_INFO, "migrated", "id=%s from=%s to=%s", r->id,
              m->d->endpoint[x->from.slot].target.instance,
              m->d->endpoint[x->to.slot].target.instance);
    metric_inc(metric_of(m->d->metrics, RM_MIGRATIONS));
    director_migrated(m->d->director, &r->placed.routed, now_us);
}

void migrate_plan_stays(struct migrate_plan *m, struct request *r, int64_t now_us)
{
    migrate_plan_drops(m, r);
    director_stays(m->d->director, &r->placed.routed, now_us);
}

void migrate_plan_drops(struct migrate_plan *m, const struct request *r)
{
    if (director_is_copied(&r->placed.routed))
        metric_inc(metric_of(m->d->metrics, RM_MIGRATIONS_DROPPED));
}

/* ---- the look ------------------------------------------------------------------------------- */

static const struct reported_load *told(void *arg, uint32_t slot, int64_t *ret_told_us)
{
    const struct migrate_plan *m = arg;
    const struct block_feed *feed = m->d->endpoint[slot].feed;
    return feed ? block_feed_load(feed, ret_told_us) : NULL;
}

static void migrate(void *arg, struct director_request *r, uint32_t to)
{
    const struct migrate_plan *m = arg;
    decide_tell_migrate(m->d, CONTAINER_OF(r, struct request, placed.routed), to);
}

static void on_look(void *arg)
{
    struct migrate_plan *m = arg;
    const struct director_host host = { m, told, migrate };
    int64_t again_us = director_look(m->d->director, &host, loop_now_us(m->d->loop));
    if (again_us < INT64_MAX) loop_timer_set(m->d->loop, &m->timer, again_us);
}
