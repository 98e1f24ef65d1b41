/* fake_cloud_server.c - serves a fake of a provider's API on a port, for processes and for the provider's own client
 * libraries.
 *
 *     fake_cloud_server --plays hetzner --port N [--token T] [--boot-ms M] [--lag-ms M] [--quota N]
 *
 * Below /fake/ are orders of tests, which the API does not have:
 *
 *     GET  /fake/state      { "running", "made", "refused_form", "last_refused", "bill_udollars", "requests" }
 *     GET  /fake/machines   { "machines": [{ "id", "name", "type", "zone", "there", "booted", "user_data" }] }
 *     POST /fake/script     { "rows": [{ "op", "nth", "fault", "delay_ms", "type", "zone" }] } in place of the present
 *     POST /fake/stock      { "type", "zone", "count" }
 *     POST /fake/preempt    { "name", "notice_ms" }
 *
 * A lost reply is a connection that is cut; a slow one comes late. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/config/opt.h"
#include "base/io/http/http_server.h"
#include "base/io/loop/clock.h"
#include "tests/fakes/cloud/fake_ec2.h"
#include "tests/fakes/cloud/fake_gce.h"
#include "tests/fakes/cloud/fake_hetzner.h"
#include "tests/fakes/cloud/fake_lambda.h"
#include "tests/fakes/cloud/fake_nova.h"
#include "tests/fakes/cloud/fake_runpod.h"
#include "tests/fakes/cloud/fake_vast.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSON_TYPE STR("application/json")
#define REPLY_ARENA_BYTES ((size_t)32 << 20)
#define CUT_US 60000000 /* a reply that takes longer never comes */

/* The fakes that can be served; a row for each. */
static const struct cloud_fake *const fakes[] = { &fake_ec2,  &fake_gce,    &fake_hetzner,
                                                  &fake_nova, &fake_lambda, &fake_runpod,
                                                  &fake_vast };
static const char *const fake_names[] = { "ec2",    "gce",    "hetzner", "nova",
                                          "lambda", "runpod", "vast",    NULL };

struct options {
    int plays;
    int64_t port, boot_ms, lag_ms, quota;
    struct str token;
};

struct server {
    struct loop *loop;
    struct options options;
    const struct cloud_fake *fake;
    void *ctx;
    struct fleet_config config;
    struct fake_fleet fleet;
    uint64_t requests;
    char text[FLEET_SCRIPT_MAX][2][FLEET_TEXT]; /* that rows of the script point to */
};

static int64_t now_us(const struct server *s)
{
    return loop_now_us(s->loop);
}

/* ---- requests of the API ---- */

struct late {
    struct http_exchange *x;
    struct loop_timer timer;
    struct server *server;
    struct arena arena;
    struct web_reply reply;
};

static void late_free(struct late *l)
{
    loop_timer_clear(l->server->loop, &l->timer);
    arena_fini(&l->arena);
    free(l);
}

static void on_left(void *arg, enum http_abort why)
{
    (void)why;
    late_free(arg);
}

static void send_reply(struct late *l)
{
    const struct web_reply *r = &l->reply;
    if (r->status == 0) {
        http_exchange_abort(l->x);
    } else {
        for (uint32_t i = 0; i < r->header_count; i++) {
            char name[64];
            snprintf(name, sizeof name, STR_FMT, STR_ARG(r->header[i].name));
            http_reply_header(l->x, name, r->header[i].value);
        }
        http_reply(l->x, r->status, JSON_TYPE, r->body);
    }
    late_free(l);
}

static void on_time(void *arg)
{
    send_reply(arg);
}

static void make_ask(const struct http_request *req, struct web_ask *ret)
{
    *ret = (struct web_ask){ .method = req->method,
                             .url = req->target,
                             .body = req->body,
                             .content_type = http_request_header(req, "content-type") };
    for (uint32_t i = 0; i < req->header_count && ret->header_count < WEB_HEADERS_MAX; i++)
        ret->header[ret->header_count++] =
            (struct web_header){ req->headers[i].name, req->headers[i].value };
}

static void on_api(struct server *s, struct http_exchange *x)
{
    struct late *l = calloc(1, sizeof *l);
    struct web_ask ask;
    must(l);
    make_ask(http_exchange_request(x), &ask);
    arena_init(&l->arena, REPLY_ARENA_BYTES);
    l->x = x;
    l->server = s;
    l->timer = (struct loop_timer){ .fn = on_time, .arg = l };
    s->requests++;
    int64_t took_us = s->fake->respond(s->ctx, &ask, now_us(s), &l->arena, &l->reply);
    if (took_us > CUT_US) l->reply.status = 0;
    if (took_us > CUT_US || l->reply.status == 0 || took_us < 1000000) {
        send_reply(l);
        return;
    }
    http_exchange_watch(x, on_left, NULL, l);
    must(loop_timer_set(s->loop, &l->timer, now_us(s) + took_us) == 0);
}

/* ---- orders of tests ---- */

static void on_state(struct server *s, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object(&w);
    json_kv_u64(&w, "running", fake_fleet_running(&s->fleet, now_us(s)));
    json_kv_u64(&w, "made", s->fleet.count);
    json_kv_u64(&w, "refused_form", s->fleet.refused_form);
    json_kv_text(&w, "last_refused", s->fleet.last_refused);
    json_kv_i64(&w, "bill_udollars", fake_fleet_bill_udollars(&s->fleet, now_us(s)));
    json_kv_u64(&w, "requests", s->requests);
    json_object_end(&w);
    http_reply(x, 200, JSON_TYPE, buf_view(&out));
}

static void on_machines(struct server *s, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    int64_t now = now_us(s);
    json_writer_init(&w, &out);
    json_object(&w);
    json_key(&w, "machines");
    json_array(&w);
    for (uint32_t i = 0; i < s->fleet.count; i++) {
        const struct fleet_machine *m = &s->fleet.machine[i];
        bool there = m->made_us <= now && (m->removed_us == 0 || m->removed_us > now);
        json_object(&w);
        json_kv_u64(&w, "id", m->id);
        json_kv_text(&w, "name", m->name);
        json_kv_text(&w, "type", m->type);
        json_kv_text(&w, "zone", m->zone);
        json_kv_bool(&w, "there", there);
        json_kv_bool(&w, "stopped", there && fleet_is_stopped(m, now));
        json_kv_bool(&w, "booted", m->ready_us <= now);
        json_kv_text(&w, "user_data", m->user_data);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
    http_reply(x, 200, JSON_TYPE, buf_view(&out));
}

static int index_of(struct str item, const char *path, const char *const *names)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(item, path, &text) < 0) return -1;
    for (int i = 0; names[i]; i++)
        if (str_eq(buf_view(&text), str_from(names[i]))) return i;
    return -1;
}

static const char *keep_text(struct str item, const char *path, char to[FLEET_TEXT])
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(item, path, &text) < 0) return NULL;
    snprintf(to, FLEET_TEXT, STR_FMT, STR_ARG(buf_view(&text)));
    return to;
}

static int take_row(void *ctx, struct str item)
{
    struct server *s = ctx;
    uint32_t at = s->fleet.config.script_count;
    uint64_t nth = 0, delay_ms = 0;
    int fault = index_of(item, "fault", fleet_fault_names),
        op = index_of(item, "op", fleet_op_names);
    if (at == FLEET_SCRIPT_MAX || fault < 0) return -EINVAL;
    json_path_u64(item, "nth", &nth);
    json_path_u64(item, "delay_ms", &delay_ms);
    s->fleet.config.script[at] =
        (struct fleet_row){ .op = op < 0 ? FLEET_LOGIN : (enum fleet_op)op,
                            .any_op = op < 0,
                            .nth = (uint32_t)nth,
                            .fault = (enum fleet_fault)fault,
                            .delay_us = (int64_t)delay_ms * 1000,
                            .type = keep_text(item, "type", s->text[at][0]),
                            .zone = keep_text(item, "zone", s->text[at][1]) };
    s->fleet.config.script_count++;
    return 0;
}

static int on_script(struct server *s, struct str body)
{
    s->fleet.config.script_count = 0;
    return json_path_each(body, "rows", take_row, s);
}

static int on_stock(struct server *s, struct str body)
{
    char type[FLEET_TEXT], zone[FLEET_TEXT];
    double count;
    if (!keep_text(body, "type", type) || !keep_text(body, "zone", zone)) return -EINVAL;
    if (json_path_f64(body, "count", &count) < 0) return -EINVAL;
    fake_fleet_stock(&s->fleet, type, zone, (int32_t)count);
    return 0;
}

static int on_preempt(struct server *s, struct str body)
{
    char name[FLEET_TEXT];
    uint64_t notice_ms = 0;
    if (!keep_text(body, "name", name)) return -EINVAL;
    json_path_u64(body, "notice_ms", &notice_ms);
    struct fleet_machine *m = fake_fleet_named(&s->fleet, name, now_us(s));
    if (!m) return -ENOENT;
    fake_fleet_preempt(&s->fleet, m, (int64_t)notice_ms * 1000, now_us(s));
    return 0;
}

static void on_request(void *ctx, struct http_exchange *x)
{
    static const struct {
        const char *path;
        int (*fn)(struct server *s, struct str body);
    } orders[] = {
        { "/fake/script", on_script },
        { "/fake/stock", on_stock },
        { "/fake/preempt", on_preempt },
    };
    struct server *s = ctx;
    const struct http_request *req = http_exchange_request(x);
    if (str_eq(req->path, STR("/fake/state"))) {
        on_state(s, x);
        return;
    }
    if (str_eq(req->path, STR("/fake/machines"))) {
        on_machines(s, x);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        if (!str_eq(req->path, str_from(orders[i].path))) continue;
        int rc = orders[i].fn(s, req->body);
        http_reply(x, rc < 0 ? 400 : 200, JSON_TYPE, STR("{}"));
        return;
    }
    on_api(s, x);
}

/* ---- start ---- */

#define AT(member) .offset = offsetof(struct options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "plays", .type = CONFIG_ENUM, .required = true, .names = fake_names, AT(plays), .about = "Whose API it speaks." },
    { .name = "port", .type = CONFIG_INT, .required = true, .min = 1, .max = 65535, AT(port), .about = "Its port on loopback." },
    { .name = "token", .type = CONFIG_TEXT, .default_text = "token-of-the-fake", AT(token), .about = "The credential that it takes." },
    { .name = "boot_ms", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e7, AT(boot_ms), .about = "From a create to a machine that has booted." },
    { .name = "lag_ms", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e7, AT(lag_ms), .about = "How far listings are behind." },
    { .name = "quota", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1e4, AT(quota), .about = "Machines at once; 0: any number." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct options, rows);
static const struct opt_command usage = { .name = "fake_cloud_server",
                                          .about = "A stand-in for a provider's API.",
                                          .options = &record };

int main(int argc, char **argv)
{
    struct server *s = calloc(1, sizeof *s);
    struct opt_parsed parsed;
    struct err err = { "" };
    struct http_server *http = NULL;
    must(s);
    signal(SIGPIPE, SIG_IGN);
    if (opt_parse(&usage, argc - 1, argv + 1, &s->options, &parsed, &err) < 0)
        return opt_fail(&usage, &err);
    s->fake = fakes[s->options.plays];
    s->config = *s->fake->fleet;
    s->config.boot_us = s->options.boot_ms * 1000;
    s->config.lag_us = s->options.lag_ms * 1000;
    s->config.quota = (uint32_t)s->options.quota;
    fake_fleet_init(&s->fleet, &s->config);
    int rc = loop_new(&s->loop, &err);
    s->ctx = s->fake->open(&s->fleet, s->options.token.data, clock_wall_us() - clock_mono_us());
    const struct http_server_config config = {
        .host = "127.0.0.1",
        .port = (uint16_t)s->options.port,
        .on_request = on_request,
        .ctx = s,
    };
    if (rc == 0) rc = http_server_new(s->loop, &config, &http, &err);
    if (rc == 0) rc = loop_run(s->loop);
    if (rc < 0) fprintf(stderr, "fake_cloud_server: %s\n", err_text(&err, rc));
    http_server_free(http);
    loop_free(s->loop);
    free(s->ctx);
    fake_fleet_fini(&s->fleet);
    opt_parsed_fini(&parsed);
    free(s);
    return rc < 0;
}
