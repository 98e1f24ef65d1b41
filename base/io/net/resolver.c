/* resolver.c - keeps a table of names on the loop's side, and a thread that may block on the other.
 *
 * The thread calls getaddrinfo and not c-ares: it gives the system's own answer (hosts file, mDNS,
 * nsswitch), needs no library, and a fleet has few names, so one question at a time is enough.
 *
 * Both sides hold struct helper, because the thread may be inside getaddrinfo for many seconds when the
 * loop's side is freed: the side that leaves last frees it. */
#include "base/io/net/resolver.h"

#include "base/core/bits.h"
#include "base/core/fault.h"
#include "base/core/hash.h"
#include "base/io/loop/count.h"
#include "base/io/loop/lock.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define HOST_BYTES 254 /* a DNS name has at most 253 */
#define BUCKETS 256

struct job { /* one question; belongs to the side whose list it is in, or to the thread */
    struct list node;
    struct resolver_name *name; /* NULL: forgotten. The loop's side only */
    int rc;
    struct addr addr;
    char host[HOST_BYTES];
};

struct helper {
    struct lock lock;
    pthread_cond_t wake;
    struct list asked, refreshed; /* struct job: questions that a use waits for, and others */
    struct list answered;
    int event_fd; /* written when `answered` gets its first */
    int sides;    /* that still use this */
    bool closing;
};

struct resolver_name {
    struct list node;   /* of its bucket */
    struct list lru;    /* the longest unused first */
    struct list waits;  /* struct resolver_use */
    struct job *job;    /* the question under way */
    struct addr addr;   /* the last good one */
    int64_t asked_us;   /* when the last answer came, good or not; 0: never */
    int64_t known_us;   /* when the last good one came; 0: never, or from the book */
    uint32_t use_count; /* resolver_use that hold it */
    bool known, doubted;
    struct str host; /* behind the struct */
};

struct resolver {
    struct loop *loop;
    struct name_book *book; /* or NULL */
    struct loop_watch watch;
    struct helper *helper; /* NULL: no name was asked yet */
    struct list bucket[BUCKETS];
    struct list lru;
    uint32_t name_count;
    struct resolver_counts counts;
};

/* ---- the helper ---- */

static void jobs_free(struct list *jobs)
{
    for (struct list *node; (node = list_pop_front(jobs));)
        free(CONTAINER_OF(node, struct job, node));
}

/* Leaves the helper: drops the lock, and frees it when the other side has gone. */
static void helper_leave(struct helper *h)
{
    lock_assert_held(&h->lock);
    bool last = --h->sides == 0;
    lock_drop(&h->lock);
    if (!last) return;
    jobs_free(&h->asked);
    jobs_free(&h->refreshed);
    jobs_free(&h->answered);
    close(h->event_fd);
    pthread_cond_destroy(&h->wake);
    lock_fini(&h->lock);
    free(h);
}

static struct job *next_job(struct helper *h)
{
    lock_assert_held(&h->lock);
    while (!h->closing && list_empty(&h->asked) && list_empty(&h->refreshed))
        lock_wait(&h->lock, &h->wake);
    if (h->closing) return NULL;
    struct list *node = list_pop_front(&h->asked);
    if (!node) node = list_pop_front(&h->refreshed);
    return CONTAINER_OF(node, struct job, node);
}

static void *helper_run(void *arg)
{
    struct helper *h = arg;
    lock_take(&h->lock);
    for (struct job *job; (job = next_job(h));) {
        lock_drop(&h->lock);
        job->rc = addr_resolve(&job->addr, str_from(job->host), 0, NULL);
        lock_take(&h->lock);
        const uint64_t one = 1;
        list_push_back(&h->answered, &job->node);
        /* A counter that is at its bound wakes the loop as well. */
        if (write(h->event_fd, &one, sizeof one) < 0) continue;
    }
    helper_leave(h);
    return NULL;
}

/* Starts the thread with all signals blocked, because signals are for the loops. */
static int thread_start(struct helper *h)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_attr_init(&attr) != 0) return -ENOMEM;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, &attr, helper_run, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return -rc;
}

static void on_answers(void *arg, uint32_t events);

static int helper_start(struct resolver *r)
{
    struct helper *h = FAULT("resolver.helper") ? NULL : calloc(1, sizeof *h);
    if (!h) return -ENOMEM;
    list_init(&h->asked);
    list_init(&h->refreshed);
    list_init(&h->answered);
    lock_init(&h->lock);
    pthread_cond_init(&h->wake, NULL);
    h->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    h->sides = 1;
    r->watch = (struct loop_watch){ .fd = h->event_fd, .fn = on_answers, .arg = r };
    int rc = h->event_fd < 0 ? -errno : loop_watch_add(r->loop, &r->watch, EPOLLIN);
    if (rc == 0) {
        h->sides = 2;
        rc = thread_start(h);
        if (rc < 0) h->sides = 1;
    }
    if (rc == 0) {
        r->helper = h;
        return 0;
    }
    loop_watch_del(r->loop, &r->watch);
    lock_take(&h->lock);
    helper_leave(h);
    return rc;
}

/* ---- the book ---- */

/* A list is enough for the book: it is searched only for a loop's first use of a name and after answers. */
struct name_book {
    struct lock lock;
    struct list pages; /* struct page, the latest first */
    uint32_t count;
};

struct page {
    struct list node;
    struct addr addr;
    char host[HOST_BYTES];
};

int name_book_new(struct name_book **ret, struct err *err)
{
    struct name_book *b = calloc(1, sizeof *b);
    if (!b) return err_set(err, -ENOMEM, "names: out of memory");
    lock_init(&b->lock);
    list_init(&b->pages);
    *ret = b;
    return 0;
}

void name_book_free(struct name_book *b)
{
    if (!b) return;
    for (struct list *node; (node = list_pop_front(&b->pages));)
        free(CONTAINER_OF(node, struct page, node));
    lock_fini(&b->lock);
    free(b);
}

/* Returns the page, moved to the front, or NULL. */
static struct page *page_find(struct name_book *b, struct str host)
{
    lock_assert_held(&b->lock);
    LIST_EACH (&b->pages, node) {
        struct page *p = CONTAINER_OF(node, struct page, node);
        if (!str_eq(str_from(p->host), host)) continue;
        list_remove(&p->node);
        list_push_front(&b->pages, &p->node);
        return p;
    }
    return NULL;
}

/* Returns a page for a new name, or NULL without memory. */
static struct page *page_make(struct name_book *b, struct str host)
{
    lock_assert_held(&b->lock);
    struct page *p = NULL;
    if (b->count >= RESOLVER_NAMES_MAX) {
        p = CONTAINER_OF(b->pages.prev, struct page, node);
        list_remove(&p->node);
    } else if ((p = malloc(sizeof *p))) {
        b->count++;
    }
    if (!p) return NULL;
    *p = (struct page){ 0 };
    memcpy(p->host, host.data, host.len);
    list_push_front(&b->pages, &p->node);
    return p;
}

static bool book_get(struct name_book *b, struct str host, struct addr *ret)
{
    if (!b) return false;
    lock_take(&b->lock);
    const struct page *p = page_find(b, host);
    if (p) *ret = p->addr;
    lock_drop(&b->lock);
    return p != NULL;
}

static void book_put(struct name_book *b, struct str host, const struct addr *addr)
{
    if (!b) return;
    lock_take(&b->lock);
    struct page *p = page_find(b, host);
    if (!p) p = page_make(b, host);
    if (p) p->addr = *addr;
    lock_drop(&b->lock);
}

/* ---- the table ---- */

static struct list *bucket_of(struct resolver *r, struct str host)
{
    return &r->bucket[hash_keyed(host.data, host.len) % BUCKETS];
}

static struct resolver_name *name_find(struct resolver *r, struct str host)
{
    LIST_EACH (bucket_of(r, host), node) {
        struct resolver_name *n = CONTAINER_OF(node, struct resolver_name, node);
        if (str_eq(n->host, host)) return n;
    }
    return NULL;
}

static void name_free(struct resolver *r, struct resolver_name *n)
{
    if (n->job) n->job->name = NULL;
    list_remove(&n->node);
    list_remove(&n->lru);
    r->name_count--;
    free(n);
}

static bool make_room(struct resolver *r)
{
    if (r->name_count < RESOLVER_NAMES_MAX) return true;
    LIST_EACH (&r->lru, node) {
        struct resolver_name *n = CONTAINER_OF(node, struct resolver_name, lru);
        if (n->use_count > 0) continue;
        name_free(r, n);
        return true;
    }
    return false;
}

static int name_make(struct resolver *r, struct str host, struct resolver_name **ret)
{
    if (!make_room(r)) return -ENOSPC;
    struct resolver_name *n = FAULT("resolver.name") ? NULL : calloc(1, sizeof *n + host.len);
    if (!n) return -ENOMEM;
    char *copy = (char *)(n + 1);
    memcpy(copy, host.data, host.len);
    n->host = str_of(copy, host.len);
    list_init(&n->waits);
    list_push_back(bucket_of(r, host), &n->node);
    list_push_back(&r->lru, &n->lru);
    r->name_count++;
    n->known = book_get(r->book, host, &n->addr); /* known_us 0: a question is due */
    *ret = n;
    return 0;
}

/* ---- questions and answers ---- */

static int put_question(struct resolver *r, struct resolver_name *n)
{
    int rc = r->helper ? 0 : helper_start(r);
    if (rc < 0) return rc;
    struct job *job = calloc(1, sizeof *job);
    if (!job) return -ENOMEM;
    job->name = n;
    memcpy(job->host, n->host.data, n->host.len);
    n->job = job;
    n->doubted = false;
    count_add(&r->counts.asked, 1);
    struct helper *h = r->helper;
    lock_take(&h->lock);
    list_push_back(n->known ? &h->refreshed : &h->asked, &job->node);
    pthread_cond_signal(&h->wake);
    lock_drop(&h->lock);
    return 0;
}

static void take_answer(struct resolver *r, struct job *job)
{
    struct resolver_name *n = job->name;
    if (job->rc < 0) count_add(&r->counts.failed, 1);
    if (!n) return;
    n->job = NULL;
    n->asked_us = loop_now_us(r->loop);
    if (job->rc == 0) {
        n->addr = job->addr;
        n->known_us = n->asked_us;
        n->known = true;
        book_put(r->book, n->host, &n->addr);
    }
    /* A use that is told may leave, and others with it: the list is read anew each time. */
    n->use_count++;
    for (struct list *node; (node = list_pop_front(&n->waits));) {
        struct resolver_use *use = CONTAINER_OF(node, struct resolver_use, node);
        const struct addr found = n->addr;
        use->fn(use->arg, n->known ? 0 : -ENOENT, &found);
    }
    n->use_count--;
}

static void on_answers(void *arg, uint32_t events)
{
    (void)events;
    struct resolver *r = arg;
    struct helper *h = r->helper;
    uint64_t many;
    if (read(h->event_fd, &many, sizeof many) < 0) return; /* nothing, after all */
    for (;;) {
        lock_take(&h->lock);
        struct list *node = list_pop_front(&h->answered);
        lock_drop(&h->lock);
        if (!node) return;
        struct job *job = CONTAINER_OF(node, struct job, node);
        take_answer(r, job);
        free(job);
    }
}

static bool is_due(const struct resolver_name *n, int64_t now_us)
{
    if (n->job || now_us - n->asked_us < RESOLVER_AGAIN_US) return false;
    return n->doubted || now_us - n->known_us >= RESOLVER_FRESH_US;
}

/* Answers at once with the last good address, and asks again beside it if that is due. */
static void answer_known(struct resolver *r, struct resolver_name *n, struct addr *ret)
{
    int64_t now_us = loop_now_us(r->loop);
    if (n->asked_us > n->known_us) count_add(&r->counts.stale, 1);
    if (is_due(n, now_us) && put_question(r, n) < 0) n->asked_us = now_us;
    *ret = n->addr;
}

static int find_or_make(struct resolver *r, struct str host, struct resolver_name **ret)
{
    if (host.len == 0 || host.len >= HOST_BYTES || memchr(host.data, 0, host.len)) return -EINVAL;
    *ret = name_find(r, host);
    if (*ret) return 0;
    int rc = name_make(r, host, ret);
    if (rc < 0) count_add(&r->counts.refused, 1);
    return rc;
}

int resolver_ask(struct resolver *r, struct str host, struct resolver_use *use, struct addr *ret)
{
    struct resolver_name *n = NULL;
    use->name = NULL;
    int rc = find_or_make(r, host, &n);
    if (rc < 0) return rc;
    list_remove(&n->lru);
    list_push_back(&r->lru, &n->lru);
    if (n->known) {
        answer_known(r, n, ret);
    } else if (!n->job && n->asked_us && loop_now_us(r->loop) - n->asked_us < RESOLVER_AGAIN_US) {
        return -ENOENT;
    } else {
        if (!n->job) rc = put_question(r, n);
        if (rc < 0) return rc;
        list_push_back(&n->waits, &use->node);
        rc = -EINPROGRESS;
    }
    use->name = n;
    n->use_count++;
    return rc;
}

void resolver_leave(struct resolver *r, struct resolver_use *use)
{
    (void)r;
    struct resolver_name *n = TAKE(use->name);
    if (!n) return;
    if (list_linked(&use->node)) list_remove(&use->node);
    n->use_count--;
}

void resolver_doubt(struct resolver *r, const struct resolver_use *use)
{
    (void)r;
    if (use->name) use->name->doubted = true;
}

/* ---- life ---- */

int resolver_new(struct loop *l, struct name_book *book, struct resolver **ret, struct err *err)
{
    struct resolver *r = calloc(1, sizeof *r);
    if (!r) return err_set(err, -ENOMEM, "resolver: out of memory");
    r->loop = l;
    r->book = book;
    list_init(&r->lru);
    for (int i = 0; i < BUCKETS; i++)
        list_init(&r->bucket[i]);
    *ret = r;
    return 0;
}

void resolver_free(struct resolver *r)
{
    if (!r) return;
    LIST_EACH_SAFE (&r->lru, node) {
        struct resolver_name *n = CONTAINER_OF(node, struct resolver_name, lru);
        for (struct list *wait; (wait = list_pop_front(&n->waits));)
            CONTAINER_OF(wait, struct resolver_use, node)->name = NULL;
        n->job = NULL; /* freed with the helper, or by the thread */
        name_free(r, n);
    }
    struct helper *h = r->helper;
    if (h) {
        loop_watch_del(r->loop, &r->watch);
        lock_take(&h->lock);
        h->closing = true;
        pthread_cond_signal(&h->wake);
        helper_leave(h);
    }
    free(r);
}

void resolver_counts_get(const struct resolver *r, struct resolver_counts *ret)
{
    ret->asked = count_get(&r->counts.asked);
    ret->failed = count_get(&r->counts.failed);
    ret->stale = count_get(&r->counts.stale);
    ret->refused = count_get(&r->counts.refused);
}
