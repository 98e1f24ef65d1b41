/* lexicon.c - sorts entries and narrows ranges of them. */
#include "base/text/lexicon.h"

#include "base/core/work.h"

#include <errno.h>
#include <stdlib.h>

int lexicon_init(struct lexicon *l, struct arena *arena, uint32_t max)
{
    *l = (struct lexicon){ .entries = arena_array(arena, max, sizeof *l->entries) };
    return l->entries ? 0 : -ENOMEM;
}

void lexicon_add(struct lexicon *l, struct str text, uint32_t id)
{
    l->entries[l->count++] = (struct lexicon_entry){ text.data, (uint32_t)text.len, id };
}

static struct str text_of(const struct lexicon_entry *e)
{
    return str_of(e->text, e->len);
}

static int compare(const void *a, const void *b)
{
    const struct lexicon_entry *x = a, *y = b;
    int order = str_cmp(text_of(x), text_of(y));
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

void lexicon_sort(struct lexicon *l)
{
    qsort(l->entries, l->count, sizeof *l->entries, compare);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->count; i++)
        if (kept == 0 || !str_eq(text_of(&l->entries[i]), text_of(&l->entries[kept - 1])))
            l->entries[kept++] = l->entries[i];
    l->count = kept;
    uint32_t at = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        l->starts[byte] = at;
        while (at < kept && (unsigned char)l->entries[at].text[0] == byte)
            at++;
        if (at == l->starts[byte]) continue;
        l->first_bytes++;
        l->first_byte = (unsigned char)byte;
    }
    l->starts[256] = at;
}

bool lexicon_begin(const struct lexicon *l, struct lexicon_walk *w, unsigned char byte)
{
    *w = (struct lexicon_walk){ l->starts[byte], l->starts[byte + 1], 1 };
    return w->low < w->high;
}

/* Returns the first entry of [low, high) with a byte of at least `byte` at `depth`, or high. */
static uint32_t narrow(const struct lexicon *l, uint32_t low, uint32_t high, uint32_t depth,
                       unsigned byte)
{
    uint64_t steps = 1;
    for (; low < high; steps++) {
        uint32_t middle = low + (high - low) / 2;
        const struct lexicon_entry *e = &l->entries[middle];
        if (e->len <= depth || (unsigned char)e->text[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    work_add(steps);
    return low;
}

bool lexicon_step(const struct lexicon *l, struct lexicon_walk *w, unsigned char byte)
{
    w->low = narrow(l, w->low, w->high, w->depth, byte);
    w->high = narrow(l, w->low, w->high, w->depth, byte + 1u);
    w->depth++;
    return w->low < w->high;
}

const struct lexicon_entry *lexicon_here(const struct lexicon *l, const struct lexicon_walk *w)
{
    /* An entry that ends here is the first of the range: a prefix sorts before longer entries. */
    return l->entries[w->low].len == w->depth ? &l->entries[w->low] : NULL;
}
