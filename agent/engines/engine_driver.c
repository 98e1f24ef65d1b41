/* engine_driver.c - the parts of command lines and replies that several engine kinds share, and the table of
 * kinds. */
#include "agent/engines/engine_driver.h"

#include "base/core/json.h"
#include "base/core/own.h"

#include <math.h>

/* ---- command lines ---- */

static const char *keep(struct engine_command *c, struct str text)
{
    struct str copy = arena_str(c->arena, text);
    if (!copy.data) c->rc = -ENOMEM;
    return copy.data;
}

void command_arg(struct engine_command *c, struct str text)
{
    const char *copy = keep(c, text);
    if (c->arg_count == ENGINE_ARGS_MAX) c->rc = -E2BIG;
    if (c->rc < 0) return;
    c->arg[c->arg_count++] = copy;
    c->arg[c->arg_count] = NULL;
}

void command_text(struct engine_command *c, const char *text)
{
    command_arg(c, str_from(text));
}

void command_flag(struct engine_command *c, const char *flag, struct str value)
{
    if (value.len == 0) return;
    command_text(c, flag);
    command_arg(c, value);
}

void command_number(struct engine_command *c, const char *flag, uint64_t value)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (value == 0) return;
    if (buf_printf(&text, "%llu", (unsigned long long)value) < 0) c->rc = text.rc;
    command_flag(c, flag, buf_view(&text));
}

void command_env(struct engine_command *c, const char *text)
{
    const char *copy = keep(c, str_from(text));
    must(c->env_count < ENGINE_ENV_MAX); /* they are constants */
    if (c->rc < 0) return;
    c->env[c->env_count++] = copy;
    c->env[c->env_count] = NULL;
}

void command_make(struct engine_command *c, const struct engine_start *start,
                  void (*add)(struct engine_command *c, const struct engine_start *start))
{
    const struct launch_spec *s = start->spec;
    for (uint32_t i = 0; i < s->engine_arg_count; i++)
        command_arg(c, s->engine_args[i]);
    add(c, start);
    for (uint32_t i = 0; i < s->engine_flag_count; i++)
        command_arg(c, s->engine_flags[i]);
}

/* The paths are our own and hold no character that JSON escapes. */
void command_kv_events(struct engine_command *c, const struct engine_start *start, bool enables)
{
    CLEANUP(buf_fini) struct buf text = { 0 }, endpoint = { 0 }, replay = { 0 };
    struct json_writer w;
    if (!start->kv_events) return;
    buf_printf(&endpoint, "ipc://%s", start->kv_events);
    buf_printf(&replay, "ipc://%s", start->kv_replay);
    json_writer_init(&w, &text);
    json_object(&w);
    json_kv_text(&w, "publisher", "zmq");
    json_kv_str(&w, "endpoint", buf_view(&endpoint));
    json_kv_str(&w, "replay_endpoint", buf_view(&replay));
    if (enables) json_kv_bool(&w, "enable_kv_cache_events", true);
    json_object_end(&w);
    if (text.rc < 0 || endpoint.rc < 0 || replay.rc < 0) c->rc = -ENOMEM;
    command_flag(c, "--kv-events-config", buf_view(&text));
}

/* ---- replies ---- */

int take_nothing(struct engine_sight *s, struct str body, struct err *err)
{
    (void)s, (void)body, (void)err;
    return 0;
}

int take_metrics(struct engine_sight *s, struct str body, struct err *err)
{
    meters_read(body, s->driver->meter, s->driver->meter_count, &s->meters);
    if (!s->meters.has[METER_RUNNING])
        return err_set(err, -EINVAL, "its metrics do not say how many requests run");
    sight_report(s);
    return 0;
}

static void read_context(struct json_reader *r, struct engine_sight *s)
{
    uint64_t tokens;
    json_next(r);
    if (json_u64(r, &tokens) == 0 && tokens <= UINT32_MAX) s->context_tokens = (uint32_t)tokens;
    json_skip_rest(r);
}

static void read_meta(struct json_reader *r, struct engine_sight *s)
{
    bool object = json_next(r) == JSON_OBJECT;
    while (object && json_next(r) == JSON_KEY) {
        if (json_key_is(r, "n_ctx"))
            read_context(r, s);
        else
            json_skip(r);
    }
    if (!object) json_skip_rest(r);
}

static int read_model(struct json_reader *r, struct engine_sight *s)
{
    if (r->token != JSON_OBJECT) return -EINVAL;
    while (json_next(r) == JSON_KEY) {
        if (json_key_is(r, "id")) {
            CLEANUP(buf_fini) struct buf id = { .max = ENGINE_MODEL_BYTES };
            json_next(r);
            if (json_text(r, &id) < 0 || id.len == 0 || strlen(id.data) != id.len) return -EINVAL;
            memcpy(s->model, id.data, id.len + 1);
        } else if (json_key_is(r, "max_model_len")) {
            read_context(r, s);
        } else if (json_key_is(r, "meta")) {
            read_meta(r, s);
        } else {
            json_skip(r);
        }
    }
    return r->token == JSON_OBJECT_END ? 0 : -EINVAL;
}

int take_models(struct engine_sight *s, struct str body, struct err *err)
{
    struct json_reader r;
    s->model[0] = 0;
    json_reader_init(&r, body);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the list of models");
    while (json_next(&r) == JSON_KEY) {
        bool list = json_key_is(&r, "data");
        if (!list || s->model[0]) {
            json_skip(&r);
            continue;
        }
        if (json_next(&r) != JSON_ARRAY || json_next(&r) != JSON_OBJECT || read_model(&r, s) < 0)
            return json_fail(&r, err, "the list of models");
        while (json_next(&r) != JSON_ARRAY_END) /* adapters, or other names of it */
            if (json_skip_rest(&r) == JSON_ERROR) return json_fail(&r, err, "the list of models");
    }
    if (s->model[0]) return 0;
    return err_set(err, -EINVAL, "its list of models is empty");
}

/* ---- the report ---- */

static uint64_t whole(const struct meters *m, enum meter which)
{
    double v = m->value[which];
    return m->has[which] && v > 0 && v < 1e15 ? (uint64_t)llround(v) : 0;
}

static uint32_t whole_u32(const struct meters *m, enum meter which)
{
    uint64_t v = whole(m, which);
    return v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
}

/* Fills the pages: from their number and size, or from a count of tokens in pages of the given size. */
static void fill_pages(const struct engine_sight *s, struct engine_report *r)
{
    const struct meters *m = &s->meters;
    uint32_t page = whole_u32(m, METER_PAGE_TOKENS);
    if (page == 0) page = s->page_tokens ? s->page_tokens : s->driver->page_tokens;
    if (page == 0) return;
    uint64_t pages = whole(m, METER_PAGES), room = whole(m, METER_KV_TOKENS_MAX);
    if (pages == 0) pages = room / page;
    if (pages == 0 || pages > UINT32_MAX) return;
    double share = m->has[METER_KV_SHARE]    ? m->value[METER_KV_SHARE]
                   : m->has[METER_KV_TOKENS] ? m->value[METER_KV_TOKENS] / ((double)pages * page)
                                             : 0;
    r->page_tokens = page;
    r->pages_total = (uint32_t)pages;
    r->pages_free = (uint32_t)llround((double)pages * (1 - fmin(fmax(share, 0), 1)));
}

void sight_report(struct engine_sight *s)
{
    const struct meters *m = &s->meters;
    const struct engine_traits *traits = &engine_traits[s->driver->kind];
    uint64_t cached = whole(m, METER_CACHED_TOKENS), prompt = whole(m, METER_PROMPT_TOKENS);
    if (!m->has[METER_PROMPT_TOKENS]) prompt = whole(m, METER_COMPUTED_TOKENS) + cached;
    s->report = (struct engine_report){
        .kind = s->driver->kind,
        .health = ENGINE_READY,
        .model = str_from(s->model),
        .context_tokens = s->context_tokens,
        .running = whole_u32(m, METER_RUNNING),
        .running_max = s->seqs_max ? s->seqs_max : traits->seqs,
        .waiting = whole_u32(m, METER_WAITING),
        .requests_total = whole(m, METER_REQUESTS),
        .prompt_tokens_total = prompt,
        .cached_tokens_total = cached < prompt ? cached : prompt,
        .generated_tokens_total = whole(m, METER_GENERATED_TOKENS),
    };
    fill_pages(s, &s->report);
    if (m->has[METER_STARTED_S]) s->started_s = m->value[METER_STARTED_S];
}

/* ---- the table ---- */

static const struct engine_driver *const table[ENGINE_KIND_COUNT] = {
    [ENGINE_MUSTER] = &engine_muster,
    [ENGINE_OPENAI] = &engine_openai,
    [ENGINE_VLLM] = &engine_vllm,
    [ENGINE_SGLANG] = &engine_sglang,
    [ENGINE_LLAMA_SERVER] = &engine_llama_server,
};

const struct engine_driver *engine_driver_of(enum engine_kind kind)
{
    must(kind < ENGINE_KIND_COUNT);
    return table[kind];
}
