/* store_kube.c - keeps the store of several controllers in objects of Kubernetes: a Lease, ConfigMaps, and Secrets.
 *
 *     Lease      NAME-store               who leads, and how often each other object was written
 *     ConfigMap  NAME-store-r0 .. r31     entries
 *     Secret     NAME-store-s0 .. s3      entries whose keys the opener calls secret
 *     ConfigMap  NAME-store-l0 .. l11     logs, KUBE_LOG_SEGMENTS objects each
 *
 * The number of objects is fixed. An API server compares the version of one object only, so a term begins with a
 * write to each of them: the new leader stamps its epoch on all, and from then on the versions that an old leader
 * knows are old. A late write of the old one fails (409). One that comes before the stamp is read and kept: the
 * old leader did it in its time. No object is made later, so nothing can be made late.
 *
 * A handle that has a term reads from its memory, which is what is stored: it alone writes. A write is one merge
 * patch of one object, with the change only. Where a value moves from one object to another, it is added first,
 * and the older version counts for nothing.
 *
 * Content that is lost (an object was deleted, emptied or restored from a backup) is told by the life and the
 * counts of writes, which Lease, objects and copies have, and is written anew from the copy of the next leader.
 *
 * Rejected: one object for each entry: a new leader could not stamp what does not exist yet. Rejected: one object
 * with a journal and the others behind it: a term begins with one write, and each needs two. Rejected: listing,
 * because a right to list cannot be limited to names, and would show all Secrets of the namespace. */
#include "base/io/store/store_backend.h"
#include "base/io/store/store_kube_state.h"

#include <stdio.h>
#include <stdlib.h>

static bool kube_is_reached(const struct store *s)
{
    return kube_link_is_up(((const struct kube_store *)(const void *)s)->link);
}

static void kube_close(struct store *s)
{
    struct kube_store *k = kube_store_of(s);
    for (uint32_t i = 0; i < KUBE_SHARDS; i++) {
        shard_fini(&k->shard[i]);
        buf_fini(&k->job[i].body);
    }
    kube_link_free(k->link);
    free(k->entry);
    free(k);
}

static const struct store_ops kube_ops = {
    .close = kube_close,
    .get = kube_entry_get,
    .put_if = kube_entry_put_if,
    .delete_if = kube_entry_delete_if,
    .list = kube_entry_list,
    .append = kube_log_append,
    .log_read = kube_log_read,
    .log_stat = kube_log_stat,
    .lease_see = kube_term_see,
    .lease_acquire = kube_term_acquire,
    .lease_renew = kube_term_renew,
    .lease_release = kube_term_release,
    .refresh = kube_term_refresh,
    .is_reached = kube_is_reached,
    .changes = kube_term_changes,
};

bool store_kube_is_named(struct str url)
{
    return str_eq(url, STR("kubernetes")) || str_starts(url, STR("kubernetes://"));
}

/* Splits kubernetes://NAMESPACE[/NAME]. */
static int take_url(struct str url, struct store_kube_config *c, struct err *err)
{
    struct str rest = url, scheme = str_cut(&rest, ':');
    if (!str_eq(scheme, STR("kubernetes"))) return err_set(err, -EINVAL, "want " STORE_KUBE_FORMS);
    if (url.len == scheme.len) return 0;
    if (!str_starts(rest, STR("//"))) return err_set(err, -EINVAL, "want " STORE_KUBE_FORMS);
    rest = str_of(rest.data + 2, rest.len - 2);
    bool named = memchr(rest.data, '/', rest.len) != NULL;
    c->ns = str_cut(&rest, '/');
    if (named) c->fleet = rest;
    if (c->ns.len == 0) return err_set(err, -EINVAL, "no namespace: want " STORE_KUBE_FORMS);
    return 0;
}

/* A name is the beginning of objects' names. */
static int check_name(struct str name, struct err *err)
{
    bool good = name.len > 0 && name.len < KUBE_FLEET_BYTES && name.data[0] != '-';
    for (size_t i = 0; good && i < name.len; i++) {
        char ch = name.data[i];
        good = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '-';
    }
    if (good) return 0;
    return err_set(err, -EINVAL,
                   "\"" STR_FMT "\" cannot begin names of Kubernetes objects: want 1 to %d small "
                   "letters, digits and '-', in controller.store or controller.store_fleet",
                   STR_ARG(name), KUBE_FLEET_BYTES - 1);
}

static void name_shards(struct kube_store *k)
{
    for (uint32_t s = 0; s < KUBE_SHARDS; s++) {
        struct shard *shard = &k->shard[s];
        shard->secret = s >= KUBE_FIRST_SECRET && s < KUBE_FIRST_LOG;
        char kind = s < KUBE_FIRST_SECRET ? 'r' : s < KUBE_FIRST_LOG ? 's' : 'l';
        uint32_t first = s < KUBE_FIRST_SECRET ? 0
                         : s < KUBE_FIRST_LOG  ? KUBE_FIRST_SECRET
                                               : KUBE_FIRST_LOG;
        snprintf(shard->name, sizeof shard->name, "%s-store-%c%u", k->name, kind, s - first);
    }
}

int store_kube_open(const struct store_kube_config *config, struct store **ret, struct err *err)
{
    struct store_kube_config c = *config;
    must(c.secret_count <= KUBE_SECRETS_MAX);
    int rc = take_url(c.url, &c, err);
    if (rc == 0) rc = check_name(c.fleet, err);
    if (rc < 0) return rc;
    struct kube_store *k = calloc(1, sizeof *k);
    if (!k) return err_set(err, -ENOMEM, "store: no memory");
    k->store = (struct store){ .ops = &kube_ops, .shared = true };
    k->timeout_us = c.timeout_us;
    snprintf(k->name, sizeof k->name, STR_FMT, STR_ARG(c.fleet));
    for (uint32_t i = 0; i < c.secret_count; i++) {
        must(strlen(c.secret[i]) < KUBE_SECRET_BYTES);
        snprintf(k->secret[k->secret_count++], KUBE_SECRET_BYTES, "%s", c.secret[i]);
    }
    name_shards(k);
    rc = kube_link_new(&c, &k->link, err);
    if (rc < 0) {
        free(k);
        return rc;
    }
    *ret = &k->store;
    return 0;
}
