/* masks.c - hands batches of matchers to one thread, and shares automata by the digest of their grammar.
 *
 * A mask that cannot be made here is not missing: the sampler asks for it again and gets the error. The
 * thread sleeps on a condition; a step without new masks never wakes it. */
#include "engine/serve/masks.h"

#include "base/core/bits.h"
#include "base/io/loop/lock.h"

#include <pthread.h>
#include <stdlib.h>

struct shared_automaton {
    struct list link; /* in `used` or `idle` */
    uint8_t key[SHA256_BYTES];
    struct automaton *automaton;
    uint32_t users;
};

struct masks {
    const struct vocab *vocab;
    uint32_t vocab_size;
    uint32_t mark[TURN_MARKS_MAX], mark_count;
    pthread_t thread;
    struct lock lock; /* guards all up to `busy` */
    pthread_cond_t wake, done;
    bool stop, built;
    int build_rc;
    struct token_trie *trie;        /* with `built` */
    struct token_trie *marked;      /* likewise; NULL: there are no marks */
    struct matcher *const *matcher; /* to do; NULL: nothing */
    uint32_t count;
    bool busy;

    /* device thread only */
    struct list used, idle; /* idle: the latest used first */
    uint32_t idle_count;
};

static int build_trie(struct masks *m, bool marks, struct token_trie **ret)
{
    struct str *bytes = calloc((size_t)m->vocab_size + 1, sizeof *bytes);
    if (!bytes) return -ENOMEM;
    for (uint32_t id = 0; id < m->vocab_size; id++) {
        enum token_type type = vocab_type(m->vocab, id);
        bool is_text = type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED || type == TOKEN_BYTE;
        if (is_text) bytes[id] = vocab_bytes(m->vocab, id);
    }
    for (uint32_t i = 0; marks && i < m->mark_count; i++)
        if (m->mark[i] < m->vocab_size) bytes[m->mark[i]] = vocab_bytes(m->vocab, m->mark[i]);
    int rc = token_trie_new(bytes, m->vocab_size, ret);
    free(bytes);
    return rc;
}

static void *masks_main(void *arg)
{
    struct masks *m = arg;
    struct token_trie *trie = NULL, *marked = NULL;
    int rc = build_trie(m, false, &trie);
    if (rc == 0 && m->mark_count > 0) rc = build_trie(m, true, &marked);
    lock_take(&m->lock);
    m->trie = trie;
    m->marked = marked;
    m->build_rc = rc;
    m->built = true;
    pthread_cond_signal(&m->done);
    for (;;) {
        while (!m->stop && !m->busy)
            lock_wait(&m->lock, &m->wake);
        if (m->stop) break;
        lock_drop(&m->lock);
        const uint64_t *unread;
        for (uint32_t i = 0; i < m->count; i++)
            (void)matcher_mask(m->matcher[i], &unread);
        lock_take(&m->lock);
        m->busy = false;
        pthread_cond_signal(&m->done);
    }
    lock_drop(&m->lock);
    return NULL;
}

int masks_new(const struct vocab *vocab, uint32_t vocab_size, struct masks **ret, struct err *err)
{
    struct masks *m = calloc(1, sizeof *m);
    if (!m) return -ENOMEM;
    m->vocab = vocab;
    m->vocab_size = vocab_size;
    m->mark_count = turn_marks(vocab, m->mark);
    list_init(&m->used);
    list_init(&m->idle);
    lock_init(&m->lock);
    pthread_cond_init(&m->wake, NULL);
    pthread_cond_init(&m->done, NULL);
    int rc = -pthread_create(&m->thread, NULL, masks_main, m);
    if (rc < 0) {
        free(m);
        return err_set(err, rc, "cannot start the mask thread: %s", err_text(NULL, rc));
    }
    *ret = m;
    return 0;
}

static void free_all(struct list *list)
{
    LIST_EACH_SAFE (list, node) {
        struct shared_automaton *s = CONTAINER_OF(node, struct shared_automaton, link);
        automaton_free(s->automaton);
        free(s);
    }
}

void masks_free(struct masks *m)
{
    if (!m) return;
    lock_take(&m->lock);
    m->stop = true;
    pthread_cond_signal(&m->wake);
    lock_drop(&m->lock);
    pthread_join(m->thread, NULL);
    free_all(&m->used);
    free_all(&m->idle);
    token_trie_free(m->trie);
    token_trie_free(m->marked);
    lock_fini(&m->lock);
    pthread_cond_destroy(&m->wake);
    pthread_cond_destroy(&m->done);
    free(m);
}

static int wait_for_trie(struct masks *m)
{
    lock_take(&m->lock);
    while (!m->built)
        lock_wait(&m->lock, &m->done);
    lock_drop(&m->lock);
    return m->build_rc;
}

static struct shared_automaton *find(struct list *list, const uint8_t *key)
{
    LIST_EACH (list, node) {
        struct shared_automaton *s = CONTAINER_OF(node, struct shared_automaton, link);
        if (memcmp(s->key, key, SHA256_BYTES) == 0) return s;
    }
    return NULL;
}

static int make(struct masks *m, const uint8_t *key, bool marks, struct grammar **grammar,
                struct shared_automaton **ret)
{
    struct shared_automaton *s = calloc(1, sizeof *s);
    int rc = s ? wait_for_trie(m) : -ENOMEM;
    if (rc == 0)
        rc = automaton_new(*grammar, marks && m->marked ? m->marked : m->trie, &s->automaton);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *grammar = NULL;
    memcpy(s->key, key, SHA256_BYTES);
    list_push_back(&m->used, &s->link);
    *ret = s;
    return 0;
}

const uint32_t *masks_marks(const struct masks *m, uint32_t *ret_count)
{
    *ret_count = m->mark_count;
    return m->mark;
}

int masks_open(struct masks *m, const uint8_t key[SHA256_BYTES], bool marks,
               struct grammar **grammar, struct automaton **ret)
{
    struct shared_automaton *s = find(&m->used, key);
    int rc = 0;
    if (!s && (s = find(&m->idle, key))) {
        list_remove(&s->link);
        list_push_back(&m->used, &s->link);
        m->idle_count--;
    }
    if (!s) rc = make(m, key, marks, grammar, &s);
    grammar_free(*grammar);
    *grammar = NULL;
    if (rc < 0) return rc;
    s->users++;
    *ret = s->automaton;
    return 0;
}

void masks_close(struct masks *m, struct automaton *automaton)
{
    LIST_EACH_SAFE (&m->used, node) {
        struct shared_automaton *s = CONTAINER_OF(node, struct shared_automaton, link);
        if (s->automaton != automaton || --s->users > 0) continue;
        list_remove(&s->link);
        list_push_front(&m->idle, &s->link);
        m->idle_count++;
    }
    if (m->idle_count <= MASKS_IDLE_MAX) return;
    struct shared_automaton *oldest = CONTAINER_OF(m->idle.prev, struct shared_automaton, link);
    list_remove(&oldest->link);
    m->idle_count--;
    automaton_free(oldest->automaton);
    free(oldest);
}

void masks_begin(struct masks *m, struct matcher *const *matcher, uint32_t count)
{
    if (count == 0) return;
    lock_take(&m->lock);
    m->matcher = matcher;
    m->count = count;
    m->busy = true;
    pthread_cond_signal(&m->wake);
    lock_drop(&m->lock);
}

void masks_wait(struct masks *m)
{
    lock_take(&m->lock);
    while (m->busy)
        lock_wait(&m->lock, &m->done);
    lock_drop(&m->lock);
}
