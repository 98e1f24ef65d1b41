/* f_web_reply.c - answers a cloud's requests with any bytes: each call ends within its time and says one thing, what is
 * listed fits its fields, and nothing is taken for made that does not carry the intent. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/config/config.h"
#include "tests/fakes/cloud/web_drive.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND ((int64_t)1000000)
#define START (1000 * SECOND)

/* Clouds of several kinds; those of offers of several types and of reservations behind the others. */
static const char *const yaml[] = {
    "clouds:\n"
    "  - name: c\n"
    "    kind: hetzner\n"
    "    image: i\n"
    "    exchange_rates: [EUR=1.1]\n"
    "    offers:\n"
    "      - {name: o, type: t, zones: [a, b]}\n",
    "clouds:\n"
    "  - name: c\n"
    "    kind: gce\n"
    "    project: p\n"
    "    image: i\n"
    "    offers:\n"
    "      - {name: o, type: t, zones: [a, b]}\n",
    "clouds:\n"
    "  - name: c\n"
    "    kind: azure\n"
    "    project: p\n"
    "    group: g\n"
    "    tenant: t\n"
    "    region: r\n"
    "    image: a:b:c:d\n"
    "    networks: [/subscriptions/s]\n"
    "    ssh_keys: [k]\n"
    "    offers:\n"
    "      - {name: o, type: t, zones: ['1', '2']}\n",
    "clouds:\n"
    "  - name: c\n"
    "    kind: ec2\n"
    "    region: r\n"
    "    image: i\n"
    "    offers:\n"
    "      - {name: o, type: t, types: [u], zones: [a, b], spot: true}\n"
    "      - {name: q, type: t, capacity_reservation: cr-1}\n",
    "clouds:\n"
    "  - name: c\n"
    "    kind: gce\n"
    "    project: p\n"
    "    image: i\n"
    "    offers:\n"
    "      - {name: o, type: t, types: [u], zones: [r-a, r-b]}\n"
    "      - {name: q, type: t, zones: [r-a], capacity_reservation: mine}\n",
};

static const struct config_section *const sections[] = { &clouds_section };
static const struct config_schema schema = { sections, 1, NULL };
static const char *const environ_of_tokens[] = {
    "HCLOUD_TOKEN=token-of-the-fuzzer",          "AZURE_CLIENT_ID=c",
    "AZURE_CLIENT_SECRET=token-of-the-fuzzer",   "AWS_ACCESS_KEY_ID=k",
    "AWS_SECRET_ACCESS_KEY=token-of-the-fuzzer", NULL
};

static int no_file(void *ctx, const char *path, struct buf *out, struct err *err)
{
    (void)ctx, (void)out;
    return err_set(err, -ENOENT, "%s", path);
}

/* Cuts the next reply from the input: a status, then bytes up to a zero. */
static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    static const int statuses[] = { 0,   200, 201, 202, 204, 302, 400, 401,
                                    403, 404, 409, 412, 422, 429, 500, 503 };
    struct fuzz_choices *c = ctx;
    (void)now_us, (void)arena;
    must(ask->method.len > 0 && str_starts(ask->url, STR("http")));
    ret->status = statuses[fuzz_below(c, COUNT_OF(statuses))];
    ret->sent = fuzz_below(c, 2) == 0;
    ret->problem = STR("none");
    const void *end = c->len > 0 ? memchr(c->data, 0, c->len) : NULL;
    size_t len = end ? (size_t)((const uint8_t *)end - c->data) : c->len;
    ret->body = fuzz_bytes(c, len);
    fuzz_bytes(c, end != NULL);
    /* A login mostly succeeds, so that what follows it is reached. */
    if (str_find(ask->url, STR("token")) != SIZE_MAX && fuzz_below(c, 4) != 0) {
        ret->status = 200;
        ret->body = STR("{\"access_token\": \"token-of-the-fuzzer\", \"expires_in\": 3600}");
    }
    return (int64_t)fuzz_below(c, 3) * SECOND;
}

static void check_listed(const struct listed *l)
{
    const char *const texts[] = { l->handle, l->intent, l->service, l->pool, l->offer, l->node };
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        must(memchr(texts[i], 0, NAME_BYTES));
    must(l->handle[0] && memchr(l->why, 0, sizeof l->why));
}

static void check(const struct cloud_call *call, const struct cloud_event *e)
{
    must(e->op == call->op && e->rc <= 0);
    must((e->rc == 0) == (e->class == OFFER_OK));
    must(e->rc == 0 || (e->err.text[0] && !strstr(e->err.text, "token-of-the-fuzzer")));
    must(e->count <= CLOUD_LIST_MAX);
    if (e->rc < 0) return;
    for (uint32_t i = 0; i < e->count && call->op == CLOUD_LIST; i++)
        check_listed(&e->item[i]);
    for (uint32_t i = 0; i < e->count && call->op == CLOUD_PRICES; i++)
        must(!e->price[i].known || e->price[i].price_h >= 0);
    if (call->op == CLOUD_CREATE) {
        check_listed(&e->made);
        must(strcmp(e->made.intent, call->create.intent) == 0);
    }
}

static void run(const struct web_settings *settings, struct fuzz_choices *c)
{
    static const struct str args[] = { { "muster", 6 } };
    static struct listed room[CLOUD_LIST_MAX];
    static struct cloud_event event;
    const struct launch_spec spec = { .instance = STR("i-1"),
                                      .service = STR("s"),
                                      .pool = STR("p"),
                                      .offer = STR("o"),
                                      .controller_host = STR("h"),
                                      .controller_port = 1,
                                      .engine_host = STR("h"),
                                      .engine_args = args,
                                      .engine_arg_count = 1 };
    const struct offer offer = { .name = "o" };
    const struct cloud_call calls[] = {
        { .op = CLOUD_CREATE, .create = { .intent = "i-1", .offer = &offer, .spec = &spec } },
        { .op = CLOUD_REMOVE, .handle = "7", .intent = "i-1" },
        { .op = CLOUD_REMOVE, .handle = "", .intent = "i-1" },
        { .op = CLOUD_LIST },
        { .op = CLOUD_PRICES },
    };
    const struct web_host host = { .environ = environ_of_tokens, .read_secret = no_file };
    struct web_drive drive;
    must(web_drive_open(&drive, settings, &host, 1, respond, c, NULL) == 0);
    const struct cloud_call *call = &calls[fuzz_below(c, COUNT_OF(calls))];
    event = (struct cloud_event){ 0 };
    web_drive_call(&drive, call, START, room, &event);
    must(drive.ended_us - START <= WEB_RUN_US + 2 * WEB_CALL_US);
    check(call, &event);
    web_drive_close(&drive);
}

const struct fuzz_cost fuzz_cost = { 3000000, 20000 };

void fuzz_one(const uint8_t *data, size_t size)
{
    CLEANUP(config_freep) struct config *config = NULL;
    CLEANUP(arena_fini) struct arena arena;
    struct fuzz_choices c = { data, size };
    struct web_settings *settings;
    const struct config_sources sources = { .path = "f",
                                            .text =
                                                str_from(yaml[fuzz_below(&c, COUNT_OF(yaml))]) };
    arena_init(&arena, (size_t)1 << 20);
    must(config_load(&schema, &sources, &config, NULL, NULL) == 0);
    const struct config_records *list = config_section_get(config, clouds_section.name);
    must(web_settings_make_all(list->items, list->count, &arena, &settings, NULL) == 0);
    run(settings, &c);
}
