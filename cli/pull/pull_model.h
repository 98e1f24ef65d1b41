/* pull_model.h - fetches all files of a model and gives it its name once it is whole and checked.
 *
 * Layer: cli
 * Files: DEST.part, a file or a folder, until then. A folder's .source says what it was begun with: another commit
 *        begins anew
 * Hub:   the revision is resolved to a commit first, so that all files are of one
 */
#pragma once
#include "cli/pull/pull_file.h"
#include "cli/pull/pull_seed.h"
#include "cli/pull/pull_source.h"

#define PULL_PAGES_MAX 64u /* of a repository's listing */
#define PULL_LISTING_BYTES_MAX ((size_t)16 << 20)

struct pull_model {
    struct pull_url url;
    struct str endpoint, token; /* of the hub; empty token: none */
    struct pull_login *login;   /* of an object store; NULL: the URL is of none */
    struct str store_endpoint;  /* empty: the provider's own */
    const char *dest;           /* the file, or the folder of several */
    struct str sha256;          /* of the whole model (model_check.h); empty: not known */
    struct pull_room *room;
    struct pull_seeds *seeds; /* agents that may have it; NULL: none */
    const char *seal;         /* file to write its seal to; NULL: none */
    bool report;              /* lines of numbers for an agent go to stdout (agent/weights.c) */
};

struct pull_result {
    char sha256[SHA256_HEX + 1];
    uint64_t bytes, fetched;
};

/* Returns true if the URL is of several files, for which dest is a folder. */
bool pull_url_is_many(const struct pull_url *url);

/* The errors of pull_file; -EBADMSG for the digest of several files keeps them in DEST.part. */
int pull_model(struct pull_wire *w, const struct pull_model *m, struct pull_result *ret,
               struct err *err);
