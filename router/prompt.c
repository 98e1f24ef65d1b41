/* prompt.c - templated, tokenised, chained into keys, described.
 *
 * Done as soon as a tokenizer for the model is known; a request that comes before the first
 * instance is tokenised when it is sent.
 */
#include "router/prompt.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/clock.h"
#include "router/features.h"

#include <stdlib.h>

#define BYTES_PER_TOKEN 4 /* guess where no tokenizer is known yet */

static int render_chat(struct request *r, const struct bundle *bundle, struct err *err)
{
    if (!bundle->chat_template) {
        return err_set(err, -EPROTO, "the model has no chat template; use /v1/completions");
    }
    const struct vocab_special *sp = vocab_special(bundle->vocab);
    struct chat_inputs in = {
        .messages = r->api.messages,
        .tools = r->api.tools,
        .kwargs = r->api.chat_template_kwargs,
        .add_generation_prompt = true,
        .bos_token = vocab_text(bundle->vocab, sp->bos),
        .eos_token = vocab_text(bundle->vocab, sp->eos),
        .now_s = clock_wall_us() / 1000000,
    };
    struct chat_limits limits = { 0 };
    CLEANUP(chat_output_fini) struct chat_output out = { 0 };
    int rc = chat_template_render(bundle->chat_template, &in, &limits, &out, err);
    if (rc < 0) return rc;
    return tokenizer_encode_spans(bundle->vocab, buf_view(&out.text), &out.content, &r->ids, err);
}

static int make_ids(struct request *r, const struct bundle *bundle, struct err *err)
{
    if (r->api.surface == OPENAI_CHAT) return render_chat(r, bundle, err);
    if (!r->api.prompt_ids) {
        return tokenizer_encode_prompt(bundle->vocab, r->api.prompt, &r->ids, err);
    }
    for (uint32_t i = 0; i < r->api.prompt_id_count; i++) {
        if (r->api.prompt_ids[i] >= vocab_count(bundle->vocab)) {
            return err_set(err, -EPROTO, "prompt[%u]: the model has no token %u", i,
                           r->api.prompt_ids[i]);
        }
        int rc = ids_push(&r->ids, r->api.prompt_ids[i]);
        if (rc < 0) return rc;
    }
    return 0;
}

int prompt_tokenize(struct request *r, const struct bundle_entry *bundle)
{
    struct err err = { 0 };
    ids_clear(&r->ids);
    r->prompt_tokens = 0;
    int rc = make_ids(r, &bundle->bundle, &err);
    if (rc == -ENOMEM) {
        return openai_error_set(&r->problem, rc, OPENAI_INTERNAL, NULL, "out of memory");
    }
    const char *param = r->api.surface == OPENAI_CHAT ? "messages" : "prompt";
    if (rc == 0 && r->ids.count == 0) rc = err_set(&err, -EINVAL, "the prompt is empty");
    if (rc < 0) return openai_error_set(&r->problem, rc, OPENAI_INVALID, param, "%s", err.text);
    r->bundle = bundle;
    r->prompt_tokens = (uint32_t)r->ids.count;
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
}

int prompt_ready(struct request *r, const struct face_model *m)
{
    int rc = 0;
    if (m->bundle) {
        rc = prompt_tokenize(r, m->bundle);
        if (rc == 0) rc = prompt_check_context(r, m->context_tokens);
        if (rc == 0) rc = make_keys(r, r->salt);
    }
    if (rc == 0) fill_core(r, m);
    return rc;
}
