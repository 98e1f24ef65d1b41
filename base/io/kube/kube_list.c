/* kube_list.c - asks for one chunk after another and hands out the objects.
 *
 * The first chunk asks for the most recent state (no resourceVersion), so that a watch from there misses
 * nothing; a state from a server's cache (resourceVersion=0) may be older than one already seen. */
#include "base/io/kube/kube_list.h"

#include <stdlib.h>

struct kube_list {
    struct kube_client *client;
    struct kube_list_request req; /* its texts are in `texts` */
    struct arena texts;
    struct kube_call *call;
    struct buf more; /* the token of the next chunk */
    char version[KUBE_VERSION_BYTES];
    uint32_t attempts, count;
    bool inside, cancelled; /* a callback is on the stack; it cancelled the listing */
};

static void list_free(struct kube_list *l)
{
    buf_fini(&l->more);
    arena_fini(&l->texts);
    free(l);
}

void kube_list_cancel(struct kube_list *l)
{
    if (l->call) kube_cancel(l->call);
    l->call = NULL;
    l->cancelled = true;
    if (!l->inside) list_free(l);
}

static void list_end(struct kube_list *l, int rc, int code, const char *problem)
{
    struct kube_list_end end = {
        .rc = rc, .code = code, .problem = problem, .version = l->version, .count = l->count
    };
    l->inside = true;
    l->req.on_end(l->req.arg, &end);
    list_free(l);
}

static void on_item(void *arg, struct str object)
{
    struct kube_list *l = arg;
    if (l->cancelled) return;
    l->count++;
    l->req.on_item(l->req.arg, object);
}

static void on_chunk(void *arg, const struct kube_reply *reply);

static int ask(struct kube_list *l, struct err *err)
{
    int64_t now_us = loop_now_us(kube_client_loop(l->client));
    uint32_t limit = l->req.limit ? l->req.limit : KUBE_LIST_LIMIT;
    const struct kube_request req = {
        .verb = KUBE_LIST,
        .resource = l->req.resource,
        .ns = l->req.ns,
        .label_selector = l->req.label_selector,
        .field_selector = l->req.field_selector,
        .limit = l->attempts <= KUBE_LIST_ATTEMPTS ? limit : 0,
        .cont = buf_view(&l->more),
        .urgent = l->req.urgent,
        .deadline_us = l->req.deadline_us ? now_us + l->req.deadline_us : 0,
        .on_end = on_chunk,
        .arg = l,
    };
    return kube_start(l->client, &req, &l->call, err);
}

/* Begins the listing, for the first time or anew. */
static int list_begin(struct kube_list *l, struct err *err)
{
    l->attempts++;
    l->count = 0;
    buf_clear(&l->more);
    return ask(l, err);
}

/* Reads a chunk and asks for the next one. Returns 1 when it was the last. */
static int chunk_read(struct kube_list *l, struct str body, struct err *err)
{
    char version[KUBE_VERSION_BYTES];
    CLEANUP(buf_fini) struct buf more = { 0 };
    if (l->more.len == 0 && l->req.on_begin) l->req.on_begin(l->req.arg);
    if (l->cancelled) return 0;
    int rc = kube_list_read(body, on_item, l, version, &more, err);
    if (rc < 0 || l->cancelled) return rc;
    memcpy(l->version, version, sizeof version);
    buf_clear(&l->more);
    rc = buf_str(&l->more, buf_view(&more));
    if (rc < 0) return err_set(err, rc, "no memory for the list");
    return l->more.len == 0 ? 1 : ask(l, err);
}

static void on_chunk(void *arg, const struct kube_reply *reply)
{
    struct kube_list *l = arg;
    struct err err = { 0 };
    int rc = reply->rc;
    l->call = NULL;
    if (rc == -ETIME && l->more.len > 0) {
        rc = list_begin(l, &err);
        if (rc < 0) list_end(l, rc, reply->code, err.text);
        return;
    }
    if (rc < 0) {
        list_end(l, rc, reply->code, reply->problem);
        return;
    }
    l->inside = true;
    rc = chunk_read(l, reply->body, &err);
    l->inside = false;
    if (l->cancelled)
        list_free(l);
    else if (rc != 0)
        list_end(l, rc < 0 ? rc : 0, reply->code, rc < 0 ? err.text : "");
}

static int keep(struct kube_list *l, struct str *s)
{
    if (s->len == 0) return 0;
    *s = arena_str(&l->texts, *s);
    return s->data ? 0 : -ENOMEM;
}

int kube_list_start(struct kube_client *c, const struct kube_list_request *req,
                    struct kube_list **ret, struct err *err)
{
    struct kube_list *l = calloc(1, sizeof *l);
    if (!l) return err_set(err, -ENOMEM, "no memory for a list");
    l->client = c;
    l->req = *req;
    arena_init(&l->texts, 64 << 10);
    int rc = keep(l, &l->req.ns);
    if (rc == 0) rc = keep(l, &l->req.label_selector);
    if (rc == 0) rc = keep(l, &l->req.field_selector);
    if (rc < 0) err_set(err, rc, "no memory for a list");
    if (rc == 0) rc = list_begin(l, err);
    if (rc < 0) {
        list_free(l);
        return rc;
    }
    *ret = l;
    return 0;
}
