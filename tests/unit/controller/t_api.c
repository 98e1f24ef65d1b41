/* t_api.c - tests the HTTP API: access, refusals, actions, streams, and the ring of the last
 * hour. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/http/http_fetch.h"
#include "controller/api.h"
#include "controller/control_state.h"
#include "tests/unit/controller/world.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- access, refusals, actions and streams ---- */

#define SECRET "0123456789abcdef"
#define BEARER "Bearer " SECRET
#define SCRAPER "a-scraper-s-key"

struct served {
    struct world *w;
    struct credentials held;
    struct loop *loop;
    struct api *api;
    pthread_t thread;
    uint16_t port;
};

static void on_urgent(void *arg)
{
    (*(uint32_t *)arg)++;
}

static uint32_t urgent;

static void *run(void *arg)
{
    loop_run(((struct served *)arg)->loop);
    return NULL;
}

/* An API that stands by: `metrics` are the process's, `leader` the one that leads. */
struct standby {
    struct metrics *metrics;
    struct str leader;
    bool leads;
};

static bool leads(void *arg)
{
    return ((const struct standby *)arg)->leads;
}

static struct str leader(void *arg)
{
    return ((const struct standby *)arg)->leader;
}

static void set_standby(struct api_config *config, struct standby *s)
{
    config->metrics = s->metrics;
    config->lease_ms = 15000;
    config->leads = leads;
    config->leader = leader;
    config->arg = s;
}

static struct served *served_of(bool require_secret, bool attach, struct standby *standby)
{
    static const struct str hosts[] = { { "fleet.example", 13 } };
    struct served *f = calloc(1, sizeof *f);
    must(f);
    f->w = calloc(1, sizeof *f->w);
    must(f->w);
    struct fake_config plain = { .boot_us = SECOND };
    world_init(f->w, &plain, 5);
    f->w->service.min = 1;
    world_run(f->w, 5);
    static struct fleet_clock clock; /* fleet time is the boot clock's here */
    static const struct key_file scrapers = { .key = { { SCRAPER, sizeof SCRAPER - 1 } },
                                              .count = 1 };
    credentials_of_secret(STR(SECRET), &f->held);
    struct api_config config = { .host = "127.0.0.1",
                                 .require_secret = require_secret,
                                 .held = &f->held,
                                 .scrapers = &scrapers,
                                 .hosts = hosts,
                                 .host_count = 1,
                                 .clock = &clock,
                                 .on_urgent = on_urgent,
                                 .arg = &urgent };
    if (standby) set_standby(&config, standby);
    must(loop_new(&f->loop, NULL) == 0);
    must(api_new(f->loop, &config, &f->api, NULL) == 0);
    if (attach) api_attach(f->api, f->w->control);
    f->port = api_port(f->api);
    must(pthread_create(&f->thread, NULL, run, f) == 0);
    return f;
}

static struct served *serve(bool require_secret, bool attach)
{
    return served_of(require_secret, attach, NULL);
}

static void served_free(struct served *f)
{
    loop_stop(f->loop);
    pthread_join(f->thread, NULL);
    api_free(f->api);
    loop_free(f->loop);
    world_fini(f->w);
    free(f->w);
    free(f);
}

struct ask {
    const char *method, *path, *body;
    const char *host, *origin, *authorization;
    int status;
    const char *in; /* a part of the reply; NULL: any reply */
    const char *why;
};

static int ask(const struct served *f, const struct ask *a, struct buf *reply)
{
    struct http_header headers[3];
    size_t n = 0;
    if (a->origin) headers[n++] = (struct http_header){ STR("origin"), str_from(a->origin) };
    if (a->authorization)
        headers[n++] = (struct http_header){ STR("authorization"), str_from(a->authorization) };
    struct http_fetch_request req = { .host = a->host ? str_from(a->host) : STR("127.0.0.1"),
                                      .port = f->port,
                                      .method = str_from(a->method),
                                      .path = str_from(a->path),
                                      .headers = headers,
                                      .header_count = n,
                                      .body = str_from(a->body),
                                      .timeout_us = 60 * SECOND };
    int status = 0;
    struct err err = { 0 };
    int rc = http_fetch(&req, &status, reply, &err);
    if (rc < 0) fail_msg("%s: %s", a->why, err_text(&err, rc));
    return status;
}

static void check(const struct served *f, const struct ask *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        int status = ask(f, &rows[i], &reply);
        if (status != rows[i].status)
            fail_msg("%s: %d %s", rows[i].why, status, reply.data ? reply.data : "");
        if (rows[i].in && (!reply.data || !strstr(reply.data, rows[i].in)))
            fail_msg("%s: no %s in %s", rows[i].why, rows[i].in, reply.data ? reply.data : "");
    }
}

#define REPORT \
    "{\"v\":1,\"instance\":\"i-x\",\"boot\":\"0000000000000001\",\"seq\":1,\"state\":\"up\"}"
#define SYNC "{\"v\":1,\"router\":\"r\",\"boot\":\"0000000000000001\",\"seq\":1,\"window_s\":5}"

static void the_guard(void **state)
{
    (void)state;
    struct served *f = serve(false, true);
    char ours[64], local[64];
    snprintf(ours, sizeof ours, "http://127.0.0.1:%u", f->port);
    snprintf(local, sizeof local, "http://localhost:%u", f->port);
    const struct ask rows[] = {
        { "GET", "/health", NULL, NULL, NULL, NULL, 200, "ok", "health" },
        { "GET", "/api/v1/status", NULL, NULL, NULL, NULL, 200, "\"services\"", "status" },
        { "GET", "/api/v1/status", NULL, NULL, ours, NULL, 200, NULL, "our own page" },
        { "GET", "/api/v1/status", NULL, NULL, local, NULL, 200, NULL, "our page as localhost" },
        { "GET", "/api/v1/status", NULL, NULL, "http://evil.example", NULL, 403, "origin",
          "a stranger's page" },
        { "GET", "/api/v1/status", NULL, NULL, "null", NULL, 403, "origin", "a page from nowhere" },
        { "GET", "/api/v1/status", NULL, NULL, "http://127.0.0.1.evil.example", NULL, 403, "origin",
          "a name that begins like ours" },
        { "POST", "/api/v1/services/chat/pause", NULL, NULL, "http://evil.example", NULL, 403,
          "origin", "a stranger's page acts" },
        { "POST", "/api/v1/services/chat/pause", NULL, NULL, NULL, NULL, 401, "secret",
          "another user of this machine acts" },
        { "POST", "/api/v1/services/chat/scale", "{\"pool\":\"small\",\"count\":2}", NULL, NULL,
          "Bearer wrong", 401, "secret", "with a wrong secret" },
        { "POST", "/api/v1/tenants", "{\"name\":\"eve\"}", NULL, NULL, NULL, 401, "secret",
          "makes a key" },
        { "DELETE", "/api/v1/tenants/eve", NULL, NULL, NULL, NULL, 401, "secret", "ends a key" },
        { "POST", "/api/v1/keys/open", NULL, NULL, NULL, NULL, 401, "secret", "opens the service" },
        { "GET", "/api/v1/status", NULL, NULL, "http://localhost", NULL, 403, "origin",
          "a page of another server of this machine, at port 80" },
        { "GET", "/api/v1/status", NULL, NULL, "https://127.0.0.1", NULL, 403, "origin",
          "likewise at port 443" },
        { "POST", "/api/v1/agents/report", REPORT, NULL, NULL, NULL, 401, "secret", "no secret" },
        { "POST", "/api/v1/agents/report", REPORT, NULL, NULL, "Bearer wrong", 401, "secret",
          "a wrong secret" },
        { "POST", "/api/v1/agents/report", REPORT, NULL, NULL, BEARER, 200, "\"known\":false",
          "an agent we do not know" },
        { "POST", "/api/v1/agents/report", REPORT, NULL, ours, BEARER, 403, "origin",
          "a page is no agent" },
        { "POST", "/api/v1/agents/report", "{}", NULL, NULL, BEARER, 400, "invalid", "no report" },
        { "POST", "/api/v1/routers/sync", SYNC, NULL, NULL, BEARER, 200, "\"endpoints\"",
          "a router" },
        { "POST", "/api/v1/routers/sync", SYNC, NULL, NULL, NULL, 401, "secret", "no router" },
        { "GET", "/", NULL, NULL, NULL, NULL, 200, "<html", "the console" },
        { "GET", "/metrics", NULL, NULL, NULL, NULL, 200, "muster_controller_instances{",
          "metrics" },
        { "GET", "/api/v1/targets", NULL, NULL, NULL, NULL, 200,
          "[{\"targets\":[\"127.0.0.1:", "what Prometheus scrapes" },
        { "GET", "/nothing", NULL, NULL, NULL, NULL, 404, "not_found", "no such path" },
        { "POST", "/api/v1/status", "{}", NULL, NULL, NULL, 405, "method", "a wrong method" },
        { "GET", "/api/v1/decisions/a/b", NULL, NULL, NULL, NULL, 404, NULL, "one part only" },
    };
    check(f, rows, COUNT_OF(rows));
    served_free(f);
}

static void a_scraper_s_key_opens_metrics_alone(void **state)
{
    (void)state;
    struct served *f = serve(true, true);
    static const char key[] = "Bearer " SCRAPER;
    const struct ask rows[] = {
        { "GET", "/metrics", NULL, NULL, NULL, NULL, 401, "secret", "metrics without a key" },
        { "GET", "/metrics", NULL, NULL, NULL, "Bearer a-scraper-s-kex", 401, "secret", "another" },
        { "GET", "/metrics", NULL, NULL, NULL, key, 200, "muster_controller_", "its key" },
        { "GET", "/metrics/leader", NULL, NULL, NULL, key, 200, "muster_controller_", "who leads" },
        { "GET", "/metrics", NULL, NULL, NULL, BEARER, 200, "muster_controller_", "the secret" },
        { "GET", "/api/v1/targets", NULL, NULL, NULL, key, 200, "targets", "what to scrape" },
        { "GET", "/api/v1/status", NULL, NULL, NULL, key, 401, "secret", "a view" },
        { "POST", "/api/v1/services/chat/pause", NULL, NULL, NULL, key, 401, "secret", "an act" },
        { "POST", "/api/v1/routers/sync", SYNC, NULL, NULL, key, 401, "secret", "a router's" },
    };
    check(f, rows, COUNT_OF(rows));
    served_free(f);
}

static void a_foreign_host_is_refused(void **state)
{
    (void)state;
    struct served *f = serve(false, true);
    /* http_fetch writes the Host it connects to, so these requests are written by hand. */
    static const struct {
        const char *host;
        const char *answer, *why;
    } rows[] = {
        { "evil.example", "HTTP/1.1 403", "a rebound name" },
        { "fleet.example", "HTTP/1.1 200", "a configured name" },
        { "localhost:PORT", "HTTP/1.1 200", "ours with its port" },
        { "localhost:1", "HTTP/1.1 403", "another port" },
        { "[::1]:PORT", "HTTP/1.1 200", "IPv6 loopback" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char host[64], command[256], line[64] = "";
        snprintf(host, sizeof host, "%s", rows[i].host);
        char *percent = strstr(host, "PORT");
        if (percent) snprintf(percent, 8, "%u", f->port);
        snprintf(command, sizeof command,
                 "exec 3<>/dev/tcp/127.0.0.1/%u; printf 'GET /api/v1/cost HTTP/1.1\\r\\nHost: "
                 "%s\\r\\nConnection: close\\r\\n\\r\\n' >&3; head -c 12 <&3",
                 f->port, host);
        char bash[320];
        snprintf(bash, sizeof bash, "bash -c \"%s\"", command);
        FILE *p = popen(bash, "r");
        assert_non_null(p);
        assert_non_null(fgets(line, sizeof line, p));
        pclose(p);
        if (strncmp(line, rows[i].answer, 12) != 0) fail_msg("%s: %s", rows[i].why, line);
    }
    served_free(f);
}

static void everything_needs_the_secret_when_asked(void **state)
{
    (void)state;
    struct served *f = serve(true, true);
    const struct ask rows[] = {
        { "GET", "/health", NULL, NULL, NULL, NULL, 200, NULL, "health is open" },
        { "GET", "/api/v1/status", NULL, NULL, NULL, NULL, 401, NULL, "status" },
        { "GET", "/", NULL, NULL, NULL, NULL, 200, "<html", "the console is a page without data" },
        { "GET", "/metrics", NULL, NULL, NULL, NULL, 401, NULL, "metrics" },
        { "GET", "/api/v1/targets", NULL, NULL, NULL, NULL, 401, NULL, "addresses of the fleet" },
        { "POST", "/api/v1/services/chat/pause", NULL, NULL, NULL, NULL, 401, NULL, "acts" },
        { "GET", "/api/v1/status", NULL, NULL, NULL, BEARER, 200, NULL, "with the secret" },
        { "GET", "/api/v1/status", NULL, NULL, NULL, "Bearer 0123456789abcde", 401, NULL,
          "all but its last letter" },
    };
    check(f, rows, COUNT_OF(rows));
    served_free(f);
}

static void before_the_control_is_there(void **state)
{
    (void)state;
    struct served *f = serve(false, false);
    const struct ask rows[] = {
        { "GET", "/health", NULL, NULL, NULL, NULL, 503, "observing", "not ready" },
        { "GET", "/api/v1/status", NULL, NULL, NULL, NULL, 503, "starting", "not there" },
    };
    check(f, rows, COUNT_OF(rows));
    served_free(f);
}

static void acts(void **state)
{
    (void)state;
    struct served *f = serve(false, true);
    static const char scale[] = "/api/v1/services/chat/scale";
    static const char tenants[] = "/api/v1/tenants";
    const struct ask rows[] = {
        { "POST", "/api/v1/services/chat/pause", NULL, NULL, NULL, BEARER, 200, "ok", "pause" },
        { "GET", "/api/v1/services", NULL, NULL, NULL, NULL, 200, "\"paused\":true", "paused" },
        { "POST", "/api/v1/services/chat/resume", NULL, NULL, NULL, BEARER, 200, "ok", "resume" },
        { "GET", "/api/v1/services", NULL, NULL, NULL, NULL, 200, "\"paused\":false", "resumed" },
        { "POST", "/api/v1/services/ch%61t/resume", NULL, NULL, NULL, BEARER, 200, "ok",
          "a name is decoded" },
        { "POST", "/api/v1/services/a%20b%2Fc%2B/pause", NULL, NULL, NULL, BEARER, 404,
          "no service 'a b/c+'", "a name with a blank" },
        { "POST", "/api/v1/services/none/pause", NULL, NULL, NULL, BEARER, 404, "no service",
          "no such service" },
        { "POST", scale, "{\"pool\":\"small\",\"count\":2}", NULL, NULL, BEARER, 200, "ok",
          "scale" },
        { "GET", "/api/v1/pools", NULL, NULL, NULL, NULL, 200, "\"manual\":2", "scaled" },
        { "POST", scale, "{\"pool\":\"small\",\"count\":null}", NULL, NULL, BEARER, 200, "ok",
          "given back" },
        { "POST", scale, "{\"pool\":\"small\",\"count\":99}", NULL, NULL, BEARER, 400, "maximum",
          "over the maximum" },
        { "POST", scale, "{\"pool\":\"small\",\"count\":-1}", NULL, NULL, BEARER, 400, "count",
          "negative" },
        { "POST", scale, "{\"pool\":\"small\"}", NULL, NULL, BEARER, 400, "want", "no count" },
        { "POST", scale, "{\"pool\":\"huge\",\"count\":1}", NULL, NULL, BEARER, 404, "no pool",
          "no such pool" },
        { "POST", scale, "{\"pool\":\"small\",\"cuont\":1}", NULL, NULL, BEARER, 400, "cuont",
          "a typing error" },
        { "POST", scale, "{\"pool\":\"small\",\"count\":1}x", NULL, NULL, BEARER, 400, NULL,
          "text behind the end" },
        { "POST", scale, NULL, NULL, NULL, BEARER, 400, NULL, "nothing" },
        { "POST", tenants, "{\"name\":\"acme\",\"concurrency\":3}", NULL, NULL, BEARER, 201,
          "\"key\":\"muster-", "a tenant" },
        { "POST", tenants, "{\"name\":\"acme\"}", NULL, NULL, BEARER, 409, "exists", "again" },
        { "POST", tenants, "{\"name\":\"a/b\"}", NULL, NULL, BEARER, 400, "name", "an odd name" },
        { "POST", tenants, "{}", NULL, NULL, BEARER, 400, "name", "no name" },
        { "GET", tenants, NULL, NULL, NULL, NULL, 200, "\"concurrency\":3", "listed" },
        { "GET", tenants, NULL, NULL, NULL, NULL, 200, "\"keys_required\":true", "closed" },
        { "POST", "/api/v1/keys/open", NULL, NULL, NULL, BEARER, 409, "revoke", "not while" },
        { "DELETE", "/api/v1/tenants/acme", NULL, NULL, NULL, BEARER, 200, "ok", "removed" },
        { "DELETE", "/api/v1/tenants/acme", NULL, NULL, NULL, BEARER, 404, NULL, "removed twice" },
        { "GET", tenants, NULL, NULL, NULL, NULL, 200, "\"keys_required\":true", "still closed" },
        { "POST", "/api/v1/keys/open", NULL, NULL, NULL, BEARER, 200, "ok", "opened" },
        { "GET", tenants, NULL, NULL, NULL, NULL, 200, "\"keys_required\":false", "open" },
        { "GET", "/api/v1/decisions", NULL, NULL, NULL, NULL, 200, "\"launch\"", "decisions" },
        { "GET", "/api/v1/decisions?from=1&limit=1", NULL, NULL, NULL, NULL, 200, "\"id\":1",
          "from" },
        { "GET", "/api/v1/decisions?from=x", NULL, NULL, NULL, NULL, 400, NULL, "no number" },
        { "GET", "/api/v1/decisions/1", NULL, NULL, NULL, NULL, 200, "\"reason\"", "one" },
        { "GET", "/api/v1/decisions/9999", NULL, NULL, NULL, NULL, 404, NULL, "none" },
        { "GET", "/api/v1/decisions/one", NULL, NULL, NULL, NULL, 400, NULL, "no id" },
        { "GET", "/api/v1/intents", NULL, NULL, NULL, NULL, 200, "\"registered\"", "intents" },
        { "GET", "/api/v1/offers", NULL, NULL, NULL, NULL, 200, "\"price_per_h\"", "offers" },
        { "GET", "/api/v1/cost", NULL, NULL, NULL, NULL, 200, "\"total\"", "cost" },
        { "GET", "/api/v1/history", NULL, NULL, NULL, NULL, 200, "\"samples\"", "the last hour" },
    };
    urgent = 0;
    check(f, rows, COUNT_OF(rows));
    assert_true(urgent >= 3); /* a person's actions are not delayed */
    served_free(f);
}

static void looks_after_the_fleet(void **state)
{
    (void)state;
    struct served *f = serve(false, true);
    static const char drain[] = "/api/v1/drain";
    const struct ask rows[] = {
        { "POST", drain, "{\"service\":\"chat\",\"pool\":\"small\"}", NULL, NULL, BEARER, 200,
          "{\"instances\":[\"i-", "a pool is drained" },
        { "GET", "/api/v1/pools", NULL, NULL, NULL, NULL, 200, "\"drained\":true", "shown" },
        { "POST", drain, "{\"service\":\"chat\",\"pool\":\"small\",\"undo\":true}", NULL, NULL,
          BEARER, 200, "instances", "and taken back" },
        { "POST", drain, "{\"instance\":\"i-none\"}", NULL, NULL, BEARER, 404, "no instance",
          "an unknown instance" },
        { "POST", drain, "{\"pool\":\"small\"}", NULL, NULL, BEARER, 400, "want one of",
          "a pool without its service" },
        { "POST", drain, "{\"node\":\"n\",\"instance\":\"i\"}", NULL, NULL, BEARER, 400,
          "want one of", "two at once" },
        { "POST", drain, "{\"node\":\"n\"}", NULL, NULL, NULL, 401, "secret", "without a secret" },
        { "GET", "/api/v1/events?about=small", NULL, NULL, NULL, NULL, 200, "undo_drain",
          "orders are kept" },
        { "GET", "/api/v1/events?limit=1", NULL, NULL, NULL, NULL, 200, "the fleet's secret",
          "with their giver" },
        { "GET", "/api/v1/events?limit=0", NULL, NULL, NULL, NULL, 400, "above 0", "no limit" },
        { "GET", "/api/v1/config", NULL, NULL, NULL, NULL, 404, "shows no configuration",
          "a controller without a file" },
        { "POST", "/api/v1/config", "{\"name\":\"x\"}", NULL, NULL, NULL, 401, "secret",
          "a configuration of a stranger" },
        { "POST", "/api/v1/gc", "{}", NULL, NULL, NULL, 401, "secret", "a stranger collects" },
        { "GET", "/api/v1/gc", NULL, NULL, NULL, NULL, 200, "\"removed\":0", "anybody may look" },
        { "GET", "/api/v1/whoami", NULL, NULL, NULL, BEARER, 200, "\"role\":\"admin\"",
          "the secret" },
        { "GET", "/api/v1/whoami", NULL, NULL, NULL, NULL, 200, "\"role\":\"read\"",
          "anybody on this machine" },
    };
    check(f, rows, COUNT_OF(rows));
    served_free(f);
}

/* Makes a token; returns it as "Bearer TOKEN". */
static void make_token(const struct served *f, const char *body, char ret[128])
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    const struct ask make = { .method = "POST",
                              .path = "/api/v1/tokens",
                              .body = body,
                              .authorization = BEARER,
                              .why = "a token" };
    assert_int_equal(ask(f, &make, &reply), 201);
    const char *at = strstr(reply.data, "\"token\":\"");
    char token[96];
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"token\":\"%95[^\"]", token), 1);
    snprintf(ret, 128, "Bearer %s", token);
}

static void tokens_open_what_their_role_may(void **state)
{
    (void)state;
    struct served *f = serve(true, true);
    char admin[128], reader[128];
    make_token(f, "{\"name\":\"ann\",\"role\":\"admin\"}", admin);
    make_token(f, "{\"name\":\"prom\",\"role\":\"read\"}", reader);
    assert_string_not_equal(admin, reader);
    const struct ask rows[] = {
        { "GET", "/api/v1/status", NULL, NULL, NULL, reader, 200, NULL, "a reader reads" },
        { "GET", "/metrics", NULL, NULL, NULL, reader, 200, NULL, "and scrapes" },
        { "GET", "/api/v1/whoami", NULL, NULL, NULL, reader, 200,
          "{\"who\":\"token prom\",\"role\":\"read\"", "and knows what it may" },
        { "GET", "/api/v1/whoami", NULL, NULL, NULL, admin, 200,
          "{\"who\":\"token ann\",\"role\":\"admin\"", "an admin likewise" },
        { "POST", "/api/v1/services/chat/pause", NULL, NULL, NULL, reader, 401, NULL,
          "and does nothing" },
        { "POST", "/api/v1/tokens", "{\"name\":\"x\",\"role\":\"admin\"}", NULL, NULL, reader, 401,
          NULL, "and makes no admin" },
        { "GET", "/api/v1/tokens", NULL, NULL, NULL, reader, 401, NULL, "nor sees who is one" },
        { "POST", "/api/v1/keys/open", NULL, NULL, NULL, reader, 401, NULL, "nor opens" },
        { "POST", "/api/v1/services/chat/pause", NULL, NULL, NULL, admin, 200, NULL,
          "an admin acts" },
        { "POST", "/api/v1/routers/sync", SYNC, NULL, NULL, admin, 401, NULL, "but is no router" },
        { "POST", "/api/v1/agents/report", REPORT, NULL, NULL, admin, 401, NULL, "and no agent" },
        { "GET", "/api/v1/status", NULL, NULL, NULL, "Bearer muster-admin-00", 401, NULL,
          "an unknown one" },
        { "GET", "/api/v1/tokens", NULL, NULL, NULL, admin, 200, "\"role\":\"admin\"", "listed" },
        { "POST", "/api/v1/tokens", "{\"name\":\"ann\",\"role\":\"read\"}", NULL, NULL, admin, 409,
          NULL, "again" },
        { "POST", "/api/v1/tokens", "{\"name\":\"b\",\"role\":\"root\"}", NULL, NULL, admin, 400,
          NULL, "no such role" },
        { "POST", "/api/v1/tokens", "{\"name\":\"a b\",\"role\":\"read\"}", NULL, NULL, admin, 400,
          NULL, "an odd name" },
        { "DELETE", "/api/v1/tokens/prom", NULL, NULL, NULL, admin, 200, NULL, "revoked" },
        { "DELETE", "/api/v1/tokens/prom", NULL, NULL, NULL, admin, 404, NULL, "twice" },
        { "GET", "/api/v1/status", NULL, NULL, NULL, reader, 401, NULL, "a revoked one" },
    };
    check(f, rows, COUNT_OF(rows));
    CLEANUP(buf_fini) struct buf reply = { 0 };
    const struct ask list = { .method = "GET", .path = "/api/v1/tokens", .authorization = admin };
    assert_int_equal(ask(f, &list, &reply), 200);
    assert_null(strstr(reply.data, admin + strlen("Bearer "))); /* no token, no digest */
    assert_null(strstr(reply.data, "hash"));
    served_free(f);
}

static void broadcast(void *arg)
{
    api_broadcast(arg);
}

struct heard {
    struct served *f;
    struct buf text;
    bool posted;
};

static int on_data(void *arg, struct str data)
{
    struct heard *h = arg;
    buf_str(&h->text, data);
    if (!h->posted) {
        h->posted = true;
        loop_post(h->f->loop, broadcast, h->f->api);
    }
    uint32_t events = 0;
    for (const char *p = h->text.data; (p = strstr(p, "event: status\n")); p++)
        events++;
    return events >= 2 ? -ECANCELED : 0;
}

static void streams_tell_the_status(void **state)
{
    (void)state;
    struct served *f = serve(false, true);
    struct heard h = { .f = f };
    struct http_fetch_request req = { .host = STR("127.0.0.1"),
                                      .port = f->port,
                                      .path = STR("/api/v1/stream"),
                                      .timeout_us = 60 * SECOND };
    int status;
    struct err err;
    assert_int_equal(http_fetch_stream(&req, &status, NULL, on_data, &h, &err), -ECANCELED);
    assert_int_equal(status, 200);
    assert_non_null(strstr(h.text.data, "\"instances\""));
    buf_fini(&h.text);
    served_free(f); /* closes the stream, if its end is not noticed yet */
}

/* A controller that stands by names the leader, shows its health and metrics, and takes nothing. So does one whose
 * term is over by the clock, before its control is dropped. */
static void a_controller_that_stands_by_names_the_leader(void **state)
{
    (void)state;
    const struct ask rows[] = {
        { "GET", "/health", NULL, NULL, NULL, NULL, 200, "\"leader\":\"https://h:7\"", "health" },
        { "GET", "/metrics", NULL, NULL, NULL, BEARER, 200, "muster_controller_leader 0",
          "metrics" },
        { "GET", "/metrics", NULL, NULL, NULL, NULL, 401, NULL, "metrics ask for the secret" },
        { "GET", "/metrics/leader", NULL, NULL, NULL, BEARER, 307, "another controller leads",
          "the leader's metrics" },
        { "GET", "/metrics/leader", NULL, NULL, NULL, NULL, 401, NULL, "so do the leader's" },
        { "GET", "/", NULL, NULL, NULL, NULL, 307, "another controller leads", "console" },
        { "GET", "/api/v1/status", NULL, NULL, NULL, BEARER, 503, "https://h:7 leads", "a view" },
        { "GET", "/api/v1/stream", NULL, NULL, NULL, BEARER, 503, "\"reason\":\"standby\"",
          "a stream" },
        { "POST", "/api/v1/services/chat/scale", "{\"pool\":\"small\",\"count\":1}", NULL, NULL,
          BEARER, 503, "\"leader\":\"https://h:7\"", "an order" },
        { "POST", "/api/v1/tenants", "{\"name\":\"t\"}", NULL, NULL, BEARER, 503, "standby",
          "a tenant" },
        { "POST", "/api/v1/routers/sync", SYNC, NULL, NULL, BEARER, 503, "standby", "a sync" },
        { "POST", "/api/v1/agents/report", REPORT, NULL, NULL, BEARER, 503, "standby", "a report" },
        { "POST", "/api/v1/agents/report", REPORT, NULL, NULL, NULL, 401, NULL,
          "strangers learn nothing" },
        { "GET", "/nothing", NULL, NULL, NULL, BEARER, 404, NULL, "an unknown path" },
    };
    for (int attached = 0; attached < 2; attached++) {
        struct standby s = { .leader = STR("https://h:7") };
        struct err err;
        must(metrics_new(control_metric_table, CONTROL_M_COUNT, NULL, 0, &s.metrics, &err) == 0);
        struct served *f = served_of(true, attached, &s);
        check(f, rows, COUNT_OF(rows));
        assert_int_equal(f->w->control->people.tenant_count, 0);
        served_free(f);
        metrics_free(s.metrics);
    }
}

/* Without a known leader a lease is given: the store is away, and nobody can say that an instance is not
 * wanted. */
static void without_a_leader_an_agent_keeps_its_lease(void **state)
{
    (void)state;
    struct standby s = { 0 };
    struct served *f = served_of(false, false, &s);
    const struct ask rows[] = {
        { "POST", "/api/v1/agents/report", REPORT, NULL, NULL, BEARER, 503, "\"lease_ms\":15000",
          "a report" },
        { "GET", "/health", NULL, NULL, NULL, NULL, 200, "\"leader\":\"\"", "health" },
        { "GET", "/", NULL, NULL, NULL, NULL, 503, "knows of none", "console" },
        { "GET", "/metrics", NULL, NULL, NULL, NULL, 503, NULL, "there are no metrics yet" },
        { "GET", "/metrics/leader", NULL, NULL, NULL, NULL, 503, NULL, "nor the leader's" },
    };
    check(f, rows, COUNT_OF(rows));
    CLEANUP(arena_fini) struct arena arena;
    CLEANUP(buf_fini) struct buf reply = { 0 };
    struct standby_reply told;
    arena_init(&arena, 65536);
    assert_int_equal(ask(f, &rows[0], &reply), 503);
    assert_int_equal(standby_reply_decode(buf_view(&reply), &arena, &told), 0);
    assert_int_equal(told.leader.len, 0);
    assert_int_equal(told.lease_ms, 15000);
    served_free(f);
}

static int api_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_guard),
        cmocka_unit_test(a_scraper_s_key_opens_metrics_alone),
        cmocka_unit_test(a_foreign_host_is_refused),
        cmocka_unit_test(everything_needs_the_secret_when_asked),
        cmocka_unit_test(before_the_control_is_there),
        cmocka_unit_test(acts),
        cmocka_unit_test(looks_after_the_fleet),
        cmocka_unit_test(tokens_open_what_their_role_may),
        cmocka_unit_test(streams_tell_the_status),
        cmocka_unit_test(a_controller_that_stands_by_names_the_leader),
        cmocka_unit_test(without_a_leader_an_agent_keeps_its_lease),
    };
    return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}

/* ---- the ring of the last hour: its samples, and how long they stay ---- */

static uint32_t shown(struct world *w, struct buf *text)
{
    uint32_t n = 0;
    buf_clear(text);
    assert_int_equal(control_view(w->control, CONTROL_HISTORY, w->now, text), 0);
    buf_byte(text, 0);
    for (const char *at = text->data; (at = strstr(at, "\"at_us\"")); at++)
        n++;
    return n;
}

static void samples_show_load_and_latency(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct world *w = world_new(NULL);
    world_run(w, 10);
    w->rate = 8;
    w->held = 1;
    world_run(w, 50);
    assert_int_equal(shown(w, &text), 12);
    const struct last_hour *h = &w->control->last_hour;
    assert_int_equal(h->sample[0].ready, 0);
    const struct hour_sample *last = &h->sample[h->count - 1];
    assert_true(last->arrivals_s == 8);
    assert_true(last->ready > 0);
    assert_true(last->ttft_known && last->ttft_p50_s == 0.1);
    assert_false(last->tpot_known);
    assert_non_null(strstr(text.data, "\"tpot_p50_s\":null"));
    world_free(w);
}

/* Past the hour the oldest sample goes; a silent router measures nothing. */
static void an_hour_is_kept(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct world *w = world_new(NULL);
    world_run(w, 3700);
    assert_int_equal(shown(w, &text), LAST_HOUR_SAMPLES_MAX);
    const struct last_hour *h = &w->control->last_hour;
    int64_t oldest_us = h->sample[h->first].at_us;
    assert_true(w->now - oldest_us < 3600 * SECOND && w->now - oldest_us >= 3595 * SECOND);
    w->router_silent = true;
    world_run(w, 20);
    const struct hour_sample *last = &h->sample[(h->first + h->count - 1) % LAST_HOUR_SAMPLES_MAX];
    assert_false(last->ttft_known);
    assert_true(last->arrivals_s == 0);
    world_free(w);
}

static int last_hour_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_show_load_and_latency),
        cmocka_unit_test(an_hour_is_kept),
    };
    return cmocka_run_group_tests_name("last_hour", tests, NULL, NULL);
}

int main(void)
{
    return api_tests() + last_hour_tests();
}
