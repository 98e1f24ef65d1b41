/* legs_rig.c - see legs_rig.h. */
#include "tests/proc/legs_rig.h"

#include "base/core/own.h"

#include <stdio.h>

#define TEXT "/v1/completions"

struct rig_process engine[ENGINES], router;

void start_fake(uint32_t i, const char *fail, const char *count)
{
    char port[16];
    engine[i].port = rig_port();
    snprintf(port, sizeof port, "%u", engine[i].port);
    const char *argv[] = { getenv("FAKE_ENGINE_BIN"),
                           "--port",
                           port,
                           "--tokens",
                           "12",
                           "--fail",
                           fail,
                           "--fail-count",
                           count,
                           NULL };
    engine[i] = rig_start("engine", argv, engine[i].port, "/seen", 200);
}

void start_real(uint32_t i, const char *kv_bytes, const char *share)
{
    char listen[32];
    if (engine[i].port == 0) engine[i].port = rig_port();
    snprintf(listen, sizeof listen, "127.0.0.1:%u", engine[i].port);
    const char *argv[] = { getenv("MUSTER_BIN"),
                           "engine",
                           "--listen",
                           listen,
                           "--model",
                           MODEL,
                           "--threads",
                           "1",
                           "--max-num-seqs",
                           "8",
                           "--hardware",
                           "cpu",
                           "--seed",
                           "1",
                           "--kv-cache-memory-bytes",
                           kv_bytes,
                           "--cpu-share",
                           share,
                           NULL };
    engine[i] = rig_start("engine", argv, engine[i].port, "/health", 200);
}

static bool is_listed(void *arg)
{
    return rig_metric(router.port, "muster_router_endpoints") == *(double *)arg;
}

/* Sends to the engines up to the first NULL role; "" is both. Those that run are waited for. */
void start_router(const char *const role[ENGINES], const char *more, const char *value)
{
    char listen[64], list[256] = "";
    double count = 0;
    for (uint32_t i = 0; i < ENGINES && role[i]; i++) {
        size_t len = strlen(list);
        snprintf(list + len, sizeof list - len, "%s127.0.0.1:%u%s%s", i ? "," : "", engine[i].port,
                 role[i][0] ? "/" : "", role[i]);
        count += engine[i].log[0] != 0;
    }
    uint16_t port = rig_port();
    snprintf(listen, sizeof listen, "127.0.0.1:%u", port);
    const char *argv[] = { getenv("MUSTER_BIN"),
                           "router",
                           "--listen",
                           listen,
                           "--endpoints",
                           list,
                           "--sync",
                           "100ms",
                           more,
                           value,
                           NULL };
    router = rig_start("router", argv, port, "/health", 200);
    rig_wait(is_listed, &count, "all engines are known");
}

int cleanup(void **state)
{
    (void)state;
    int code = router.port > 0 ? rig_stop(&router) : 0;
    router.port = 0;
    for (uint32_t i = 0; i < ENGINES; i++) {
        rig_kill(&engine[i]);
        engine[i] = (struct rig_process){ 0 };
    }
    assert_int_equal(code, 0);
    return 0;
}

/* What stands behind every "text":" of a reply, as it is escaped. */
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

/* One answer; `text` and the reply are C strings. True when it is whole. */
static bool is_answered(uint16_t port, const char *prompt, uint32_t tokens, bool stream,
                        struct buf *text, struct buf *reply)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    buf_printf(&body,
               "{\"prompt\":\"%s\",\"max_tokens\":%u,\"ignore_eos\":true,\"temperature\":0.8,"
               "\"seed\":7,\"stream\":%s%s}",
               prompt, tokens, stream ? "true" : "false",
               stream ? ",\"stream_options\":{\"include_usage\":true}" : "");
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

/* Asks the router and compares the text and the usage with what was answered alone. */
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
