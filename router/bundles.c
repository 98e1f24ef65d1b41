/* bundles.c - one fetch a digest, tried again while an endpoint of it lives.
 *
 * A table of BUNDLES_MAX places, looked through one by one: a fleet serves few models, and an
 * entry is asked for when an endpoint changes, not for every request.
 */
#include "router/bundles.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/log.h"

#include <stdlib.h>

#define FETCH_US 10000000
#define RETRY_US 1000000
#define FULL_LOG_US 60000000

enum place_state { PLACE_EMPTY, PLACE_FETCHING, PLACE_FAILED, PLACE_READY };

struct place {
    struct bundles *owner;
    enum place_state state;
    struct bundle_entry entry;
    struct http_call *call;
    struct buf body;
    int status;
    int64_t retry_us;
};

struct bundles {
    struct loop *loop;
    struct http_client *client;
    struct buf bearer;
    uint64_t seed;
    struct place place[BUNDLES_MAX];
    struct log_limit full_log;
    void (*on_ready)(void *arg);
    void *arg;
};

int bundles_new(struct loop *loop, struct http_client *client, struct str secret,
                struct bundles **ret, struct err *err)
{
    struct bundles *b = calloc(1, sizeof *b);
    if (!b) return err_set(err, -ENOMEM, "tokenizers: no memory");
    b->loop = loop;
    b->client = client;
    b->seed = block_seed(secret);
    if (secret.len > 0) buf_printf(&b->bearer, "Bearer " STR_FMT, STR_ARG(secret));
    for (size_t i = 0; i < BUNDLES_MAX; i++)
        b->place[i].owner = b;
    *ret = b;
    return 0;
}

void bundles_free(struct bundles *b)
{
    if (!b) return;
    for (size_t i = 0; i < BUNDLES_MAX; i++) {
        struct place *p = &b->place[i];
        if (p->call) http_call_cancel(p->call);
        buf_fini(&p->body);
        bundle_fini(&p->entry.bundle);
    }
    buf_fini(&b->bearer);
    free(b);
}

void bundles_on_ready(struct bundles *b, void (*on_ready)(void *arg), void *arg)
{
    must(!b->on_ready);
    b->on_ready = on_ready;
    b->arg = arg;
}

static void on_head(void *arg, const struct http_response *head)
{
    ((struct place *)arg)->status = head->status;
}

static void on_data(void *arg, struct str data)
{
    buf_str(&((struct place *)arg)->body, data);
}

static void on_end(void *arg, enum http_end why)
{
    struct place *p = arg;
    struct bundles *b = p->owner;
    struct err err = { 0 };
    p->call = NULL;
    int rc = -EIO;
    if (why != HTTP_END_OK) {
        err_set(&err, rc, "%s", http_end_text(why));
    } else if (p->status != 200) {
        err_set(&err, rc, "the engine answered %d", p->status);
    } else if (p->body.rc < 0) {
        rc = err_set(&err, p->body.rc, "larger than %zu bytes", BUNDLE_BYTES_MAX);
    } else {
        rc = bundle_decode(buf_view(&p->body), NULL, &p->entry.bundle, &err);
    }
    buf_fini(&p->body);
    if (rc < 0) {
        p->state = PLACE_FAILED;
        p->retry_us = loop_now_us(b->loop) + RETRY_US;
        log_event(LOG_WARN, "tokenizer_failed", "digest=%.12s error=%s", p->entry.digest, err.text);
        return;
    }
    p->state = PLACE_READY;
    p->entry.seed = b->seed;
    log_event(LOG_INFO, "tokenizer_ready", "digest=%.12s tokens=%u", p->entry.digest,
              vocab_count(p->entry.bundle.vocab));
    if (b->on_ready) b->on_ready(b->arg);
}

static void fetch(struct place *p, const struct endpoint *ep)
{
    struct bundles *b = p->owner;
    struct http_header header = { STR("authorization"), buf_view(&b->bearer) };
    struct http_call_request call = {
        .host = ep->host,
        .port = (uint16_t)ep->port,
        .path = STR("/internal/tokenizer"),
        .headers = &header,
        .header_count = b->bearer.len > 0,
        .deadline_us = loop_now_us(b->loop) + FETCH_US,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .arg = p,
    };
    p->status = 0;
    buf_init(&p->body, BUNDLE_BYTES_MAX);
    p->call = http_call_start(b->client, &call, NULL);
    p->state = p->call ? PLACE_FETCHING : PLACE_FAILED;
    p->retry_us = loop_now_us(b->loop) + RETRY_US;
}

static void log_full(struct bundles *b, const struct endpoint *ep)
{
    uint64_t skipped;
    if (!log_pass(&b->full_log, loop_now_us(b->loop), FULL_LOG_US, &skipped)) return;
    log_event(LOG_WARN, "tokenizers_full", "digest=%.*s most=%d skipped=%lu",
              (int)min_size(ep->digest.len, 12), ep->digest.data, BUNDLES_MAX,
              (unsigned long)skipped);
}

const struct bundle_entry *bundles_get(struct bundles *b, const struct endpoint *ep)
{
    if (ep->digest.len == 0 || ep->digest.len > SHA256_HEX) return NULL;
    struct place *empty = NULL;
    for (size_t i = 0; i < BUNDLES_MAX; i++) {
        struct place *p = &b->place[i];
        if (p->state == PLACE_EMPTY) {
            if (!empty || empty->state == PLACE_FAILED) empty = p;
        } else if (str_eq(str_from(p->entry.digest), ep->digest)) {
            if (p->state == PLACE_FAILED && loop_now_us(b->loop) >= p->retry_us) fetch(p, ep);
            return p->state == PLACE_READY ? &p->entry : NULL;
        } else if (p->state == PLACE_FAILED && loop_now_us(b->loop) >= p->retry_us && !empty) {
            empty = p; /* nobody points at it, and its own endpoint would have tried again */
        }
    }
    if (!empty) {
        log_full(b, ep);
        return NULL;
    }
    memset(empty->entry.digest, 0, sizeof empty->entry.digest);
    memcpy(empty->entry.digest, ep->digest.data, ep->digest.len);
    fetch(empty, ep);
    return NULL;
}

struct block_key bundle_salt(const struct bundle_entry *e, struct str tenant_salt)
{
    return block_salt(e->seed, str_from(e->digest), (struct str){ 0 }, tenant_salt);
}
