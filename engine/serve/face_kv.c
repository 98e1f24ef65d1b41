/* face_kv.c - pages of the prefix cache for peers: /internal/kv/read and /internal/kv/pull.
 *
 * What is read here is copied out between two steps and sent from this thread. At most KV_READS_MAX
 * copies are made at once: beyond that a peer is told to compute, which is what it does.
 */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "engine/serve/face_part.h"
#include "engine/serve/kv_share.h"

#include <stdlib.h>

#define KV_READS_MAX 16 /* each holds KV_READ_BYTES_MAX */

/* Ids of this model, and as many as its context has. True when it was refused. */
static bool refuse_ids(struct face *f, struct http_exchange *x, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] < f->info->model->vocab_size) continue;
        face_refuse(f, x, OPENAI_INVALID, "ids", "token id %u: the vocabulary has %u tokens",
                    ids[i], f->info->model->vocab_size);
        return true;
    }
    if (count <= f->info->context_max) return false;
    face_refuse(f, x, OPENAI_CONTEXT_LENGTH, "ids",
                "%u ids, but the context of this model is %u tokens", count, f->info->context_max);
    return true;
}

/* ---- /internal/kv/read -------------------------------------------------------------------------- */

struct face_kv_read {
    struct list link;
    struct device_call call;
    struct face *face;
    struct http_exchange *x; /* NULL: the client has left */
    struct kv_prefix prefix;
    uint32_t from; /* token */
    int pages;     /* in `out`, or what went wrong */
    struct buf out;
};

static void read_free(struct face_kv_read *r)
{
    list_remove(&r->link);
    r->face->kv_read_count--;
    kv_prefix_fini(&r->prefix);
    buf_fini(&r->out);
    free(r);
}

static void read_run(struct device_call *call, struct executor *x)
{
    struct face_kv_read *r = call->arg;
    const uint8_t head[KV_HEAD_BYTES] = { 0 }; /* written when it is known what follows */
    uint32_t page_tokens = r->prefix.page_tokens;
    r->pages = buf_append(&r->out, head, sizeof head);
    /* Pages that do not begin there are none of ours: a peer with pages of another size asks. */
    if (r->pages < 0 || r->from % page_tokens != 0) return;
    r->pages = kv_share_read(x, &r->prefix, r->from / page_tokens, KV_READ_BYTES_MAX, &r->out);
}

static void read_done(struct device_call *call)
{
    struct face_kv_read *r = call->arg;
    struct face *f = r->face;
    uint32_t page_tokens = r->prefix.page_tokens;
    struct kv_head head;
    if (r->x && r->pages < 0) {
        face_refuse(f, r->x, OPENAI_UNAVAILABLE, NULL, "no memory for the pages");
    } else if (r->x) {
        kv_head_of(f->info, str_from(f->digest), r->from, (uint32_t)r->pages * page_tokens, &head);
        kv_head_encode(&head, (uint8_t *)r->out.data);
        metric_add(meter_of(f->meters, METER_KV_SENT), (double)(r->out.len - KV_HEAD_BYTES));
        face_count(f, r->x, 200);
        http_reply(r->x, 200, STR("application/octet-stream"), buf_view(&r->out));
    }
    read_free(r);
}

static void read_left(void *arg, enum http_abort why)
{
    (void)why;
    ((struct face_kv_read *)arg)->x = NULL;
}

/* Who comes with a ticket reads what it names: pages of one tenant, of this engine as it runs now,
 * for a while. True when the request was refused. */
static bool refuse_ticket(struct face *f, struct http_exchange *x, struct str tenant)
{
    const struct http_request *req = http_exchange_request(x);
    char text[AUTH_TENANT_BYTES_MAX];
    struct auth_ticket t;
    const struct face_note *note = http_exchange_note(x);
    if (note->auth.who != AUTH_PART || auth_ticket_parse(auth_gate_id(req), text, &t) < 0)
        return false; /* of the router, an agent, or a person with the secret */
    bool late = auth_receiver_time(&f->gate.receiver, loop_now_us(f->loop)) > t.until_us;
    if (t.epoch == f->gate.receiver.epoch && !late && str_eq(t.tenant, tenant)) return false;
    face_refuse(f, x, OPENAI_FORBIDDEN, NULL, "the ticket is for another tenant, or over");
    return true;
}

void face_kv_read(struct face *f, struct http_exchange *x)
{
    struct kv_read_request req;
    struct err err = { "" };
    int rc = kv_read_request_decode(http_exchange_request(x)->body, &f->arena, &req, &err);
    if (rc < 0) {
        face_refuse(f, x, OPENAI_INVALID, NULL, "%s", err_text(&err, rc));
        return;
    }
    if (refuse_ticket(f, x, req.tenant)) return;
    if (refuse_ids(f, x, req.ids, req.id_count)) return;
    if (f->kv_read_count >= KV_READS_MAX) {
        face_refuse(f, x, OPENAI_OVERLOADED, NULL, "%u peers read pages already", f->kv_read_count);
        return;
    }
    struct face_kv_read *r = calloc(1, sizeof *r);
    rc = r ? kv_prefix_init(&r->prefix, f->key_seed, face_salt(f, req.tenant), req.ids,
                            req.id_count, f->info->page_tokens)
           : -ENOMEM;
    if (rc < 0) {
        free(r);
        face_refuse(f, x, OPENAI_UNAVAILABLE, NULL, "no memory for the request");
        return;
    }
    r->face = f;
    r->x = x;
    r->from = req.from;
    r->call = (struct device_call){ .fn = read_run, .done = read_done, .arg = r };
    list_push_back(&f->kv_reads, &r->link);
    f->kv_read_count++;
    http_exchange_watch(x, read_left, NULL, r);
    device_call(f->device, &r->call);
}

/* ---- /internal/kv/pull -------------------------------------------------------------------------- */

struct face_kv_pull {
    struct list link;
    struct face *face;
    struct http_exchange *x;
    struct kv_pull *pull;
};

static void ask_free(struct face_kv_pull *a)
{
    list_remove(&a->link);
    free(a);
}

static void pull_ended(void *arg, uint32_t tokens, uint32_t pulled)
{
    struct face_kv_pull *a = arg;
    struct face *f = a->face;
    const struct kv_pull_reply reply = { tokens, pulled };
    buf_clear(&f->out);
    if (kv_pull_reply_encode(&reply, &f->out) < 0) {
        face_refuse(f, a->x, OPENAI_UNAVAILABLE, NULL, "no memory for the reply");
    } else {
        face_reply(f, a->x, 200, buf_view(&f->out));
    }
    ask_free(a);
}

static void pull_left(void *arg, enum http_abort why)
{
    struct face_kv_pull *a = arg;
    (void)why;
    kv_pull_cancel(a->pull);
    ask_free(a);
}

void face_kv_pull(struct face *f, struct http_exchange *x)
{
    struct kv_pull_request req;
    struct err err = { "" };
    int rc = kv_pull_request_decode(http_exchange_request(x)->body, &f->arena, &req, &err);
    if (rc < 0) {
        face_refuse(f, x, OPENAI_INVALID, NULL, "%s", err_text(&err, rc));
        return;
    }
    if (refuse_ids(f, x, req.ids, req.id_count)) return;
    if (f->state == FACE_DRAINING) {
        face_refuse(f, x, OPENAI_UNAVAILABLE, NULL, "draining: nothing is fetched any more");
        return;
    }
    struct face_kv_pull *a = calloc(1, sizeof *a);
    const struct kv_pull_ask ask = {
        .ids = req.ids,
        .id_count = req.id_count,
        .key_seed = f->key_seed,
        .tenant = req.tenant,
        .salt = face_salt(f, req.tenant),
        .host = req.host,
        .port = (uint16_t)req.port,
        .ticket = req.ticket,
        .key = req.key,
        .tls = req.tls,
        .on_end = pull_ended,
        .arg = a,
    };
    rc = a ? kv_pull_start(f->pulls, &ask, &a->pull) : -ENOMEM;
    if (rc < 0) {
        free(a);
        face_refuse(f, x, rc == -EAGAIN ? OPENAI_OVERLOADED : OPENAI_UNAVAILABLE, NULL,
                    rc == -EAGAIN ? "%d pulls are under way" : "no memory for the request",
                    KV_PULLS_MAX);
        return;
    }
    a->face = f;
    a->x = x;
    list_push_back(&f->kv_asks, &a->link);
    http_exchange_watch(x, pull_left, NULL, a);
}

void kv_free(struct face *f)
{
    LIST_EACH_SAFE (&f->kv_reads, node)
        read_free(CONTAINER_OF(node, struct face_kv_read, link));
    LIST_EACH_SAFE (&f->kv_asks, node)
        ask_free(CONTAINER_OF(node, struct face_kv_pull, link));
    kv_pulls_free(f->pulls);
}
