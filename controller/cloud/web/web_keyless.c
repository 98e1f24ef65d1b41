/* web_keyless.c - drives create, remove and list of providers without idempotency keys.
 *
 * Rejected: a name as the thing that is looked up. Providers here let people rename machines, and cut names; tags
 * that came with the order are what the listing gives back unchanged. */
#include "controller/cloud/web/web_keyless.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "controller/cloud/web/web_section.h"
#include "controller/cloud/web/web_step.h"

#include <stdio.h>
#include <string.h>

#define STAGE_LOOK 0xF0000000u   /* of a create and of a remove: the listing is asked for */
#define STAGE_REMOVE 0xF0000001u /* the end of a machine is asked for */
#define STAGE_HANDLE 0xF0000002u /* likewise, of the one that the caller knows */

int web_note_push(struct web_op *op, struct str word)
{
    size_t at = strlen(op->note);
    if (at + word.len + 2 > sizeof op->note) return -E2BIG;
    snprintf(op->note + at, sizeof op->note - at, "%s" STR_FMT, at > 0 ? " " : "", STR_ARG(word));
    return 0;
}

bool web_note_pop(struct web_op *op, struct str *ret)
{
    struct str rest = str_from(op->note), word = str_cut(&rest, ' ');
    if (word.len == 0) return false;
    *ret = arena_str(op->arena, word);
    memmove(op->note, rest.data ? rest.data : "", rest.data ? rest.len + 1 : 1);
    return ret->data != NULL;
}

/* ---- a page of the listing ---- */

struct page {
    const struct web_keyless *kind;
    const struct web_provider *p;
    struct web_op *op;
    const struct web_moment *at;
};

/* Keeps a listed machine, or one that has the intent which is looked for. */
static int take(void *ctx, struct str item)
{
    struct page *page = ctx;
    struct web_op *op = page->op;
    struct web_machine m = { 0 };
    int rc = page->kind->read(page->at, op, item, &m);
    if (rc < 0) return rc;
    if (!str_eq(str_from(m.fleet), page->p->settings->fleet)) return 0;
    if (op->kind == WEB_LIST) {
        if (op->count == CLOUD_LIST_MAX) return -E2BIG;
        op->item[op->count++] = m.listed;
        return 0;
    }
    if (strcmp(m.listed.intent, op->call->intent) != 0) return 0;
    if (op->kind == WEB_REMOVE) return m.ended ? 0 : web_note_push(op, str_from(m.listed.handle));
    if (!op->made.handle[0]) op->made = m.listed;
    return 0;
}

static struct str next_of(const struct web_keyless *k, struct arena *arena, struct str body)
{
    CLEANUP(buf_fini) struct buf next = { 0 };
    if (k->find_next) return k->find_next(arena, body);
    if (!k->next_page || json_path_text(body, k->next_page, &next) < 0) return (struct str){ 0 };
    return arena_str(arena, buf_view(&next));
}

/* Takes a page. True: it was the last. Otherwise the op goes on with the next, or has ended. */
static bool take_page(const struct web_keyless *k, const struct web_provider *p, struct web_op *op,
                      const struct web_reply *r, const struct web_moment *at, struct web_step *ret)
{
    struct page page = { k, p, op, at };
    if (r->status != 200) {
        k->refuse(p, op, r, ret);
        return false;
    }
    int rc = json_path_each(r->body, k->list, take, &page);
    if (rc == -E2BIG) {
        web_refuse(ret, OFFER_INVALID, "%s of %s: more machines are ours than fit: %d",
                   web_op_names[op->kind], p->kind->name, CLOUD_LIST_MAX);
        return false;
    }
    if (rc < 0) {
        web_refuse(ret, OFFER_TRANSIENT, "%s of %s: the reply is no list of machines",
                   web_op_names[op->kind], p->kind->name);
        return false;
    }
    struct str next = next_of(k, op->arena, r->body);
    if (next.len == 0) return true;
    k->ask_page(p, op, next, ret);
    return false;
}

/* ---- ops ---- */

static void list(const struct web_keyless *k, const struct web_provider *p, struct web_op *op,
                 const struct web_reply *r, const struct web_moment *at, struct web_step *ret)
{
    if (!r)
        k->ask_page(p, op, (struct str){ 0 }, ret);
    else if (take_page(k, p, op, r, at, ret))
        web_succeed(ret);
}

static void look(const struct web_keyless *k, const struct web_provider *p, struct web_op *op,
                 struct web_step *ret)
{
    op->stage = STAGE_LOOK;
    k->ask_page(p, op, (struct str){ 0 }, ret);
}

/* Fills a new instance from its order, until a listing shows it. */
static void fill_made(struct web_op *op)
{
    struct listed *l = &op->made;
    web_text_copy(l->intent, sizeof l->intent, str_from(op->call->intent));
    web_text_copy(l->service, sizeof l->service, op->spec->service);
    web_text_copy(l->pool, sizeof l->pool, op->spec->pool);
    web_text_copy(l->offer, sizeof l->offer, op->spec->offer);
}

static void order(const struct web_keyless *k, const struct web_provider *p, struct web_op *op,
                  const struct web_reply *r, const struct web_moment *at, struct web_step *ret)
{
    k->order(p, op, r, at, ret);
    if (ret->next == WEB_END && ret->rc == 0) fill_made(op);
}

static void create(const struct web_keyless *k, const struct web_provider *p, struct web_op *op,
                   const struct web_reply *r, const struct web_moment *at, struct web_step *ret)
{
    if (!r && op->stage == 0 && op->asks == 0) {
        look(k, p, op, ret);
    } else if (op->stage != STAGE_LOOK) {
        order(k, p, op, r, at, ret);
    } else if (take_page(k, p, op, r, at, ret)) {
        op->stage = 0;
        if (op->made.handle[0])
            web_succeed(ret);
        else
            order(k, p, op, NULL, at, ret);
    }
}

static void remove_next(const struct web_keyless *k, const struct web_provider *p,
                        struct web_op *op, struct web_step *ret)
{
    struct str handle;
    op->stage = STAGE_REMOVE;
    if (web_note_pop(op, &handle))
        k->ask_remove(p, op, handle, ret);
    else
        web_succeed(ret);
}

static bool is_removed(const struct web_keyless *k, const struct web_reply *r)
{
    if (r->status == 404) return true;
    return k->is_removed ? k->is_removed(r) : r->status >= 200 && r->status < 300;
}

static void remove_machine(const struct web_keyless *k, const struct web_provider *p,
                           struct web_op *op, const struct web_reply *r,
                           const struct web_moment *at, struct web_step *ret)
{
    if (!r && op->call->handle[0]) {
        op->stage = STAGE_HANDLE;
        k->ask_remove(p, op, str_from(op->call->handle), ret);
    } else if (!r) {
        look(k, p, op, ret);
    } else if (op->stage == STAGE_LOOK) {
        if (take_page(k, p, op, r, at, ret)) remove_next(k, p, op, ret);
    } else if (op->stage == STAGE_HANDLE && r->status == 404) {
        look(k, p, op, ret); /* it is gone, and what still has the intent is a late duplicate */
    } else if (is_removed(k, r)) {
        remove_next(k, p, op, ret);
    } else {
        k->refuse(p, op, r, ret);
    }
}

void web_keyless_step(const struct web_keyless *k, const struct web_provider *p, struct web_op *op,
                      const struct web_reply *reply, const struct web_moment *at,
                      struct web_step *ret)
{
    if (op->kind == WEB_CREATE)
        create(k, p, op, reply, at, ret);
    else if (op->kind == WEB_REMOVE)
        remove_machine(k, p, op, reply, at, ret);
    else
        list(k, p, op, reply, at, ret);
}

void web_keyless_serve(const struct web_keyless *k, struct web_provider *p, struct web_op *op,
                       const struct web_reply *reply, const struct web_moment *at,
                       struct web_step *ret)
{
    if (op->kind == WEB_LOGIN)
        web_bearer_login(p, op, ret);
    else if (op->kind == WEB_PRICES)
        k->prices(p, op, reply, ret);
    else
        web_keyless_step(k, p, op, reply, at, ret);
}
