/* pull_login.h - finds credentials for an object store and signs requests by them, as the cloud kinds of the
 * controller do.
 *
 *     s3   variables, web identity, ~/.aws/credentials, the machine's role    aws_login.h, aws_sign.h
 *     gs   GOOGLE_APPLICATION_CREDENTIALS, the metadata server                gce_login.h
 *     az   AZURE_CLIENT_SECRET, a federated token, the machine's identity     azure_login.h
 *
 * Layer:   cli (controller/cloud/web, base/io/fetch.h)
 * Threads: one; pull_login_ready turns the loop while it asks for credentials
 * Rules:   (1) where the environment or a file names credentials, every request is signed
 *          (2) where nothing does, the first request is not signed, for a public bucket; one that is refused then is
 *              asked again as the machine
 *          (3) a bearer token goes to https:// or to this machine alone. A signature tells no secret and goes anywhere
 *          (4) credentials are in no sentence; a session is renewed before its end
 */
#pragma once
#include "base/core/own.h"
#include "base/io/fetch.h"
#include "cli/pull/pull_source.h"

#define PULL_LOGIN_HEADERS 4
#define PULL_REGION_BYTES 64

struct pull_login;

/* `environment` and `stopped` outlive it; `stopped` ends a wait with -EINTR. */
struct pull_login_config {
    enum pull_store store;
    struct str endpoint; /* empty: the provider's own */
    const char *const *environment;
    struct loop *loop;
    struct fetch *fetch;
    const bool *stopped;
};

int pull_login_open(const struct pull_login_config *config, struct pull_login **ret,
                    struct err *err);
void pull_login_free(struct pull_login *l);
CLEANUP_FREEP(pull_login, struct pull_login)

/* Returns the region that requests are signed for. */
struct str pull_login_region(const struct pull_login *l);

/* Logs in if requests are to be signed and the login is missing or about to end. -EACCES: no credentials, or they are
 * refused; -EIO: no reply; -EPERM: rule 3. */
int pull_login_ready(struct pull_login *l, struct err *err);

/* The headers of one GET. Texts live until the next call. Never blocks: pull_login_ready came before. -E2BIG: a URL
 * with more parameters than are signed; -ENOMEM. */
int pull_login_sign(struct pull_login *l, struct str url, const struct fetch_header *ret[1],
                    size_t *ret_count);

enum pull_login_verdict {
    PULL_LOGIN_NO,    /* the refusal holds */
    PULL_LOGIN_AGAIN, /* the next request is signed, by a new login */
    PULL_LOGIN_MOVED, /* the bucket is in another region, which is signed for from now on */
};

/* Judges a reply that is no success. `region`: x-amz-bucket-region, empty: absent. */
enum pull_login_verdict pull_login_refused(struct pull_login *l, int status, struct str region);
