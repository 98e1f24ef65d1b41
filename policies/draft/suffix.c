/* suffix.c - continues the sequence as most occurrences of its longest suffixes went on.
 *
 *     for some lengths p of the sequence's suffix:
 *         follow, token by token, what most of its earlier occurrences have there, at most p tokens
 *         and while the share of occurrences that agree so far is at least 0.1
 *     the path with the largest sum of shares, which estimates the tokens accepted, is the guess
 *
 * Occurrences are found by a chain of positions for each pair of tokens: head[hash of pair] is the
 * latest position that ends in it, prev[position] the one before. A chain is followed over the latest
 * DRAFT_WINDOW tokens and OCCURRENCES_MAX occurrences, and each is compared backwards over at most
 * MATCH_MAX tokens. An update costs one insertion a token, a guess is bounded by these three numbers.
 *
 * Source: SuffixDecoding (arXiv 2411.04975): its length limit, its least share and its choice by the
 * sum of shares. It keeps suffix trees of the sequence and of earlier outputs; ours has chains, over
 * the sequence alone, so that a guess depends on nothing but the sequence's own tokens. */
#include "base/core/bits.h"
#include "policies/draft/draft.h"

#define HEADS 4096
#define OCCURRENCES_MAX 32
#define MATCH_MIN 2 /* tokens; the chains are of pairs */
#define MATCH_MAX 64
#define SHARE_MIN 0.1

struct suffix_state {
    uint32_t inserted;           /* tokens of the sequence that the chains hold */
    uint32_t head[HEADS];        /* position + 1; 0: none */
    uint32_t prev[DRAFT_WINDOW]; /* of position % DRAFT_WINDOW, likewise */
};

/* An earlier occurrence of the sequence's last tokens. */
struct occurrence {
    uint32_t next;  /* position behind it */
    uint32_t match; /* tokens */
};

struct path {
    uint32_t id[DRAFT_TOKENS_MAX];
    uint32_t count, match;
    double score;
};

static uint32_t pair_hash(const uint32_t *ids, uint32_t last)
{
    uint64_t pair = (uint64_t)ids[last - 1] << 32 | ids[last];
    return (uint32_t)(pair * 0x9e3779b97f4a7c15u >> 52);
}
_Static_assert(HEADS == 1u << (64 - 52), "a hash is an index of head");

static void insert(struct suffix_state *s, const struct draft_view *view)
{
    for (uint32_t i = max_u32(s->inserted, 1); i < view->count; i++) {
        uint32_t *head = &s->head[pair_hash(view->ids, i)];
        s->prev[i % DRAFT_WINDOW] = *head;
        *head = i + 1;
    }
    s->inserted = view->count;
}

static uint32_t agreeing(const struct draft_view *view, uint32_t at)
{
    uint32_t last = view->count - 1, most = min_u32(MATCH_MAX, at + 1), n = 0;
    while (n < most && view->ids[at - n] == view->ids[last - n])
        n++;
    return n;
}

/* Finds the latest occurrences; the newest is the sequence's own end, which is none. */
static uint32_t find(const struct suffix_state *s, const struct draft_view *view,
                     struct occurrence ret[OCCURRENCES_MAX])
{
    uint32_t last = view->count - 1, count = 0, steps = 0;
    uint32_t at = s->prev[last % DRAFT_WINDOW], newer = last;
    for (; at > 0 && count < OCCURRENCES_MAX && steps < 2 * OCCURRENCES_MAX; steps++) {
        uint32_t position = at - 1;
        if (position >= newer || last - position >= DRAFT_WINDOW) break;
        uint32_t match = agreeing(view, position);
        if (match >= MATCH_MIN) ret[count++] = (struct occurrence){ position + 1, match };
        newer = position;
        at = s->prev[position % DRAFT_WINDOW];
    }
    return count;
}

/* Returns the token that most occurrences, of those in *agree, have at `step` of the path, and keeps
 * these. Of two with equal counts the later occurrence's. */
static uint32_t follow(const struct draft_view *view, const struct occurrence *o, uint64_t *agree,
                       uint32_t step, uint32_t *ret_id)
{
    uint32_t best = 0;
    uint64_t kept = 0;
    for (uint64_t left = *agree; left;) {
        uint32_t first = (uint32_t)__builtin_ctzll(left);
        uint32_t at = o[first].next + step;
        uint64_t same = 0;
        for (uint64_t rest = left; rest; rest &= rest - 1) {
            uint32_t i = (uint32_t)__builtin_ctzll(rest);
            uint32_t other = o[i].next + step;
            bool equal = at < view->count && other < view->count ? view->ids[at] == view->ids[other]
                                                                 : i == first;
            if (equal) same |= 1ull << i;
        }
        left &= ~same;
        uint32_t count = (uint32_t)__builtin_popcountll(same);
        if (at >= view->count || count <= best) continue;
        best = count;
        kept = same;
        *ret_id = view->ids[at];
    }
    *agree = kept;
    return best;
}
_Static_assert(OCCURRENCES_MAX <= 64, "a set of occurrences is a word");

/* Follows the occurrences that match `match` tokens or more. */
static void walk(const struct draft_view *view, const struct occurrence *o, uint32_t count,
                 uint32_t match, struct path *ret)
{
    uint64_t agree = 0;
    for (uint32_t i = 0; i < count; i++)
        if (o[i].match >= match) agree |= 1ull << i;
    double all = __builtin_popcountll(agree);
    *ret = (struct path){ .match = match };
    uint32_t most = min_u32(view->max, match);
    while (ret->count < most) {
        uint32_t id = 0, n = follow(view, o, &agree, ret->count, &id);
        if (n == 0 || n / all < SHARE_MIN) return;
        ret->id[ret->count++] = id;
        ret->score += n / all;
    }
}

static uint32_t propose(void *state, const struct draft_view *view, uint32_t *ret_ids,
                        uint32_t *ret_match)
{
    struct suffix_state *s = state;
    struct occurrence o[OCCURRENCES_MAX];
    insert(s, view);
    uint32_t count = view->count > MATCH_MIN ? find(s, view, o) : 0, longest = 0;
    for (uint32_t i = 0; i < count; i++)
        longest = max_u32(longest, o[i].match);
    struct path best = { 0 };
    for (uint32_t match = longest; match >= MATCH_MIN; match /= 2) {
        struct path path;
        walk(view, o, count, match, &path);
        if (path.score > best.score) best = path;
    }
    for (uint32_t i = 0; i < best.count; i++)
        ret_ids[i] = best.id[i];
    *ret_match = best.match;
    return best.count;
}

const struct draft_policy draft_suffix = {
    .name = "suffix",
    .about = "what most earlier occurrences of the longest suffixes were followed by",
    .source = "SuffixDecoding (arXiv 2411.04975)",
    .state_size = sizeof(struct suffix_state),
    .propose = propose,
};
