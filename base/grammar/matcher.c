/* matcher.c - makes the states of an automaton as outputs reach them.
 *
 * States and return sets are both sets of pairs (place, return set), and one table holds them: a set's id is
 * its content. Set 0 is the bottom: { (END, 0) }. A state has the pair (END, 0) when the output may
 * end; all its other pairs are places that read a byte.
 *
 * Closing a set works in two phases. First everything that has been entered already is followed: empty
 * edges, and returns from rules that have ended. Calls are gathered by rule. Then the rules are entered in
 * the program's order, callers first, so that a rule is entered once with the set of all its callers. A
 * rule that derives nothing is stepped over at its call. A call with nothing behind it hands its caller's
 * returns on, so that lists written as right recursion do not pile up returns.
 *
 * Mask: the tree of tokens is walked in depth-first order with a stack of states, one a byte. */
#include "base/grammar/matcher.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/work.h"
#include "base/grammar/program.h"

#include <stdlib.h>

#define END UINT32_MAX /* as a place: the whole output ends */
#define BOTTOM 0u
#define NOT_KNOWN 0xffffu /* a step that was not taken yet */
#define DEAD 0xfffeu      /* a step that the grammar forbids */
#define TABLE_PLACES (4 * AUTOMATON_SETS_MAX)
#define VISITED_PLACES (4 * AUTOMATON_SET_PAIRS_MAX)

_Static_assert(AUTOMATON_SETS_MAX < DEAD, "a set's id fits a step");

struct pair {
    uint32_t place, back;
};

struct set {
    uint32_t from, count; /* in pair[] */
    uint32_t steps;       /* index + 1 of its steps; 0: none yet */
    uint32_t mask;        /* index + 1 of its mask; 0: none yet */
    uint32_t depth;       /* return sets below it, at most */
};

/* Holds the sets that an automaton has learned; dropped as a whole. */
struct sets {
    struct set *set;
    uint32_t count;
    struct pair *pair;
    uint32_t pair_count, pair_cap;
    uint32_t *table; /* id + 1 by the hash of the pairs; 0: free */
};

struct pairs {
    struct pair *pair;
    uint32_t count;
};

struct call_list {
    uint32_t first, count; /* in calls.pair, linked through next */
};

struct automaton {
    struct grammar *g;
    const struct token_trie *trie;
    struct list matchers;
    struct sets sets;
    uint32_t sets_full, pairs_full; /* counts beyond which all is dropped */
    uint16_t (*steps)[256];
    uint32_t steps_count, steps_cap;
    uint64_t **mask; /* each of mask_words */
    uint32_t mask_count, mask_max;

    /* scratch of one closing */
    struct pairs open, result, returns;
    struct pair *visited; /* open addressing; stamped */
    uint32_t *visited_stamp, stamp;
    struct pair *call;   /* pairs by which rules are called */
    uint32_t *call_next; /* of the same rule; index + 1 */
    uint32_t call_count;
    uint32_t *rule_calls; /* first call of a rule; index + 1; 0: not called */
    uint32_t *pending;    /* rules that are called and not entered yet */
    uint32_t pending_count;
    bool ends;

    uint32_t *path; /* of the walk: the state at each depth */
    struct automaton_stats stats;
};

/* ---- the table of sets ---- */

static int sets_init(struct sets *s)
{
    *s = (struct sets){ .set = calloc(AUTOMATON_SETS_MAX, sizeof *s->set),
                        .table = calloc(TABLE_PLACES, sizeof *s->table) };
    return s->set && s->table ? 0 : -ENOMEM;
}

static void sets_fini(struct sets *s)
{
    free(s->set);
    free(s->pair);
    free(s->table);
    *s = (struct sets){ 0 };
}

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return x->back < y->back ? -1 : x->back > y->back;
}

static int pair_room(struct sets *s, uint32_t count)
{
    uint32_t cap = s->pair_cap ? s->pair_cap : 256;
    if (s->pair_count + count > AUTOMATON_PAIRS_MAX) return -E2BIG;
    while (cap < s->pair_count + count)
        cap *= 2;
    if (cap == s->pair_cap) return 0;
    struct pair *more = realloc(s->pair, cap * sizeof *more);
    if (!more) return -ENOMEM;
    s->pair = more;
    s->pair_cap = cap;
    return 0;
}

/* Sorts the pairs, drops repeats, and finds or adds their set. Returns its id, -E2BIG or -ENOMEM. */
static int64_t set_of(struct sets *s, struct pair *pair, uint32_t count)
{
    uint32_t kept = 0;
    if (count > 1) qsort(pair, count, sizeof *pair, compare_pairs);
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || compare_pairs(&pair[i], &pair[kept - 1]) != 0) pair[kept++] = pair[i];
    uint64_t hash = hash64(pair, kept * sizeof *pair, 0);
    uint32_t at = (uint32_t)hash & (TABLE_PLACES - 1);
    work_add(8 + 4 * (uint64_t)count);
    for (; s->table[at]; at = (at + 1) & (TABLE_PLACES - 1)) {
        const struct set *set = &s->set[s->table[at] - 1];
        if (set->count == kept &&
            (kept == 0 || memcmp(&s->pair[set->from], pair, kept * sizeof *pair) == 0))
            return s->table[at] - 1;
    }
    uint32_t depth = 0;
    for (uint32_t i = 0; i < kept; i++)
        if (pair[i].place != END) depth = max_u32(depth, s->set[pair[i].back].depth + 1);
    if (s->count == AUTOMATON_SETS_MAX || depth > AUTOMATON_DEPTH_MAX) return -E2BIG;
    int rc = pair_room(s, kept);
    if (rc < 0) return rc;
    if (kept > 0) memcpy(&s->pair[s->pair_count], pair, kept * sizeof *pair);
    s->set[s->count] = (struct set){ .from = s->pair_count, .count = kept, .depth = depth };
    s->pair_count += kept;
    s->table[at] = ++s->count;
    return s->count - 1;
}

/* ---- closing ---- */

static int push(struct pairs *p, struct pair pair)
{
    if (p->count == AUTOMATON_SET_PAIRS_MAX) return -E2BIG;
    p->pair[p->count++] = pair;
    return 0;
}

/* Returns 1 at the first visit of a pair in this closing, 0 later, -E2BIG when there are too many. */
static int visit(struct automaton *m, struct pair pair)
{
    uint32_t at = (uint32_t)hash64(&pair, sizeof pair, 0) & (VISITED_PLACES - 1), seen = 0;
    for (; m->visited_stamp[at] == m->stamp; at = (at + 1) & (VISITED_PLACES - 1)) {
        if (m->visited[at].place == pair.place && m->visited[at].back == pair.back) return 0;
        if (++seen > VISITED_PLACES / 2) return -E2BIG;
    }
    m->visited_stamp[at] = m->stamp;
    m->visited[at] = pair;
    work_add(2);
    return 1;
}

static int add_open(struct automaton *m, struct pair pair)
{
    int rc = visit(m, pair);
    return rc > 0 ? push(&m->open, pair) : rc;
}

static int add_call(struct automaton *m, uint32_t rule, struct pair back)
{
    if (m->call_count == AUTOMATON_SET_PAIRS_MAX) return -E2BIG;
    if (m->rule_calls[rule] == 0) m->pending[m->pending_count++] = rule;
    m->call[m->call_count] = back;
    m->call_next[m->call_count] = m->rule_calls[rule];
    m->rule_calls[rule] = ++m->call_count;
    return 0;
}

static int follow(struct automaton *m, struct pair at)
{
    const struct grammar *g = m->g;
    int rc = 0;
    if (g->reads[at.place]) rc = push(&m->result, at);
    if (g->is_end[at.place]) {
        const struct set *back = &m->sets.set[at.back];
        for (uint32_t i = 0; i < back->count && rc >= 0; i++) {
            struct pair to = m->sets.pair[back->from + i];
            if (to.place == END)
                m->ends = true;
            else
                rc = add_open(m, to);
        }
    }
    for (uint32_t i = g->first[at.place]; i < g->first[at.place + 1] && rc >= 0; i++) {
        const struct edge *e = &g->edge[i];
        work_add(2);
        if (e->kind == EDGE_BYTES) continue;
        struct pair to = { e->to, at.back };
        if (e->kind == EDGE_CALL) rc = add_call(m, e->rule, to);
        bool passes = e->kind == EDGE_EMPTY || g->rule[e->rule].nullable;
        if (rc >= 0 && passes) rc = add_open(m, to);
    }
    return rc;
}

static int follow_open(struct automaton *m)
{
    int rc = 0;
    while (m->open.count > 0 && rc >= 0)
        rc = follow(m, m->open.pair[--m->open.count]);
    return rc;
}

/* Takes the pending rule that comes first in the program's order. */
static uint32_t take_pending(struct automaton *m)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < m->pending_count; i++)
        if (m->g->rule[m->pending[i]].order < m->g->rule[m->pending[best]].order) best = i;
    uint32_t rule = m->pending[best];
    m->pending[best] = m->pending[--m->pending_count];
    work_add(m->pending_count);
    return rule;
}

static int enter(struct automaton *m, uint32_t rule)
{
    int rc = 0;
    m->returns.count = 0;
    for (uint32_t i = m->rule_calls[rule]; i && rc >= 0; i = m->call_next[i - 1]) {
        struct pair back = m->call[i - 1];
        if (!m->g->is_end[back.place]) { /* an end has no edges: there is more behind the call */
            rc = push(&m->returns, back);
            continue;
        }
        const struct set *hands_on = &m->sets.set[back.back];
        for (uint32_t k = 0; k < hands_on->count && rc >= 0; k++)
            rc = push(&m->returns, m->sets.pair[hands_on->from + k]);
    }
    m->rule_calls[rule] = 0;
    if (rc < 0) return rc;
    int64_t back = set_of(&m->sets, m->returns.pair, m->returns.count);
    if (back < 0) return (int)back;
    return add_open(m, (struct pair){ m->g->rule[rule].start, (uint32_t)back });
}

static void closing_begin(struct automaton *m)
{
    m->open.count = m->result.count = m->call_count = m->pending_count = 0;
    m->ends = false;
    if (++m->stamp == 0) { /* wrapped: old stamps could look new */
        memset(m->visited_stamp, 0, VISITED_PLACES * sizeof *m->visited_stamp);
        m->stamp = 1;
    }
}

/* Closes what was put into m->open. Returns the state, or -EINVAL if nothing fits, -E2BIG, -ENOMEM. */
static int64_t close_open(struct automaton *m)
{
    int rc = follow_open(m);
    while (rc >= 0 && m->pending_count > 0) {
        rc = enter(m, take_pending(m));
        if (rc >= 0) rc = follow_open(m);
    }
    while (m->pending_count > 0) /* after a failure */
        m->rule_calls[m->pending[--m->pending_count]] = 0;
    if (rc >= 0 && m->ends) rc = push(&m->result, (struct pair){ END, BOTTOM });
    if (rc < 0) return rc;
    if (m->result.count == 0) return -EINVAL;
    return set_of(&m->sets, m->result.pair, m->result.count);
}

/* ---- steps ---- */

static bool set_has_end(const struct sets *s, uint32_t state)
{
    const struct set *set = &s->set[state];
    return set->count > 0 && s->pair[set->from + set->count - 1].place == END;
}

static int64_t compute_step(struct automaton *m, uint32_t state, uint8_t byte)
{
    const struct grammar *g = m->g;
    const struct set set = m->sets.set[state];
    closing_begin(m);
    for (uint32_t i = 0; i < set.count; i++) {
        struct pair at = m->sets.pair[set.from + i];
        if (at.place == END) continue;
        for (uint32_t k = g->first[at.place]; k < g->first[at.place + 1]; k++) {
            const struct edge *e = &g->edge[k];
            work_add(2);
            if (e->kind != EDGE_BYTES || byte < e->low || byte > e->high) continue;
            int rc = add_open(m, (struct pair){ e->to, at.back });
            if (rc < 0) return rc;
        }
    }
    return close_open(m);
}

/* Gives a state its table of steps. */
static int steps_make(struct automaton *m, uint32_t state)
{
    if (m->steps_count == m->steps_cap) {
        uint32_t cap = m->steps_cap ? 2 * m->steps_cap : 64;
        if (cap > AUTOMATON_STEPS_MAX) return -E2BIG;
        uint16_t(*more)[256] = realloc(m->steps, cap * sizeof *more);
        if (!more) return -ENOMEM;
        m->steps = more;
        m->steps_cap = cap;
    }
    memset(m->steps[m->steps_count], 0xff, sizeof *m->steps); /* NOT_KNOWN */
    m->sets.set[state].steps = ++m->steps_count;
    work_add(32);
    return 0;
}

/* Returns the state behind a byte; -EINVAL if the grammar forbids it. */
static int64_t step(struct automaton *m, uint32_t state, uint8_t byte)
{
    if (m->sets.set[state].steps == 0) {
        int rc = steps_make(m, state);
        if (rc < 0) return rc;
    }
    uint32_t row = m->sets.set[state].steps - 1;
    uint16_t known = m->steps[row][byte];
    work_add(1);
    if (known == DEAD) return -EINVAL;
    if (known != NOT_KNOWN) return known;
    int64_t next = compute_step(m, state, byte);
    if (next == -EINVAL) m->steps[row][byte] = DEAD;
    if (next >= 0) m->steps[row][byte] = (uint16_t)next;
    return next;
}

/* ---- dropping what is not in use ---- */

/* Copies a set and what it returns to. `copied` maps old ids to new ones, plus 1. Return sets were made
 * before the sets that hold them, so the recursion ends; it is as deep as the output nests. */
static int64_t copy_set(const struct sets *from, struct sets *to, uint32_t id, uint32_t *copied)
{
    if (copied[id]) return copied[id] - 1;
    const struct set *set = &from->set[id];
    struct pair *pair = malloc(((size_t)set->count + 1) * sizeof *pair);
    if (!pair) return -ENOMEM;
    int64_t rc = 0;
    for (uint32_t i = 0; i < set->count && rc >= 0; i++) {
        pair[i] = from->pair[set->from + i];
        if (id == BOTTOM) continue;
        rc = copy_set(from, to, pair[i].back, copied);
        pair[i].back = (uint32_t)rc;
    }
    if (rc >= 0) rc = set_of(to, pair, set->count);
    free(pair);
    if (rc >= 0) copied[id] = (uint32_t)rc + 1;
    return rc;
}

/* Half of what is free now may be filled before the next drop, so that drops stay few when the outputs in
 * progress take much of the tables. */
static void set_full(struct automaton *m)
{
    m->sets_full = m->sets.count + (AUTOMATON_SETS_MAX - m->sets.count) / 2;
    m->pairs_full = m->sets.pair_count + (AUTOMATON_PAIRS_MAX - m->sets.pair_count) / 2;
}

/* Drops steps and masks, and all states and return sets but those that matchers are in. */
static int drop(struct automaton *m)
{
    struct sets fresh;
    uint32_t *copied = calloc(AUTOMATON_SETS_MAX, sizeof *copied);
    int64_t rc = sets_init(&fresh);
    if (!copied) rc = -ENOMEM;
    if (rc >= 0) rc = copy_set(&m->sets, &fresh, BOTTOM, copied);
    LIST_EACH (&m->matchers, node) {
        const struct matcher *t = CONTAINER_OF(node, struct matcher, link);
        if (rc >= 0) rc = copy_set(&m->sets, &fresh, t->state, copied);
    }
    if (rc >= 0) {
        LIST_EACH (&m->matchers, node) {
            struct matcher *t = CONTAINER_OF(node, struct matcher, link);
            t->state = copied[t->state] - 1;
        }
        sets_fini(&m->sets);
        m->sets = fresh;
        m->steps_count = m->mask_count = 0;
        set_full(m);
        m->stats.drops++;
    } else {
        sets_fini(&fresh);
    }
    free(copied);
    return rc < 0 ? (int)rc : 0;
}

/* Makes room before a call that may add states. */
static int make_room(struct automaton *m)
{
    bool full = m->sets.count > m->sets_full || m->sets.pair_count > m->pairs_full ||
                m->steps_count > AUTOMATON_STEPS_MAX / 2;
    return full ? drop(m) : 0;
}

/* ---- automata and matchers ---- */

static int scratch_init(struct automaton *m)
{
    const uint32_t rules = m->g->rule_count;
    m->open.pair = calloc(AUTOMATON_SET_PAIRS_MAX, sizeof *m->open.pair);
    m->result.pair = calloc(AUTOMATON_SET_PAIRS_MAX, sizeof *m->result.pair);
    m->returns.pair = calloc(AUTOMATON_SET_PAIRS_MAX, sizeof *m->returns.pair);
    m->visited = calloc(VISITED_PLACES, sizeof *m->visited);
    m->visited_stamp = calloc(VISITED_PLACES, sizeof *m->visited_stamp);
    m->call = calloc(AUTOMATON_SET_PAIRS_MAX, sizeof *m->call);
    m->call_next = calloc(AUTOMATON_SET_PAIRS_MAX, sizeof *m->call_next);
    m->rule_calls = calloc(rules, sizeof *m->rule_calls);
    m->pending = calloc(rules, sizeof *m->pending);
    bool all = m->open.pair && m->result.pair && m->returns.pair && m->visited &&
               m->visited_stamp && m->call && m->call_next && m->rule_calls && m->pending;
    return all ? 0 : -ENOMEM;
}

static int masks_init(struct automaton *m, const struct token_trie *trie)
{
    size_t bytes = mask_words(trie->vocab_size) * sizeof(uint64_t);
    m->trie = trie;
    m->mask_max = (uint32_t)max_size(AUTOMATON_MASK_BYTES_MAX / max_size(bytes, 64), 1);
    m->mask = calloc(m->mask_max, sizeof *m->mask);
    m->path = calloc((size_t)trie->depth_max + 1, sizeof *m->path);
    return m->mask && m->path ? 0 : -ENOMEM;
}

int automaton_new(struct grammar *g_owned, const struct token_trie *trie, struct automaton **ret)
{
    struct automaton *m = calloc(1, sizeof *m);
    struct pair end = { END, BOTTOM };
    if (!m) return -ENOMEM;
    m->g = g_owned;
    list_init(&m->matchers);
    set_full(m);
    int rc = sets_init(&m->sets);
    if (rc == 0) rc = scratch_init(m);
    if (rc == 0 && trie) rc = masks_init(m, trie);
    if (rc == 0 && set_of(&m->sets, &end, 1) != BOTTOM) rc = -ENOMEM;
    if (rc < 0) {
        m->g = NULL;
        automaton_free(m);
        return rc;
    }
    *ret = m;
    return 0;
}

void automaton_free(struct automaton *m)
{
    if (!m) return;
    grammar_free(m->g);
    sets_fini(&m->sets);
    free(m->steps);
    for (uint32_t i = 0; m->mask && i < m->mask_max; i++)
        free(m->mask[i]);
    free(m->mask);
    free(m->open.pair);
    free(m->result.pair);
    free(m->returns.pair);
    free(m->visited);
    free(m->visited_stamp);
    free(m->call);
    free(m->call_next);
    free(m->rule_calls);
    free(m->pending);
    free(m->path);
    free(m);
}

void automaton_stats_get(const struct automaton *m, struct automaton_stats *ret)
{
    *ret = m->stats;
    ret->sets = m->sets.count;
}

int matcher_init(struct matcher *t, struct automaton *m)
{
    *t = (struct matcher){ 0 };
    int64_t rc = make_room(m);
    if (rc < 0) return (int)rc;
    closing_begin(m);
    rc = add_open(m, (struct pair){ m->g->rule[0].start, BOTTOM });
    if (rc >= 0) rc = close_open(m);
    if (rc < 0) return (int)rc;
    t->automaton = m;
    t->state = (uint32_t)rc;
    list_push_back(&m->matchers, &t->link);
    return 0;
}

void matcher_fini(struct matcher *t)
{
    if (t->automaton) list_remove(&t->link);
    *t = (struct matcher){ 0 };
}

int matcher_advance(struct matcher *t, struct str bytes)
{
    int rc = make_room(t->automaton);
    if (rc < 0) return rc;
    int64_t state = t->state;
    for (size_t i = 0; i < bytes.len && state >= 0; i++)
        state = step(t->automaton, (uint32_t)state, (uint8_t)bytes.data[i]);
    if (state < 0) return (int)state;
    t->state = (uint32_t)state;
    return 0;
}

bool matcher_may_end(const struct matcher *t)
{
    return set_has_end(&t->automaton->sets, t->state);
}

bool matcher_is_over(const struct matcher *t)
{
    return matcher_may_end(t) && t->automaton->sets.set[t->state].count == 1;
}

/* ---- masks ---- */

/* Looks a step up: a state, DEAD or NOT_KNOWN. */
static inline int64_t known_step(const struct automaton *m, uint32_t state, uint8_t byte)
{
    uint32_t row = m->sets.set[state].steps;
    return row > 0 ? m->steps[row - 1][byte] : NOT_KNOWN;
}

static int walk(struct automaton *m, uint32_t state, uint64_t *mask)
{
    const struct token_trie *trie = m->trie;
    uint64_t walked = 0;
    m->path[0] = state;
    for (uint32_t i = 0; i < trie->node_count; walked++) {
        const struct trie_node *node = &trie->node[i];
        int64_t next = known_step(m, m->path[node->depth - 1], node->byte);
        if (next == NOT_KNOWN) next = step(m, m->path[node->depth - 1], node->byte);
        if (next == DEAD || next == -EINVAL) {
            i += node->skip;
            continue;
        }
        if (next < 0) return (int)next;
        m->path[node->depth] = (uint32_t)next;
        for (uint32_t k = i > 0 ? trie->node[i - 1].tokens : 0; k < node->tokens; k++)
            mask[trie->token[k] / 64] |= 1ull << (trie->token[k] % 64);
        i++;
    }
    m->stats.nodes_walked += walked;
    work_add(walked);
    return 0;
}

bool matcher_has_mask(const struct matcher *t)
{
    return t->automaton->sets.set[t->state].mask > 0;
}

int matcher_mask(struct matcher *t, const uint64_t **ret)
{
    struct automaton *m = t->automaton;
    int rc = 0;
    if (!matcher_has_mask(t)) rc = make_room(m);
    if (rc < 0) return rc;
    struct set *set = &m->sets.set[t->state];
    if (set->mask > 0) {
        m->stats.masks_found++;
        *ret = m->mask[set->mask - 1];
        return 0;
    }
    if (m->mask_count == m->mask_max) { /* all go, since none knows which is needed next */
        for (uint32_t i = 0; i < m->sets.count; i++)
            m->sets.set[i].mask = 0;
        m->mask_count = 0;
    }
    const size_t words = mask_words(m->trie->vocab_size);
    uint64_t **mask = &m->mask[m->mask_count];
    if (!*mask) *mask = malloc(max_size(words, 1) * sizeof **mask);
    if (!*mask) return -ENOMEM;
    memset(*mask, 0, words * sizeof **mask);
    rc = walk(m, t->state, *mask);
    if (rc < 0) return rc;
    m->stats.masks_made++;
    set->mask = ++m->mask_count;
    *ret = *mask;
    return 0;
}
