/* record.h - writes routing decisions to a bounded file: view, verdict and outcome of each.
 *
 * Layer:    router (router/core, base/io)
 * Threads:  written by the decision thread, through a buffer; read by `muster replay`
 * Rules:    (1) it holds views, requests as the policy sees them (lengths and hashes, no text),
 *               verdicts and the events told to policies: all that a policy needs to decide again
 *           (2) at bytes_max nothing more is written; entries left out are counted
 *           (3) a reader of another layout refuses the file: its head carries version and sizes
 */
#pragma once
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/core/str.h"
#include "router/core/dispatch.h"

struct record;

/* Truncates `path`, mode 0600. -errno with a sentence. `row` is the routing policy at the start. */
int record_open(const char *path, uint64_t bytes_max, const struct route_policy *policy,
                struct record **ret, struct err *err);
uint64_t record_close(struct record *r); /* returns how many entries were left out; NULL: 0 */
const struct dispatch_watch *record_watch(struct record *r);

/* Notes the policy that decides from now on. */
void record_row(struct record *r, const struct route_policy *policy);

enum record_kind { RECORD_ROW, RECORD_DECISION, RECORD_EVENT, RECORD_KIND_COUNT };

struct record_entry {
    enum record_kind kind;
    uint64_t id; /* of the decision */
    int64_t at_us;
    char row[64]; /* RECORD_ROW */

    /* RECORD_DECISION; the view's instances are the reader's, until the next entry */
    struct route_view view;
    struct route_req req;
    struct route_verdict verdict;

    struct route_event event; /* RECORD_EVENT */
};

struct record_reader {
    struct str rest;
    bool torn; /* the file ended within an entry: its writer was killed, or still writes */
    struct route_instance instance[DISPATCH_ENDPOINTS];
};

/* `file` is the whole file and stays. -EINVAL when it is not a record of this version. */
int record_read_begin(struct record_reader *r, struct str file, struct err *err);

/* 1 an entry, 0 the end (a torn last entry too: then r->torn), -EINVAL nonsense. */
int record_read(struct record_reader *r, struct record_entry *ret, struct err *err);
