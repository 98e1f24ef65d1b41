/* pull_store.h - says what URLs of object stores name, where their objects are fetched, and what a store lists.
 *
 * Layer:  cli (base/io/xml, base/core). Pure.
 * URLs:   s3://BUCKET/KEY, gs://BUCKET/KEY, az://ACCOUNT/CONTAINER/BLOB, and without a query
 *         https://ACCOUNT.blob.core.windows.net/CONTAINER/BLOB. A key that ends in '/' is a folder
 * Source: Amazon S3 API reference ("GetObject", "ListObjectsV2", "Virtual hosting of buckets"), Cloud Storage XML API,
 *         "List Blobs" of Azure's Blob service REST API. The first two list in one form
 * Trust:  none in a listing: its names are checked as those of a hub's (pull_source.h)
 */
#pragma once
#include "cli/pull/pull_source.h"

/* Reads a URL of a store into ret->store, bucket, key and name. -EINVAL with a sentence. */
int pull_store_parse(struct str text, struct pull_url *ret, struct err *err);

/* Returns true if a plain URL is that of a blob which a login may open. */
bool pull_store_is_blob(struct str text);

/* Where a store is: `endpoint` empty: the provider's own. With one, buckets are parts of the path. */
struct pull_store_place {
    struct str endpoint, region; /* the region is of S3 */
};

/* Appends the URL of an object. `name` replaces the key's last part, or is added to a folder's; empty: the key. */
int pull_store_object_url(const struct pull_url *url, const struct pull_store_place *at,
                          struct str name, struct buf *out);

/* Appends the URL of a page of the folder's listing; `next` empty: the first. */
int pull_store_list_url(const struct pull_url *url, const struct pull_store_place *at,
                        struct str next, struct buf *out);

/* Adds a page of a listing, with names below the folder, and appends what asks for the next to `ret_next`; nothing:
 * that was the last. The errors of pull_listing_add. */
int pull_store_add(struct pull_listing *l, const struct pull_url *url, struct str xml,
                   struct buf *ret_next, struct err *err);
