/* encode.c - renders the template, then tokenises; each bound is checked before the work. */
#include "base/text/encode.h"

static int too_many(size_t ids_max, struct err *err)
{
    return err_set(err, -EFBIG, "more than %zu tokens", ids_max);
}

/* Each id stands for at most as many bytes as the longest token has. */
static bool cannot_fit(const struct encode_model *m, size_t bytes, size_t ids_max)
{
    return bytes / vocab_token_bytes_max(m->vocab) > ids_max;
}

static int finish(int rc, size_t ids_max, struct ids *out, struct err *err)
{
    out->max = 0; /* what the model generates is kept behind them */
    return rc == -E2BIG ? too_many(ids_max, err) : rc;
}

static struct str special_text(const struct vocab *v, uint32_t id)
{
    return id == VOCAB_NONE ? (struct str){ 0 } : vocab_text(v, id);
}

int encode_chat(const struct encode_model *m, const struct encode_chat *chat, size_t ids_max,
                struct ids *out, struct err *err)
{
    if (!m->chat_template)
        return err_set(err, -EPROTO,
                       "this model has no chat template; use /v1/completions, or start the engine "
                       "with --chat-template");
    const struct vocab *v = m->vocab;
    const struct chat_inputs in = {
        .messages = chat->messages,
        .tools = chat->tools,
        .kwargs = chat->kwargs,
        .add_generation_prompt = chat->generation_prompt,
        .bos_token = special_text(v, vocab_special(v)->bos),
        .eos_token = special_text(v, vocab_special(v)->eos),
        .now_s = chat->now_s,
    };
    const struct chat_limits limits = { .steps_max = chat->steps_max };
    CLEANUP(chat_output_fini) struct chat_output page = { 0 };
    int rc = chat_template_render(m->chat_template, &in, &limits, &page, err);
    if (rc < 0) return rc;
    if (cannot_fit(m, page.text.len, ids_max)) return too_many(ids_max, err);
    out->max = ids_max;
    rc = tokenizer_encode_spans(v, buf_view(&page.text), &page.content, out, err);
    return finish(rc, ids_max, out, err);
}

int encode_text(const struct encode_model *m, struct str text, bool special, size_t ids_max,
                struct ids *out, struct err *err)
{
    if (cannot_fit(m, text.len, ids_max)) return too_many(ids_max, err);
    out->max = ids_max;
    int rc = special ? tokenizer_encode_prompt(m->vocab, text, out, err)
                     : tokenizer_encode(m->vocab, text, false, out, err);
    return finish(rc, ids_max, out, err);
}

int encode_ids(const struct encode_model *m, const uint32_t *ids, size_t count, size_t ids_max,
               struct ids *out, struct err *err)
{
    if (count > ids_max) return too_many(ids_max, err);
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= vocab_count(m->vocab))
            return err_set(err, -EPROTO, "item %zu: the model has no token %u", i, ids[i]);
        int rc = ids_push(out, ids[i]);
        if (rc < 0) return err_set(err, rc, "no memory for %zu ids", count);
    }
    return 0;
}
