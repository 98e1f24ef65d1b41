/* controller.c - opens the state folder, listens, and ticks while it leads, until a signal.
 *
 * A term of leadership (leader.h) has a struct control of its own, which is made from the store when the term
 * begins and dropped when it ends: whoever takes over restores, observes and only then acts. With a store of
 * its own the process is in one term from its start to its end. */
#include "controller/controller.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/notify.h"
#include "controller/access.h"
#include "controller/aside.h"
#include "controller/events.h"
#include "controller/metrics.h"
#include "controller/process.h"
#include "fleet/defaults.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- leading ---- */

bool controller_leads(void *arg)
{
    struct controller *c = arg;
    return c->leader && leader_leads(c->leader);
}

struct str controller_leader(void *arg)
{
    struct controller *c = arg;
    return c->leader ? leader_address(c->leader) : (struct str){ 0 };
}

static void tick_at(struct controller *c, int64_t at_us)
{
    if (loop_timer_set(c->loop, &c->tick, at_us) < 0) {
        c->failed = true;
        loop_stop(c->loop);
    }
}

/* Takes completions that no control waits for any more, so that they do not fill a cloud's queue. */
static void drop_events(struct controller *c)
{
    struct cloud_event *e = malloc(sizeof *e);
    for (uint32_t i = 0; e && i < c->cloud_count; i++) {
        while (c->cloud[i].driver->next(c->cloud[i].ctx, fleet_clock_now(&c->clock), e)) {
        }
    }
    free(e);
}

/* Takes completions of calls to providers at once, so that the next state is not a tick away. */
static void on_cloud(void *arg)
{
    struct controller *c = arg;
    if (!c->control) {
        drop_events(c);
        return;
    }
    (void)control_calls(c->control, fleet_clock_now(&c->clock)); /* no fault is armed here */
    if (control_is_urgent(c->control)) controller_on_urgent(c);
}

/* Wakes the loop; runs on a cloud's thread. The next tick makes up for a refused post. */
static void wake_for_cloud(void *arg)
{
    struct controller *c = arg;
    (void)loop_post(c->loop, on_cloud, c);
}

static int begin_term(void *arg, uint64_t epoch, struct err *err)
{
    struct controller *c = arg;
    struct control_setup setup;
    int rc = fleet_clock_open(&c->clock, c->store, err);
    if (rc < 0) return err_prefix(err, rc, "controller.state");
    rc = in_force_open(c, err);
    if (rc < 0) return rc;
    drop_events(c);
    /* No two terms draw the same ids, not even under a seed that was configured: a provider may remember an id
     * for longer than we do. */
    bool alone = !store_is_shared(c->store) && c->setup.term.epoch == 0;
    c->setup.seed = c->seed ^ (alone ? 0 : hash64(&epoch, sizeof epoch, 0));
    c->setup.term = (struct control_term){ epoch, controller_leads, c };
    setup = c->setup;
    rc = in_force_fill(c, &setup, err);
    if (rc == 0) rc = control_new(&setup, fleet_clock_now(&c->clock), &c->control, err);
    if (rc < 0) {
        in_force_close(c);
        return rc;
    }
    const char *found = c->leader ? leader_found(c->leader) : NULL;
    if (found)
        control_note(c->control, &(struct event_note){ .what = "store", .text = found },
                     fleet_clock_now(&c->clock));
    control_claim(c->control);
    if (c->clock.unreadable)
        control_set_aside(c->control, STR("clock"), "damaged, or of a newer release");
    control_watch_clouds(c->control, wake_for_cloud, c);
    api_attach(c->api, c->control);
    if (service_objects_begin(c->objects, c->control, err) < 0)
        log_event(LOG_ERROR, "service_objects_not_watched", "error=%s", err->text);
    tick_at(c, clock_mono_us());
    return 0;
}

static void end_term(void *arg)
{
    struct controller *c = arg;
    loop_timer_clear(c->loop, &c->tick);
    service_objects_end(c->objects);
    api_attach(c->api, NULL);
    control_free(c->control);
    c->control = NULL;
    in_force_close(c);
    control_metrics_rest(c->metrics);
    c->tokens_at = 0;
}

/* People's tokens open what a controller shows while it stands by. */
static void on_standby(void *arg)
{
    struct controller *c = arg;
    uint64_t changes = store_changes(c->store, STR("token/"));
    if (changes && changes == c->tokens_at) return;
    struct tokens *t = malloc(sizeof *t);
    if (t && tokens_load(c->store, t, NULL) == 0) {
        api_tokens(c->api, t);
        c->tokens_at = changes;
    }
    free(t);
}

/* ---- ticks ---- */

static void on_tick(void *arg)
{
    struct controller *c = arg;
    loop_assert_owner(c->loop);
    tick_at(c, loop_now_us(c->loop) + c->now->config.controller->tick_us);
    if (!leader_leads(c->leader)) return; /* the leader's timer is due, and ends the term */
    struct err err = { 0 };
    int rc = fleet_clock_keep(&c->clock, &err);
    if (rc < 0) {
        metric_inc(metric_of(c->metrics, CONTROL_M_STORE_FAILURES));
        log_event(LOG_ERROR, "time_not_written", "error=%s", err_text(&err, rc));
    }
    control_date(c->control, fleet_clock_date_ahead(&c->clock));
    (void)control_tick(c->control, fleet_clock_now(&c->clock)); /* no fault is armed here */
    leader_check(c->leader, control_epoch_seen(c->control));
    if (!c->control) return; /* the term is over */
    api_broadcast(c->api);
    if (control_is_urgent(c->control)) tick_at(c, loop_now_us(c->loop) + URGENT_TICK_US);
}

void controller_on_urgent(void *arg)
{
    struct controller *c = arg;
    int64_t soon = loop_now_us(c->loop) + URGENT_TICK_US;
    if (loop_timer_is_set(&c->tick) && c->tick.node.key <= soon) return;
    tick_at(c, soon);
}

static void on_signal(void *arg, int signo)
{
    struct controller *c = arg;
    log_event(LOG_INFO, "controller_leaves", "signal=%d", signo);
    notify_stopping("ends; the fleet goes on without it");
    loop_stop(c->loop);
}

/* ---- life ---- */

static int open_leader(struct controller *c, struct err *err)
{
    const struct leader_config config = {
        .loop = c->loop,
        .store = c->store,
        .metrics = c->metrics,
        .fence = &c->fence,
        .address = str_from(c->reach),
        .term_us = c->config->controller->leader_lease_us,
        .on_begin = begin_term,
        .on_end = end_term,
        .on_standby = on_standby,
        .arg = c,
    };
    return leader_new(&config, &c->leader, err);
}

static int open_metrics(struct controller *c, struct err *err)
{
    int rc = metrics_new(control_metric_table, CONTROL_M_COUNT, NULL, 0, &c->metrics, err);
    const struct str result[] = { str_from(live_source_names[LIVE_FILE]),
                                  str_from(live_source_names[LIVE_APPLIED]),
                                  str_from(live_source_names[LIVE_OBJECTS]), STR("refused") };
    for (size_t i = 0; rc == 0 && i < COUNT_OF(result); i++) /* a rate needs a zero */
        metric_series(c->metrics, CONTROL_M_CONFIG_CHANGES, &result[i]);
    return rc;
}

static int build(struct controller *c, struct err *err)
{
    c->tick = (struct loop_timer){ .fn = on_tick, .arg = c };
    int rc = open_metrics(c, err);
    if (rc == 0) rc = loop_new(&c->loop, err);
    if (rc == 0) rc = process_open(c, err);
    if (rc == 0) rc = in_force_objects(c, err);
    if (rc == 0) rc = open_leader(c, err);
    if (rc == 0) rc = in_force_watch(c, err);
    if (rc == 0) rc = loop_signal(c->loop, SIGTERM, on_signal, c, err);
    if (rc == 0) rc = loop_signal(c->loop, SIGINT, on_signal, c, err);
    return rc;
}

/* The controller is ready when it listens and holds its store, not when all clouds have been listed: a provider
 * that is out of reach must not make a service manager start it again and again. */
static void tell_ready(const struct controller *c)
{
    char status[ADDR_TEXT_MAX + 64];
    log_event(LOG_INFO, "controller_ready", "host=%s port=%u state=%s services=%zu", c->listen_host,
              api_port(c->api), c->config->controller->state.data, c->config->service_count);
    snprintf(status, sizeof status, "listens at %s port %u", c->listen_host, api_port(c->api));
    notify_ready(status);
}

int controller_main(const struct controller_config *config, struct err *err)
{
    signal(SIGPIPE, SIG_IGN);
    in_force_log(config->controller);
    struct controller *c = calloc(1, sizeof *c);
    must(c);
    c->config = config;
    c->lock = -1;
    arena_init(&c->arena, SETUP_ARENA_BYTES);
    int rc = build(c, err);
    if (rc == 0) rc = notify_watch_start(&c->watch, c->loop, NULL, 0, err);
    if (rc == 0) {
        tell_ready(c);
        rc = loop_run(c->loop);
        if (c->failed) rc = err_set(err, -ENOMEM, "the controller's clock cannot be set");
    }
    leader_free(c->leader); /* first: its term, with the control, ends */
    service_objects_free(c->objects);
    api_free(c->api);
    key_file_fini(&c->scrapers);
    tls_free(c->tls);
    for (uint32_t i = 0; i < c->cloud_count; i++)
        cloud_close(&c->cloud[i]);
    if (c->store) store_close(c->store);
    file_unlock(c->lock);
    notify_watch_stop(&c->watch);
    notify_watch_fini(&c->watch);
    loop_free(c->loop);
    metrics_free(c->metrics);
    arena_fini(&c->arena);
    free(c);
    return rc;
}
