/* instance.c - makes instances of the kind that a pool asks for, and has the serial kind and the event queue. */
#include "simulator/instance.h"

#include "base/core/bits.h"
#include "base/core/map.h"
#include "simulator/flight.h"

#include <stdlib.h>

int instance_new(const struct instance_config *config, struct instance **ret, struct err *err)
{
    return config->pool->hardware || config->pool->has_step ? paged_new(config, ret, err)
                                                            : serial_new(config, ret, err);
}

void instance_limits_get(const struct sim_config *sim, const struct sim_pool *pool,
                         struct instance_limits *ret)
{
    if (pool->hardware || pool->has_step) {
        paged_limits(sim, pool, ret);
    } else {
        serial_limits(ret);
    }
}

void instance_report(struct instance *in, int64_t now_us, struct reported_load *ret)
{
    struct instance_load load;
    struct instance_stats stats;
    in->kind->load(in, now_us, &load);
    in->kind->stats(in, &stats);
    *ret = (struct reported_load){ .running = load.running,
                                   .waiting = load.waiting,
                                   .prefill_tokens = load.prefill_tokens,
                                   .kv_tokens = load.kv_tokens,
                                   .head_pages = load.head_pages,
                                   .uncached_total = stats.prompt_tokens - stats.hit_tokens };
}

void instance_free(struct instance *in)
{
    if (in) in->kind->free(in);
}

/* The serial kind is ref8000, the instance that published routing comparisons assume.
 *
 *     prefill   one prompt after another, 8,000 uncached tokens a second, in order of arrival
 *     decode    20 ms a token, whatever else runs; each token is told when it is there
 *     cache     LRU of 2,000 blocks as the trace cuts them (512 tokens)
 *
 * A prompt's hits are decided and its blocks are kept when it is sent, not when its turn comes. This makes
 * the exact view of those comparisons exact, and their figures were computed in this setting.
 */

#define PREFILL_TOKENS_S 8000
#define DECODE_TOKEN_US 20000
#define CACHE_BLOCKS 2000

struct cached {
    struct list link; /* oldest first */
    struct block_key key;
};

struct serial {
    struct instance base;
    struct map by_key; /* -> number of the entry */
    struct cached cached[CACHE_BLOCKS];
    struct list order, spare;
    struct list queue;    /* flights whose prompt is not computed, in order */
    struct list decoding; /* by next token: a flight with a new one goes last, as all take 20 ms */
    int64_t free_us;      /* when the queue's last prompt will be done */
    struct instance_stats stats;
};

/* Returns the first flight of a list; NULL: it is empty. */
static struct flight *head_of(const struct list *l)
{
    return list_empty(l) ? NULL : CONTAINER_OF(l->next, struct flight, link);
}

static int64_t next_event_us(const struct serial *s)
{
    const struct flight *prompt = head_of(&s->queue), *answer = head_of(&s->decoding);
    return min_i64(prompt ? prompt->due_us : INT64_MAX, answer ? answer->due_us : INT64_MAX);
}

static void forget_oldest(struct serial *s, int64_t now_us)
{
    struct cached *c = CONTAINER_OF(s->order.next, struct cached, link);
    const struct instance_hooks *h = &s->base.config.hooks;
    list_remove(&c->link);
    map_remove(&s->by_key, &c->key);
    list_push_back(&s->spare, &c->link);
    h->block(h->arg, &s->base, c->key, false, now_us);
}

/* Touches a prompt's cached blocks and adds the others; returns the length of the cached run from the
 * first block. */
static uint32_t use_blocks(struct serial *s, const struct flight *f, int64_t now_us)
{
    const struct instance_hooks *h = &s->base.config.hooks;
    uint32_t hits = 0;
    bool run = true;
    for (uint32_t i = 0; i < f->key_count; i++) {
        uint32_t *at = map_get(&s->by_key, &f->keys[i]);
        if (at) {
            if (run) hits++;
            list_remove(&s->cached[*at].link);
            list_push_back(&s->order, &s->cached[*at].link);
            continue;
        }
        run = false;
        if (list_empty(&s->spare)) forget_oldest(s, now_us);
        uint32_t *place = map_put(&s->by_key, &f->keys[i], NULL);
        if (!place) continue; /* without memory it is merely not cached */
        struct cached *c = CONTAINER_OF(s->spare.next, struct cached, link);
        list_remove(&c->link);
        *place = (uint32_t)(c - s->cached);
        c->key = f->keys[i];
        list_push_back(&s->order, &c->link);
        h->block(h->arg, &s->base, c->key, true, now_us);
    }
    return hits;
}

static int submit(struct instance *in, struct flight *f, int64_t now_us, struct err *err)
{
    (void)err;
    struct serial *s = CONTAINER_OF(in, struct serial, base);
    /* `generated` is the output of an instance that died. */
    uint32_t prompt = f->routed.dispatch.prompt_tokens + f->generated;
    uint32_t block_tokens = in->config.block_tokens;
    uint32_t hits = use_blocks(s, f, now_us);
    uint32_t cached = min_u32(hits * block_tokens, prompt - 1), uncached = prompt - cached;
    if (f->generated == 0) f->cached_tokens = cached;
    int64_t start_us = max_i64(now_us, s->free_us);
    s->free_us = start_us + (int64_t)uncached * 1000000 / PREFILL_TOKENS_S;
    f->due_us = s->free_us;
    s->stats.prompt_tokens += prompt;
    s->stats.hit_tokens += cached;
    s->stats.busy_s += (double)uncached / PREFILL_TOKENS_S;
    list_push_back(&s->queue, &f->link);
    in->next_us = next_event_us(s);
    return 0;
}

/* Counts a flight's next token, after which it decodes on, is sliced or ends. */
static void produce(struct serial *s, struct flight *f, int64_t now_us)
{
    const struct instance_hooks *h = &s->base.config.hooks;
    list_remove(&f->link);
    h->tokens(h->arg, f, 1, now_us, now_us);
    if (world_is_last(s->base.config.world, f->request, f->generated)) {
        h->ended(h->arg, f, now_us);
        return;
    }
    const struct dispatch_request *d = &f->routed.dispatch;
    if (d->slice_tokens > 0 && d->entry->generated >= d->slice_tokens) {
        h->sliced(h->arg, f, now_us);
        return;
    }
    f->due_us = now_us + DECODE_TOKEN_US;
    list_push_back(&s->decoding, &f->link);
}

static void advance(struct instance *in, int64_t now_us)
{
    struct serial *s = CONTAINER_OF(in, struct serial, base);
    s->stats.steps++;
    struct flight *f = head_of(&s->queue);
    if (f && f->due_us <= now_us) produce(s, f, now_us);
    while ((f = head_of(&s->decoding)) && f->due_us <= now_us)
        produce(s, f, now_us);
    in->next_us = next_event_us(s);
}

static void load(struct instance *in, int64_t now_us, struct instance_load *ret)
{
    const struct serial *s = CONTAINER_OF(in, struct serial, base);
    *ret = (struct instance_load){
        .running = in->in_flight,
        .prefill_tokens = (uint64_t)max_i64(s->free_us - now_us, 0) * PREFILL_TOKENS_S / 1000000,
        .kv_tokens_max = (uint64_t)CACHE_BLOCKS * max_u32(in->config.block_tokens, 1),
        .perf = { .prefill_token_s = 1.0 / PREFILL_TOKENS_S, .samples = 1, .ratio_p90 = 1 },
    };
}

static void stats(struct instance *in, struct instance_stats *ret)
{
    *ret = CONTAINER_OF(in, struct serial, base)->stats;
}

static void free_serial(struct instance *in)
{
    struct serial *s = CONTAINER_OF(in, struct serial, base);
    map_fini(&s->by_key);
    free(s);
}

static const struct instance_kind kind = {
    .submit = submit,
    .advance = advance,
    .load = load,
    .stats = stats,
    .free = free_serial,
};

void serial_limits(struct instance_limits *ret)
{
    *ret = (struct instance_limits){
        .context_max = UINT32_MAX,
        .seqs_max = UINT32_MAX,
        .batch_tokens_max = UINT32_MAX,
        .kv_tokens = (uint64_t)CACHE_BLOCKS * 512, /* of the published setting */
        .prior = { .prefill_token_s = 1.0 / PREFILL_TOKENS_S, .samples = 1, .ratio_p90 = 1 },
    };
}

int serial_new(const struct instance_config *config, struct instance **ret, struct err *err)
{
    struct serial *s = calloc(1, sizeof *s);
    if (!s) return err_set(err, -ENOMEM, "simulator: no memory for an instance");
    s->base = (struct instance){ .kind = &kind, .config = *config, .next_us = INT64_MAX };
    map_init(&s->by_key, sizeof(struct block_key), sizeof(uint32_t), CACHE_BLOCKS, MAP_OWN);
    list_init(&s->order);
    list_init(&s->spare);
    list_init(&s->queue);
    list_init(&s->decoding);
    for (uint32_t i = 0; i < CACHE_BLOCKS; i++)
        list_push_back(&s->spare, &s->cached[i].link);
    list_init(&s->base.flights);
    s->base.clock = 1;
    *ret = &s->base;
    return 0;
}

/* ---- block events in a ring that doubles; its bound is the memory of all events within one lag ---- */

#define CAPACITY_FIRST 1024

void feed_fini(struct feed *f)
{
    free(f->event);
    *f = (struct feed){ 0 };
}

static bool grow(struct feed *f)
{
    size_t capacity = f->capacity ? 2 * f->capacity : CAPACITY_FIRST;
    struct feed_event *more = malloc(capacity * sizeof *more);
    if (!more) return false;
    for (size_t i = 0; i < f->count; i++)
        more[i] = f->event[(f->first + i) % f->capacity];
    free(f->event);
    *f = (struct feed){ .event = more, .count = f->count, .capacity = capacity };
    return true;
}

bool feed_push(struct feed *f, const struct feed_event *ev)
{
    if (f->count == f->capacity && !grow(f)) return false;
    f->event[(f->first + f->count++) % f->capacity] = *ev;
    return true;
}

bool feed_pop(struct feed *f, int64_t now_us, struct feed_event *ret)
{
    if (f->count == 0 || f->event[f->first].due_us > now_us) return false;
    *ret = f->event[f->first];
    f->first = (f->first + 1) % f->capacity;
    f->count--;
    return true;
}
