/* program.c - lays out expressions as states and edges, and proves what the matcher relies on.
 *
 * A long repetition calls its item as a rule of its own, so that {1,1000} of an object costs a thousand
 * edges and not a thousand objects. Two passes over reversed edges, linear each, find the rules that derive
 * the empty text and the states from which the end can be reached; edges into states that cannot are
 * dropped, so that the matcher never enters a dead end. Then the rules are put in order by what they call
 * before they read; a circle there is left recursion. */
#include "base/grammar/program.h"

#include "base/core/bits.h"
#include "base/core/work.h"

#include <stdlib.h>

#define EMIT_DEPTH_MAX 1024
#define NO_STATE UINT32_MAX

struct laid_edge {
    uint32_t from;
    struct edge edge;
};

struct layout {
    struct builder *b;
    struct grammar *g;
    struct laid_edge *edge;
    uint32_t edge_count, edge_cap;
    uint32_t depth;
};

struct grammar *grammar_ref(struct grammar *g)
{
    __atomic_fetch_add(&g->more_owners, 1, __ATOMIC_RELAXED);
    return g;
}

void grammar_free(struct grammar *g)
{
    if (!g) return;
    if (__atomic_fetch_sub(&g->more_owners, 1, __ATOMIC_ACQ_REL) > 0) return;
    free(g->rule);
    free(g->first);
    free(g->is_end);
    free(g->reads);
    free(g->edge);
    free(g);
}

/* ---- states and edges ---- */

static uint32_t new_state(struct layout *l)
{
    if (l->g->state_count >= GRAMMAR_STATES_MAX) {
        builder_fail(l->b, -E2BIG, "the grammar has more than %u states", GRAMMAR_STATES_MAX);
        return 0;
    }
    return l->g->state_count++;
}

static void lay(struct layout *l, uint32_t from, struct edge edge)
{
    work_add(8);
    if (l->b->rc < 0) return;
    if (l->edge_count == l->edge_cap) {
        uint32_t cap = l->edge_cap ? 2 * l->edge_cap : 256;
        struct laid_edge *more =
            cap <= GRAMMAR_EDGES_MAX ? realloc(l->edge, cap * sizeof *more) : NULL;
        if (!more) {
            builder_fail(l->b, -E2BIG, "the grammar has more than %u edges", GRAMMAR_EDGES_MAX);
            return;
        }
        l->edge = more;
        l->edge_cap = cap;
    }
    l->edge[l->edge_count++] = (struct laid_edge){ from, edge };
}

static void lay_byte(struct layout *l, uint32_t from, uint32_t to, uint8_t low, uint8_t high)
{
    lay(l, from, (struct edge){ .to = to, .kind = EDGE_BYTES, .low = low, .high = high });
}

static void lay_empty(struct layout *l, uint32_t from, uint32_t to)
{
    lay(l, from, (struct edge){ .to = to, .kind = EDGE_EMPTY });
}

static void emit_bytes(struct layout *l, struct str s, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < s.len && l->b->rc == 0; i++) {
        uint32_t next = i + 1 < s.len ? new_state(l) : to;
        lay_byte(l, from, next, (uint8_t)s.data[i], (uint8_t)s.data[i]);
        from = next;
    }
}

/* Lays the code points of [low, high], whose encodings have the same length. A range is cut until each
 * byte runs over a range of its own (Russ Cox, "Regular Expression Matching in the Wild", 2010). */
static void emit_utf8(struct layout *l, uint32_t low, uint32_t high, uint32_t from, uint32_t to)
{
    char first[4], last[4];
    size_t len = utf8_encode(low, first);
    utf8_encode(high, last);
    for (size_t i = 1; i < len; i++) {
        uint32_t mask = (1u << (6 * i)) - 1;
        if ((low & ~mask) == (high & ~mask)) continue;
        if ((low & mask) != 0) {
            emit_utf8(l, low, low | mask, from, to);
            emit_utf8(l, (low | mask) + 1, high, from, to);
            return;
        }
        if ((high & mask) != mask) {
            emit_utf8(l, low, (high & ~mask) - 1, from, to);
            emit_utf8(l, high & ~mask, high, from, to);
            return;
        }
    }
    for (size_t i = 0; i < len; i++) {
        uint32_t next = i + 1 < len ? new_state(l) : to;
        lay_byte(l, from, next, (uint8_t)first[i], (uint8_t)last[i]);
        from = next;
    }
}

static void emit_class(struct layout *l, struct code_set set, uint32_t from, uint32_t to)
{
    static const uint32_t lengths_end[] = { 0x7f, 0x7ff, 0xffff, CODE_POINT_MAX };
    for (uint32_t i = 0; i < set.count; i++) {
        uint32_t low = set.range[i].from;
        for (size_t k = 0; k < COUNT_OF(lengths_end); k++) {
            uint32_t high = min_u32(set.range[i].to, lengths_end[k]);
            if (low > high) continue;
            emit_utf8(l, low, high, from, to);
            low = high + 1;
        }
    }
}

/* Lays sorted texts as a tree of their common beginnings. `path[d]` is the state behind d bytes of the
 * last text. */
static void emit_strings(struct layout *l, const struct expr *x, uint32_t from, uint32_t to)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < x->count; i++)
        longest = max_size(longest, x->text[i].len);
    uint32_t *path = arena_array(&l->b->arena, longest + 1, sizeof *path);
    if (!path) {
        builder_fail(l->b, -ENOMEM, "no memory for the grammar");
        return;
    }
    path[0] = new_state(l);
    lay_empty(l, from, path[0]);
    for (uint32_t i = 0; i < x->count && l->b->rc == 0; i++) {
        struct str s = x->text[i], last = i > 0 ? x->text[i - 1] : (struct str){ 0 };
        size_t same = 0;
        if (i > 0 && str_eq(s, last)) continue;
        while (same < s.len && same < last.len && s.data[same] == last.data[same])
            same++;
        for (size_t d = same; d < s.len; d++) {
            path[d + 1] = new_state(l);
            lay_byte(l, path[d], path[d + 1], (uint8_t)s.data[d], (uint8_t)s.data[d]);
        }
        lay_empty(l, path[s.len], to);
    }
}

static void emit(struct layout *l, const struct expr *x, uint32_t from, uint32_t to);

/* Repetitions of more than one state call a rule for their item. */
static const struct expr *as_call(struct layout *l, const struct expr *x)
{
    bool small = x->kind == EXPR_CALL || (x->kind == EXPR_BYTES && x->bytes.len == 1) ||
                 (x->kind == EXPR_CLASS && x->set.range[x->set.count - 1].to < 0x80);
    if (small) return x;
    uint32_t rule = rule_add(l->b, (struct str){ 0 });
    rule_set(l->b, rule, x);
    return expr_call(l->b, rule);
}

static void emit_repeat(struct layout *l, const struct expr *x, uint32_t from, uint32_t to)
{
    const struct expr *item = x->item[0];
    uint32_t at = from;
    bool many = x->min > 1 || (x->max > 1 && x->max != EXPR_FOREVER);
    if (many) item = as_call(l, item);
    for (uint32_t i = 0; i < x->min && l->b->rc == 0; i++) {
        uint32_t next = new_state(l);
        emit(l, item, at, next);
        at = next;
    }
    if (x->max == EXPR_FOREVER) {
        uint32_t loop = new_state(l);
        lay_empty(l, at, loop);
        emit(l, item, loop, loop);
        lay_empty(l, loop, to);
        return;
    }
    for (uint32_t i = x->min; i < x->max && l->b->rc == 0; i++) {
        uint32_t next = new_state(l);
        lay_empty(l, at, to);
        emit(l, item, at, next);
        at = next;
    }
    lay_empty(l, at, to);
}

static void emit_seq(struct layout *l, const struct expr *x, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < x->count && l->b->rc == 0; i++) {
        uint32_t next = i + 1 < x->count ? new_state(l) : to;
        emit(l, x->item[i], from, next);
        from = next;
    }
}

/* A node of the automaton of triggers: all their beginnings. */
struct scan_node {
    uint32_t next[256]; /* by byte; a missing child leads where the longest other beginning does */
    uint32_t fail;      /* the longest beginning that is a true end of this one */
    uint32_t done;      /* trigger that is complete here, plus 1; 0: none */
    uint32_t state;
};

/* Builds the automaton (Aho and Corasick, "Efficient String Matching", 1975) with all steps filled in. Node 0
 * is the empty beginning; node 1, for `at_start`, is the text that no trigger begins. */
static struct scan_node *scan_nodes(struct layout *l, const struct expr *x, uint32_t *ret_count)
{
    size_t bytes = 2;
    for (uint32_t i = 0; i < x->count; i++)
        bytes += x->text[i].len;
    struct scan_node *node = calloc(bytes, sizeof *node);
    uint32_t *queue = calloc(bytes, sizeof *queue);
    uint32_t count = 2, queued = 0;
    for (uint32_t i = 0; node && queue && i < x->count; i++) {
        uint32_t at = 0;
        for (size_t k = 0; k < x->text[i].len; k++) {
            uint32_t *next = &node[at].next[(uint8_t)x->text[i].data[k]];
            if (*next == 0) *next = count++;
            at = *next;
        }
        if (node[at].done == 0) node[at].done = i + 1;
    }
    for (uint32_t c = 0; node && queue && c < 256; c++) {
        if (node[0].next[c])
            queue[queued++] = node[0].next[c];
        else
            node[0].next[c] = x->scan.at_start;
        node[1].next[c] = 1;
    }
    for (uint32_t i = 0; i < queued; i++) {
        struct scan_node *n = &node[queue[i]];
        uint32_t fail = x->scan.at_start ? 1 : n->fail;
        if (n->done == 0) n->done = node[fail].done;
        for (uint32_t c = 0; c < 256; c++) {
            if (n->next[c]) {
                node[n->next[c]].fail = node[fail].next[c];
                queue[queued++] = n->next[c];
            } else {
                n->next[c] = node[fail].next[c];
            }
        }
        work_add(256);
    }
    free(queue);
    if (!node || !queue) builder_fail(l->b, -ENOMEM, "no memory for the grammar");
    *ret_count = count;
    return node;
}

/* Lays a scan: each node's bytes in runs that lead to one node. A node where a trigger is complete is the
 * beginning of its item. */
static void emit_scan(struct layout *l, const struct expr *x, uint32_t from, uint32_t to)
{
    uint32_t count = 0;
    struct scan_node *node = scan_nodes(l, x, &count);
    for (uint32_t i = 0; node && i < count; i++)
        node[i].state = new_state(l);
    if (node) lay_empty(l, from, node[0].state);
    for (uint32_t i = 0; node && i < count && l->b->rc == 0; i++) {
        const struct scan_node *n = &node[i];
        if (i == 1 && !x->scan.at_start) continue;
        if (n->done) {
            emit(l, x->item[n->done - 1], n->state, x->scan.once ? to : node[0].state);
            continue;
        }
        if (!x->scan.must) lay_empty(l, n->state, to);
        for (uint32_t c = 0, last; c < 256; c = last + 1) {
            for (last = c; last < 255 && n->next[last + 1] == n->next[c];)
                last++;
            lay_byte(l, n->state, node[n->next[c]].state, (uint8_t)c, (uint8_t)last);
        }
    }
    free(node);
}

static void emit(struct layout *l, const struct expr *x, uint32_t from, uint32_t to)
{
    if (l->b->rc < 0) return;
    if (++l->depth > EMIT_DEPTH_MAX) {
        builder_fail(l->b, -E2BIG, "the grammar nests too deep");
        return;
    }
    switch (x->kind) {
    case EXPR_EMPTY:
        lay_empty(l, from, to);
        break;
    case EXPR_NOTHING:
        break;
    case EXPR_BYTES:
        emit_bytes(l, x->bytes, from, to);
        break;
    case EXPR_CLASS:
        emit_class(l, x->set, from, to);
        break;
    case EXPR_SEQ:
        emit_seq(l, x, from, to);
        break;
    case EXPR_ALT:
        for (uint32_t i = 0; i < x->count; i++)
            emit(l, x->item[i], from, to);
        break;
    case EXPR_REPEAT:
        emit_repeat(l, x, from, to);
        break;
    case EXPR_CALL:
        lay(l, from, (struct edge){ .to = to, .kind = EDGE_CALL, .rule = x->rule });
        break;
    case EXPR_STRINGS:
        emit_strings(l, x, from, to);
        break;
    case EXPR_SCAN:
        emit_scan(l, x, from, to);
        break;
    }
    l->depth--;
}

static int emit_rules(struct layout *l)
{
    struct builder *b = l->b;
    struct grammar *g = l->g;
    uint32_t cap = 0;
    for (uint32_t i = 0; i < b->rule_count && b->rc == 0; i++) { /* emit adds rules */
        if (i >= cap) {
            cap = cap ? 2 * cap : 64;
            struct program_rule *more = realloc(g->rule, cap * sizeof *more);
            if (!more) return err_set(b->err, -ENOMEM, "no memory for the grammar");
            g->rule = more;
        }
        uint32_t start = new_state(l), end = new_state(l);
        g->rule[i] = (struct program_rule){ .start = start, .end = end };
        emit(l, b->rule[i].body, start, end);
    }
    g->rule_count = b->rule_count;
    return b->rc;
}

/* ---- what can be reached ---- */

/* Edges by their target, and calls by their rule: lists through `next`. */
struct reversed {
    uint32_t *into, *next_into;  /* of a state */
    uint32_t *calls, *next_call; /* of a rule */
    uint32_t *starts;            /* the rule that begins at a state, or NO_STATE */
    uint32_t *stack;
};

static void reversed_fini(struct reversed *r)
{
    free(r->into);
    free(r->next_into);
    free(r->calls);
    free(r->next_call);
    free(r->starts);
    free(r->stack);
}

static int reversed_make(const struct layout *l, struct reversed *r)
{
    const struct grammar *g = l->g;
    size_t edges = (size_t)l->edge_count + 1;
    r->into = malloc(g->state_count * sizeof *r->into);
    r->next_into = malloc(edges * sizeof *r->next_into);
    r->calls = malloc(g->rule_count * sizeof *r->calls);
    r->next_call = malloc(edges * sizeof *r->next_call);
    r->starts = malloc(g->state_count * sizeof *r->starts);
    r->stack = malloc(g->state_count * sizeof *r->stack);
    if (!r->into || !r->next_into || !r->calls || !r->next_call || !r->starts || !r->stack)
        return err_set(l->b->err, -ENOMEM, "no memory for the grammar");
    memset(r->into, 0xff, g->state_count * sizeof *r->into);
    memset(r->calls, 0xff, g->rule_count * sizeof *r->calls);
    memset(r->starts, 0xff, g->state_count * sizeof *r->starts);
    for (uint32_t i = 0; i < g->rule_count; i++)
        r->starts[g->rule[i].start] = i;
    for (uint32_t i = 0; i < l->edge_count; i++) {
        const struct edge *e = &l->edge[i].edge;
        r->next_into[i] = r->into[e->to];
        r->into[e->to] = i;
        if (e->kind != EDGE_CALL) continue;
        r->next_call[i] = r->calls[e->rule];
        r->calls[e->rule] = i;
    }
    work_add(l->edge_count);
    return 0;
}

/* Marks each state from which its rule's end can be reached. `bytes`: over bytes as well, else only by
 * edges that read nothing. A call is passed once its rule's start is marked, so a start that is marked
 * late looks at the calls of its rule again. */
static void mark(const struct layout *l, const struct reversed *r, bool bytes, bool *marked)
{
    const struct grammar *g = l->g;
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->rule_count; i++) {
        marked[g->rule[i].end] = true;
        r->stack[count++] = g->rule[i].end;
    }
    while (count > 0) {
        uint32_t s = r->stack[--count], rule = r->starts[s];
        for (uint32_t i = r->into[s]; i != NO_STATE; i = r->next_into[i]) {
            const struct laid_edge *e = &l->edge[i];
            bool passes = e->edge.kind == EDGE_EMPTY || (e->edge.kind == EDGE_BYTES && bytes) ||
                          (e->edge.kind == EDGE_CALL && marked[g->rule[e->edge.rule].start]);
            work_add(1);
            if (!passes || marked[e->from]) continue;
            marked[e->from] = true;
            r->stack[count++] = e->from;
        }
        if (rule == NO_STATE) continue;
        for (uint32_t i = r->calls[rule]; i != NO_STATE; i = r->next_call[i]) {
            const struct laid_edge *e = &l->edge[i];
            work_add(1);
            if (!marked[e->edge.to] || marked[e->from]) continue;
            marked[e->from] = true;
            r->stack[count++] = e->from;
        }
    }
}

/* Keeps the edges between states that lead to the end, sorted by the state that they leave. */
static int keep_edges(struct layout *l, const bool *alive)
{
    struct grammar *g = l->g;
    g->first = calloc((size_t)g->state_count + 1, sizeof *g->first);
    g->is_end = calloc(g->state_count, sizeof *g->is_end);
    g->reads = calloc(g->state_count, sizeof *g->reads);
    g->edge = malloc(((size_t)l->edge_count + 1) * sizeof *g->edge);
    uint32_t *at = malloc(((size_t)g->state_count + 1) * sizeof *at);
    if (!g->first || !g->is_end || !g->reads || !g->edge || !at) {
        free(at);
        return err_set(l->b->err, -ENOMEM, "no memory for the grammar");
    }
    for (uint32_t i = 0; i < g->rule_count; i++)
        g->is_end[g->rule[i].end] = true;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->edge_count; i++) {
        const struct laid_edge e = l->edge[i];
        bool leads = alive[e.from] && alive[e.edge.to] &&
                     (e.edge.kind != EDGE_CALL || alive[g->rule[e.edge.rule].start]);
        if (!leads) continue;
        l->edge[kept++] = e;
        g->first[e.from + 1]++;
        if (e.edge.kind == EDGE_BYTES) g->reads[e.from] = true;
    }
    for (uint32_t s = 0; s < g->state_count; s++)
        g->first[s + 1] += g->first[s];
    memcpy(at, g->first, ((size_t)g->state_count + 1) * sizeof *at);
    for (uint32_t i = 0; i < kept; i++)
        g->edge[at[l->edge[i].from]++] = l->edge[i].edge;
    g->edge_count = kept;
    work_add(l->edge_count + g->state_count);
    free(at);
    return 0;
}

/* ---- the order of rules ---- */

/* The calls that a rule makes before it has read a byte: call[first[r]] up to first[r + 1]. */
struct first_calls {
    uint32_t *first, *call;
    uint32_t *stack, *next;
    uint8_t *colour; /* of a rule: 0 unseen, 1 on the path, 2 done */
    bool *seen;      /* of a state */
};

static void first_calls_fini(struct first_calls *f)
{
    free(f->first);
    free(f->call);
    free(f->stack);
    free(f->next);
    free(f->colour);
    free(f->seen);
}

static void find_first_calls(const struct grammar *g, struct first_calls *f)
{
    uint32_t calls = 0;
    for (uint32_t r = 0; r < g->rule_count; r++) {
        uint32_t count = 0;
        f->first[r] = calls;
        f->stack[count++] = g->rule[r].start;
        f->seen[g->rule[r].start] = true;
        while (count > 0) {
            uint32_t s = f->stack[--count];
            for (uint32_t i = g->first[s]; i < g->first[s + 1]; i++) {
                const struct edge *e = &g->edge[i];
                work_add(1);
                if (e->kind == EDGE_CALL) f->call[calls++] = e->rule;
                bool passes =
                    e->kind == EDGE_EMPTY || (e->kind == EDGE_CALL && g->rule[e->rule].nullable);
                if (!passes || f->seen[e->to]) continue;
                f->seen[e->to] = true;
                f->stack[count++] = e->to;
            }
        }
    }
    f->first[g->rule_count] = calls;
}

/* Walks the calls depth first from `root`; a rule that is done takes the next place from the back. */
static int order_from(struct builder *b, struct grammar *g, struct first_calls *f, uint32_t root,
                      uint32_t *place)
{
    uint32_t count = 0;
    if (f->colour[root]) return 0;
    f->stack[count++] = root;
    f->colour[root] = 1;
    while (count > 0) {
        uint32_t r = f->stack[count - 1];
        if (f->next[r] == f->first[r + 1]) {
            f->colour[r] = 2;
            g->rule[r].order = --*place;
            count--;
            continue;
        }
        uint32_t callee = f->call[f->next[r]++];
        work_add(1);
        if (f->colour[callee] == 2) continue;
        if (f->colour[callee] == 1) {
            struct str name = b->rule[callee].name;
            return err_set(b->err, -EINVAL,
                           name.len > 0
                               ? "the rule " STR_FMT
                                 " calls itself before it has read anything (left recursion)"
                               : "a part" STR_FMT
                                 " calls itself before it has read anything (left recursion)",
                           STR_ARG(name));
        }
        f->colour[callee] = 1;
        f->stack[count++] = callee;
    }
    return 0;
}

static int order_rules(struct builder *b, struct grammar *g)
{
    struct first_calls f = {
        .first = calloc((size_t)g->rule_count + 1, sizeof *f.first),
        .call = calloc((size_t)g->edge_count + 1, sizeof *f.call),
        .stack = calloc((size_t)g->state_count + g->rule_count, sizeof *f.stack),
        .next = calloc(g->rule_count, sizeof *f.next),
        .colour = calloc(g->rule_count, sizeof *f.colour),
        .seen = calloc(g->state_count, sizeof *f.seen),
    };
    int rc = 0;
    if (!f.first || !f.call || !f.stack || !f.next || !f.colour || !f.seen) {
        rc = err_set(b->err, -ENOMEM, "no memory for the grammar");
    } else {
        uint32_t place = g->rule_count;
        find_first_calls(g, &f);
        memcpy(f.next, f.first, g->rule_count * sizeof *f.next);
        for (uint32_t r = 0; r < g->rule_count && rc == 0; r++)
            rc = order_from(b, g, &f, r, &place);
    }
    first_calls_fini(&f);
    return rc;
}

/* ---- from rules to a program ---- */

static int analyse(struct layout *l)
{
    struct grammar *g = l->g;
    struct reversed r = { 0 };
    bool *empty = calloc(g->state_count, sizeof *empty);
    bool *alive = calloc(g->state_count, sizeof *alive);
    int rc = empty && alive ? reversed_make(l, &r)
                            : err_set(l->b->err, -ENOMEM, "no memory for the grammar");
    if (rc == 0) {
        mark(l, &r, false, empty);
        mark(l, &r, true, alive);
        for (uint32_t i = 0; i < g->rule_count; i++)
            g->rule[i].nullable = empty[g->rule[i].start];
        if (!alive[g->rule[0].start])
            rc = err_set(l->b->err, -EINVAL, "no text satisfies the grammar");
    }
    if (rc == 0) rc = keep_edges(l, alive);
    if (rc == 0) rc = order_rules(l->b, g);
    reversed_fini(&r);
    free(empty);
    free(alive);
    return rc;
}

int program_make(struct builder *b, struct grammar **ret)
{
    CLEANUP(grammar_freep) struct grammar *g = calloc(1, sizeof *g);
    struct layout l = { .b = b, .g = g };
    if (!g) return err_set(b->err, -ENOMEM, "no memory for the grammar");
    int rc = emit_rules(&l);
    if (rc == 0) rc = analyse(&l);
    free(l.edge);
    if (rc < 0) return rc;
    *ret = TAKE(g);
    return 0;
}

int grammar_compile(const struct grammar_spec *spec, struct grammar **ret, struct err *err)
{
    struct builder b;
    struct err unread = { "" };
    if (spec->text.len > GRAMMAR_TEXT_BYTES_MAX)
        return err_set(err, -E2BIG, "the grammar has %zu bytes, more than %zu", spec->text.len,
                       GRAMMAR_TEXT_BYTES_MAX);
    builder_init(&b, err ? err : &unread);
    rule_add(&b, STR("root"));
    switch (spec->kind) {
    case GRAMMAR_JSON_OBJECT:
        json_object_build(&b);
        break;
    case GRAMMAR_JSON_SCHEMA:
        json_schema_build(&b, spec->text);
        break;
    case GRAMMAR_REGEX:
        regex_build(&b, spec->text);
        break;
    case GRAMMAR_CHOICE:
        choice_build(&b, spec->text);
        break;
    case GRAMMAR_GBNF:
        gbnf_build(&b, spec->text);
        break;
    case GRAMMAR_TAGS:
        tags_build(&b, spec->text);
        break;
    case GRAMMAR_NONE:
    case GRAMMAR_KIND_COUNT:
        builder_fail(&b, -EINVAL, "no grammar is given");
        break;
    }
    int rc = b.rc < 0 ? b.rc : program_make(&b, ret);
    builder_fini(&b);
    return rc;
}
