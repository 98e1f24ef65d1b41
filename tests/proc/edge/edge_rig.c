/* edge_rig.c - starts the servers, and sends and judges raw requests. */
#include "tests/proc/edge/edge_rig.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"

#include <stdio.h>

struct rig_process edge_fake, edge_router;
static struct rig_process engine;
const struct edge_server edge_servers[2] = { { "router", &edge_router }, { "engine", &engine } };
uint32_t edge_surprises;

int edge_setup(void **state)
{
    (void)state;
    edge_fake = rig_fake_engine(rig_port(), ARGS("--context", "300000"));
    edge_router =
        rig_server("router", rig_port(), ARGS("--endpoints", edge_fake.at, "--sync", "100ms"));
    rig_wait_endpoints(&edge_router, 1);
    engine = rig_server("engine", rig_port(), ARGS("--model", MODEL));
    return 0;
}

int edge_teardown(void **state)
{
    (void)state;
    int router_code = rig_stop(&edge_router), engine_code = rig_stop(&engine);
    rig_kill(&edge_fake);
    return router_code != 0 || engine_code != 0;
}

static struct str body_of(struct str text)
{
    size_t at = str_find(text, STR("\r\n\r\n"));
    return at == SIZE_MAX ? (struct str){ 0 } : str_of(text.data + at + 4, text.len - at - 4);
}

/* Returns true if the body is {"error":{"message":TEXT,"type":TEXT,"param":TEXT or null,"code":TEXT or
 * null}} and nothing else. */
static bool is_error_object(struct str body)
{
    static const char *const keys[] = { "message", "type", "param", "code" };
    struct json_reader r;
    json_reader_init(&r, body);
    if (json_next(&r) != JSON_OBJECT || json_next(&r) != JSON_KEY) return false;
    if (!json_key_is(&r, "error") || json_next(&r) != JSON_OBJECT) return false;
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        if (json_next(&r) != JSON_KEY || !json_key_is(&r, keys[i])) return false;
        enum json_token value = json_next(&r);
        bool text = value == JSON_STRING && r.raw.len > 0;
        if (!text && (i < 2 || value != JSON_NULL)) return false;
    }
    return json_next(&r) == JSON_OBJECT_END && json_next(&r) == JSON_OBJECT_END &&
           json_next(&r) == JSON_END;
}

int edge_begin(void **state)
{
    (void)state;
    edge_surprises = 0;
    return 0;
}

void edge_expect_refusal(const struct edge_server *to, const char *why, struct str bytes,
                         int status)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    int rc = rig_raw(to->process->port, bytes, &reply);
    struct str text = buf_view(&reply);
    int got = edge_status(text);
    bool as_wanted = rc == 0 && edge_answers(text) == 1 && is_error_object(body_of(text)) &&
                     (status ? got == status : got >= 400);
    if (as_wanted) return;
    print_message("%s, %s: rc %d, want %d and one error object, got %.*s\n", to->name, why, rc,
                  status, (int)(text.len < 2000 ? text.len : 2000), text.data);
    edge_surprises++;
}

void edge_expect_service(const struct edge_server *to)
{
    CLEANUP(buf_fini) struct buf reply = { 0 };
    int status = rig_call(to->process->port, CHAT, "{" HELLO ",\"max_tokens\":4}", &reply);
    if (status != 200) fail_msg("%s: %d %s", to->name, status, reply.len ? reply.data : "");
}

uint32_t edge_answers(struct str text)
{
    uint32_t count = 0;
    for (size_t at; (at = str_find(text, STR("HTTP/1.1 "))) != SIZE_MAX;) {
        text = str_of(text.data + at + 9, text.len - at - 9);
        count += text.len > 3 && text.data[3] == ' ' && text.data[0] >= '1' && text.data[0] <= '5';
    }
    return count;
}

int edge_status(struct str text)
{
    int status = 0;
    if (text.len < 12 || sscanf(text.data, "HTTP/1.%*1d %d", &status) != 1) return 0;
    return status;
}

void edge_post(struct buf *out, const char *path, struct str body)
{
    buf_printf(out,
               "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
               "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
               path, body.len);
    buf_str(out, body);
}

void edge_repeat(struct buf *out, const char *begin, const char *part, size_t count,
                 const char *end)
{
    buf_text(out, begin);
    for (size_t i = 0; i < count; i++)
        buf_text(out, part);
    buf_text(out, end);
}
