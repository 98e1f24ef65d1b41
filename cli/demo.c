/* demo.c - the phases: start, grow under a replayed trace, shrink, compare policies on a fixed fleet.
 *
 *     1 instance ── load ──► as many as the load needs ── silence ──► 1 instance
 *     3 instances by hand: A B | B A | A B ...   same prompts, cold caches before every run
 *
 * The comparison alternates the order of its two arms, so that a machine that slows down while it
 * runs slows both.
 */
#include "cli/demo.h"

#include "base/core/bits.h"
#include "base/io/clock.h"
#include "cli/trace_file.h"
#include "policies/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define POLL_US 500000
#define READY_US 60000000 /* for instances to start */
#define SHRINK_US 120000000
#define SHOW_US 5000000
#define REQUEST_US 120000000
#define MAX_TOKENS 200
#define PROMPT_TOKENS_MAX 1700 /* with MAX_TOKENS below the model's context of 2,048 */
#define DIVIDE 16              /* a 512-token block of the trace becomes 32 */
#define TEMPERATURE 0.7

const char *const demo_arm_policy[DEMO_ARMS] = { ROUTE_DEFAULT, "round_robin" };

static double since_start_s(const struct demo *d)
{
    return (double)(clock_wall_us() - d->started_wall_us) * 1e-6;
}

static void heading(const struct demo *d, const char *text)
{
    printf("\n%7.1f s  == %s\n", since_start_s(d), text);
    fflush(stdout);
}

/* Reads status and events, prints what is new; the largest fleet is kept. */
static int watch(struct demo *d, struct err *err)
{
    const char *dead;
    if (*d->interrupted) return err_set(err, -EINTR, "interrupted");
    if (!demo_fleet_is_alive(&d->fleet, &dead)) {
        return err_set(err, -ECHILD, "the %s has ended; see %s/%s.log", dead, d->fleet.folder,
                       dead);
    }
    int rc = demo_fleet_status(&d->fleet, &d->status, err);
    if (rc == 0) rc = demo_fleet_events(&d->fleet, err);
    if (rc < 0) return rc;
    d->max_instances = max_u32(d->max_instances, d->status.ready);
    for (; d->event_shown < d->fleet.event_count; d->event_shown++) {
        const struct fleet_event *e = &d->fleet.event[d->event_shown];
        printf("%7.1f s     %s %u -> %u: %s\n", (double)(e->at_us - d->started_wall_us) * 1e-6,
               e->pool, e->from, e->to, e->reason);
    }
    fflush(stdout);
    return 0;
}

/* Waits until exactly `ready` instances are ready and none is on its way or leaving. */
static int wait_instances(struct demo *d, uint32_t ready, int64_t within_us, struct err *err)
{
    int64_t until_us = clock_mono_us() + within_us;
    for (;;) {
        int rc = watch(d, err);
        if (rc < 0) return rc;
        if (d->status.ready == ready && d->status.instance_count == ready) return 0;
        if (clock_mono_us() > until_us) {
            return err_set(err, -ETIMEDOUT, "%u of %u instances are ready, %u are there; see %s",
                           d->status.ready, ready, d->status.instance_count, d->fleet.folder);
        }
        usleep(POLL_US / 2);
    }
}

static int64_t due_us(void *arg, uint32_t index)
{
    return replay_due_us(arg, index);
}

static int message(void *arg, uint32_t index, struct buf *out)
{
    return replay_message(arg, index, out);
}

static int keep(struct demo_samples *to, const struct load_run *run)
{
    uint32_t count;
    size_t gaps;
    const struct load_sample *samples = load_run_samples(run, &count);
    const float *itl_s = load_run_itl_s(run, &gaps);
    struct load_sample *more = realloc(to->sample, (to->count + count) * sizeof *more);
    float *more_itl = realloc(to->itl_s, (to->itl_count + gaps + 1) * sizeof *more_itl);
    if (more) to->sample = more;
    if (more_itl) to->itl_s = more_itl;
    if (!more || !more_itl) return -ENOMEM;
    memcpy(to->sample + to->count, samples, count * sizeof *samples);
    if (gaps > 0) memcpy(to->itl_s + to->itl_count, itl_s, gaps * sizeof *itl_s);
    to->count += count;
    to->itl_count += gaps;
    return 0;
}

static void show(const struct demo *d, const struct load_run *run, uint32_t count)
{
    printf("%7.1f s     %3u of %u sent, %3u answered; %u ready of %u\n", since_start_s(d),
           load_run_sent(run), count, load_run_ended(run), d->status.ready,
           d->status.instance_count);
    fflush(stdout);
}

static int drive(struct demo *d, struct load_run *run, uint32_t count, struct err *err)
{
    int rc = load_run_start(run, err);
    int64_t watch_us = 0, show_us = clock_mono_us() + SHOW_US;
    while (rc == 0 && !load_run_done(run)) {
        rc = loop_turn(d->loop, 100000);
        if (rc == -EINTR) rc = 0;
        int64_t now_us = clock_mono_us();
        if (rc == 0 && now_us >= watch_us) {
            rc = watch(d, err);
            watch_us = now_us + POLL_US;
        }
        if (now_us >= show_us) {
            show(d, run, count);
            show_us = now_us + SHOW_US;
        }
    }
    return rc;
}

/* Replays a slice; what comes of it is added to `to`. */
static int replay(struct demo *d, uint32_t first, int64_t span_us, double speed, uint64_t seed,
                  struct demo_samples *to, struct err *err)
{
    double trace_us = (double)span_us * speed;
    struct replay replay = {
        .trace = d->trace,
        .first = first,
        .count = replay_count_within(d->trace, first, (int64_t)trace_us),
        .speed = speed,
        .divide = DIVIDE,
        .tokens_max = PROMPT_TOKENS_MAX,
        .seed = seed,
        .tokens_per_word = d->tokens_per_word,
    };
    struct load_config config = { .host = STR("127.0.0.1"),
                                  .port = d->fleet.router_port,
                                  .model = str_from(d->status.service),
                                  .max_tokens = MAX_TOKENS,
                                  .temperature = TEMPERATURE,
                                  .timeout_us = REQUEST_US,
                                  .count = replay.count,
                                  .due_us = due_us,
                                  .message = message,
                                  .arg = &replay };
    CLEANUP(load_run_freep) struct load_run *run = NULL;
    if (to->count + replay.count > DEMO_SAMPLES_MAX) {
        return err_set(err, -E2BIG, "more than %d requests; shorten the demo", DEMO_SAMPLES_MAX);
    }
    int64_t before_us = clock_mono_us();
    int rc = load_run_new(d->loop, &config, &run, err);
    if (rc == 0) rc = drive(d, run, replay.count, err);
    if (rc == 0) rc = keep(to, run);
    to->seconds += (double)(clock_mono_us() - before_us) * 1e-6;
    return rc;
}

static int start(struct demo *d, struct err *err)
{
    char folder[240];
    heading(d, "starting controller and router, waiting for the first instance");
    /* A folder for each run: what an earlier one set by hand or left behind must not speak here. */
    snprintf(folder, sizeof folder, "%s-%lld", d->options->folder,
             (long long)(d->started_wall_us / 1000000));
    int rc = demo_fleet_start(&d->fleet, d->options->config, folder, err);
    if (rc == 0) rc = wait_instances(d, 1, READY_US, err);
    /* The router learns of the instance, and fetches its tokenizer, within a second. */
    int64_t until_us = clock_mono_us() + READY_US;
    while (rc == 0) {
        const struct target router = { .host = STR("127.0.0.1"), .port = d->fleet.router_port };
        rc = replay_calibrate(&router, (struct str){ 0 }, &d->tokens_per_word, err);
        if (rc == 0 || clock_mono_us() > until_us || *d->interrupted) break;
        usleep(POLL_US / 5);
        rc = 0;
    }
    if (rc < 0) return rc;
    d->start_instances = d->status.ready;
    for (uint32_t p = 0; p < d->status.pool_count; p++) {
        d->static_max_per_h += d->status.pool[p].max * d->status.pool[p].price_per_h;
    }
    printf("\n            console  http://127.0.0.1:%u/\n"
           "            API      http://127.0.0.1:%u/v1   (model %s)\n",
           d->fleet.controller_port, d->fleet.router_port, d->status.service);
    return 0;
}

static int grow_and_shrink(struct demo *d, struct err *err)
{
    int64_t before_us = clock_mono_us();
    double cost_before = d->status.cost_total;
    heading(d, "load: a slice of the Mooncake conversation trace");
    int rc = replay(d, 0, d->options->growth_us, d->options->growth_speed, 1, &d->growth, err);
    if (rc < 0) return rc;
    heading(d, "silence: the fleet shrinks to its minimum");
    rc = wait_instances(d, d->start_instances, SHRINK_US, err);
    d->end_instances = d->status.ready;
    d->grown_cost = d->status.cost_total - cost_before;
    d->grown_hours = (double)(clock_mono_us() - before_us) / 3600e6;
    return rc;
}

/* Three instances by hand, spread over the pools in turn. */
static int fix_fleet(struct demo *d, struct err *err)
{
    uint32_t count[FLEET_POOLS_MAX] = { 0 }, total = 0, before;
    do {
        before = total;
        for (uint32_t p = 0; p < d->status.pool_count && total < DEMO_FIXED_INSTANCES; p++) {
            if (count[p] == d->status.pool[p].max) continue;
            count[p]++;
            total++;
        }
    } while (total < DEMO_FIXED_INSTANCES && total > before);
    if (total < DEMO_FIXED_INSTANCES) {
        return err_set(err, -EINVAL, "%s: its pools allow %u instances, the comparison needs %d",
                       d->options->config, total, DEMO_FIXED_INSTANCES);
    }
    for (uint32_t p = 0; p < d->status.pool_count; p++) {
        int rc = demo_fleet_scale(&d->fleet, d->status.service, d->status.pool[p].name,
                                  (int)count[p], err);
        if (rc < 0) return rc;
    }
    return wait_instances(d, DEMO_FIXED_INSTANCES, READY_US, err);
}

static int compare(struct demo *d, struct err *err)
{
    heading(d, "three instances by hand, cold caches: " ROUTE_DEFAULT " against round_robin");
    int rc = fix_fleet(d, err);
    uint32_t first = replay_count_within(d->trace, 0, d->options->arm_from_us);
    if (first == d->trace->count) return err_set(err, -EINVAL, "--arm-from is behind the trace");
    for (uint32_t round = 0; rc == 0 && round < d->options->rounds; round++) {
        for (uint32_t turn = 0; rc == 0 && turn < DEMO_ARMS; turn++) {
            uint32_t arm = (round + turn) % DEMO_ARMS;
            printf("%7.1f s     round %u of %u: %s\n", since_start_s(d), round + 1,
                   d->options->rounds, demo_arm_policy[arm]);
            rc = demo_fleet_route(&d->fleet, demo_arm_policy[arm], err);
            if (rc == 0) rc = demo_fleet_reset_caches(&d->fleet, &d->status, err);
            /* A seed a round: both arms read the same texts, which no cache has seen. */
            if (rc == 0) {
                rc = replay(d, first, d->options->arm_us, d->options->arm_speed, 100 + round,
                            &d->arm[arm], err);
            }
        }
    }
    if (rc == 0) rc = demo_fleet_route(&d->fleet, demo_arm_policy[0], err);
    for (uint32_t p = 0; rc == 0 && p < d->status.pool_count; p++) {
        rc = demo_fleet_scale(&d->fleet, d->status.service, d->status.pool[p].name, -1, err);
    }
    return rc;
}

static void stay(const struct demo *d)
{
    printf("\nThe fleet stays up. Console http://127.0.0.1:%u/  API http://127.0.0.1:%u/v1\n"
           "Talk to it: build/muster chat --url http://127.0.0.1:%u\n"
           "Kill what you like. A controller is started again by\n"
           "    build/muster controller --config %s --listen 127.0.0.1:%u --state %s "
           "--secret-file %s/secret\n"
           "Ctrl-C ends the fleet.\n",
           d->fleet.controller_port, d->fleet.router_port, d->fleet.router_port, d->options->config,
           d->fleet.controller_port, d->fleet.folder, d->fleet.folder);
    fflush(stdout);
    while (!*d->interrupted) {
        usleep(POLL_US); /* nothing is watched: whoever stays may kill and restart parts */
    }
}

static int run_phases(struct demo *d, struct err *err)
{
    int rc = loop_new(&d->loop, err);
    if (rc == 0) rc = trace_file_load(d->options->trace, TRACE_AUTO, &d->trace, err);
    if (rc == 0) rc = start(d, err);
    if (rc == 0) rc = grow_and_shrink(d, err);
    if (rc == 0) rc = compare(d, err);
    if (rc < 0) return rc;
    rc = demo_summary_write(d, err);
    if (rc == 0) rc = demo_summary_print(d);
    if (rc < 0) return rc;
    uint32_t problems = demo_summary_judge(d);
    if (d->options->stay) stay(d);
    return problems > 0;
}

int demo_run(const struct demo_options *options, const volatile sig_atomic_t *interrupted,
             struct err *err)
{
    struct demo *d = calloc(1, sizeof *d);
    if (!d) return err_set(err, -ENOMEM, "no memory");
    d->options = options;
    d->interrupted = interrupted;
    d->started_wall_us = clock_wall_us();
    int rc = run_phases(d, err);
    printf("\n%7.1f s  == ending the fleet\n", since_start_s(d));
    fflush(stdout);
    demo_fleet_stop(&d->fleet);
    loop_free(d->loop);
    trace_free(d->trace);
    for (uint32_t i = 0; i < DEMO_ARMS; i++) {
        free(d->arm[i].sample);
        free(d->arm[i].itl_s);
    }
    free(d->growth.sample);
    free(d->growth.itl_s);
    free(d);
    return rc;
}
