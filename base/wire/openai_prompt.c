/* openai_prompt.c - reads the prompts of a completion, and the texts of embeddings, scores and rankings and how
 * their vectors are wanted. */
#include "base/wire/openai_walk.h"

/* ---- completions: a text, ids, or a list of texts or of lists of ids ---- */

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

/* Reads what the model is to continue, or to embed: at most so many prompts. */
static int take_prompts(struct openai_walk *p, const struct openai_key *k, uint32_t most)
{
    struct openai_prompts prompts;
    int rc = walk_prompts(p, k, most, &prompts);
    if (rc < 0) return rc;
    p->req.prompts = prompts.item;
    p->req.prompt_count = prompts.count;
    return 0;
}

int openai_take_prompt(struct openai_walk *p, const struct openai_key *k)
{
    return take_prompts(p, k, OPENAI_CHOICES_MAX);
}

int openai_take_input(struct openai_walk *p, const struct openai_key *k)
{
    return take_prompts(p, k, OPENAI_TEXTS_MAX);
}

enum openai_surface openai_vectors_surface(struct str path)
{
    static const struct {
        const char *path;
        enum openai_surface surface;
    } paths[] = {
        { "/v1/embeddings", OPENAI_EMBED }, { "/v1/score", OPENAI_SCORE },
        { "/score", OPENAI_SCORE },         { "/v1/rerank", OPENAI_RERANK },
        { "/v2/rerank", OPENAI_RERANK },    { "/rerank", OPENAI_RERANK },
    };
    for (size_t i = 0; i < COUNT_OF(paths); i++)
        if (str_eq(path, str_from(paths[i].path))) return paths[i].surface;
    return OPENAI_CHAT;
}

/* Reads one text or a list of them into the side of the key, of which there are two names. */
int openai_take_texts(struct openai_walk *p, const struct openai_key *k)
{
    struct openai_prompts texts, *side = (struct openai_prompts *)(void *)((char *)p + k->offset);
    int rc = walk_prompts(p, k, OPENAI_TEXTS_MAX, &texts);
    if (rc < 0) return rc;
    if (texts.item[0].ids)
        return INVALID(p, k->name, "%s must be a string or an array of strings.", k->name);
    if (side->count > 0)
        return INVALID(p, k->name, "%s stands there under another name too.", k->name);
    *side = texts;
    return 0;
}

/* Reads the text of a document that is an object; the current token is its opening bracket. */
static int read_document(struct openai_walk *p, const struct openai_key *k, struct str *ret)
{
    *ret = (struct str){ 0 };
    while (json_next(&p->r) == JSON_KEY) {
        bool text = json_key_is(&p->r, "text");
        json_next(&p->r);
        int rc = text ? walk_string(p, k->name, k->min, k->max, ret) : 0;
        if (rc < 0) return rc;
        json_skip_rest(&p->r);
    }
    if (p->r.token != JSON_OBJECT_END) return walk_broken(p);
    return ret->data ? 0 : INVALID(p, k->name, "documents: an object without \"text\".");
}

/* Reads a list of texts, or of objects with a text as Cohere's and Jina's clients send them. */
int openai_take_documents(struct openai_walk *p, const struct openai_key *k)
{
    uint32_t count = 0;
    if (p->r.token != JSON_ARRAY) return walk_wrong_type(p, k->name, "an array");
    int rc = walk_count(p, k->name, OPENAI_TEXTS_MAX - 1, &count);
    if (rc < 0) return rc;
    if (count == 0) return INVALID(p, k->name, "documents may not be empty.");
    struct openai_prompt *texts = arena_array(p->arena, count, sizeof *texts);
    if (!texts) return walk_no_memory(p, k->name);
    memset(texts, 0, count * sizeof *texts);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        rc = json_next(&p->r) == JSON_OBJECT
                 ? read_document(p, k, &texts[i].text)
                 : walk_string(p, k->name, k->min, k->max, &texts[i].text);
    }
    if (rc < 0) return rc;
    json_next(&p->r); /* the closing bracket */
    p->second = (struct openai_prompts){ texts, count };
    return 0;
}

int openai_take_encoding(struct openai_walk *p, const struct openai_key *k)
{
    struct str name;
    int rc = walk_string(p, k->name, 0, 64, &name);
    if (rc < 0) return rc;
    p->req.vectors.base64 = str_eq(name, STR("base64"));
    if (p->req.vectors.base64 || str_eq(name, STR("float"))) return 0;
    return INVALID(p, k->name, "encoding_format must be \"float\" or \"base64\".");
}

/* Joins both sides of a comparison to the prompts of the request. */
static int join(struct openai_walk *p, const char *first, const char *second)
{
    struct openai_request *q = &p->req;
    const struct openai_prompts *a = &p->first, *b = &p->second;
    if (a->count == 0) return INVALID(p, first, "%s is missing.", first);
    if (b->count == 0) return INVALID(p, second, "%s is missing.", second);
    if (a->count > 1 && (q->surface == OPENAI_RERANK || a->count != b->count))
        return INVALID(p, first, "%s has %u texts and %s %u: one is compared with all, or %s.",
                       first, a->count, second, b->count,
                       q->surface == OPENAI_RERANK ? "send a request for each"
                                                   : "each with the one beside it");
    if (a->count + b->count > OPENAI_TEXTS_MAX)
        return INVALID(p, second, "more than %d texts in all.", OPENAI_TEXTS_MAX);
    struct openai_prompt *all = arena_array(p->arena, a->count + b->count, sizeof *all);
    if (!all) return walk_no_memory(p, second);
    memcpy(all, a->item, a->count * sizeof *all);
    memcpy(all + a->count, b->item, b->count * sizeof *all);
    q->prompts = all;
    q->prompt_count = a->count + b->count;
    q->vectors.first_count = a->count;
    return 0;
}

int openai_settle_vectors(struct openai_walk *p)
{
    struct openai_request *q = &p->req;
    int rc = 0;
    if (q->surface == OPENAI_SCORE) rc = join(p, "text_1", "text_2");
    if (q->surface == OPENAI_RERANK) rc = join(p, "query", "documents");
    if (rc < 0) return rc;
    if (q->prompt_count == 0) return INVALID(p, "input", "input is missing.");
    q->n = q->best_of = 1;
    openai_prompt_select(q, 0);
    return 0;
}
