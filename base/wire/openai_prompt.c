/* openai_prompt.c - reads the prompts of a completion: a text, ids, or a list of texts or of lists of ids. */
#include "base/wire/openai_walk.h"

void openai_prompt_select(struct openai_request *q, uint32_t index)
{
    if (!q->prompts) return; /* a chat has none */
    must(index < q->prompt_count);
    q->prompt = q->prompts[index].text;
    q->prompt_ids = q->prompts[index].ids;
    q->prompt_id_count = q->prompts[index].id_count;
}

static int read_text(struct openai_walk *p, const struct openai_key *k, struct openai_prompt *ret)
{
    return walk_string(p, k->name, k->min, k->max, &ret->text);
}

/* Reads an array of ids; the current token is its opening bracket. */
static int read_ids(struct openai_walk *p, const struct openai_key *k, struct openai_prompt *ret)
{
    uint32_t count = 0;
    int rc = walk_count(p, k->name, OPENAI_PROMPT_IDS_MAX, &count);
    if (rc < 0) return rc;
    if (count == 0) return INVALID(p, k->name, "%s may not be empty.", k->name);
    uint32_t *ids = arena_array(p->arena, count, sizeof *ids);
    if (!ids) return walk_no_memory(p, k->name);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id;
        json_next(&p->r);
        if (json_u64(&p->r, &id) < 0 || id > UINT32_MAX)
            return INVALID(p, k->name, "%s: item %u is no token id.", k->name, i);
        ids[i] = (uint32_t)id;
    }
    json_next(&p->r); /* the closing bracket */
    ret->ids = ids;
    ret->id_count = count;
    return 0;
}

/* Reads a list of prompts, all texts or all lists of ids. */
static int read_list(struct openai_walk *p, const struct openai_key *k, enum json_token first,
                     struct openai_prompt *prompts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (json_next(&p->r) != first)
            return walk_wrong_type(p, k->name, "an array of prompts of one kind");
        int rc = first == JSON_STRING ? read_text(p, k, &prompts[i]) : read_ids(p, k, &prompts[i]);
        if (rc < 0) return rc;
    }
    json_next(&p->r); /* the outer closing bracket */
    return 0;
}

int walk_prompts(struct openai_walk *p, const struct openai_key *k, uint32_t most,
                 struct openai_prompts *ret)
{
    static const char wanted[] = "a string, an array of token ids, or an array of some of these";
    struct json_reader ahead = p->r;
    enum json_token first = p->r.token == JSON_ARRAY ? json_next(&ahead) : JSON_NUMBER;
    bool list = first == JSON_STRING || first == JSON_ARRAY;
    uint32_t count = 1;
    int rc = 0;
    if (p->r.token != JSON_STRING && p->r.token != JSON_ARRAY)
        return walk_wrong_type(p, k->name, wanted);
    if (first == JSON_ARRAY_END) return INVALID(p, k->name, "%s may not be empty.", k->name);
    if (!list && first != JSON_NUMBER) return walk_wrong_type(p, k->name, wanted);
    if (list) rc = walk_count(p, k->name, most, &count);
    if (rc < 0) return rc;
    struct openai_prompt *prompts = arena_array(p->arena, count, sizeof *prompts);
    if (!prompts) return walk_no_memory(p, k->name);
    memset(prompts, 0, count * sizeof *prompts);
    if (list)
        rc = read_list(p, k, first, prompts, count);
    else
        rc = p->r.token == JSON_STRING ? read_text(p, k, prompts) : read_ids(p, k, prompts);
    *ret = (struct openai_prompts){ prompts, count };
    return rc;
}

int openai_take_prompt(struct openai_walk *p, const struct openai_key *k)
{
    struct openai_prompts prompts;
    int rc = walk_prompts(p, k, OPENAI_CHOICES_MAX, &prompts);
    if (rc < 0) return rc;
    p->req.prompts = prompts.item;
    p->req.prompt_count = prompts.count;
    return 0;
}
