/* prompt.c - templated, tokenised, chained into keys, described.
 *
 * Done as soon as a tokenizer for the model is known; a request that comes before the first
 * instance is tokenised when it is sent.
 */
#include "router/prompt.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/clock.h"
#include "base/text/encode.h"
#include "router/byte_loop.h"
#include "router/features.h"

#include <stdlib.h>

#define BYTES_PER_TOKEN 4 /* guess where no tokenizer is known yet */

static int make_ids(struct request *r, const struct bundle *bundle, size_t ids_max, struct err *err)
{
    const struct encode_model m = { bundle->vocab, bundle->chat_template };
    if (r->api.surface == OPENAI_CHAT) {
        const struct encode_chat chat = { .messages = r->api.messages,
                                          .tools = r->api.tools,
                                          .kwargs = r->api.chat_template_kwargs,
                                          .generation_prompt = true,
                                          .now_s = clock_wall_us() / 1000000,
                                          .steps_max = r->at_text ? 0 : ENCODE_INLINE_STEPS };
        return encode_chat(&m, &chat, ids_max, &r->ids, err);
    }
    if (r->api.prompt_ids)
        return encode_ids(&m, r->api.prompt_ids, r->api.prompt_id_count, ids_max, &r->ids, err);
    return encode_text(&m, r->api.prompt, true, ids_max, &r->ids, err);
}

/* Of the ids; where they are not known, of the client's bytes. */
static void set_fingerprint(struct request *r)
{
    const struct hash_key key = { { r->home->print_seed, r->core.model } };
    uint64_t print = r->bundle ? siphash(&key, r->ids.data, r->prompt_tokens * sizeof *r->ids.data)
                               : siphash(&key, r->body.data, r->body.len);
    r->fingerprint = print ? print : 1;
}

int prompt_tokenize(struct request *r, const struct bundle_entry *bundle, uint32_t context)
{
    struct err err = { 0 };
    ids_clear(&r->ids);
    r->prompt_tokens = 0;
    /* One more than fits tells "too long" from "just fits". */
    size_t ids_max = context > 0 ? (size_t)context + 1 : OPENAI_PROMPT_IDS_MAX;
    int rc = make_ids(r, &bundle->bundle, ids_max, &err);
    const char *param = r->api.surface == OPENAI_CHAT ? "messages" : "prompt";
    if (rc == -ENOMEM) {
        return openai_error_set(&r->problem, rc, OPENAI_INTERNAL, NULL, "out of memory");
    }
    if (rc == -EFBIG) {
        return openai_error_set(&r->problem, rc, OPENAI_CONTEXT_LENGTH, param,
                                "This model's maximum context length is %u tokens, but the prompt "
                                "has more. Shorten the prompt.",
                                context > 0 ? context : OPENAI_PROMPT_IDS_MAX);
    }
    if (rc == 0 && r->ids.count == 0) rc = err_set(&err, -EINVAL, "the prompt is empty");
    if (rc < 0) return openai_error_set(&r->problem, rc, OPENAI_INVALID, param, "%s", err.text);
    r->bundle = bundle;
    bundle_pin(&r->home->board->pins, &r->pins, bundle);
    r->prompt_tokens = (uint32_t)r->ids.count;
    if (r->core.model != 0) set_fingerprint(r); /* it arrived before its ids were known */
    return 0;
}

int prompt_check_context(struct request *r, uint32_t context)
{
    uint32_t prompt = r->prompt_tokens;
    if (context == 0 || prompt + max_u32(r->api.max_tokens, 1) <= context) return 0;
    return openai_error_set(&r->problem, -EINVAL, OPENAI_CONTEXT_LENGTH,
                            r->api.surface == OPENAI_CHAT ? "messages" : "prompt",
                            "This model's maximum context length is %u tokens, but the prompt has "
                            "%u and %u are asked for. Shorten the prompt or lower max_tokens.",
                            context, prompt, max_u32(r->api.max_tokens, 1));
}

/* Chained keys of the prompt, so that the core can look them up. */
static int make_keys(struct request *r, struct str salt)
{
    uint32_t count = (uint32_t)r->ids.count / BLOCK_TOKENS;
    if (count == 0) return 0;
    r->keys = malloc(count * sizeof *r->keys);
    if (!r->keys) return openai_error_set(&r->problem, -ENOMEM, OPENAI_INTERNAL, NULL, "no memory");
    r->core.keys = r->keys;
    r->core.key_count = block_keys(r->bundle->seed, bundle_salt(r->bundle, salt), r->ids.data,
                                   (uint32_t)r->ids.count, r->keys, count);
    return 0;
}

static void fill_core(struct request *r, const struct face_model *m)
{
    struct core_request *c = &r->core;
    c->model = m->service;
    c->prompt_tokens = r->bundle ? (uint32_t)r->ids.count
                                 : (uint32_t)max_i64((int64_t)(r->body.len / BYTES_PER_TOKEN), 1);
    features_of(&r->api, str_from(r->tenant_name), c->prompt_tokens, &r->arena, &c->features);
    if (c->key_count > 0) c->features.prefix = c->keys[0].lo;
    uint32_t context = m->context_tokens ? m->context_tokens : OPENAI_TOKENS_MAX;
    uint32_t room = context > c->prompt_tokens ? context - c->prompt_tokens : 1;
    c->features.output_max = r->api.max_tokens ? min_u32(r->api.max_tokens, room) : room;
    set_fingerprint(r);
    c->fingerprint = r->fingerprint;
}

int prompt_ready(struct request *r, const struct face_model *m)
{
    int rc = 0;
    if (m->bundle) {
        rc = prompt_tokenize(r, m->bundle, m->context_tokens);
        if (rc == 0) rc = prompt_check_context(r, m->context_tokens);
        if (rc == 0) rc = make_keys(r, r->salt);
    }
    if (rc == 0) fill_core(r, m);
    return rc;
}
