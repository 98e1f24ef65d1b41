/* demo_fleet.c - start, query and stop the demo's fleet. The status is read with the pull reader, key by key. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/http/http_fetch.h"
#include "base/io/loop/clock.h"
#include "base/wire/order.h"
#include "cli/daemons.h"
#include "cli/demo/demo.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define CALL_US 5000000
#define START_US 20000000
#define STOP_US 20000000
#define REPLY_BYTES_MAX ((size_t)8 << 20)

/* Makes a call that is signed as `id` (auth.h). */
static int call_as(struct demo_fleet *f, const char *id, uint16_t port, const char *path,
                   const char *body, struct buf *reply, struct err *err)
{
    struct signed_as as = { .id = str_from(id) };
    int rc = auth_key_of(str_from(f->secret), as.id, &as.key);
    if (rc < 0) return err_set(err, rc, "%s: no key for it", id);
    struct http_fetch_request req = { .host = STR("127.0.0.1"),
                                      .port = port,
                                      .path = str_from(path),
                                      .body = str_from(body),
                                      .json = true,
                                      .as = &as,
                                      .timeout_us = CALL_US };
    int status;
    CLEANUP(buf_fini) struct buf unread = { .max = REPLY_BYTES_MAX };
    struct buf *to = reply ? reply : &unread;
    buf_clear(to);
    rc = http_fetch(&req, &status, to, err);
    if (rc < 0) return rc;
    if (status < 200 || status > 299) {
        return err_set(err, -EPROTO, "%s answered %d: %.200s", path, status,
                       to->len ? to->data : "");
    }
    return 0;
}

/* Calls the controller or the router. */
static int call(struct demo_fleet *f, uint16_t port, const char *path, const char *body,
                struct buf *reply, struct err *err)
{
    char id[64] = "cli";
    if (port == f->router_port) snprintf(id, sizeof id, "cli/127.0.0.1:%u", port);
    return call_as(f, id, port, path, body, reply, err);
}

static int spawn(struct demo_fleet *f, const char *role, const char *config_path, uint16_t port,
                 const char *const *more, struct proc *ret, struct err *err)
{
    char self[512], listen[32], log[320], secret[320];
    int rc = proc_self_path(self, sizeof self);
    if (rc < 0) return err_set(err, rc, "cannot find this program");
    snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
    snprintf(log, sizeof log, "%s/%s.log", f->folder, role);
    snprintf(secret, sizeof secret, "%s/secret", f->folder);
    const char *argv[32] = { self,       role,   "--config",      config_path,
                             "--listen", listen, "--secret-file", secret };
    size_t count = 8;
    while (*more)
        argv[count++] = *more++;
    struct proc_spec spec = { .argv = argv, .log_path = log };
    rc = proc_spawn(&spec, ret, err);
    return rc < 0 ? err_prefix(err, rc, "muster %s", role) : 0;
}

/* Waits until /health is good; fails if the process dies. */
static int wait_healthy(struct demo_fleet *f, const char *role, const struct proc *p, uint16_t port,
                        struct err *err)
{
    int64_t until_us = clock_mono_us() + START_US;
    while (clock_mono_us() < until_us) {
        if (call(f, port, "/health", NULL, NULL, NULL) == 0) return 0;
        if (!proc_is_alive(&p->id)) {
            return err_set(err, -ECHILD, "muster %s ended at once; see %s/%s.log", role, f->folder,
                           role);
        }
        usleep(50000);
    }
    return err_set(err, -ETIMEDOUT, "muster %s did not answer; see %s/%s.log", role, f->folder,
                   role);
}

int demo_fleet_start(struct demo_fleet *f, const char *config_path, const char *folder,
                     struct err *err)
{
    char path[320], controller[32], origin[64];
    *f = (struct demo_fleet){ 0 };
    snprintf(f->folder, sizeof f->folder, "%s", folder);
    int rc = file_make_folders(folder, 0700, err);
    snprintf(path, sizeof path, "%s/secret", folder);
    if (rc == 0) rc = file_secret(path, f->secret, err);
    if (rc < 0) return rc;
    f->controller_port = daemons_free_port();
    f->router_port = daemons_free_port();
    snprintf(controller, sizeof controller, "127.0.0.1:%u", f->controller_port);
    snprintf(origin, sizeof origin, "http://127.0.0.1:%u,http://localhost:%u", f->controller_port,
             f->controller_port);
    const char *state[] = { "--state", folder, NULL };
    const char *router[] = { "--controller", controller, "--cors-origins", origin, NULL };
    rc = spawn(f, "controller", config_path, f->controller_port, state, &f->controller, err);
    if (rc == 0) rc = wait_healthy(f, "controller", &f->controller, f->controller_port, err);
    if (rc == 0) rc = spawn(f, "router", config_path, f->router_port, router, &f->router, err);
    if (rc == 0) rc = wait_healthy(f, "router", &f->router, f->router_port, err);
    return rc;
}

/* ---- reading the API ---- */

static void read_text(struct json_reader *r, char *ret, size_t size)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    ret[0] = '\0';
    if (json_next(r) == JSON_STRING && json_text(r, &text) == 0) {
        snprintf(ret, size, STR_FMT, STR_ARG(text));
    } else if (r->token == JSON_OBJECT || r->token == JSON_ARRAY) {
        json_skip_rest(r);
    }
}

static double read_number(struct json_reader *r)
{
    double v = 0;
    json_next(r);
    if (r->token == JSON_OBJECT || r->token == JSON_ARRAY) json_skip_rest(r);
    return json_f64(r, &v) == 0 ? v : 0;
}

static void read_services(struct json_reader *r, struct fleet_status *s)
{
    if (json_next(r) != JSON_ARRAY) return;
    for (uint32_t i = 0; json_next(r) == JSON_OBJECT; i++) {
        while (json_next(r) == JSON_KEY) {
            if (i == 0 && json_key_is(r, "service")) {
                read_text(r, s->service, sizeof s->service);
            } else if (i == 0 && json_key_is(r, "slo_ttft_s")) {
                s->slo_ttft_s = read_number(r);
            } else if (i == 0 && json_key_is(r, "slo_tpot_s")) {
                s->slo_tpot_s = read_number(r);
            } else {
                json_skip(r);
            }
        }
    }
}

/* Reads a pool; the first offer's name goes into `offer`, for its price. */
static void read_pool(struct json_reader *r, struct fleet_pool *p, char *offer)
{
    while (json_next(r) == JSON_KEY) {
        if (json_key_is(r, "pool")) {
            read_text(r, p->name, sizeof p->name);
        } else if (json_key_is(r, "ready")) {
            p->ready = (uint32_t)read_number(r);
        } else if (json_key_is(r, "max")) {
            p->max = (uint32_t)read_number(r);
        } else if (json_key_is(r, "offers")) {
            if (json_next(r) != JSON_ARRAY) continue;
            while (json_next(r) == JSON_STRING) {
                if (!offer[0]) snprintf(offer, FLEET_NAME_MAX, STR_FMT, STR_ARG(r->raw));
            }
        } else {
            json_skip(r);
        }
    }
}

static void read_instance(struct json_reader *r, struct fleet_instance *i)
{
    char phase[32];
    while (json_next(r) == JSON_KEY) {
        if (json_key_is(r, "instance")) {
            read_text(r, i->name, sizeof i->name);
        } else if (json_key_is(r, "phase")) {
            read_text(r, phase, sizeof phase);
            i->ready = strcmp(phase, "ready") == 0;
        } else if (json_key_is(r, "engine")) {
            if (json_next(r) != JSON_OBJECT) continue;
            while (json_next(r) == JSON_KEY) {
                if (json_key_is(r, "port")) {
                    i->port = (uint16_t)read_number(r);
                } else {
                    json_skip(r);
                }
            }
        } else {
            json_skip(r);
        }
    }
}

struct offers {
    char pool_offer[FLEET_POOLS_MAX][FLEET_NAME_MAX];
};

static void read_offers(struct json_reader *r, struct fleet_status *s, const struct offers *known)
{
    if (json_next(r) != JSON_ARRAY) return;
    while (json_next(r) == JSON_OBJECT) {
        char name[FLEET_NAME_MAX] = "";
        double price = 0;
        while (json_next(r) == JSON_KEY) {
            if (json_key_is(r, "offer")) {
                read_text(r, name, sizeof name);
            } else if (json_key_is(r, "price_per_h")) {
                price = read_number(r);
            } else {
                json_skip(r);
            }
        }
        for (uint32_t p = 0; p < s->pool_count; p++) {
            if (strcmp(known->pool_offer[p], name) == 0) s->pool[p].price_per_h = price;
        }
    }
}

static void read_cost(struct json_reader *r, struct fleet_status *s)
{
    if (json_next(r) != JSON_OBJECT) return;
    while (json_next(r) == JSON_KEY) {
        if (json_key_is(r, "total")) {
            s->cost_total = read_number(r);
        } else {
            json_skip(r);
        }
    }
}

static void read_lists(struct json_reader *r, struct fleet_status *s, struct offers *offers)
{
    bool pools = json_key_is(r, "pools");
    if (json_next(r) != JSON_ARRAY) return;
    while (json_next(r) == JSON_OBJECT) {
        if (pools && s->pool_count < FLEET_POOLS_MAX) {
            read_pool(r, &s->pool[s->pool_count], offers->pool_offer[s->pool_count]);
            s->pool_count++;
        } else if (!pools && s->instance_count < FLEET_INSTANCES_MAX) {
            read_instance(r, &s->instance[s->instance_count++]);
        } else {
            json_skip_rest(r);
        }
    }
}

int demo_fleet_status(struct demo_fleet *f, struct fleet_status *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { .max = REPLY_BYTES_MAX };
    int rc = call(f, f->controller_port, "/api/v1/status", NULL, &reply, err);
    if (rc < 0) return rc;
    struct fleet_status s = { 0 };
    struct offers offers = { 0 };
    struct json_reader r;
    json_reader_init(&r, buf_view(&reply));
    json_next(&r);
    while (json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "services")) {
            read_services(&r, &s);
        } else if (json_key_is(&r, "pools") || json_key_is(&r, "instances")) {
            read_lists(&r, &s, &offers);
        } else if (json_key_is(&r, "offers")) {
            read_offers(&r, &s, &offers);
        } else if (json_key_is(&r, "cost")) {
            read_cost(&r, &s);
        } else {
            json_skip(&r);
        }
    }
    if (r.token != JSON_OBJECT_END) return json_fail(&r, err, "the controller's status");
    for (uint32_t i = 0; i < s.instance_count; i++)
        s.ready += s.instance[i].ready;
    *ret = s;
    return 0;
}

/* {"pool": count, ...}: the counts of pools by name, as parallel lists. */
struct counts {
    char pool[FLEET_POOLS_MAX][FLEET_NAME_MAX];
    uint32_t count[FLEET_POOLS_MAX];
    uint32_t n;
};

static void read_counts(struct json_reader *r, struct counts *c)
{
    if (json_next(r) != JSON_OBJECT) return;
    while (json_next(r) == JSON_KEY) {
        if (c->n == FLEET_POOLS_MAX) {
            json_skip(r);
            continue;
        }
        snprintf(c->pool[c->n], FLEET_NAME_MAX, STR_FMT, STR_ARG(r->raw));
        c->count[c->n++] = (uint32_t)read_number(r);
    }
}

static uint32_t count_of(const struct counts *c, const char *pool)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (strcmp(c->pool[i], pool) == 0) return c->count[i];
    }
    return 0;
}

static void read_decision(struct json_reader *r, struct demo_fleet *f)
{
    struct counts have = { 0 }, target = { 0 };
    char reason[192] = "";
    int64_t at_us = 0;
    if (json_next(r) != JSON_OBJECT) return;
    while (json_next(r) == JSON_KEY) {
        if (json_key_is(r, "have")) {
            read_counts(r, &have);
        } else if (json_key_is(r, "target")) {
            read_counts(r, &target);
        } else if (json_key_is(r, "reason")) {
            read_text(r, reason, sizeof reason);
        } else if (json_key_is(r, "at_us")) {
            at_us = (int64_t)read_number(r);
        } else {
            json_skip(r);
        }
    }
    for (uint32_t i = 0; i < target.n && f->event_count < FLEET_EVENTS_MAX; i++) {
        uint32_t from = count_of(&have, target.pool[i]);
        if (from == target.count[i]) continue;
        struct fleet_event *e = &f->event[f->event_count++];
        *e = (struct fleet_event){ .at_us = at_us, .from = from, .to = target.count[i] };
        memcpy(e->pool, target.pool[i], sizeof e->pool);
        memcpy(e->reason, reason, sizeof e->reason);
    }
}

int demo_fleet_events(struct demo_fleet *f, struct err *err)
{
    CLEANUP(buf_fini) struct buf reply = { .max = REPLY_BYTES_MAX };
    char path[96];
    uint32_t before = f->event_count;
    snprintf(path, sizeof path, "/api/v1/decisions?from=%llu&limit=100",
             (unsigned long long)(f->decision_seen + 1));
    int rc = call(f, f->controller_port, path, NULL, &reply, err);
    if (rc < 0) return rc;
    struct json_reader r;
    json_reader_init(&r, buf_view(&reply));
    json_next(&r);
    while (json_next(&r) == JSON_KEY) {
        if (!json_key_is(&r, "decisions")) {
            json_skip(&r);
            continue;
        }
        if (json_next(&r) != JSON_ARRAY) break;
        while (json_next(&r) == JSON_OBJECT) {
            while (json_next(&r) == JSON_KEY) {
                if (json_key_is(&r, "id")) {
                    f->decision_seen = (uint64_t)read_number(&r);
                } else if (json_key_is(&r, "decision")) {
                    read_decision(&r, f);
                } else {
                    json_skip(&r);
                }
            }
        }
    }
    return (int)(f->event_count - before);
}

/* ---- overrides ---- */

int demo_fleet_scale(struct demo_fleet *f, const char *service, const char *pool, int count,
                     struct err *err)
{
    char path[160];
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct scale_order order = { str_from(pool), count };
    snprintf(path, sizeof path, "/api/v1/services/%s/scale", service);
    if (scale_order_encode(&order, &body) < 0) return err_set(err, body.rc, "no memory");
    return call(f, f->controller_port, path, body.data, NULL, err);
}

int demo_fleet_route(struct demo_fleet *f, const char *policy, struct err *err)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    if (route_order_encode(str_from(policy), &body) < 0) return err_set(err, body.rc, "no memory");
    return call(f, f->router_port, "/admin/route", body.data, NULL, err);
}

int demo_fleet_reset_caches(struct demo_fleet *f, const struct fleet_status *s, struct err *err)
{
    for (uint32_t i = 0; i < s->instance_count; i++) {
        if (!s->instance[i].ready || s->instance[i].port == 0) continue;
        char id[FLEET_NAME_MAX + 8];
        snprintf(id, sizeof id, "engine/%s", s->instance[i].name);
        int rc = call_as(f, id, s->instance[i].port, "/reset_prefix_cache", "{}", NULL, err);
        if (rc < 0) return rc;
    }
    return 0;
}

bool demo_fleet_is_alive(const struct demo_fleet *f, const char **ret_dead)
{
    *ret_dead = !proc_is_alive(&f->controller.id) ? "controller"
                : !proc_is_alive(&f->router.id)   ? "router"
                                                  : NULL;
    return !*ret_dead;
}

static void end(struct proc *p)
{
    struct proc_exit how;
    if (p->id.pid == 0) return;
    proc_signal(&p->id, SIGTERM, NULL);
    if (proc_wait(p, STOP_US, &how) < 0) {
        proc_signal(&p->id, SIGKILL, NULL);
        proc_wait(p, STOP_US, &how);
    }
    proc_close(p);
    p->id.pid = 0;
}

void demo_fleet_stop(struct demo_fleet *f)
{
    struct fleet_status s;
    int64_t until_us = clock_mono_us() + STOP_US;
    /* Overrides every pool to zero: drivers end instances, not signals to their processes. */
    while (demo_fleet_status(f, &s, NULL) == 0 && s.instance_count > 0 &&
           clock_mono_us() < until_us) {
        for (uint32_t p = 0; p < s.pool_count; p++) {
            demo_fleet_scale(f, s.service, s.pool[p].name, 0, NULL);
        }
        usleep(200000);
    }
    end(&f->router);
    end(&f->controller);
}
