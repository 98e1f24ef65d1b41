/* migrate_request.c - moves a running output to another engine: its KV is copied while it still runs here,
 * then it goes on there.
 *
 *     TELL_MIGRATE ──► all of it ──► what was added ──► ... ──► little is left: stop here, go on there
 *                       │                │
 *                       └────────────────┴─► ASK_STAYS: nothing came, or the output has ended
 *
 * fleet/kv_transfer.c decides each next stage. The target fetches, stage by stage, from the source's
 * cache; the last stage is the fetch that its own generate call begins with. Only then is the source
 * told to stop, so a migration that is dropped costs the output nothing. A refusal of the target after
 * that is a failed leg: the output goes on wherever the decision thread says.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/kv_wire.h"
#include "router/byte_loop.h"

#define REPLY_BYTES_MAX 4096

void migrate_request_forget(struct request *r)
{
    if (r->client.migrate.call) signed_call_cancel(r->client.migrate.call);
    buf_fini(&r->client.migrate.reply);
    r->client.migrate = (struct request_migrate){ 0 };
}

static void stay(struct request *r)
{
    migrate_request_forget(r);
    request_stays(r);
}

static void go(struct request *r)
{
    struct target from = r->client.target, to = r->client.migrate.to;
    signed_call_cancel(r->client.call);
    r->client.call = NULL;
    memcpy(to.kv_host, from.host, sizeof to.kv_host);
    to.kv_port = from.port;
    memcpy(to.kv_instance, from.instance, sizeof to.kv_instance);
    to.kv_tls = from.tls;
    to.hit_tokens = from.hit_tokens;
    r->client.target = to;
    migrate_request_forget(r);
    request_trace_moved(r);
    request_migrated(r);
    upstream_start(r);
}

static void on_head(void *arg, const struct http_response *head)
{
    ((struct request *)arg)->client.migrate.status = head->status;
}

static void on_data(void *arg, struct str data)
{
    buf_str(&((struct request *)arg)->client.migrate.reply, data);
}

static void advance(struct request *r, enum kv_transfer_event event, uint32_t copied_tokens);

static void on_end(void *arg, enum http_end why)
{
    struct request *r = arg;
    struct request_migrate *m = &r->client.migrate;
    struct kv_fetch_reply reply;
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, REPLY_BYTES_MAX);
    m->call = NULL;
    bool answered = why == HTTP_END_OK && m->status == 200 && m->reply.rc == 0 &&
                    kv_fetch_reply_decode(buf_view(&m->reply), &arena, &reply, NULL) == 0;
    bool goes_on = answered && r->client.call; /* not between two legs */
    advance(r, goes_on ? KVT_COPIED : KVT_LOST, goes_on ? reply.tokens : 0);
}

static bool fetch(struct request *r)
{
    struct byte_loop *b = r->home;
    struct request_migrate *m = &r->client.migrate;
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct fleet_id id;
    struct fleet_ticket ticket;
    if (!fleet_ticket_make(b->link, r->client.target.instance, r->client.target.host,
                           r->client.target.port, m->to.instance, r->client.salt,
                           loop_now_us(b->loop), &ticket))
        return false;
    const struct kv_fetch_request ask = { .ids = r->client.ids.data,
                                          .id_count = (uint32_t)r->client.ids.count,
                                          .tenant = r->client.salt,
                                          .host = str_from(r->client.target.host),
                                          .port = r->client.target.port,
                                          .ticket = str_from(ticket.text),
                                          .key = str_from(ticket.key),
                                          .tls = r->client.target.tls };
    buf_fini(&m->reply);
    buf_init(&m->reply, REPLY_BYTES_MAX);
    struct http_header header = { STR("content-type"), STR("application/json") };
    struct http_call_request call = {
        .host = str_from(m->to.host),
        .port = m->to.port,
        .tls = m->to.tls,
        .path = STR("/internal/kv/pull"),
        .headers = &header,
        .header_count = 1,
        .deadline_us = loop_now_us(b->loop) + KVT_STAGE_US_MAX,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .arg = r,
    };
    if (kv_fetch_request_encode(&ask, &body) < 0) return false;
    call.body = buf_view(&body);
    m->status = 0;
    fleet_id_engine(b->link, m->to.instance, &id);
    m->call = signed_call_start(b->signer, &call, &id.as, false, NULL);
    return m->call != NULL;
}

/* Takes the transfer one stage further. The last token's KV is not computed yet and does not count. */
static void advance(struct request *r, enum kv_transfer_event event, uint32_t copied_tokens)
{
    struct request_migrate *m = &r->client.migrate;
    uint32_t tokens = (uint32_t)r->client.ids.count - 1, page_tokens = m->to.page_tokens;
    const struct kv_transfer_input in = { .tokens = tokens,
                                          .pages = tokens / page_tokens,
                                          .copied = copied_tokens / page_tokens,
                                          .page_tokens = page_tokens };
    enum kv_transfer_act act = kv_transfer_on(&m->kv, event, &in);
    if (act == KVT_STOP) {
        go(r);
    } else if (act != KVT_COPY || !fetch(r)) {
        stay(r);
    }
}

void migrate_request_begin(struct request *r, const struct target *to)
{
    bool can = r->client.call && !r->client.leg_prefills && !r->client.ids_lost &&
               r->client.bundle == to->bundle;
    migrate_request_forget(r);
    r->client.migrate.to = *to;
    if (can && leg_generated(r) > 0) {
        advance(r, KVT_MIGRATE, 0);
    } else {
        stay(r);
    }
}
