/* pull_store.c - parses URLs of object stores, makes those of requests, and reads listings.
 *
 * A bucket stands in the host's name where the store is Amazon's own, because only such URLs work in every region, and
 * in the path elsewhere: stores of others need no wildcard in their DNS for it, nor a certificate. A bucket with a dot
 * is no label that Amazon's certificate covers, so it stands in the path as well. */
#include "cli/pull/pull_store.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/models.h"
#include "base/io/xml.h"

#include <stdio.h>

#define BLOB_HOST ".blob.core.windows.net"
#define TREE_BYTES ((size_t)64 << 20)
#define PAGE_KEYS 1000 /* the most that each of them lists at once */
#define BUCKET_BYTES_MAX 255

static const struct {
    const char *scheme, *form;
} stores[] = {
    [PULL_STORE_S3] = { "s3://", "s3://BUCKET/KEY" },
    [PULL_STORE_GCS] = { "gs://", "gs://BUCKET/KEY" },
    [PULL_STORE_BLOB] = { "az://", "az://ACCOUNT/CONTAINER/BLOB" },
};

/* ---- URLs */

/* A bucket, a container or an account: what needs no encoding in a host or a path. */
static bool is_label(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (i == 0 || (c != '-' && c != '_' && c != '.' && c != '$'))) return false;
    }
    return s.len > 0 && s.len <= BUCKET_BYTES_MAX;
}

/* Cuts the account out of HOST.blob.core.windows.net; empty: it is another host. */
static struct str blob_account(struct str text)
{
    struct str rest = text;
    if (!str_starts(text, STR("https://"))) return (struct str){ 0 };
    rest = str_of(text.data + 8, text.len - 8);
    struct str host = str_cut(&rest, '/');
    if (!str_ends(host, STR(BLOB_HOST))) return (struct str){ 0 };
    return str_of(host.data, host.len - (sizeof BLOB_HOST - 1));
}

bool pull_store_is_blob(struct str text)
{
    return blob_account(text).len > 0 && !memchr(text.data, '?', text.len) &&
           !memchr(text.data, '#', text.len);
}

static bool key_is_safe(struct str key)
{
    struct str name = key;
    if (name.len > 0 && name.data[name.len - 1] == '/') name.len--;
    struct str base = models_base(name);
    if (!str_utf8_valid(key) || key.len > PULL_URL_BYTES_MAX) return false;
    /* The parts before the last go into a URL alone; a client would leave out these two. */
    for (struct str rest = key; rest.len > 0;) {
        struct str part = str_cut(&rest, '/');
        if (str_eq(part, STR(".")) || str_eq(part, STR(".."))) return false;
    }
    return pull_name_is_safe(base);
}

int pull_store_parse(struct str text, struct pull_url *ret, struct err *err)
{
    struct str rest = text;
    enum pull_store store = PULL_STORE_BLOB;
    for (int s = PULL_STORE_S3; s <= PULL_STORE_BLOB; s++)
        if (str_starts(text, str_from(stores[s].scheme))) store = (enum pull_store)s;
    if (pull_store_is_blob(text)) {
        ret->account = blob_account(text);
        (void)str_cut(&rest, ':');
        rest = str_of(rest.data + 2, rest.len - 2);
        (void)str_cut(&rest, '/');
    } else {
        rest = str_of(text.data + 5, text.len - 5);
        if (store == PULL_STORE_BLOB) ret->account = str_cut(&rest, '/');
    }
    ret->store = store;
    ret->text = text;
    ret->bucket = str_cut(&rest, '/');
    ret->key = rest;
    ret->folder = rest.len > 0 && rest.data[rest.len - 1] == '/';
    if (!is_label(ret->bucket) || (store == PULL_STORE_BLOB && !is_label(ret->account)) ||
        !key_is_safe(rest))
        return err_set(err, -EINVAL,
                       "'%.*s' names no object: want %s, or a folder's with a slash at its end",
                       (int)min_size(text.len, 200), text.data, stores[store].form);
    struct str base = models_base(str_of(rest.data, rest.len - (ret->folder ? 1 : 0)));
    snprintf(ret->name, sizeof ret->name, STR_FMT, STR_ARG(base));
    return 0;
}

/* ---- URLs of requests */

/* Encodes all but what Signature Version 4 leaves as it is, so that what is signed is what is sent. */
static void put_encoded(struct str text, bool slashes, struct buf *out)
{
    static const char digit[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || c == '.' || c == '~' || (slashes && c == '/');
        if (plain) {
            buf_byte(out, (char)c);
            continue;
        }
        buf_byte(out, '%');
        buf_byte(out, digit[c >> 4]);
        buf_byte(out, digit[c & 15]);
    }
}

/* Appends the URL of the bucket, without a slash at its end. */
static void put_bucket(const struct pull_url *u, const struct pull_store_place *at, struct buf *out)
{
    struct str end = at->endpoint;
    while (end.len > 0 && end.data[end.len - 1] == '/')
        end.len--;
    const char *tail = str_starts(at->region, STR("cn-")) ? ".cn" : "";
    if (end.len > 0)
        buf_printf(out, STR_FMT "/" STR_FMT, STR_ARG(end), STR_ARG(u->bucket));
    else if (u->store == PULL_STORE_GCS)
        buf_printf(out, "https://storage.googleapis.com/" STR_FMT, STR_ARG(u->bucket));
    else if (u->store == PULL_STORE_BLOB)
        buf_printf(out, "https://" STR_FMT BLOB_HOST "/" STR_FMT, STR_ARG(u->account),
                   STR_ARG(u->bucket));
    else if (memchr(u->bucket.data, '.', u->bucket.len))
        buf_printf(out, "https://s3." STR_FMT ".amazonaws.com%s/" STR_FMT, STR_ARG(at->region),
                   tail, STR_ARG(u->bucket));
    else
        buf_printf(out, "https://" STR_FMT ".s3." STR_FMT ".amazonaws.com%s", STR_ARG(u->bucket),
                   STR_ARG(at->region), tail);
}

int pull_store_object_url(const struct pull_url *url, const struct pull_store_place *at,
                          struct str name, struct buf *out)
{
    struct str before = url->key, base = models_base(url->key);
    if (!url->folder) before.len -= base.len;
    put_bucket(url, at, out);
    buf_byte(out, '/');
    put_encoded(name.len > 0 ? before : url->key, true, out);
    put_encoded(name, true, out);
    return out->rc;
}

int pull_store_list_url(const struct pull_url *url, const struct pull_store_place *at,
                        struct str next, struct buf *out)
{
    bool blob = url->store == PULL_STORE_BLOB;
    put_bucket(url, at, out);
    buf_printf(out,
               blob ? "?restype=container&comp=list&maxresults=%d" : "/?list-type=2&max-keys=%d",
               PAGE_KEYS);
    buf_text(out, "&prefix=");
    put_encoded(url->key, false, out);
    if (next.len > 0) {
        buf_text(out, blob ? "&marker=" : "&continuation-token=");
        put_encoded(next, false, out);
    }
    return out->rc;
}

/* ---- listings */

/* Adds one object. Marks of folders, which some tools leave, are no files. */
static int add_object(struct pull_listing *l, const struct pull_url *url,
                      const struct xml_node *node, const char *name_at, const char *size_at,
                      struct err *err)
{
    struct str name = xml_text(node, name_at);
    uint64_t bytes;
    if (!str_starts(name, url->key))
        return err_set(err, -EINVAL, "the listing names an object that was not asked for");
    name = str_of(name.data + url->key.len, name.len - url->key.len);
    if (name.len == 0 || name.data[name.len - 1] == '/') return 0;
    if (str_to_u64(xml_text(node, size_at), &bytes) < 0)
        return err_set(err, -EINVAL, "the listing has an object without a size");
    return pull_listing_keep(l, name, bytes, (struct str){ 0 }, err);
}

int pull_store_add(struct pull_listing *l, const struct pull_url *url, struct str xml,
                   struct buf *ret_next, struct err *err)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    struct xml_node *root = NULL;
    bool blob = url->store == PULL_STORE_BLOB;
    arena_init(&tree, TREE_BYTES);
    int rc = xml_read(&tree, xml, &root, err);
    if (rc < 0) return err_prefix(err, rc, "the store's listing");
    if (!str_eq(root->name, blob ? STR("EnumerationResults") : STR("ListBucketResult")))
        return err_set(err, -EINVAL, "the store's reply is no listing");
    const struct xml_node *n = xml_at(root, blob ? "Blobs.Blob" : "Contents");
    for (; n && rc == 0; n = xml_next(n))
        rc = add_object(l, url, n, blob ? "Name" : "Key",
                        blob ? "Properties.Content-Length" : "Size", err);
    if (rc < 0) return rc;
    return buf_str(ret_next, xml_text(root, blob ? "NextMarker" : "NextContinuationToken"));
}
