/* prompt.c - sentences from a small grammar, chosen by a hash of the block.
 *
 * The grammar has a few thousand sentences of 8 to 12 words in the plain prose that the shipped
 * model was trained on, so that a prompt full of them leaves the model able to answer.
 */
#include "cli/load/prompt.h"

#include "base/core/bits.h"
#include "base/core/rng.h"
#include "cli/load/questions.h"

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

/* Words, a full stop counting as one. */
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
        /* Behind the shared blocks, and for the last, cut one, the text is the request's own. */
        bool shared = i < shape->id_count && tokens == shape->block_tokens;
        uint64_t id = shared ? shape->ids[i] : (1ULL << 63) + (shape->own << 20) + i;
        prompt_block(shape->seed, id, tokens, shape->tokens_per_word, out);
        left -= tokens;
    }
    if (out->len > 0) buf_text(out, "\n\n");
    return buf_str(out, prompt_question(rng_at(shape->seed, shape->own)));
}
