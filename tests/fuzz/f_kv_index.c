/* f_kv_index.c - checks sequences of operations on the engine's page index against a list of names.
 *
 * The model knows the prompt that filled each page, the number of sessions that hold it, and of how many the window
 * covers it, where some layers have one. A page or part given out while a session needs it, a name that survives its
 * page, a hit on other tokens or without the window's parts, and a lost event each differ from the model. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "engine/core/kv_index.h"
#include "tests/fuzz/fuzz.h"

#define PAGES_MAX 12   /* that fit whole */
#define NUMBERS_MAX 20 /* that are in use at once, where pages give up a part */
#define PAGE_TOKENS 16
#define PROMPTS 6
#define PROMPT_PAGES 4
#define SESSIONS 4
#define EVENTS 512 /* more than a step makes: the reader never falls this far behind */
#define SEED 5

struct prompt {
    uint32_t ids[PROMPT_PAGES * PAGE_TOKENS];
    struct block_key key[PROMPT_PAGES];
};

struct model {
    struct kv_pool pool;
    struct kv_index index;
    uint32_t holders[NUMBERS_MAX];
    uint32_t windows[NUMBERS_MAX];          /* holders whose window covers the page */
    bool named[NUMBERS_MAX];                /* as the events said */
    struct block_key name[NUMBERS_MAX];     /* the key that sealed the page */
    struct block_key told[NUMBERS_MAX * 2]; /* keys in the index, as the events said */
    uint32_t told_count;
    uint64_t seq;
    struct {
        uint32_t prompt, count, window_from;
        uint32_t page[PROMPT_PAGES];
    } session[SESSIONS];
};

static struct block_key salt;
static struct prompt prompts[PROMPTS];

/* Makes the prompts: each differs from the one before in one token, of its last or an earlier page. */
static void make_prompts(void)
{
    static const uint32_t differs_at[PROMPTS] = { 0, 63, 40, 20, 3, 63 };
    salt = block_salt(SEED, STR("weights"), STR(""), STR("tenant"));
    for (uint32_t p = 0; p < PROMPTS; p++) {
        for (uint32_t i = 0; i < COUNT_OF(prompts->ids); i++)
            prompts[p].ids[i] = p ? prompts[p - 1].ids[i] : i;
        if (p) prompts[p].ids[differs_at[p]] = 100 + p;
        block_keys(SEED, salt, prompts[p].ids, COUNT_OF(prompts->ids), prompts[p].key,
                   PROMPT_PAGES);
    }
}

static uint32_t told_at(const struct model *m, struct block_key key)
{
    uint32_t i = 0;
    while (i < m->told_count && !block_key_eq(m->told[i], key))
        i++;
    return i;
}

static void unname(struct model *m, struct block_key key)
{
    for (uint32_t i = 0; i < m->pool.total; i++)
        if (m->named[i] && block_key_eq(m->name[i], key)) m->named[i] = false;
}

/* Reads the new events: they come in order without gaps, and each name is added and removed once. */
static void hear(struct model *m)
{
    static struct kv_event events[EVENTS];
    int count = kv_index_events(&m->index, m->seq, events, EVENTS);
    must(count >= 0);
    for (int i = 0; i < count; i++) {
        must(events[i].seq == ++m->seq && events[i].key_count == 1);
        uint32_t at = told_at(m, events[i].key[0]);
        must((at == m->told_count) == events[i].add);
        if (events[i].add) {
            m->told[m->told_count++] = events[i].key[0];
        } else {
            m->told[at] = m->told[--m->told_count];
            unname(m, events[i].key[0]);
        }
        must(m->told_count <= m->pool.total);
    }
    uint32_t cursor = 0, walked = 0;
    for (struct kv_event e; kv_index_next(&m->index, &cursor, &e); walked++)
        must(told_at(m, e.key[0]) < m->told_count);
    must(walked == m->told_count);
}

static uint32_t take(struct model *m)
{
    uint32_t available = kv_index_available(&m->index), page = kv_index_take(&m->index);
    must((page == KV_PAGE_NONE) == (available == 0));
    if (page == KV_PAGE_NONE) return page;
    must(page < m->pool.total && m->holders[page] == 0 && kv_pool_is_whole(&m->pool, page));
    m->holders[page] = m->windows[page] = 1;
    hear(m); /* what lost its name for it, perhaps the page itself */
    return page;
}

/* Matches a prompt: each hit holds the prompt's tokens, and the first miss is no name in the index. */
static uint32_t find(struct model *m, const struct prompt *p, uint32_t *pages)
{
    uint32_t count = kv_index_match(&m->index, salt, p->key, p->ids, PROMPT_PAGES, pages);
    must(count <= PROMPT_PAGES && kv_index_probe(&m->index, p->key, PROMPT_PAGES) >= count);
    for (uint32_t i = 0; i < count; i++)
        must(m->named[pages[i]] && block_key_eq(m->name[pages[i]], p->key[i]));
    must(count == PROMPT_PAGES || told_at(m, p->key[count]) == m->told_count);
    return count;
}

/* Holds as many found pages as can begin a sequence: from its window on they are whole. */
static uint32_t hold_found(struct model *m, uint32_t at, uint32_t found)
{
    uint32_t *page = m->session[at].page;
    uint32_t hits = kv_index_usable(&m->index, page, found);
    uint32_t from = hits ? kv_index_window_from(&m->index, hits * PAGE_TOKENS - 1) : 0;
    must(hits <= found && (m->pool.window || hits == found));
    for (uint32_t i = 0; i < hits; i++) {
        kv_index_hit(&m->index, page[i]);
        m->holders[page[i]]++;
        if (i < from) continue;
        must(kv_pool_is_whole(&m->pool, page[i]));
        kv_pool_enter(&m->pool, page[i]);
        m->windows[page[i]]++;
    }
    m->session[at].window_from = from;
    return hits;
}

/* Gives up the parts that no token behind `count` pages sees. */
static void leave_windows(struct model *m, uint32_t at, uint32_t count)
{
    uint32_t from = kv_index_window_from(&m->index, count * PAGE_TOKENS);
    for (uint32_t *i = &m->session[at].window_from; *i < from; ++*i) {
        kv_pool_leave(&m->pool, m->session[at].page[*i]);
        m->windows[m->session[at].page[*i]]--;
    }
}

static void open_session(struct model *m, uint32_t at, uint32_t prompt, uint32_t want)
{
    const struct prompt *p = &prompts[prompt];
    uint32_t *page = m->session[at].page;
    uint32_t count = hold_found(m, at, min_u32(find(m, p, page), want));
    for (; count < want; count++) {
        page[count] = take(m);
        if (page[count] == KV_PAGE_NONE) break;
        bool is_new = told_at(m, p->key[count]) == m->told_count;
        kv_index_seal(&m->index, page[count], count, count ? p->key[count - 1] : salt,
                      &p->key[count], p->ids + count * PAGE_TOKENS);
        if (is_new) {
            m->named[page[count]] = true;
            m->name[page[count]] = p->key[count];
        }
        leave_windows(m, at, count + 1);
        hear(m);
    }
    m->session[at].prompt = prompt;
    m->session[at].count = count;
}

static void close_session(struct model *m, uint32_t at)
{
    for (uint32_t i = m->session[at].count; i-- > 0;) {
        uint32_t page = m->session[at].page[i];
        if (i < m->session[at].window_from) {
            kv_index_release_full(&m->index, page);
        } else {
            kv_index_release(&m->index, page);
            m->windows[page] -= m->pool.window != NULL;
        }
        m->holders[page]--;
    }
    m->session[at].count = m->session[at].window_from = 0;
}

/* Gives a page that lacks its part a new one, as an import of its K and V does. */
static void regain(struct model *m, uint32_t at)
{
    uint32_t page = m->session[at].page[0];
    if (m->session[at].window_from == 0 || kv_pool_is_whole(&m->pool, page)) return;
    if (!kv_index_regain(&m->index, page)) return;
    must(kv_pool_is_whole(&m->pool, page));
    kv_pool_leave(&m->pool, page);
}

static void check(struct model *m)
{
    uint32_t held = 0, cached = 0;
    hear(m);
    must(kv_pool_check(&m->pool));
    for (uint32_t i = 0; i < m->pool.total; i++) {
        must(m->pool.refs[i] == m->holders[i]);
        must(!m->pool.window || m->pool.window[i].refs == m->windows[i]);
        must(m->pool.indexed[i] == m->named[i]);
        held += m->holders[i] > 0;
        cached += m->holders[i] == 0 && m->named[i];
    }
    must(m->pool.held_count == held && m->pool.cached_count == cached);
}

static void step(struct model *m, struct fuzz_choices *c)
{
    uint32_t op = fuzz_below(c, 16), at = fuzz_below(c, SESSIONS), pages[PROMPT_PAGES];
    if (op == 0) {
        kv_index_clear(&m->index);
    } else if (op == 1) {
        find(m, &prompts[fuzz_below(c, PROMPTS)], pages);
    } else if (op == 2) {
        regain(m, at);
    } else if (m->session[at].count > 0) {
        close_session(m, at);
    } else {
        uint32_t prompt = fuzz_below(c, PROMPTS);
        open_session(m, at, prompt, 1 + fuzz_below(c, PROMPT_PAGES));
    }
}

/* The flat cost is an index's tables; each step recounts everything. */
const struct fuzz_cost fuzz_cost = { 400000, 3000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    struct fuzz_choices c = { data, len };
    static struct model m;
    memset(&m, 0, sizeof m);
    if (prompts[1].ids[1] == 0) make_prompts();
    const struct evict_policy *evict = evict_table[fuzz_u8(&c) % evict_count];
    const struct kv_parts parts = { .window_tokens = fuzz_below(&c, 4) * 12,
                                    .full = fuzz_below(&c, 3),
                                    .window = 1 + fuzz_below(&c, 4),
                                    .numbers = NUMBERS_MAX };
    must(kv_pool_init(&m.pool, 1 + fuzz_below(&c, PAGES_MAX), &parts) == 0);
    must(kv_index_init(&m.index, &m.pool, PAGE_TOKENS, evict, EVENTS) == 0);
    while (c.len > 0) {
        step(&m, &c);
        check(&m);
    }
    for (uint32_t i = 0; i < SESSIONS; i++)
        close_session(&m, i);
    must(m.pool.held_count == 0);
    kv_index_fini(&m.index);
    kv_pool_fini(&m.pool);
}
