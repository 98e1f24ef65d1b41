/* pull_source.h - reads what a URL names, and what a repository of the Hugging Face hub lists.
 *
 * Layer: cli (base/core, base/io/models.h). Pure.
 * URLs:  https://HOST/..., http://HOST/..., hf://ORG/REPO[@REV][/FILE], and those of object stores (pull_store.h)
 * Trust: none. A name that could leave its folder is refused, and with it the whole listing
 * Bound: PULL_FILES_MAX files; PULL_NAME_BYTES_MAX a name, PULL_DEPTH_MAX folders in it
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "base/core/err.h"

#define PULL_FILES_MAX 1024u     /* of one model */
#define PULL_LISTED_MAX 8192u    /* of one repository */
#define PULL_NAME_BYTES_MAX 512u /* of a file below its folder */
#define PULL_PART_BYTES_MAX 200u /* between two slashes; a file system has 255, less our endings */
#define PULL_DEPTH_MAX 4u
#define PULL_URL_BYTES_MAX 4096u
#define PULL_HUB "https://huggingface.co"
#define PULL_BYTES_UNKNOWN UINT64_MAX

enum pull_store { PULL_STORE_NONE, PULL_STORE_S3, PULL_STORE_GCS, PULL_STORE_BLOB };

struct pull_url {
    struct str text;
    bool hub;
    /* Of the hub: ORG/REPO; "main" unless said; empty: the whole model. */
    struct str repo, rev, file;
    enum pull_store store;
    struct str account, bucket, key;    /* of a store; the account is Azure's */
    bool folder;                        /* the key is that of all objects below it */
    char name[PULL_PART_BYTES_MAX + 1]; /* of the file or the folder that it becomes */
};

/* Returns true if the word is a URL of any kind, and not a name. */
bool pull_url_is(struct str text);

/* -EINVAL with a sentence that says what is wanted. The parts point into `text`. */
int pull_url_parse(struct str text, struct pull_url *ret, struct err *err);

/* Copies a URL without query and fragment, for sentences. */
void pull_url_shown(struct str url, char *ret, size_t bytes);

/* Returns true for a relative path whose parts are plain names: none is empty or begins with a dot, and none has a
 * control character, a backslash or a colon. */
bool pull_name_is_safe(struct str name);

struct pull_item {
    struct str name;   /* below the model's folder */
    uint64_t bytes;    /* or PULL_BYTES_UNKNOWN */
    struct str sha256; /* in hex; empty: not known */
    bool chosen;
};

struct pull_listing { /* starts as { 0 } */
    struct arena arena;
    struct pull_item *items; /* PULL_LISTED_MAX */
    uint32_t count;
};
void pull_listing_fini(struct pull_listing *l);

/* Adds a file to a listing, unless a part of its name begins with a dot. The errors of pull_listing_add. */
int pull_listing_keep(struct pull_listing *l, struct str name, uint64_t bytes, struct str sha256,
                      struct err *err);

/* Adds a page of the hub's reply to api/models/ORG/REPO/tree/REV. Files with a part that begins with a dot are passed
 * over. -EINVAL: not such a reply, or a name that is not safe; -E2BIG, -ENOMEM. */
int pull_listing_add(struct pull_listing *l, struct str json, struct err *err);

/* Chooses the files of the model and puts them first, in the order of their names; l->count is their number then.
 * With url->file: that one, or all shards of it. Without: a folder in Hugging Face's format. -ENOENT: the repository
 * has no such file, or no such model; the sentence says what it has. */
int pull_listing_choose(struct pull_listing *l, const struct pull_url *url, struct err *err);

/* Appends a URL of the hub: the revision's commit, a page of its files, one file. */
int pull_hub_commit_url(struct str endpoint, const struct pull_url *url, struct buf *out);
int pull_hub_tree_url(struct str endpoint, const struct pull_url *url, struct str commit,
                      struct buf *out);
int pull_hub_file_url(struct str endpoint, const struct pull_url *url, struct str commit,
                      struct str name, struct buf *out);

/* Finds the next page in a Link header. Empty: there is none; -EPROTO: it is not at the endpoint. */
int pull_next_page(struct str link, struct str endpoint, struct str *ret, struct err *err);
