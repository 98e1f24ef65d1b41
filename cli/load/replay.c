/* replay.c - map a trace's requests to times and texts. */
#include "cli/load/replay.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/rng.h"
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

/* Counts the items of "tokens" in {"tokens": [...]}. */
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

int replay_calibrate(const struct target *target, struct str api_key, struct str model, double *ret,
                     struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(buf_fini) struct buf body = { 0 };
    CLEANUP(buf_fini) struct buf reply = { .max = REPLY_BYTES_MAX };
    prompt_block(0, 0, CALIBRATION_TOKENS, 1.0, &text);
    struct json_writer w;
    json_writer_init(&w, &body);
    json_object(&w);
    json_kv_str(&w, "prompt", buf_view(&text));
    if (model.len > 0) json_kv_str(&w, "model", model);
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
    /* The text was made at one token a word, so CALIBRATION_TOKENS is the number of its words. */
    *ret = (double)tokens / CALIBRATION_TOKENS;
    return 0;
}

/* Sentences come from a small grammar, chosen by a hash of the block.
 *
 * The grammar has a few thousand sentences of 8 to 12 words in the plain prose that the shipped
 * model was trained on, so that a prompt full of them leaves the model able to answer.
 */

static const char *const who[] = { "The old man",     "A young woman", "My brother",  "The captain",
                                   "The little girl", "Our neighbour", "The doctor",  "A stranger",
                                   "The king",        "Her sister",    "The teacher", "The boy" };
static const char *const did[] = { "looked at", "walked to",    "thought of", "came back from",
                                   "talked of", "stood before", "ran from",   "waited near" };
static const char *const what[] = { "the house",  "the river", "the garden", "the great tree",
                                    "the window", "the road",  "the ship",   "the table",
                                    "the door",   "the hill",  "the church", "the long street" };
static const char *const when[] = { "in the morning",  "in the evening", "at night",
                                    "after dinner",    "every day",      "that summer",
                                    "for a long time", "once again" };
static const char *const and[] = { "and said nothing", "and it was very cold", "and the rain came",
                                   "but no one heard", "and they all laughed", "and went home",
                                   "but it was late",  "and the light was low" };

#define PICK(list, rng) list[rng_below(rng, COUNT_OF(list))]
#define QUESTION_WORDS 9 /* of a question and its chat markers, for the length of the rest */

/* Counts words; a full stop counts as one. */
static uint32_t words_in(struct str s)
{
    uint32_t words = 0;
    for (size_t i = 0; i < s.len; i++)
        words += s.data[i] == ' ' || s.data[i] == '.';
    return words;
}

int prompt_block(uint64_t seed, uint64_t id, uint32_t tokens, double tokens_per_word,
                 struct buf *out)
{
    struct rng rng;
    rng_stream(&rng, seed, id, 0);
    double wanted = (double)tokens / tokens_per_word;
    size_t from = out->len;
    double written = 0;
    while (written + 5 < wanted && out->rc == 0) {
        size_t at = out->len;
        buf_printf(out, "%s %s %s %s %s. ", PICK(who, &rng), PICK(did, &rng), PICK(what, &rng),
                   PICK(when, &rng), PICK(and, &rng));
        written += words_in(str_of(out->data + at, out->len - at));
    }
    if (out->len == from) buf_printf(out, "%s. ", PICK(what, &rng)); /* a block is never empty */
    return out->rc;
}

struct str prompt_question(uint64_t index)
{
    static struct str line[QUESTIONS_MAX];
    static uint64_t count;
    if (count == 0) {
        struct str rest = questions_text();
        while (rest.len > 0 && count < QUESTIONS_MAX) {
            struct str one = str_cut(&rest, '\n');
            str_cut(&one, '\t'); /* the kind: short, medium, long */
            if (one.len > 0) line[count++] = one;
        }
    }
    return line[index % count];
}

int prompt_text(const struct prompt_shape *shape, struct buf *out)
{
    uint32_t question = (uint32_t)(QUESTION_WORDS * shape->tokens_per_word) + 1;
    uint32_t left = shape->tokens > question ? shape->tokens - question : 0;
    for (uint32_t i = 0; left > shape->block_tokens / 2; i++) {
        uint32_t tokens = min_u32(left, shape->block_tokens);
        /* After the shared blocks, and in place of a last block that is cut, the text is its own. */
        bool shared = i < shape->id_count && tokens == shape->block_tokens;
        uint64_t id = shared ? shape->ids[i] : (1ULL << 63) + (shape->own << 20) + i;
        prompt_block(shape->seed, id, tokens, shape->tokens_per_word, out);
        left -= tokens;
    }
    if (out->len > 0) buf_text(out, "\n\n");
    return buf_str(out, prompt_question(rng_at(shape->seed, shape->own)));
}
