/* router_rig.c - starts router and engines, asks them and compares outputs. */
#include "tests/proc/router/router_rig.h"

#include "base/core/own.h"

#include <stdio.h>

struct rig_process engine[ENGINES], router;

void start_fake(uint32_t i, const char *const *more)
{
    if (engine[i].port == 0) engine[i].port = rig_port();
    engine[i] = rig_fake_engine(engine[i].port, more);
}

void start_router(const char *const role[ENGINES], const char *const *more)
{
    char list[256] = "";
    const char *args[RIG_ARGS_MAX] = { "--endpoints", list, "--sync", "100ms" };
    uint32_t count = 0;
    for (uint32_t i = 0; i < ENGINES && role[i]; i++) {
        size_t len = strlen(list);
        snprintf(list + len, sizeof list - len, "%s127.0.0.1:%u%s%s", i ? "," : "", engine[i].port,
                 role[i][0] ? "/" : "", role[i]);
        count += rig_is_alive(&engine[i]);
    }
    rig_add_args(args, 4, more);
    router = rig_server("router", rig_port(), args);
    rig_wait_endpoints(&router, count);
}

int cleanup(void **state)
{
    (void)state;
    int code = rig_stop(&router);
    for (uint32_t i = 0; i < ENGINES; i++) {
        rig_kill(&engine[i]);
        engine[i] = (struct rig_process){ 0 };
    }
    assert_int_equal(code, 0);
    return 0;
}

int64_t seen(uint32_t i, const char *what)
{
    return rig_number(engine[i].port, "/seen", what);
}

double counted(const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "muster_router_%s_total", what);
    return rig_metric(router.port, name);
}

#define TEXT "/v1/completions"

/* Joins the strings behind every "text":" of a reply, escaped as they are. */
static void gather(const struct buf *reply, struct buf *text)
{
    static const char key[] = "\"text\":\"";
    buf_clear(text);
    for (const char *at = reply->data; (at = strstr(at, key));) {
        const char *end = at += sizeof key - 1;
        while (*end != '"')
            end += 1 + (*end == '\\');
        buf_str(text, str_of(at, (size_t)(end - at)));
        at = end;
    }
    buf_byte(text, 0);
}

const char *ask_temperature = "0.8";
const char *ask_more = "";

/* Asks for one output; `text` and the reply are C strings. Returns true if it came whole. */
static bool is_answered(uint16_t port, const char *prompt, uint32_t tokens, bool stream,
                        struct buf *text, struct buf *reply)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(&body,
               "{\"prompt\":\"%s\",\"max_tokens\":%u,\"ignore_eos\":true,\"temperature\":%s,"
               "\"seed\":7,\"stream\":%s%s%s}",
               prompt, tokens, ask_temperature, stream ? "true" : "false",
               stream ? ",\"stream_options\":{\"include_usage\":true}" : "", ask_more);
    buf_byte(&body, 0);
    int status = rig_call(port, TEXT, body.data, reply);
    if (status != 200) return false;
    gather(reply, text);
    return !stream || strstr(reply->data, "[DONE]");
}

void ask_at(uint16_t port, const char *prompt, uint32_t tokens, bool stream, struct buf *text,
            struct buf *reply)
{
    if (!is_answered(port, prompt, tokens, stream, text, reply))
        fail_msg("%s", reply->len ? reply->data : "no reply");
}

void expect(const char *prompt, uint32_t tokens, bool stream, const struct buf *alone)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    char usage[64];
    ask_at(router.port, prompt, tokens, stream, &text, &reply);
    assert_string_equal(text.data, alone->data);
    snprintf(usage, sizeof usage, "\"completion_tokens\":%u", tokens);
    if (!strstr(reply.data, usage)) fail_msg("no %s in %s", usage, reply.data);
}

void *asker_run(void *arg)
{
    struct asker *a = arg;
    a->whole = is_answered(router.port, a->prompt, a->tokens, a->number % 2, &a->text, &a->reply);
    return NULL;
}

void asker_fini(struct asker *a)
{
    buf_fini(&a->alone);
    buf_fini(&a->text);
    buf_fini(&a->reply);
}

/* ---- migrations ---- */

static bool all_at_first(void *requests)
{
    return rig_number(engine[0].port, "/internal/info", "running") +
               rig_number(engine[0].port, "/internal/info", "waiting") ==
           *(const uint32_t *)requests;
}

void wait_all_at_first(uint32_t requests)
{
    rig_wait(all_at_first, &requests, "all requests are at the first engine");
}

void set_clock(uint32_t i, const char *clock)
{
    char body[64];
    snprintf(body, sizeof body, "{\"v\":1,\"clock\":%s}", clock);
    assert_int_equal(rig_call(engine[i].port, "/internal/clock", body, NULL), 200);
}

bool one_has_moved(void *unused)
{
    (void)unused;
    return counted("migrations") >= 1;
}
