/* fan.c - makes the requests of several outputs out of one, and gathers what they bring. */
#include "router/fan.h"

#include "base/core/bits.h"
#include "router/byte_loop.h"
#include "router/generate.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- making ---- */

static int no_memory(struct request *first)
{
    return openai_error_set(&first->client.problem, -ENOMEM, OPENAI_INTERNAL, NULL,
                            "out of memory");
}

/* Gives a request the prompt of its output: its own, or a copy of that of an earlier output. */
static int take_prompt(struct request *s, const struct request *first, uint32_t index)
{
    const uint32_t best_of = first->client.api.best_of, prompt = index / best_of;
    struct fan_prompt *own = prompt > 0 ? &first->client.more[prompt - 1] : NULL;
    const struct ids *from = own ? &own->ids : &first->client.ids;
    openai_prompt_select(&s->client.api, prompt);
    if (from->count > 0) { /* else no tokenizer is known yet */
        s->client.ids.data = malloc(from->count * sizeof *from->data);
        if (!s->client.ids.data) return -ENOMEM;
        memcpy(s->client.ids.data, from->data, from->count * sizeof *from->data);
        s->client.ids.count = s->client.ids.cap = from->count;
    }
    s->client.prompt_tokens = (uint32_t)from->count;
    s->client.echo = own ? own->echo : first->client.echo;
    s->mail.arrival.keys = own ? own->keys : first->mail.arrival.keys;
    s->mail.arrival.key_count = own ? own->key_count : first->mail.arrival.key_count;
    s->client.keys = own ? own->keys : first->client.keys;
    return 0;
}

/* Fills a request with what the first has; texts stay in the arena of the first. */
static int fill(struct request *s, const struct request *first, const struct snapshot_model *m,
                uint32_t index)
{
    const struct client_stream *c = &first->client;
    s->client.api = c->api;
    s->client.api.sampling.seed += index % c->api.best_of;
    s->client.body = c->body;
    s->client.reply = c->reply;
    s->client.reply.index = index;
    s->client.salt = c->salt;
    s->client.adapter = c->adapter;
    s->mail.arrival.adapter = first->mail.arrival.adapter;
    s->client.bundle = c->bundle;
    s->client.turn = c->turn;
    response_forget(s);
    s->client.fan = c->fan;
    s->client.fan_index = index;
    s->client.x = c->x;
    memcpy(s->mail.arrival.tenant_name, first->mail.arrival.tenant_name,
           sizeof s->mail.arrival.tenant_name);
    snprintf(s->id, sizeof s->id, "%.*s-%u", REQUEST_ID_MAX - 4, first->id,
             index % OPENAI_CHOICES_MAX);
    if (c->bundle) bundle_pin(&s->home->board->pins, &s->client.pins, c->bundle);
    int rc = take_prompt(s, first, index);
    if (rc == 0) rc = loop_timer_set(s->home->loop, &s->client.deadline, s->client.deadline_us);
    if (rc == 0) prompt_placed(s, m);
    return rc;
}

int fan_make(struct request *first, const struct snapshot_model *m)
{
    const struct openai_request *api = &first->client.api;
    const uint32_t count = openai_outputs(api);
    struct fan *f = arena_alloc(&first->client.arena, sizeof *f + count * sizeof f->output[0]);
    if (!f) return no_memory(first);
    memset(f, 0, sizeof *f + count * sizeof f->output[0]);
    *f = (struct fan){ .count = 1, .held = 1, .n = api->n, .best_of = api->best_of };
    f->output[0] = (struct fan_output){ .r = first, .arrived = true };
    first->client.fan = f;
    for (uint32_t i = 1; i < count; i++) {
        struct request *s = request_take(first->home, first->client.deadline_us, upstream_deadline);
        if (!s)
            return openai_error_set(&first->client.problem, -EAGAIN, OPENAI_OVERLOADED, NULL,
                                    "The router holds as many requests as it may; each of the %u "
                                    "outputs is one. Try again shortly.",
                                    count);
        f->output[f->count++].r = s;
        f->held++;
        if (fill(s, first, m, i) < 0) return no_memory(first);
    }
    return 0;
}

static void arrive(struct fan *f, uint32_t index)
{
    struct fan_output *o = &f->output[index];
    if (o->arrived || o->r->client.over) return;
    o->arrived = true;
    o->r->client.arrived_us = loop_now_us(o->r->home->loop); /* its times begin here */
    request_arrive(o->r);
}

void fan_begin(struct request *first)
{
    struct fan *f = first->client.fan;
    for (uint32_t i = f->best_of; i < f->count; i += f->best_of)
        arrive(f, i);
}

void fan_go_on(struct request *r)
{
    struct fan *f = r->client.fan;
    const uint32_t index = r->client.fan_index;
    if (index % f->best_of != 0 || !r->client.x) return;
    for (uint32_t i = index + 1; i < index + f->best_of; i++)
        arrive(f, i);
}

/* ---- ends ---- */

bool fan_is_last(const struct request *r)
{
    const struct fan *f = r->client.fan;
    for (uint32_t i = 0; i < f->count; i++)
        if (f->output[i].r != r && f->output[i].r->client.x) return false;
    return true;
}

void fan_count(struct request *r)
{
    struct fan *f = r->client.fan;
    const struct usage *u = &r->client.usage;
    f->usage.generated_tokens += u->generated_tokens;
    f->usage.reasoning_tokens += u->reasoning_tokens;
    if (r->client.fan_index % f->best_of != 0) return; /* a prompt counts once */
    f->usage.prompt_tokens += u->prompt_tokens;
    f->usage.cached_tokens += u->cached_tokens;
}

static void free_texts(struct fan_output *o)
{
    buf_fini(&o->text);
    buf_fini(&o->logprobs);
    buf_fini(&o->prompt_logprobs);
    buf_fini(&o->reasoning);
    buf_fini(&o->tool_calls);
}

/* Gives back all requests, the first, whose arena has the fan, last. */
static void release(struct fan *f)
{
    for (uint32_t i = f->count; i-- > 0;) {
        struct request *r = f->output[i].r;
        free_texts(&f->output[i]);
        r->client.fan = NULL;
        request_release(r);
    }
}

void fan_done(struct request *r)
{
    struct fan *f = r->client.fan;
    if (--f->held == 0) release(f);
}

/* Ends one output, wherever it is. */
static void end(struct fan *f, struct fan_output *o)
{
    struct request *r = o->r;
    r->client.x = NULL;
    if (r->client.over) return;
    if (!o->arrived) { /* the decision thread does not know it */
        r->client.over = true;
        loop_timer_clear(r->home->loop, &r->client.deadline);
        f->held--;
        return;
    }
    if (generate_at_text(r)) return;
    if (r->client.call) signed_call_cancel(r->client.call);
    r->client.call = NULL;
    r->client.outcome.cut = true;
    request_over(r);
}

void fan_drop(struct request *r)
{
    struct fan *f = r->client.fan;
    for (uint32_t i = 0; i < f->count; i++)
        if (f->output[i].r != r) end(f, &f->output[i]);
}

void fan_left(struct request *r)
{
    struct fan *f = r->client.fan;
    for (uint32_t i = 0; i < f->count; i++)
        end(f, &f->output[i]);
}

void fan_dissolve(struct request *r)
{
    struct fan *f = r->client.fan;
    for (uint32_t i = 0; i < f->count; i++) {
        struct request *s = f->output[i].r;
        free_texts(&f->output[i]);
        s->client.fan = NULL;
        if (s != r) s->client.x = NULL;
    }
}

/* ---- whole responses ---- */

static struct buf take_buf(struct buf *from)
{
    struct buf taken = *from;
    *from = (struct buf){ .max = taken.max };
    return taken;
}

/* Returns the likeliest output of a prompt that was not taken yet, and takes it. */
static struct fan_output *take_best(struct fan *f, uint32_t from)
{
    struct fan_output *best = &f->output[from];
    for (uint32_t i = from; i < from + f->best_of; i++)
        if (f->output[i].mean > best->mean) best = &f->output[i];
    best->mean = -DBL_MAX;
    return best;
}

/* Appends a JSON string's text. */
static int put_unquoted(struct str json, struct buf *out)
{
    return json.len < 2 ? 0 : json_unescape(str_of(json.data + 1, json.len - 2), out);
}

int fan_take(struct request *r, struct str text, const struct openai_delta *delta)
{
    struct fan_output *o = &r->client.fan->output[r->client.fan_index];
    free_texts(o);
    int rc = buf_str(&o->text, text);
    if (rc == 0) rc = buf_str(&o->logprobs, delta->logprobs);
    if (rc == 0) rc = buf_str(&o->prompt_logprobs, delta->prompt_logprobs);
    if (rc == 0) rc = put_unquoted(delta->reasoning, &o->reasoning);
    if (rc == 0) rc = buf_str(&o->tool_calls, delta->tool_calls);
    buf_clear(&r->client.output);
    o->relayed = rc == 0;
    return rc;
}

static struct openai_choice choice_of(const struct fan_output *o)
{
    struct openai_choice choice = { .text = buf_view(&o->text),
                                    .reasoning = buf_view(&o->reasoning),
                                    .tool_calls = buf_view(&o->tool_calls) };
    if (!o->relayed) choice = response_choice(o->r, &o->text);
    choice.logprobs = buf_view(&o->logprobs);
    choice.prompt_logprobs = buf_view(&o->prompt_logprobs);
    choice.finish = o->finish;
    return choice;
}

/* Takes what the request has gathered of an output of our engine. */
static int take_own(struct request *r, struct fan_output *o)
{
    const uint32_t generated = leg_generated(r);
    openai_logprobs_take(&r->client.logprobs);
    o->text = take_buf(&r->client.output);
    o->logprobs = take_buf(&r->client.logprobs.json);
    o->prompt_logprobs = take_buf(&r->client.logprobs.prompt_json);
    o->mean = generated > 0 ? r->client.logprob_sum / generated : 0;
    return o->text.rc < 0 ? o->text.rc : o->logprobs.rc;
}

int fan_keep(struct request *r, struct buf *out)
{
    struct fan *f = r->client.fan;
    struct fan_output *kept = &f->output[r->client.fan_index];
    struct openai_choice choice[OPENAI_CHOICES_MAX];
    uint32_t count = 0;
    int rc = kept->relayed ? 0 : take_own(r, kept);
    kept->finish = r->client.finish;
    if (rc < 0) return rc;
    if (!fan_is_last(r)) return 0;
    for (uint32_t i = 0; i < f->count; i++) {
        if (i % f->best_of >= f->n) continue;
        struct fan_output *o = f->best_of > f->n ? take_best(f, i - i % f->best_of) : &f->output[i];
        choice[count++] = choice_of(o);
    }
    rc = openai_reply_whole(&r->client.reply, choice, count, &f->usage, out);
    return rc < 0 ? rc : 1;
}
