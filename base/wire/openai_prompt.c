/* openai_prompt.c - reads the prompt of a completion: text, ids, or a list of one of them. */
#include "base/wire/openai_walk.h"

/* Reads an array of ids; the current token is its opening bracket. */
static int take_prompt_ids(struct openai_walk *p, const struct openai_key *k)
{
    uint32_t count = 0;
    int rc = walk_count(p, k->name, OPENAI_PROMPT_IDS_MAX, &count);
    if (rc < 0) return rc;
    if (count == 0) return INVALID(p, k->name, "prompt may not be empty.");
    uint32_t *ids = arena_array(p->arena, count, sizeof *ids);
    if (!ids) return walk_no_memory(p, k->name);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id;
        json_next(&p->r);
        if (json_u64(&p->r, &id) < 0 || id > UINT32_MAX)
            return INVALID(p, k->name, "prompt: item %u is no token id.", i);
        ids[i] = (uint32_t)id;
    }
    json_next(&p->r); /* the closing bracket */
    p->req.prompt_ids = ids;
    p->req.prompt_id_count = count;
    return 0;
}

/* Reads a prompt: text, ids, or an array that holds one of them (a batch of one). */
int openai_take_prompt(struct openai_walk *p, const struct openai_key *k)
{
    static const char wanted[] = "a string, an array of token ids, or an array of one of these";
    if (p->r.token == JSON_STRING) return openai_take_str(p, k);
    if (p->r.token != JSON_ARRAY) return walk_wrong_type(p, k->name, wanted);
    struct json_reader ahead = p->r;
    enum json_token first = json_next(&ahead);
    if (first == JSON_NUMBER) return take_prompt_ids(p, k);
    uint32_t count = 0;
    int rc = walk_count(p, k->name, OPENAI_PROMPT_IDS_MAX, &count);
    if (rc < 0) return rc;
    if (count == 0) return INVALID(p, k->name, "prompt may not be empty.");
    if (count > 1)
        return UNSERVED(p, k->name, "prompt: one prompt a request is served, not %u.", count);
    json_next(&p->r);
    if (first == JSON_STRING)
        rc = openai_take_str(p, k);
    else if (first == JSON_ARRAY)
        rc = take_prompt_ids(p, k);
    else
        rc = walk_wrong_type(p, k->name, wanted);
    if (rc == 0) json_next(&p->r); /* the outer closing bracket */
    return rc;
}
