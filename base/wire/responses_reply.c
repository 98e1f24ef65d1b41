/* responses_reply.c - renders responses, their items and their events, member by member. */
#include "base/wire/responses_reply.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/chat_rewrite.h"
#include "base/wire/sse.h"

void responses_fini(struct responses_events *v)
{
    buf_fini(&v->items);
    buf_fini(&v->text);
    buf_fini(&v->name);
    buf_fini(&v->call);
}

int responses_rc(const struct responses_events *v)
{
    int rc = v->items.rc < 0 ? v->items.rc : v->text.rc;
    rc = rc < 0 ? rc : v->name.rc;
    return rc < 0 ? rc : v->call.rc;
}

/* ---- a response, its items and their parts ---- */

/* An item of the output as it is rendered; texts are raw or, of calls, what the client sees as a string. */
struct item {
    enum responses_item kind;
    uint32_t index;
    const char *status; /* as the client sees it */
    struct str text;    /* or arguments */
    struct str name, call;
};

static const char in_progress[] = "in_progress";

/* Returns the status of a response, and of its last item. */
static const char *status_of(enum finish finish)
{
    if (finish == FINISH_NONE) return in_progress;
    return finish == FINISH_LENGTH ? "incomplete" : "completed";
}

static const char *const kind_names[] = { [RESPONSES_MESSAGE] = "message",
                                          [RESPONSES_REASONING] = "reasoning",
                                          [RESPONSES_CALL] = "function_call" };

/* Writes the id of an item, made of the response's and its place. */
static void put_item_id(struct json_writer *w, const char *key, const struct openai_reply *r,
                        enum responses_item kind, uint32_t index)
{
    static const char *const prefixes[] = {
        [RESPONSES_MESSAGE] = "msg", [RESPONSES_REASONING] = "rs", [RESPONSES_CALL] = "fc"
    };
    CLEANUP(buf_fini) struct buf id = { 0 };
    buf_printf(&id, "%s_" STR_FMT "_%u", prefixes[kind], STR_ARG(r->id), index);
    json_kv_str(w, key, buf_view(&id));
    if (id.rc < 0) w->out->rc = id.rc;
}

static void put_part(struct json_writer *w, enum responses_item kind, struct str text)
{
    json_object(w);
    json_kv_text(w, "type", kind == RESPONSES_MESSAGE ? "output_text" : "reasoning_text");
    json_kv_str(w, "text", text);
    if (kind == RESPONSES_MESSAGE) {
        json_key(w, "annotations");
        json_array(w);
        json_array_end(w);
        json_key(w, "logprobs");
        json_array(w);
        json_array_end(w);
    }
    json_object_end(w);
}

static void put_item(struct json_writer *w, const struct openai_reply *r, const struct item *i)
{
    json_object(w);
    put_item_id(w, "id", r, i->kind, i->index);
    json_kv_text(w, "type", kind_names[i->kind]);
    json_kv_text(w, "status", i->status);
    if (i->kind == RESPONSES_CALL) {
        json_kv_str(w, "call_id", i->call);
        json_kv_str(w, "name", i->name);
        json_kv_str(w, "arguments", i->text);
        json_object_end(w);
        return;
    }
    if (i->kind == RESPONSES_MESSAGE) json_kv_text(w, "role", "assistant");
    if (i->kind == RESPONSES_REASONING) {
        json_key(w, "summary");
        json_array(w);
        json_array_end(w);
    }
    json_key(w, "content");
    json_array(w);
    if (i->status != in_progress) put_part(w, i->kind, i->text);
    json_array_end(w);
    json_object_end(w);
}

static void put_usage(struct json_writer *w, const struct usage *usage)
{
    json_key(w, "usage");
    if (!usage) {
        json_put_null(w);
        return;
    }
    json_object(w);
    json_kv_u64(w, "input_tokens", usage->prompt_tokens);
    json_key(w, "input_tokens_details");
    json_object(w);
    json_kv_u64(w, "cached_tokens", min_u32(usage->cached_tokens, usage->prompt_tokens));
    json_object_end(w);
    json_kv_u64(w, "output_tokens", usage->generated_tokens);
    json_key(w, "output_tokens_details");
    json_object(w);
    json_kv_u64(w, "reasoning_tokens", usage->reasoning_tokens);
    json_object_end(w);
    json_kv_u64(w, "total_tokens", (uint64_t)usage->prompt_tokens + usage->generated_tokens);
    json_object_end(w);
}

/* Writes a response with the items given as JSON with commas between them. FINISH_NONE: it goes on. */
static void put_response(struct json_writer *w, const struct openai_reply *r, enum finish finish,
                         struct str items, const struct usage *usage)
{
    char id[160] = "resp_"; /* a request id is at most 128 bytes */
    const size_t prefix = 5, rest = min_size(r->id.len, sizeof id - prefix);
    if (rest) memcpy(id + prefix, r->id.data, rest);
    json_object(w);
    json_kv_str(w, "id", str_of(id, prefix + rest));
    json_kv_text(w, "object", "response");
    json_kv_i64(w, "created_at", r->created_s);
    json_kv_text(w, "status", status_of(finish));
    json_kv_text(w, "error", NULL);
    json_key(w, "incomplete_details");
    if (finish == FINISH_LENGTH)
        json_put_raw(w, STR("{\"reason\":\"max_output_tokens\"}"));
    else
        json_put_null(w);
    json_kv_str(w, "model", r->model);
    json_key(w, "output");
    buf_byte(w->out, '[');
    buf_str(w->out, items);
    json_put_raw(w, STR("]")); /* so that the writer knows of the value */
    put_usage(w, usage);
    buf_str(w->out, r->repeated);
    json_object_end(w);
}

/* ---- events ---- */

static struct json_writer event_begin(struct responses_events *v, const char *type, struct buf *out)
{
    struct json_writer w = sse_event_begin(out, type);
    json_kv_u64(&w, "sequence_number", v->number++);
    return w;
}

static void tell_response(struct responses_events *v, const char *type,
                          const struct openai_reply *r, enum finish finish,
                          const struct usage *usage, struct buf *out)
{
    struct json_writer w = event_begin(v, type, out);
    json_key(&w, "response");
    put_response(&w, r, finish, buf_view(&v->items), usage);
    sse_event_end(&w);
}

void responses_start(struct responses_events *v, const struct openai_reply *r, struct buf *out)
{
    buf_init(&v->items, RESPONSES_ITEMS_BYTES_MAX);
    buf_init(&v->text, RESPONSES_ITEMS_BYTES_MAX);
    tell_response(v, "response.created", r, FINISH_NONE, NULL, out);
    tell_response(v, "response.in_progress", r, FINISH_NONE, NULL, out);
}

static struct item open_item(const struct responses_events *v, enum finish finish)
{
    return (struct item){ .kind = v->open,
                          .index = v->count - 1,
                          .status = status_of(finish),
                          .text = buf_view(&v->text),
                          .name = buf_view(&v->name),
                          .call = buf_view(&v->call) };
}

static void tell_item(struct responses_events *v, const char *type, const struct openai_reply *r,
                      enum finish finish, struct buf *out)
{
    const struct item item = open_item(v, finish);
    struct json_writer w = event_begin(v, type, out);
    json_kv_u64(&w, "output_index", item.index);
    json_key(&w, "item");
    put_item(&w, r, &item);
    sse_event_end(&w);
}

/* Opens an event about the content of the open item. */
static struct json_writer content_begin(struct responses_events *v, const char *type,
                                        const struct openai_reply *r, struct buf *out)
{
    struct json_writer w = event_begin(v, type, out);
    put_item_id(&w, "item_id", r, v->open, v->count - 1);
    json_kv_u64(&w, "output_index", v->count - 1);
    if (v->open != RESPONSES_CALL) json_kv_u64(&w, "content_index", 0);
    return w;
}

static void tell_part(struct responses_events *v, const char *type, const struct openai_reply *r,
                      struct buf *out)
{
    struct json_writer w = content_begin(v, type, r, out);
    json_key(&w, "part");
    put_part(&w, v->open, buf_view(&v->text));
    sse_event_end(&w);
}

static void put_no_logprobs(struct json_writer *w, enum responses_item kind)
{
    if (kind != RESPONSES_MESSAGE) return;
    json_key(w, "logprobs");
    json_array(w);
    json_array_end(w);
}

static void close_item(struct responses_events *v, const struct openai_reply *r, enum finish finish,
                       struct buf *out)
{
    static const char *const types[] = {
        [RESPONSES_MESSAGE] = "response.output_text.done",
        [RESPONSES_REASONING] = "response.reasoning_text.done",
        [RESPONSES_CALL] = "response.function_call_arguments.done",
    };
    const bool call = v->open == RESPONSES_CALL;
    if (v->open == RESPONSES_NO_ITEM) return;
    struct json_writer w = content_begin(v, types[v->open], r, out);
    if (call) json_kv_str(&w, "name", buf_view(&v->name));
    json_kv_str(&w, call ? "arguments" : "text", buf_view(&v->text));
    put_no_logprobs(&w, v->open);
    sse_event_end(&w);
    if (!call) tell_part(v, "response.content_part.done", r, out);
    tell_item(v, "response.output_item.done", r, finish, out);
    const struct item item = open_item(v, finish);
    if (v->items.len > 0) buf_byte(&v->items, ',');
    json_writer_init(&w, &v->items);
    put_item(&w, r, &item);
    v->open = RESPONSES_NO_ITEM;
}

static void begin_item(struct responses_events *v, const struct openai_reply *r,
                       enum responses_item kind, struct buf *out)
{
    close_item(v, r, FINISH_STOP, out);
    buf_clear(&v->text);
    v->open = kind;
    v->count++;
    tell_item(v, "response.output_item.added", r, FINISH_NONE, out);
    if (kind != RESPONSES_CALL) tell_part(v, "response.content_part.added", r, out);
}

static void tell_delta(struct responses_events *v, const char *type, const struct openai_reply *r,
                       struct str text, struct buf *out)
{
    struct json_writer w = content_begin(v, type, r, out);
    json_kv_str(&w, "delta", text);
    put_no_logprobs(&w, v->open);
    sse_event_end(&w);
    buf_str(&v->text, text);
}

void responses_text(struct responses_events *v, const struct openai_reply *r,
                    enum responses_item kind, struct str text, struct buf *out)
{
    if (text.len == 0) return;
    if (v->open != kind) begin_item(v, r, kind, out);
    tell_delta(v,
               kind == RESPONSES_MESSAGE ? "response.output_text.delta"
                                         : "response.reasoning_text.delta",
               r, text, out);
}

void responses_call(struct responses_events *v, const struct openai_reply *r, struct str id,
                    struct str name, struct buf *out)
{
    close_item(v, r, FINISH_STOP, out);
    buf_clear(&v->name);
    buf_clear(&v->call);
    buf_str(&v->name, name);
    buf_str(&v->call, id);
    begin_item(v, r, RESPONSES_CALL, out);
}

void responses_arguments(struct responses_events *v, const struct openai_reply *r, struct str json,
                         struct buf *out)
{
    if (v->open != RESPONSES_CALL || json.len == 0) return;
    tell_delta(v, "response.function_call_arguments.delta", r, json, out);
}

void responses_end(struct responses_events *v, const struct openai_reply *r, enum finish finish,
                   const struct usage *usage, struct buf *out)
{
    close_item(v, r, finish, out);
    tell_response(v, finish == FINISH_LENGTH ? "response.incomplete" : "response.completed", r,
                  finish, usage, out);
}

void responses_error(struct responses_events *v, const struct openai_error *e, struct buf *out)
{
    struct json_writer w = event_begin(v, "error", out);
    json_kv_text(&w, "code", e->code ? e->code : e->type);
    json_kv_text(&w, "message", e->message);
    json_kv_text(&w, "param", e->param[0] ? e->param : NULL);
    sse_event_end(&w);
}

/* ---- whole ---- */

static void add_item(struct buf *items, const struct openai_reply *r, const struct item *item)
{
    struct json_writer w;
    if (items->len > 0) buf_byte(items, ',');
    json_writer_init(&w, items);
    put_item(&w, r, item);
}

/* Unescapes a JSON string; what is none is empty. */
static struct str plain(struct str raw, struct buf *to)
{
    buf_clear(to);
    if (slice_is_text(raw) && json_unescape(slice_inside(raw), to) < 0) to->rc = -ENOMEM;
    return buf_view(to);
}

static int add_calls(struct buf *items, const struct openai_reply *r,
                     const struct openai_choice *choice, uint32_t from)
{
    static const char *const names[] = { "id", "function" };
    static const char *const function_names[] = { "name", "arguments" };
    CLEANUP(buf_fini) struct buf id = { 0 };
    CLEANUP(buf_fini) struct buf name = { 0 };
    CLEANUP(buf_fini) struct buf arguments = { 0 };
    struct str call, member[2], function[2];
    struct json_reader k = slice_items(choice->tool_calls);
    for (bool more = slice_next(&k, &call); more;) {
        slice_members(call, names, member, COUNT_OF(names));
        slice_members(member[1], function_names, function, COUNT_OF(function_names));
        more = slice_next(&k, &call);
        const struct item item = { .kind = RESPONSES_CALL,
                                   .index = from++,
                                   .status = status_of(more ? FINISH_STOP : choice->finish),
                                   .text = plain(function[1], &arguments),
                                   .name = plain(function[0], &name),
                                   .call = plain(member[0], &id) };
        add_item(items, r, &item);
    }
    return id.rc < 0 ? id.rc : name.rc < 0 ? name.rc : arguments.rc;
}

int responses_whole(const struct openai_reply *r, const struct openai_choice *choice,
                    const struct usage *usage, struct buf *out)
{
    CLEANUP(buf_fini) struct buf items = { .max = RESPONSES_ITEMS_BYTES_MAX };
    const bool text = choice->text.len > 0, calls = choice->tool_calls.len > 0;
    struct json_writer w;
    uint32_t count = 0;
    if (choice->reasoning.len > 0) {
        const struct item item = { .kind = RESPONSES_REASONING,
                                   .status =
                                       status_of(text || calls ? FINISH_STOP : choice->finish),
                                   .text = choice->reasoning };
        add_item(&items, r, &item);
        count++;
    }
    if (text) {
        const struct item item = { .kind = RESPONSES_MESSAGE,
                                   .index = count++,
                                   .status = status_of(calls ? FINISH_STOP : choice->finish),
                                   .text = choice->text };
        add_item(&items, r, &item);
    }
    int rc = add_calls(&items, r, choice, count);
    if (rc == 0) rc = items.rc;
    json_writer_init(&w, out);
    put_response(&w, r, choice->finish, buf_view(&items), usage);
    return rc < 0 ? rc : out->rc;
}
