/* replay.c - map a trace's requests to times and texts. */
#include "cli/load/replay.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/http/http_fetch.h"
#include "base/io/loop/clock.h"

#include <unistd.h>

#define CALIBRATION_TOKENS 2048
#define CALIBRATION_TIMEOUT_US 10000000
#define CALIBRATION_AGAIN_US 200000
#define REPLY_BYTES_MAX ((size_t)1 << 20)

uint32_t replay_count_within(const struct trace *t, uint32_t first, int64_t span_us)
{
    uint32_t count = 0;
    while (first + count < t->count &&
           t->request[first + count].at_us - t->request[first].at_us < span_us) {
        count++;
    }
    return count;
}

int64_t replay_due_us(const struct replay *r, uint32_t index)
{
    const struct trace_request *first = &r->trace->request[r->first];
    return (int64_t)((double)(first[index].at_us - first->at_us) / r->speed);
}

int replay_message(struct replay *r, uint32_t index, struct buf *out)
{
    const struct trace_request *t = &r->trace->request[r->first + index];
    uint32_t tokens = max_u32(t->prompt_tokens / r->divide, 1);
    if (tokens > r->tokens_max) {
        tokens = r->tokens_max;
        r->cut++;
    }
    struct prompt_shape shape = {
        .seed = r->seed,
        .ids = t->block_count > 0 ? &r->trace->block[t->block_first] : NULL,
        .id_count = t->block_count,
        .own = r->first + index,
        .tokens = tokens,
        .block_tokens = max_u32(TRACE_MOONCAKE_BLOCK / r->divide, 1),
        .tokens_per_word = r->tokens_per_word,
    };
    return prompt_text(&shape, out);
}

/* The length of "tokens" in {"tokens": [...]}. */
static int count_tokens(struct str reply, uint64_t *ret)
{
    struct json_reader r;
    json_reader_init(&r, reply);
    if (json_next(&r) != JSON_OBJECT) return -EINVAL;
    while (json_next(&r) == JSON_KEY) {
        if (!json_key_is(&r, "tokens")) {
            json_skip(&r);
            continue;
        }
        if (json_next(&r) != JSON_ARRAY) return -EINVAL;
        *ret = 0;
        while (json_next(&r) == JSON_NUMBER)
            (*ret)++;
        return r.token == JSON_ARRAY_END && *ret > 0 ? 0 : -EINVAL;
    }
    return -EINVAL;
}

int replay_calibrate(const struct target *target, struct str api_key, double *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf reply = { .max = REPLY_BYTES_MAX };
    prompt_block(0, 0, CALIBRATION_TOKENS, 1.0, &text);
    struct json_writer w;
    json_writer_init(&w, &body);
    json_object(&w);
    json_kv_str(&w, "prompt", buf_view(&text));
    json_object_end(&w);
    struct http_fetch_request req = { .host = target->host,
                                      .port = target->port,
                                      .tls = target->tls,
                                      .files = { .ca = target->ca },
                                      .path = STR("/tokenize"),
                                      .bearer = api_key,
                                      .body = buf_view(&body),
                                      .json = true,
                                      .timeout_us = CALIBRATION_TIMEOUT_US };
    int status = 0;
    /* A router learns of an instance, and fetches its tokenizer, a moment after the controller. */
    for (int64_t until_us = clock_mono_us() + CALIBRATION_TIMEOUT_US; status == 0;) {
        buf_clear(&reply);
        int rc = http_fetch(&req, &status, &reply, err);
        if (rc < 0) return rc;
        if (status != 503 || clock_mono_us() > until_us) break;
        usleep(CALIBRATION_AGAIN_US);
        status = 0;
    }
    uint64_t tokens;
    if (status != 200 || count_tokens(buf_view(&reply), &tokens) < 0) {
        return err_set(err, -EPROTO, "/tokenize answered %d; give --tokens-per-word", status);
    }
    /* Written at one token a word, so the wanted tokens are the words. */
    *ret = (double)tokens / CALIBRATION_TOKENS;
    return 0;
}
