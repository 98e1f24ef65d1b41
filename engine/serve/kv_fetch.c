/* kv_fetch.c - reads the pages of a prefix from a peer, one response after the other, and
 * imports them.
 *
 * A fetch has one read under way and no pipeline: it shares the device with the steps, and a
 * step runs between two imports. So a fetch holds one response in memory.
 *
 * The peer belongs to the fleet (it knows the key of the ticket) and is checked all the same:
 * digest, numerics, layout and counts are compared. Every imported response moves the fetch
 * forward, so it ends. A response that is not full is the last one: the peer had no more pages.
 *
 * The device's side finds pages, copies them out and takes them in. Between two steps it only copies: 8 MiB
 * are some milliseconds, about a step. The bytes travel on the loop's thread.
 *
 * An imported page is handled as a session's: taken from the index, filled, named, released from the
 * tail on. The prefix before it is held meanwhile, or taking a page could evict the very page that it
 * continues. A page of the same name may be here without being reachable, because one before it was
 * evicted: it is found again and not taken twice.
 *
 * Where layers have a sliding window (kv_pool.h), a prefix can be used only if the pages of its last window are whole. The
 * owner sends what of its pages can be used, and of those that the window has passed the other part alone; a page
 * that is here without its window part, and comes whole, gets it back.
 */

#include "engine/serve/kv_fetch.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/io/auth/credentials.h"
#include "base/io/auth/signed_call.h"
#include "base/io/log.h"

#include <stdio.h>
#include <stdlib.h>

int kv_prefix_init(struct kv_prefix *ret, uint64_t key_seed, struct block_key salt,
                   const uint32_t *ids, uint32_t count, uint32_t page_tokens)
{
    struct kv_prefix p = { .salt = salt, .page_tokens = page_tokens, .pages = count / page_tokens };
    uint32_t tokens = p.pages * page_tokens, keys = tokens / BLOCK_TOKENS;
    *ret = (struct kv_prefix){ 0 };
    if (p.pages > 0 && !FAULT("kv_prefix.init")) {
        p.ids = calloc(tokens, sizeof *p.ids);
        p.keys = calloc(keys, sizeof *p.keys);
        p.found = calloc(p.pages, sizeof *p.found);
    }
    if (p.pages > 0 && (!p.ids || !p.keys || !p.found)) {
        kv_prefix_fini(&p);
        return -ENOMEM;
    }
    if (p.pages > 0) memcpy(p.ids, ids, tokens * sizeof *ids);
    block_keys(key_seed, salt, ids, tokens, p.keys, keys);
    *ret = p;
    return 0;
}

void kv_prefix_fini(struct kv_prefix *p)
{
    free(p->ids);
    free(p->keys);
    free(p->found);
    *p = (struct kv_prefix){ 0 };
}

static struct block_key *keys_of(const struct kv_prefix *p, uint32_t page)
{
    return p->keys + (size_t)page * (p->page_tokens / BLOCK_TOKENS);
}

static uint32_t *ids_of(const struct kv_prefix *p, uint32_t page)
{
    return p->ids + (size_t)page * p->page_tokens;
}

static struct block_key parent_of(const struct kv_prefix *p, uint32_t page)
{
    return page > 0 ? keys_of(p, page)[-1] : p->salt;
}

/* Returns how many pages are cached, whole or not; their numbers are in p->found. */
static uint32_t look(struct executor *x, struct kv_prefix *p)
{
    if (p->pages == 0) return 0;
    const struct kv_index *index = sched_index(executor_sched(x));
    return kv_index_match(index, p->salt, p->keys, p->ids, p->pages, p->found);
}

uint32_t kv_prefix_here(struct executor *x, struct kv_prefix *p)
{
    uint32_t count = look(x, p);
    return kv_index_usable(sched_index(executor_sched(x)), p->found, count);
}

int kv_prefix_read(struct executor *x, struct kv_prefix *p, uint32_t from, size_t bytes_max,
                   struct buf *out)
{
    const struct kv_index *index = sched_index(executor_sched(x));
    const struct kv_store *kv = executor_kv(x);
    const struct kv_layout *layout = kv_store_layout(kv);
    size_t page_bytes = kv_page_bytes(layout);
    p->whole_from = from;
    if (from >= p->pages || page_bytes == 0) return 0;
    uint32_t most = max_u32(1, (uint32_t)(bytes_max / page_bytes)), end = kv_prefix_here(x, p);
    if (end <= from) return 0;
    uint32_t upto = from + min_u32(most, end - from);
    uint32_t whole_from = kv_index_window_from(index, end * p->page_tokens - 1);
    p->whole_from = max_u32(from, min_u32(whole_from, upto));
    if (FAULT("kv_serve.read") || buf_reserve(out, (upto - from) * page_bytes) < 0) return -ENOMEM;
    for (uint32_t i = from; i < upto; i++)
        buf_append(out, kv_store_page(kv, p->found[i]),
                   i >= p->whole_from ? page_bytes : kv_full_bytes(layout));
    return (int)(upto - from);
}

/* Fills, names and holds page `at` of the prefix. Returns false if there is no room for it or its
 * name. */
static bool adopt_one(struct executor *x, struct kv_prefix *p, uint32_t at, const char *bytes)
{
    struct kv_index *index = sched_index(executor_sched(x));
    const bool whole = at >= p->whole_from;
    uint32_t page = whole ? kv_index_take(index) : kv_index_take_full(index);
    if (page == KV_PAGE_NONE) return false;
    (whole ? kv_store_write_page : kv_store_write_full)(executor_kv(x), page, bytes);
    kv_index_seal(index, page, at, parent_of(p, at), keys_of(p, at), ids_of(p, at));
    if (!index->pool->indexed[page]) { /* no memory for the name, or another page has it */
        (whole ? kv_index_release : kv_index_release_full)(index, page);
        return false;
    }
    p->found[at] = page;
    return true;
}

/* Holds a page that is here, with its window part if it has that. */
static void hold_found(struct kv_index *index, uint32_t page)
{
    kv_index_hold(index, page);
    if (kv_pool_is_whole(index->pool, page)) kv_pool_enter(index->pool, page);
}

/* Gives a page that is held the window part that came, if it lacks that; without memory it goes on lacking it. */
static void make_whole(struct executor *x, const struct kv_prefix *p, uint32_t at,
                       const char *bytes)
{
    struct kv_index *index = sched_index(executor_sched(x));
    if (at < p->whole_from || kv_pool_is_whole(index->pool, p->found[at])) return;
    if (!kv_index_regain(index, p->found[at])) return;
    kv_store_write_window(executor_kv(x), p->found[at],
                          bytes + kv_full_bytes(kv_store_layout(executor_kv(x))));
}

struct kv_adopted kv_prefix_adopt(struct executor *x, struct kv_prefix *p, uint32_t from,
                                  const char *bytes, uint32_t count)
{
    struct kv_index *index = sched_index(executor_sched(x));
    const struct kv_layout *layout = kv_store_layout(executor_kv(x));
    struct kv_adopted ret = { .here = look(x, p) };
    if (ret.here < from) return ret; /* evicted meanwhile: no page can follow a gap */
    uint32_t held = 0, upto = min_u32(from + count, p->pages);
    for (; held < ret.here; held++)
        hold_found(index, p->found[held]);
    for (uint32_t i = from; i < upto; i++) {
        bool found = i < held || kv_index_match(index, parent_of(p, i), keys_of(p, i), ids_of(p, i),
                                                1, &p->found[i]) == 1;
        if (!found && !adopt_one(x, p, i, bytes)) break;
        if (i == held && found) hold_found(index, p->found[i]);
        if (found) make_whole(x, p, i, bytes);
        ret.came += !found;
        held = max_u32(held, i + 1);
        bytes += i >= p->whole_from ? kv_page_bytes(layout) : kv_full_bytes(layout);
    }
    ret.here = held;
    while (held > 0) {
        const uint32_t page = p->found[--held];
        const bool whole = kv_pool_is_whole(index->pool, page);
        (whole ? kv_index_release : kv_index_release_full)(index, page);
    }
    return ret;
}

#define TENANT_BYTES_MAX 128 /* as in generate.c */

const char *const kv_fetch_end_names[KV_FETCH_END_COUNT] = {
    "whole", "dry", "full", "late", "failed", "misfit", "left", "busy",
};

struct kv_fetches {
    struct kv_fetches_config config;
    struct device *device;
    const struct device_info *info;
    struct str digest;
    struct http_client *client;
    struct signer *signer;
    struct metric_series *ended[KV_FETCH_END_COUNT];
    struct list fetches;
    uint32_t count;
};

struct kv_fetch {
    struct list link;
    struct kv_fetches *all;
    struct kv_prefix prefix;
    char host[GENERATE_HOST_BYTES_MAX + 1], tenant[TENANT_BYTES_MAX + 1];
    char ticket[GENERATE_TICKET_BYTES_MAX + 1];
    struct auth_key key; /* that the ticket came with */
    uint16_t port;
    bool tls;
    int64_t deadline_us;
    void (*on_end)(void *arg, uint32_t tokens, uint32_t pulled);
    void *arg;
    bool left; /* cancelled: freed when the device has done with it */

    struct signed_call *http; /* NULL: not reading */
    struct device_call call;  /* under way when not reading */
    int status;
    struct buf response;
    struct kv_head head; /* of the reply */
    struct kv_adopted now;
    uint32_t came; /* pages, in all */
};

void kv_head_of(const struct device_info *info, struct str digest, uint32_t first, uint32_t tokens,
                struct kv_head *ret)
{
    *ret = (struct kv_head){
        .kv_type = info->kv.type,
        .layers = info->kv.n_layers,
        .kv_heads = info->kv.n_kv_heads,
        .head_dim = info->kv.head_dim,
        .page_tokens = info->kv.page_tokens,
        .first = first,
        .tokens = tokens,
        .whole_from = first,
    };
    memcpy(ret->digest, digest.data, min_size(digest.len, SHA256_HEX));
    memcpy(ret->numerics, info->model->numerics,
           strnlen(info->model->numerics, KV_NUMERICS_BYTES - 1));
}

/* ---- a fetch ends ---------------------------------------------------------------------------- */

static void fetch_free(struct kv_fetch *p)
{
    list_remove(&p->link);
    p->all->count--;
    kv_prefix_fini(&p->prefix);
    buf_fini(&p->response);
    free(p);
}

static void count_end(struct kv_fetches *all, enum kv_fetch_end end)
{
    metric_inc(all->ended[end]);
}

static void finish(struct kv_fetch *p, enum kv_fetch_end end, const char *why)
{
    uint32_t page_tokens = p->prefix.page_tokens;
    log_event(end == KV_FETCH_FAILED || end == KV_FETCH_MISFIT ? LOG_WARN : LOG_DEBUG, "kv_fetch",
              "peer=%s:%u end=%s tokens=%u pulled=%u why=%s", p->host, p->port,
              kv_fetch_end_names[end], p->now.here * page_tokens, p->came * page_tokens, why);
    count_end(p->all, end);
    p->on_end(p->arg, p->now.here * page_tokens, min_u32(p->came, p->now.here) * page_tokens);
    fetch_free(p);
}

void kv_fetch_cancel(struct kv_fetch *p)
{
    if (!p) return;
    count_end(p->all, KV_FETCH_LEFT);
    p->left = true;
    if (!p->http) return; /* the device has it: freed on its return */
    signed_call_cancel(p->http);
    fetch_free(p);
}

/* ---- one read --------------------------------------------------------------------------------- */

static uint32_t response_pages(const struct kv_fetches *all)
{
    const size_t page_bytes =
        kv_page_bytes(&all->info->kv); /* 0: an encoder's, which has no K and V */
    return page_bytes > 0 ? max_u32(1, (uint32_t)(KV_READ_BYTES_MAX / page_bytes)) : 1;
}

static void on_head(void *arg, const struct http_response *head)
{
    struct kv_fetch *p = arg;
    p->status = head->status;
}

static void on_data(void *arg, struct str data)
{
    struct kv_fetch *p = arg;
    if (p->status != 200) return; /* a sentence for humans */
    int rc = FAULT("kv_fetch.answer") ? -ENOMEM : buf_str(&p->response, data);
    if (rc == 0) return;
    signed_call_cancel(p->http);
    p->http = NULL;
    finish(p, rc == -E2BIG ? KV_FETCH_MISFIT : KV_FETCH_FAILED,
           rc == -E2BIG ? "more bytes than one answer may have" : "no memory");
}

static int other_type(uint32_t theirs, uint32_t ours, struct err *err)
{
    const char *name = kv_type_name((enum kv_type)ours);
    if (theirs >= KV_TYPE_COUNT)
        return err_set(err, -EINVAL, "its K and V are of type %u, which is unknown here, not %s",
                       theirs, name);
    return err_set(err, -EINVAL,
                   "its K and V are %s, not %s: engines that copy K and V need one "
                   "--kv-cache-dtype",
                   kv_type_name((enum kv_type)theirs), name);
}

/* Returns 0 if the reply is for this model, covers the requested pages and is complete; else a
 * negative errno with a sentence. */
static int check_answer(struct kv_fetch *p, struct err *err)
{
    struct kv_head ours, *h = &p->head;
    int rc = kv_head_decode(buf_view(&p->response), h, err);
    if (rc < 0) return rc;
    kv_head_of(p->all->info, p->all->digest, h->first, h->tokens, &ours);
    if (memcmp(h->digest, ours.digest, sizeof ours.digest) != 0)
        return err_set(err, -EINVAL, "it serves %.12s, not %.12s", h->digest, ours.digest);
    if (h->kv_type != ours.kv_type) return other_type(h->kv_type, ours.kv_type, err);
    if (strncmp(h->numerics, ours.numerics, KV_NUMERICS_BYTES) != 0)
        return err_set(err, -EINVAL, "it computes by %.64s, not %.64s", h->numerics, ours.numerics);
    if (h->layers != ours.layers || h->kv_heads != ours.kv_heads || h->head_dim != ours.head_dim ||
        h->page_tokens != ours.page_tokens)
        return err_set(err, -EINVAL, "its pages are laid out in another way");
    uint32_t from = p->now.here * ours.page_tokens, pages = h->tokens / ours.page_tokens;
    if (h->first != from || pages > p->prefix.pages - p->now.here)
        return err_set(err, -EINVAL, "tokens %u and %u more came, asked from %u to %u", h->first,
                       h->tokens, from, p->prefix.pages * ours.page_tokens);
    const uint32_t parts = (h->whole_from - h->first) / ours.page_tokens;
    const struct kv_layout *layout = &p->all->info->kv;
    if (p->response.len !=
        KV_HEAD_BYTES + parts * kv_full_bytes(layout) + (pages - parts) * kv_page_bytes(layout))
        return err_set(err, -EINVAL, "%zu bytes are not those of %u tokens", p->response.len,
                       h->tokens);
    return 0;
}

static void take_in(struct device_call *call, struct executor *x)
{
    struct kv_fetch *p = call->arg;
    uint32_t count = p->head.tokens / p->prefix.page_tokens;
    p->prefix.whole_from = p->head.whole_from / p->prefix.page_tokens;
    p->now = kv_prefix_adopt(x, &p->prefix, p->now.here, p->response.data + KV_HEAD_BYTES, count);
}

static void read_on(struct kv_fetch *p);

static void taken_in(struct device_call *call)
{
    struct kv_fetch *p = call->arg;
    uint32_t page_tokens = p->prefix.page_tokens;
    uint32_t came = p->head.tokens / page_tokens, upto = p->head.first / page_tokens + came;
    p->came += p->now.came;
    metric_add(engine_metric(p->all->config.metrics, EM_KV_FETCHED),
               (double)p->now.came * page_tokens);
    buf_clear(&p->response);
    if (p->left) {
        fetch_free(p);
    } else if (p->now.here < upto) {
        finish(p, KV_FETCH_FULL, "no_room");
    } else if (p->now.here < p->prefix.pages && came < response_pages(p->all)) {
        finish(p, KV_FETCH_DRY, "peer_has_no_more");
    } else {
        read_on(p);
    }
}

static void to_device(struct kv_fetch *p, void (*fn)(struct device_call *, struct executor *),
                      void (*done)(struct device_call *))
{
    p->call = (struct device_call){ .fn = fn, .done = done, .arg = p };
    device_call(p->all->device, &p->call);
}

static void on_end(void *arg, enum http_end end)
{
    struct kv_fetch *p = arg;
    struct err err = { "" };
    char why[64];
    p->http = NULL;
    if (end != HTTP_END_OK) {
        finish(p,
               end == HTTP_END_TIMEOUT ? KV_FETCH_LATE
               : end == HTTP_END_LOCAL ? KV_FETCH_BUSY
                                       : KV_FETCH_FAILED,
               http_end_text(end));
    } else if (p->status != 200) {
        snprintf(why, sizeof why, "status_%d", p->status);
        finish(p, KV_FETCH_FAILED, why);
    } else if (check_answer(p, &err) < 0) {
        finish(p, KV_FETCH_MISFIT, err.text);
    } else if (p->head.tokens == 0) {
        finish(p, KV_FETCH_DRY, "peer_has_no_more");
    } else {
        to_device(p, take_in, taken_in);
    }
}

static struct signed_call *ask_peer(struct kv_fetch *p, struct err *err)
{
    struct kv_fetches *all = p->all;
    CLEANUP(buf_fini) struct buf body = { 0 };
    const struct kv_read_request read = {
        .ids = p->prefix.ids,
        .id_count = p->prefix.pages * p->prefix.page_tokens,
        .tenant = str_from(p->tenant),
        .from = p->now.here * p->prefix.page_tokens,
    };
    const struct http_header json = { STR("content-type"), STR("application/json") };
    const struct signed_as as = { str_from(p->ticket), p->key };
    int rc = kv_read_request_encode(&read, &body);
    if (rc == 0 && as.id.len == 0 && credentials_held(all->config.held)) {
        err_set(err, -EACCES, "no ticket came with the request");
        return NULL;
    }
    if (rc < 0) {
        err_set(err, rc, "no memory to ask");
        return NULL;
    }
    const struct http_call_request req = {
        .host = str_from(p->host),
        .port = p->port,
        .tls = p->tls,
        .path = STR("/internal/kv/read"),
        .headers = &json,
        .header_count = 1,
        .body = buf_view(&body),
        .deadline_us = p->deadline_us,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .arg = p,
    };
    return signed_call_start(all->signer, &req, &as, false, err);
}

static void read_on(struct kv_fetch *p)
{
    struct err err = { "" };
    if (p->now.here >= p->prefix.pages) {
        finish(p, KV_FETCH_WHOLE, "all_is_here");
    } else if (loop_now_us(p->all->config.loop) >= p->deadline_us) {
        finish(p, KV_FETCH_LATE, "time_is_up");
    } else {
        p->status = 0;
        p->http = ask_peer(p, &err);
        if (!p->http) finish(p, KV_FETCH_FAILED, err.text);
    }
}

/* ---- a fetch begins -------------------------------------------------------------------------- */

static void fetch_look(struct device_call *call, struct executor *x)
{
    struct kv_fetch *p = call->arg;
    p->now.here = kv_prefix_here(x, &p->prefix);
}

static void looked(struct device_call *call)
{
    struct kv_fetch *p = call->arg;
    if (p->left) {
        fetch_free(p);
    } else {
        read_on(p);
    }
}

/* Keeps the ticket, unless it does not fit or has no key: the peer then names what it lacks. */
static void keep_ticket(struct kv_fetch *p, const struct kv_fetch_ask *ask)
{
    if (ask->ticket.len == 0 || ask->ticket.len >= sizeof p->ticket) return;
    if (hex_to(ask->key, p->key.byte, sizeof p->key.byte) < 0) return;
    memcpy(p->ticket, ask->ticket.data, ask->ticket.len);
}

int kv_fetch_start(struct kv_fetches *all, const struct kv_fetch_ask *ask, struct kv_fetch **ret)
{
    must(all->device && ask->host.len <= GENERATE_HOST_BYTES_MAX &&
         ask->tenant.len <= TENANT_BYTES_MAX);
    int rc = all->count >= KV_FETCHES_MAX ? -EAGAIN : 0;
    struct kv_fetch *p = rc == 0 && !FAULT("kv_fetch.start") ? calloc(1, sizeof *p) : NULL;
    if (rc == 0 && !p) rc = -ENOMEM;
    /* Without a prefix cache no page would be found again. */
    uint32_t count = all->info->prefix_cache ? ask->id_count : 0;
    if (rc == 0)
        rc = kv_prefix_init(&p->prefix, ask->key_seed, ask->salt, ask->ids, count,
                            all->info->page_tokens);
    if (rc < 0) {
        count_end(all, KV_FETCH_BUSY);
        free(p);
        return rc;
    }
    int64_t latest_us = loop_now_us(all->config.loop) + KV_FETCH_US_MAX;
    p->all = all;
    memcpy(p->host, ask->host.data, ask->host.len);
    if (ask->tenant.len) memcpy(p->tenant, ask->tenant.data, ask->tenant.len);
    keep_ticket(p, ask);
    p->port = ask->port;
    p->tls = ask->tls;
    p->deadline_us = ask->deadline_us > 0 ? min_i64(ask->deadline_us, latest_us) : latest_us;
    p->on_end = ask->on_end;
    p->arg = ask->arg;
    buf_init(&p->response, KV_HEAD_BYTES + response_pages(all) * kv_page_bytes(&all->info->kv));
    list_push_back(&all->fetches, &p->link);
    all->count++;
    to_device(p, fetch_look, looked);
    *ret = p;
    return 0;
}

/* ---- all of them ------------------------------------------------------------------------------ */

int kv_fetches_new(const struct kv_fetches_config *config, struct kv_fetches **ret, struct err *err)
{
    CLEANUP(kv_fetches_freep) struct kv_fetches *all = calloc(1, sizeof *all);
    if (!all) return -ENOMEM;
    all->config = *config;
    list_init(&all->fetches);
    for (int i = 0; i < KV_FETCH_END_COUNT; i++) {
        struct str end = str_from(kv_fetch_end_names[i]);
        all->ended[i] = metric_series(config->metrics->metrics, EM_KV_FETCHES, &end);
    }
    /* A fetch needs one connection; idle connections are kept for the next fetch. */
    const struct http_client_config client = { .connections_max = 2 * KV_FETCHES_MAX,
                                               .idle_per_host_max = KV_FETCHES_MAX,
                                               .tls = config->tls };
    int rc = http_client_new(config->loop, &client, &all->client, err);
    const struct signer_config signer = { .loop = config->loop, .client = all->client };
    if (rc == 0) rc = signer_new(&signer, &all->signer, err);
    if (rc < 0) return rc;
    *ret = TAKE(all);
    return 0;
}

void kv_fetches_set_device(struct kv_fetches *all, struct device *device,
                           const struct device_info *info, struct str digest)
{
    all->device = device;
    all->info = info;
    all->digest = digest;
}

void kv_fetches_close(struct kv_fetches *all)
{
    if (!all) return;
    LIST_EACH_SAFE (&all->fetches, node) {
        struct kv_fetch *p = CONTAINER_OF(node, struct kv_fetch, link);
        if (!p->http) continue; /* the device has it */
        signed_call_cancel(p->http);
        fetch_free(p);
    }
    http_client_free(all->client);
    all->client = NULL;
}

void kv_fetches_free(struct kv_fetches *all)
{
    if (!all) return;
    kv_fetches_close(all);
    LIST_EACH_SAFE (&all->fetches, node)
        fetch_free(CONTAINER_OF(node, struct kv_fetch, link));
    signer_free(all->signer);
    free(all);
}
