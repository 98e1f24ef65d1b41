/* decide_open.c - opens and closes the decision thread: its policies, what its predictor knew, its parts in order.
 */
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "base/io/net/descriptors.h"
#include "policies/catalog.h"
#include "router/decide.h"
#include "router/generate.h"
#include "router/predict_file.h"
#include "router/sync.h"
#include "router/tenants.h"

#include <stdio.h>
#include <stdlib.h>

#define DECIDE_CONNECTIONS_MAX 10000 /* the controller, and block events of every engine */

static void on_bundle(void *arg)
{
    struct decide *d = arg;
    sync_hurry(d->sync);
}

static int policies_of(const struct router_config *config, struct dispatch_config *ret,
                       struct err *err)
{
    ret->route = route_find(config->route);
    ret->predict = predict_find(config->predict);
    int rc = policy_check("route", config->route, "router.route", err);
    if (rc == 0) rc = policy_check("predict", config->predict, "router.predict", err);
    if (rc == 0) rc = policy_check("migrate", config->migrate, "router.migrate", err);
    if (rc < 0) return rc;
    const char *missing = predict_missing(ret->predict, FEATURES_HAVE);
    if (missing) {
        return err_set(err, -EINVAL, "router.predict: %s is not applicable: a router has no %s",
                       ret->predict->name, missing);
    }
    return 0;
}

static void remember(struct decide *d)
{
    struct err err = { 0 };
    if (!d->may_remember) return;
    int rc = predict_file_write(dispatch_predict(d->dispatch), d->config->predict_file.data,
                                dispatch_predict_state(d->dispatch), &err);
    if (rc < 0) log_event(LOG_WARN, "predictor_not_saved", "why=\"%s\"", err_text(&err, rc));
}

/* Renames a damaged file of this predictor to make room. Only the last damaged one is kept. */
static void set_aside(struct decide *d)
{
    CLEANUP(buf_fini) struct buf aside = { 0 };
    const char *path = d->config->predict_file.data;
    buf_printf(&aside, "%s.damaged", path);
    bool moved = aside.rc == 0 && rename(path, aside.data) == 0;
    metric_inc(metric_of(d->metrics, RM_PREDICTOR_DAMAGED));
    log_event(LOG_ERROR, "predictor_damaged", "file=%s aside=%s", path, moved ? aside.data : "no");
    d->may_remember = moved;
}

/* Reads the predictor's file. A damaged one is set aside; any other that cannot be used is left as it
 * is: it may be another predictor's. */
static void recall(struct decide *d)
{
    struct err err = { 0 };
    if (d->config->predict_file.len == 0) return;
    int rc = predict_file_merge(dispatch_predict(d->dispatch), d->config->predict_file.data,
                                dispatch_predict_state(d->dispatch), &err);
    if (rc == -EBADMSG) {
        set_aside(d);
        return;
    }
    d->may_remember = rc == 0 || rc == -ENOENT;
    if (!d->may_remember) {
        log_event(LOG_WARN, "predictor_not_recalled", "why=\"%s\"", err_text(&err, rc));
    }
    if (rc == -ENOENT) remember(d); /* tells now, not at the end, if the file cannot be written */
}

static int director_open(struct decide *d, const struct dispatch_config *core, struct err *err)
{
    const struct director_config config = {
        .dispatch = *core,
        .migrate = migrate_find(d->config->migrate),
        .service = { .slo_ttft_s = (double)d->config->slo_ttft_us * 1e-6,
                     .slo_tpot_s = (double)d->config->slo_tpot_us * 1e-6,
                     .kv_link_bytes_s = (double)d->config->kv_link },
    };
    int rc = director_new(&config, &d->director, err);
    if (rc < 0) return rc;
    d->dispatch = director_dispatch(d->director);
    d->services = director_services(d->director);
    return 0;
}

/* Makes the metrics of refusals and failures, so that a rate sees the first one, and tells the bounds. */
static void meter_bounds(struct decide *d, const struct dispatch_config *core)
{
    const struct str limits = STR("limits");
    metric_series(d->metrics, RM_REFUSED, &limits);
    for (int i = REFUSAL_NONE + 1; i < REFUSAL_COUNT; i++) {
        struct str reason = str_from(refusal_names[i]);
        metric_series(d->metrics, RM_REFUSED, &reason);
    }
    for (int i = 0; i < RETRY_FAILURE_COUNT; i++) {
        struct str failure = str_from(retry_failure_names[i]);
        metric_series(d->metrics, RM_RETRIES, &failure);
    }
    metric_set(metric_of(d->metrics, RM_HELD_MAX), core->held_max);
    metric_set(metric_of(d->metrics, RM_IN_FLIGHT_MAX), core->requests_max);
}

/* Opens what makes calls to the controller and the engines, in the thread's loop. */
static int open_calls(struct decide *d, const struct decide_config *config, struct err *err)
{
    int rc = loop_new(&d->loop, err);
    const struct http_client_config calls = {
        .names = config->names,
        .tls = config->call,
        .dial = tunnels_dial,
        .dial_arg = config->tunnels,
        .connections_max = descriptors_share(ROUTER_DECIDE_SHARE, 1, DECIDE_CONNECTIONS_MAX),
    };
    if (rc == 0) rc = http_client_new(d->loop, &calls, &d->client, err);
    return rc < 0 ? rc : fleet_link_signer(d->link, d->loop, d->client, &d->signer, err);
}

/* Opens the record of decisions, if one is kept. */
static int open_record(struct decide *d, struct dispatch_config *core, struct err *err)
{
    const struct router_config *c = d->config;
    if (c->record.len == 0) return 0;
    int rc = record_open(c->record.data, (uint64_t)c->record_max, core->route, &d->record, err);
    core->watch = d->record ? record_watch(d->record) : NULL;
    return rc;
}

static int adapters_open(struct decide *d, struct err *err)
{
    struct adapter_list *const lists[] = { &d->adapters, &d->adapters_next };
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        lists[i]->item = calloc(SNAPSHOT_ADAPTERS_MAX, sizeof *lists[i]->item);
        if (!lists[i]->item) return err_set(err, -ENOMEM, "router: no memory");
    }
    return 0;
}

int decide_new(const struct decide_config *config, struct decide **ret, struct err *err)
{
    const struct router_config *c = config->router;
    struct dispatch_config core = { .index_bytes = (size_t)c->index_bytes,
                                    .requests_max = (uint32_t)c->requests_max,
                                    .held_max = (uint32_t)c->held_max,
                                    .hold_us_max = c->hold_us_max,
                                    .quarantine_us = c->quarantine_us,
                                    .seed = (uint64_t)c->seed };
    int rc = policies_of(c, &core, err);
    if (rc < 0) return rc;
    struct decide *d = calloc(1, sizeof *d);
    if (!d) return err_set(err, -ENOMEM, "router: no memory");
    d->config = c;
    d->link = config->link;
    d->board = config->board;
    d->tunnels = config->tunnels;
    d->metrics = config->metrics;
    meter_bounds(d, &core);
    d->boot = (uint64_t)clock_wall_us();
    d->informed = !router_has_controller(c);
    d->held_timer = (struct loop_timer){ .fn = decide_on_held, .arg = d };
    d->waiting_timer = (struct loop_timer){ .fn = decide_on_waiting, .arg = d };
    rc = keys_init(&d->keys, c->keys_file, c->secret_file, c->require_key, router_has_controller(c),
                   err);
    if (rc == 0) rc = adapters_open(d, err);
    if (rc == 0) rc = quarantine_board_init(&d->quarantine);
    if (rc == 0) rc = ended_init(&d->ended);
    if (rc == 0) rc = open_calls(d, config, err);
    if (rc == 0) rc = open_record(d, &core, err);
    if (rc == 0) rc = director_open(d, &core, err);
    if (rc == 0) rc = migrate_plan_new(d, &d->migrate, err);
    if (rc == 0) rc = bundles_new(d->loop, d->signer, d->link, &d->board->pins, &d->bundles, err);
    if (rc == 0) rc = tenants_new(&d->tenants, err);
    if (rc == 0) rc = sync_new(d, config->port, &d->sync, err);
    if (rc < 0) {
        decide_free(d);
        return rc;
    }
    recall(d);
    decide_policy_tell(d, "route", core.route->name, true);
    decide_policy_tell(d, "predict", core.predict->name, true);
    decide_policy_tell(d, "migrate", director_migrate_policy(d->director)->name, true);
    mailbox_init(&d->mailbox, d->loop, decide_on_mail, d);
    mailbox_init(&d->entries, d->loop, decide_on_entry, d);
    bundles_on_ready(d->bundles, on_bundle, d);
    decide_publish(d); /* the known keys hold from the first request on */
    *ret = d;
    return 0;
}

void decide_free(struct decide *d)
{
    if (!d) return;
    remember(d);
    for (uint32_t i = 0; i < DISPATCH_ENDPOINTS; i++)
        block_feed_free(d->endpoint[i].feed);
    sync_free(d->sync);
    bundles_free(d->bundles);
    tenants_free(d->tenants);
    tenant_keys_unref(d->tenant_keys);
    keys_fini(&d->keys);
    migrate_plan_free(d->migrate);
    director_free(d->director);
    free(d->adapters.item);
    free(d->adapters_next.item);
    quarantine_board_fini(&d->quarantine);
    ended_fini(&d->ended);
    uint64_t left_out = record_close(d->record);
    if (left_out > 0) log_event(LOG_WARN, "record_full", "left_out=%lu", (unsigned long)left_out);
    http_client_free(d->client);
    signer_free(d->signer);
    if (d->mailbox.loop) mailbox_fini(&d->mailbox);
    if (d->entries.loop) mailbox_fini(&d->entries);
    loop_free(d->loop);
    free(d);
}
