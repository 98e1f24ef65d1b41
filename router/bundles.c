/* bundles.c - fetches a tokenizer once for each digest, and again after a failure while an endpoint
 * of that digest lives. An entry without a pin makes room for others.
 *
 * The table of BUNDLES_MAX places is searched one by one: a fleet serves few models, and an entry is
 * asked for when an endpoint changes, not for every request.
 */
#include "router/bundles.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/log.h"

#include <stdio.h>
#include <stdlib.h>

#define FETCH_US 10000000
#define RETRY_US 1000000
#define FULL_LOG_US 60000000

enum place_state { PLACE_EMPTY, PLACE_FETCHING, PLACE_FAILED, PLACE_READY };

struct place {
    struct bundles *owner;
    enum place_state state;
    int64_t used_us;              /* asked for last */
    char weights[SHA256_HEX + 1]; /* as the reply's head names them; "": it names none */
    bool etag_fits;               /* the head says that it is the digest that was asked for */
    struct bundle_entry entry;
    struct signed_call *call;
    struct buf body;
    int status;
    int64_t retry_us;
};

struct bundles {
    struct loop *loop;
    struct signer *signer;
    const struct fleet_link *link;
    uint64_t seed;
    struct bundle_pins *pins;
    struct place place[BUNDLES_MAX];
    struct bundles_counts total; /* the running counters only */
    struct log_limit full_log;
    void (*on_ready)(void *arg);
    void *arg;
};

int bundles_new(struct loop *loop, struct signer *signer, const struct fleet_link *link,
                struct bundle_pins *pins, struct bundles **ret, struct err *err)
{
    struct bundles *b = calloc(1, sizeof *b);
    if (!b) return err_set(err, -ENOMEM, "tokenizers: no memory");
    b->loop = loop;
    b->signer = signer;
    b->link = link;
    b->seed = link->held.block_seed;
    b->pins = pins;
    for (uint32_t i = 0; i < BUNDLES_MAX; i++) {
        b->place[i].owner = b;
        b->place[i].entry.bit = i;
    }
    *ret = b;
    return 0;
}

void bundles_free(struct bundles *b)
{
    if (!b) return;
    for (size_t i = 0; i < BUNDLES_MAX; i++) {
        struct place *p = &b->place[i];
        if (p->call) signed_call_cancel(p->call);
        buf_fini(&p->body);
        bundle_fini(&p->entry.bundle);
    }
    free(b);
}

void bundles_on_ready(struct bundles *b, void (*on_ready)(void *arg), void *arg)
{
    must(!b->on_ready);
    b->on_ready = on_ready;
    b->arg = arg;
}

/* ---- pins ---- */

_Static_assert(BUNDLES_MAX <= 64, "a mask has a bit for each");

void bundle_pin(struct bundle_pins *pins, uint64_t *mask, const struct bundle_entry *e)
{
    if (!e || *mask >> e->bit & 1) return;
    *mask |= (uint64_t)1 << e->bit;
    atomic_fetch_add_explicit(&pins->count[e->bit], 1, memory_order_relaxed);
}

void bundle_unpin(struct bundle_pins *pins, uint64_t *mask)
{
    for (uint32_t bit = 0; *mask != 0; bit++, *mask >>= 1)
        if (*mask & 1) atomic_fetch_sub_explicit(&pins->count[bit], 1, memory_order_release);
}

static bool is_idle(const struct bundles *b, const struct place *p)
{
    return p->state == PLACE_READY &&
           atomic_load_explicit(&b->pins->count[p->entry.bit], memory_order_acquire) == 0;
}

static void evict(struct place *p)
{
    struct bundles *b = p->owner;
    log_event(LOG_INFO, "tokenizer_evicted", "digest=%.12s", p->entry.digest);
    bundle_fini(&p->entry.bundle);
    p->entry.bundle = (struct bundle){ 0 };
    p->state = PLACE_EMPTY;
    b->total.evicted++;
}

/* Returns the idle entry that was asked for longest ago; NULL: there is none. *ret_count: how many are idle. */
static struct place *stalest_idle(struct bundles *b, uint32_t *ret_count)
{
    struct place *stalest = NULL;
    *ret_count = 0;
    for (size_t i = 0; i < BUNDLES_MAX; i++) {
        struct place *p = &b->place[i];
        if (!is_idle(b, p)) continue;
        ++*ret_count;
        if (!stalest || p->used_us < stalest->used_us) stalest = p;
    }
    return stalest;
}

/* ---- fetching ---- */

static void on_head(void *arg, const struct http_response *head)
{
    struct place *p = arg;
    struct str weights = http_response_header(head, BUNDLE_WEIGHTS_HEADER);
    p->status = head->status;
    p->etag_fits = str_eq(http_response_header(head, "etag"), str_from(p->entry.digest));
    memset(p->weights, 0, sizeof p->weights);
    if (weights.len > 0 && weights.len < sizeof p->weights)
        memcpy(p->weights, weights.data, weights.len);
}

/* Returns true if the tokenizer is of the digest that was asked for. An engine too old to send the
 * header is believed on its etag: the bundle's own digest then holds, but not which weights it
 * belongs to. */
static bool is_identical(const struct place *p)
{
    char identity[SHA256_HEX + 1];
    if (!p->weights[0]) return p->etag_fits;
    bundle_identity(str_from(p->weights), p->entry.bundle.digest, identity);
    return strcmp(identity, p->entry.digest) == 0;
}

static int refuse(struct place *p, struct err *err)
{
    p->owner->total.refused++;
    bundle_fini(&p->entry.bundle);
    p->entry.bundle = (struct bundle){ 0 };
    return err_set(err, -EPERM, "it is of another digest");
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
    } else if (p->status == 412) {
        rc = refuse(p, &err);
    } else if (p->status != 200) {
        err_set(&err, rc, "the engine answered %d", p->status);
    } else if (p->body.rc < 0) {
        rc = err_set(&err, p->body.rc, "larger than %zu bytes", BUNDLE_BYTES_MAX);
    } else {
        rc = bundle_decode(buf_view(&p->body), NULL, &p->entry.bundle, &err);
        if (rc == 0 && !is_identical(p)) rc = refuse(p, &err);
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
    struct fleet_id id;
    char name[REPORT_NAME_BYTES_MAX + 1];
    const struct http_header header = { STR("if-match"), str_from(p->entry.digest) };
    struct http_call_request call = {
        .headers = &header,
        .header_count = 1,
        .host = ep->agent_port > 0 ? ep->agent_host : ep->host,
        .port = (uint16_t)(ep->agent_port > 0 ? ep->agent_port : ep->port),
        .tls = ep->agent_port > 0 ? ep->agent_tls : ep->tls,
        .path = STR("/internal/tokenizer"),
        .deadline_us = loop_now_us(b->loop) + FETCH_US,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .arg = p,
    };
    p->status = 0;
    p->weights[0] = 0;
    p->etag_fits = false;
    buf_init(&p->body, BUNDLE_BYTES_MAX);
    snprintf(name, sizeof name, STR_FMT, STR_ARG(ep->instance));
    fleet_id_engine(b->link, name, &id);
    p->call = signed_call_start(b->signer, &call, &id.as, false, NULL);
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

/* Finds a place for another digest: an empty one, one that failed, or that of the stalest idle entry. */
static struct place *find_place(struct bundles *b)
{
    struct place *failed = NULL;
    uint32_t idle;
    struct place *stalest = stalest_idle(b, &idle);
    if (idle >= BUNDLES_IDLE_MAX) evict(stalest);
    for (size_t i = 0; i < BUNDLES_MAX; i++) {
        struct place *p = &b->place[i];
        if (p->state == PLACE_EMPTY) return p;
        /* No pointer to it exists, and its own endpoint would have tried again. */
        if (p->state == PLACE_FAILED && loop_now_us(b->loop) >= p->retry_us) failed = p;
    }
    if (failed || idle == 0) return failed;
    evict(stalest);
    return stalest;
}

const struct bundle_entry *bundles_get(struct bundles *b, const struct endpoint *ep, bool reachable)
{
    if (ep->digest.len == 0 || ep->digest.len > SHA256_HEX) return NULL;
    for (size_t i = 0; i < BUNDLES_MAX; i++) {
        struct place *p = &b->place[i];
        if (p->state == PLACE_EMPTY || !str_eq(str_from(p->entry.digest), ep->digest)) continue;
        p->used_us = loop_now_us(b->loop);
        if (reachable && p->state == PLACE_FAILED && loop_now_us(b->loop) >= p->retry_us)
            fetch(p, ep);
        return p->state == PLACE_READY ? &p->entry : NULL;
    }
    if (!reachable) return NULL;
    struct place *p = find_place(b);
    if (!p) {
        log_full(b, ep);
        return NULL;
    }
    memset(p->entry.digest, 0, sizeof p->entry.digest);
    memcpy(p->entry.digest, ep->digest.data, ep->digest.len);
    p->used_us = loop_now_us(b->loop);
    fetch(p, ep);
    return NULL;
}

void bundles_counts_get(const struct bundles *b, struct bundles_counts *ret)
{
    *ret = b->total;
    for (size_t i = 0; i < BUNDLES_MAX; i++)
        ret->held += b->place[i].state == PLACE_READY;
}

struct block_key bundle_salt(const struct bundle_entry *e, struct str adapter,
                             struct str tenant_salt)
{
    return block_salt(e->seed, str_from(e->digest), adapter, tenant_salt);
}
