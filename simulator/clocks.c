/* clocks.c - the power row in a run: what it is shown, and the clocks that it chooses.
 *
 * It is asked when it wanted to be. An instance's mean step and busy share are of the time since it
 * was last asked; tails are of the last requests of the whole fleet, since a promise is the
 * service's. A new clock holds from the next step on.
 */
#include "base/core/bits.h"
#include "simulator/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TAIL_MIN 100 /* fewer answers say nothing of one in a hundred */

static void remember(struct run_tail *t, double seconds)
{
    t->seconds[t->count++ % RUN_TAIL] = seconds;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* False: too few. */
static bool tail_p99(const struct run_tail *t, double *ret)
{
    uint32_t n = min_u32(t->count, RUN_TAIL);
    if (n < TAIL_MIN) return false;
    double sorted[RUN_TAIL];
    memcpy(sorted, t->seconds, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    *ret = sorted[n * 99 / 100];
    return true;
}

void clocks_answered(struct run *run, const struct flight *f)
{
    remember(&run->clocks.ttft, (double)(f->first_us - f->arrival_us) * 1e-6);
    if (f->generated < 2) return;
    remember(&run->clocks.tpot, (double)(f->last_us - f->first_us) * 1e-6 / (f->generated - 1));
}

int clocks_start(struct run *run, struct err *err)
{
    struct run_clocks *c = &run->clocks;
    c->shown = calloc(run->places_max, sizeof *c->shown);
    c->who = calloc(run->places_max, sizeof(struct instance *));
    c->clock = calloc(run->places_max, sizeof *c->clock);
    if (c->shown && c->who && c->clock) return 0;
    return err_set(err, -ENOMEM, "simulator: no memory for clocks");
}

void clocks_stop(struct run *run)
{
    free(run->clocks.shown);
    free(run->clocks.who);
    free(run->clocks.clock);
}

static uint32_t show(struct run *run, struct power_instance *ret, struct instance **who)
{
    double ttft_s = 0, tpot_s = 0;
    bool known = tail_p99(&run->clocks.ttft, &ttft_s) && tail_p99(&run->clocks.tpot, &tpot_s);
    uint32_t n = 0;
    for (uint32_t i = 0; i < run->places; i++) {
        struct instance *in = run->instance[i];
        if (!in || in->state == INSTANCE_STARTING || !in->kind->window) continue;
        struct instance_window w;
        struct instance_load load;
        in->kind->window(in, run->now_us, &w);
        in->kind->load(in, run->now_us, &load);
        who[n] = in;
        ret[n++] = (struct power_instance){ .roofline = w.roofline,
                                            .shape = w.shape,
                                            .busy = w.busy,
                                            .clock = in->clock,
                                            .tail_known = known,
                                            .ttft_s = ttft_s,
                                            .tpot_s = tpot_s,
                                            .waiting = load.waiting,
                                            .priority = in->config.pool->priority };
    }
    return n;
}

/* A row judges by the tail of all answers: what every service was promised. */
static struct sim_promise tightest(const struct sim_config *c)
{
    struct sim_promise least = sim_promise(c, c->pool[0].service);
    for (uint32_t p = 1; p < c->pool_count; p++) {
        struct sim_promise own = sim_promise(c, c->pool[p].service);
        least.ttft_s = fmin(least.ttft_s, own.ttft_s);
        least.tpot_s = fmin(least.tpot_s, own.tpot_s);
    }
    return least;
}

void clocks_due(struct run *run)
{
    struct run_clocks *c = &run->clocks;
    struct sim_promise promise = tightest(&run->config);
    struct power_view view = { .instance = c->shown,
                               .count = show(run, c->shown, c->who),
                               .ttft_slo_s = promise.ttft_s,
                               .tpot_slo_s = promise.tpot_s,
                               .row_watts_max = run->config.row_watts_max };
    for (uint32_t i = 0; i < view.count; i++)
        view.row_watts += power_watts(&c->shown[i], c->shown[i].clock);
    struct power_verdict v = { .clock = c->clock };
    power_decide(run->config.power, c->state, &view, run->now_us, &v);
    for (uint32_t i = 0; i < view.count; i++)
        c->who[i]->clock = c->clock[i];
    if (view.row_watts_max > 0 && view.row_watts > view.row_watts_max) run->result->trips++;
    run_at(run, &c->due, max_i64(v.again_us, run->now_us + 1), RANK_POWER);
}
