/* token_trie.c - sorts the tokens by their bytes and lays the tree out in that order. */
#include "base/grammar/token_trie.h"

#include "base/core/bits.h"

#include <stdlib.h>

struct sorted_token {
    struct str bytes;
    uint32_t id;
};

static int compare(const void *a, const void *b)
{
    const struct sorted_token *x = a, *y = b;
    int order = str_cmp(x->bytes, y->bytes);
    return order ? order : x->id < y->id ? -1 : x->id > y->id;
}

static size_t shared(struct str a, struct str b)
{
    size_t n = 0;
    while (n < a.len && n < b.len && a.data[n] == b.data[n])
        n++;
    return n;
}

/* Lays the nodes of the sorted tokens. path[d] is the open node of depth d. */
static void lay_nodes(struct token_trie *t, const struct sorted_token *token, uint32_t count,
                      uint32_t *path)
{
    struct str last = { 0 };
    for (uint32_t i = 0; i < count; i++) {
        struct str s = token[i].bytes;
        size_t same = shared(s, last);
        for (size_t d = last.len; d > same; d--)
            t->node[path[d]].skip = t->node_count - path[d];
        for (size_t d = same + 1; d <= s.len; d++) {
            path[d] = t->node_count++;
            t->node[path[d]] = (struct trie_node){ .tokens = t->token_count,
                                                   .depth = (uint16_t)d,
                                                   .byte = (uint8_t)s.data[d - 1] };
        }
        t->token[t->token_count++] = token[i].id;
        t->node[path[s.len]].tokens = t->token_count;
        last = s;
    }
    for (size_t d = last.len; d > 0; d--)
        t->node[path[d]].skip = t->node_count - path[d];
}

int token_trie_new(const struct str *bytes, uint32_t count, struct token_trie **ret)
{
    CLEANUP(token_trie_freep) struct token_trie *t = calloc(1, sizeof *t);
    struct sorted_token *token = calloc((size_t)count + 1, sizeof *token);
    uint32_t *path = NULL, used = 0;
    size_t nodes = 0;
    int rc = t && token ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        if (bytes[i].len > UINT16_MAX) rc = -E2BIG;
        if (bytes[i].len > 0) token[used++] = (struct sorted_token){ bytes[i], i };
    }
    if (rc == 0) {
        qsort(token, used, sizeof *token, compare);
        for (uint32_t i = 0; i < used; i++) {
            nodes += token[i].bytes.len - (i > 0 ? shared(token[i].bytes, token[i - 1].bytes) : 0);
            t->depth_max = max_u32(t->depth_max, (uint32_t)token[i].bytes.len);
        }
        t->vocab_size = count;
        t->node = calloc(nodes + 1, sizeof *t->node);
        t->token = calloc((size_t)used + 1, sizeof *t->token);
        path = calloc((size_t)t->depth_max + 1, sizeof *path);
        if (nodes > UINT32_MAX / 2) rc = -E2BIG;
        if (!t->node || !t->token || !path) rc = -ENOMEM;
    }
    if (rc == 0) lay_nodes(t, token, used, path);
    free(token);
    free(path);
    if (rc < 0) return rc;
    *ret = TAKE(t);
    return 0;
}

void token_trie_free(struct token_trie *t)
{
    if (!t) return;
    free(t->node);
    free(t->token);
    free(t);
}
