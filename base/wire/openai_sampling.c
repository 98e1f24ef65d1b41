/* openai_sampling.c - reads the sampling keys that are more than a number: seed, logprobs, logit_bias. */
#include "base/wire/openai_walk.h"

int openai_take_seed(struct openai_walk *p, const struct openai_key *k)
{
    int64_t v = 0;
    int rc = walk_whole(p, k, &v);
    if (rc < 0) return rc;
    p->req.sampling.seed = (uint64_t)v;
    p->req.sampling.has_seed = true;
    return 0;
}

/* Reads max_tokens of a completion. 0 asks for the prompt alone. */
int openai_take_output_max(struct openai_walk *p, const struct openai_key *k)
{
    int64_t v = 0;
    int rc = walk_whole(p, k, &v);
    if (rc < 0) return rc;
    p->req.prompt_only = v == 0;
    p->req.max_tokens = (uint32_t)max_i64(v, 1);
    return 0;
}

/* Reads logprobs of a completion: the number of alternatives. False is what clients of chats send for none. */
int openai_take_logprobs(struct openai_walk *p, const struct openai_key *k)
{
    if (p->r.token == JSON_FALSE) return 0;
    int64_t v = 0;
    int rc = walk_whole(p, k, &v);
    if (rc < 0) return rc;
    p->req.logprobs = true;
    p->req.top_logprobs = (uint32_t)v;
    return 0;
}

/* Reads prompt_logprobs: the number of alternatives of each token of the prompt. */
int openai_take_prompt_logprobs(struct openai_walk *p, const struct openai_key *k)
{
    int64_t v = 0;
    int rc = walk_whole(p, k, &v);
    if (rc < 0) return rc;
    p->req.scores_prompt = true;
    p->req.prompt_top = (uint32_t)v;
    return 0;
}

/* Reads one member of logit_bias: the id of a token as the key, a number as the value. */
static int take_bias(struct openai_walk *p, const struct openai_key *k, struct token_value *ret)
{
    uint64_t id;
    double v = 0;
    struct str key = p->r.raw;
    if (str_to_u64(key, &id) < 0 || id > UINT32_MAX)
        return INVALID(p, k->name, "logit_bias: \"%.*s\" is no token id.",
                       (int)min_size(key.len, 32), key.data);
    json_next(&p->r);
    int rc = json_f64(&p->r, &v);
    if (rc == -EINVAL) return walk_wrong_type(p, k->name, "an object of numbers");
    if (rc < 0 || v < k->min || v > k->max) return walk_out_of_range(p, k);
    *ret = (struct token_value){ (uint32_t)id, (float)v };
    return 0;
}

int openai_take_logit_bias(struct openai_walk *p, const struct openai_key *k)
{
    struct openai_request *q = &p->req;
    if (p->r.token != JSON_OBJECT) return walk_wrong_type(p, k->name, "an object");
    struct token_value *bias = arena_array(p->arena, OPENAI_BIASES_MAX, sizeof *bias);
    uint32_t count = 0;
    if (!bias) return walk_no_memory(p, k->name);
    for (; json_next(&p->r) == JSON_KEY; count++) {
        if (count == OPENAI_BIASES_MAX)
            return INVALID(p, k->name, "logit_bias: more than %d tokens.", OPENAI_BIASES_MAX);
        int rc = take_bias(p, k, &bias[count]);
        if (rc < 0) return rc;
        for (uint32_t i = 0; i < count; i++)
            if (bias[i].id == bias[count].id)
                return INVALID(p, k->name, "logit_bias: token %u stands there twice.", bias[i].id);
    }
    q->logit_bias = bias;
    q->bias_count = count;
    return p->r.token == JSON_OBJECT_END ? 0 : walk_broken(p);
}
