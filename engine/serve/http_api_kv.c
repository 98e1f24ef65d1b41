/* http_api_kv.c - gives cached pages to peers and fetches theirs: /internal/kv/read and kv/pull.
 *
 * Pages that a peer reads are copied out between two steps and sent from this thread. At most
 * KV_READS_MAX copies are made at once: beyond that a peer is refused and computes the prefix
 * itself.
 */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "engine/serve/http_api_call.h"
#include "engine/serve/kv_fetch.h"

#include <stdlib.h>

#define KV_READS_MAX 16 /* each holds KV_READ_BYTES_MAX */

/* Refuses ids outside the vocabulary or beyond the context. Returns true if it refused. */
static bool refuse_ids(struct http_api *api, struct http_exchange *x, const uint32_t *ids,
                       uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] < api->info->model->vocab_size) continue;
        http_api_refuse(api, x, OPENAI_INVALID, "ids", "token id %u: the vocabulary has %u tokens",
                        ids[i], api->info->model->vocab_size);
        return true;
    }
    if (count <= api->info->context_max) return false;
    http_api_refuse(api, x, OPENAI_CONTEXT_LENGTH, "ids",
                    "%u ids, but the context of this model is %u tokens", count,
                    api->info->context_max);
    return true;
}

/* ---- /internal/kv/read -------------------------------------------------------------------------- */

struct kv_read_call {
    struct list link;
    struct device_call call;
    struct http_api *api;
    struct http_exchange *x; /* NULL: the client has left */
    struct kv_prefix prefix;
    uint32_t from; /* token */
    int pages;     /* in `out`, or a negative errno */
    struct buf out;
};

static void read_free(struct kv_read_call *r)
{
    list_remove(&r->link);
    r->api->kv_read_count--;
    kv_prefix_fini(&r->prefix);
    buf_fini(&r->out);
    free(r);
}

static void read_run(struct device_call *call, struct executor *x)
{
    struct kv_read_call *r = call->arg;
    const uint8_t head[KV_HEAD_BYTES] = { 0 }; /* written when it is known what follows */
    uint32_t page_tokens = r->prefix.page_tokens;
    r->pages = buf_append(&r->out, head, sizeof head);
    /* None of our pages begins inside another: the peer has pages of another size and gets none. */
    if (r->pages < 0 || r->from % page_tokens != 0) return;
    r->pages = kv_prefix_read(x, &r->prefix, r->from / page_tokens, KV_READ_BYTES_MAX, &r->out);
}

static void read_done(struct device_call *call)
{
    struct kv_read_call *r = call->arg;
    struct http_api *api = r->api;
    uint32_t page_tokens = r->prefix.page_tokens;
    struct kv_head head;
    if (r->x && r->pages < 0) {
        http_api_refuse(api, r->x, OPENAI_UNAVAILABLE, NULL, "no memory for the pages");
    } else if (r->x) {
        kv_head_of(api->info, str_from(api->digest), r->from, (uint32_t)r->pages * page_tokens,
                   &head);
        head.whole_from = r->prefix.whole_from * page_tokens;
        kv_head_encode(&head, (uint8_t *)r->out.data);
        metric_add(engine_metric(api->metrics, EM_KV_SENT), (double)(r->out.len - KV_HEAD_BYTES));
        http_api_count(api, r->x, 200);
        http_reply(r->x, 200, STR("application/octet-stream"), buf_view(&r->out));
    }
    read_free(r);
}

static void read_left(void *arg, enum http_abort why)
{
    (void)why;
    ((struct kv_read_call *)arg)->x = NULL;
}

/* Refuses a read that its ticket does not cover: a ticket is for pages of one tenant, of this
 * engine as it runs now, for a while. Returns true if it refused. */
static bool refuse_ticket(struct http_api *api, struct http_exchange *x, struct str tenant)
{
    const struct http_request *req = http_exchange_request(x);
    char text[AUTH_TENANT_BYTES_MAX];
    struct auth_ticket t;
    const struct http_api_note *note = http_exchange_note(x);
    if (note->auth.who != AUTH_PART || auth_ticket_parse(auth_gate_id(req), text, &t) < 0)
        return false; /* of the router, an agent, or a person with the secret */
    bool late = auth_receiver_time(&api->gate.receiver, loop_now_us(api->loop)) > t.until_us;
    if (t.epoch == api->gate.receiver.epoch && !late && str_eq(t.tenant, tenant)) return false;
    http_api_refuse(api, x, OPENAI_FORBIDDEN, NULL, "the ticket is for another tenant, or over");
    return true;
}

void handle_kv_read(struct http_api *api, struct http_exchange *x)
{
    struct kv_read_request req;
    struct err err = { "" };
    int rc = kv_read_request_decode(http_exchange_request(x)->body, &api->arena, &req, &err);
    if (rc < 0) {
        http_api_refuse(api, x, OPENAI_INVALID, NULL, "%s", err_text(&err, rc));
        return;
    }
    if (refuse_ticket(api, x, req.tenant)) return;
    if (refuse_ids(api, x, req.ids, req.id_count)) return;
    if (api->kv_read_count >= KV_READS_MAX) {
        http_api_refuse(api, x, OPENAI_OVERLOADED, NULL, "%u peers read pages already",
                        api->kv_read_count);
        return;
    }
    struct kv_read_call *r = calloc(1, sizeof *r);
    rc = r ? kv_prefix_init(&r->prefix, api->key_seed, http_api_salt(api, NULL, req.tenant),
                            req.ids, req.id_count, api->info->page_tokens)
           : -ENOMEM;
    if (rc < 0) {
        free(r);
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "no memory for the request");
        return;
    }
    r->api = api;
    r->x = x;
    r->from = req.from;
    r->call = (struct device_call){ .fn = read_run, .done = read_done, .arg = r };
    list_push_back(&api->kv_reads, &r->link);
    api->kv_read_count++;
    http_exchange_watch(x, read_left, NULL, r);
    device_call(api->device, &r->call);
}

/* ---- /internal/kv/pull -------------------------------------------------------------------------- */

struct kv_fetch_call {
    struct list link;
    struct http_api *api;
    struct http_exchange *x;
    struct kv_fetch *fetch;
};

static void ask_free(struct kv_fetch_call *a)
{
    list_remove(&a->link);
    free(a);
}

static void fetch_ended(void *arg, uint32_t tokens, uint32_t pulled)
{
    struct kv_fetch_call *a = arg;
    struct http_api *api = a->api;
    const struct kv_fetch_reply reply = { tokens, pulled };
    buf_clear(&api->out);
    if (kv_fetch_reply_encode(&reply, &api->out) < 0) {
        http_api_refuse(api, a->x, OPENAI_UNAVAILABLE, NULL, "no memory for the reply");
    } else {
        http_api_reply(api, a->x, 200, buf_view(&api->out));
    }
    ask_free(a);
}

static void fetch_left(void *arg, enum http_abort why)
{
    struct kv_fetch_call *a = arg;
    (void)why;
    kv_fetch_cancel(a->fetch);
    ask_free(a);
}

void handle_kv_fetch(struct http_api *api, struct http_exchange *x)
{
    struct kv_fetch_request req;
    struct err err = { "" };
    int rc = kv_fetch_request_decode(http_exchange_request(x)->body, &api->arena, &req, &err);
    if (rc < 0) {
        http_api_refuse(api, x, OPENAI_INVALID, NULL, "%s", err_text(&err, rc));
        return;
    }
    if (refuse_ids(api, x, req.ids, req.id_count)) return;
    if (api->sleep != SLEEP_AWAKE) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, SLEEPING_TEXT);
        return;
    }
    if (api->state == HTTP_API_DRAINING) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "draining: nothing is fetched any more");
        return;
    }
    struct kv_fetch_call *a = calloc(1, sizeof *a);
    const struct kv_fetch_ask ask = {
        .ids = req.ids,
        .id_count = req.id_count,
        .key_seed = api->key_seed,
        .tenant = req.tenant,
        .salt = http_api_salt(api, NULL, req.tenant),
        .host = req.host,
        .port = (uint16_t)req.port,
        .ticket = req.ticket,
        .key = req.key,
        .tls = req.tls,
        .on_end = fetch_ended,
        .arg = a,
    };
    rc = a ? kv_fetch_start(api->fetches, &ask, &a->fetch) : -ENOMEM;
    if (rc < 0) {
        free(a);
        http_api_refuse(api, x, rc == -EAGAIN ? OPENAI_OVERLOADED : OPENAI_UNAVAILABLE, NULL,
                        rc == -EAGAIN ? "%d fetches are under way" : "no memory for the request",
                        KV_FETCHES_MAX);
        return;
    }
    a->api = api;
    a->x = x;
    list_push_back(&api->kv_asks, &a->link);
    http_exchange_watch(x, fetch_left, NULL, a);
}

void kv_free(struct http_api *api)
{
    LIST_EACH_SAFE (&api->kv_reads, node)
        read_free(CONTAINER_OF(node, struct kv_read_call, link));
    LIST_EACH_SAFE (&api->kv_asks, node)
        ask_free(CONTAINER_OF(node, struct kv_fetch_call, link));
    kv_fetches_free(api->fetches);
}
