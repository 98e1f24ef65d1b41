/* fake_aws.h - has what fakes of Amazon's services share: keys, sessions, signatures, the clock, the token service and
 * a machine's metadata.
 *
 * Layer: tests/fakes/cloud (controller/cloud/web/aws_sign, base/core)
 * Has:   Signature Version 4 checked over method, path, query, signed headers and body, the date within five minutes;
 *        AssumeRoleWithWebIdentity; instance metadata v2 with one role. Sessions end after session_us
 */
#pragma once
#include "tests/fakes/cloud/fake_form.h"

#define AWS_SESSIONS_MAX 64
#define AWS_PARAMETERS_MAX 256

struct fake_aws {
    const char *key_id, *secret; /* of a user; sessions have their own */
    const char *region;
    const char *role;     /* that the machine has; NULL: none */
    const char *identity; /* the web identity that is taken; NULL: none */
    int64_t date_us;      /* the services' date less the fleet's time */
    int64_t session_us;   /* how long a session lives */
    int64_t session_end_us[AWS_SESSIONS_MAX];
    uint32_t session_count;
};

struct aws_answer {
    int status;
    const char *content_type;
    struct buf body;
};

/* Takes apart a form in the order in which it was sent. */
struct aws_parameters {
    struct str name[AWS_PARAMETERS_MAX], value[AWS_PARAMETERS_MAX];
    uint32_t count;
};
int aws_parameters_read(struct arena *arena, struct str body, struct aws_parameters *ret);
struct str aws_parameter(const struct aws_parameters *p, const char *name); /* data NULL: absent */

/* Appends a text with the five characters of XML escaped. */
void aws_put_xml(struct buf *out, struct str text);

/* Checks the signature for a service. NULL: it holds; else the code of the error, and *ret_why is a sentence. */
const char *fake_aws_check(struct fake_aws *a, const struct web_ask *ask, const char *service,
                           int64_t now_us, struct arena *arena, const char **ret_why);

/* Answers a request for a machine's metadata, below /latest/. */
void fake_aws_metadata(struct fake_aws *a, const struct web_ask *ask, struct str path,
                       int64_t now_us, struct aws_answer *ret);

/* Answers AssumeRoleWithWebIdentity. */
void fake_aws_sts(struct fake_aws *a, const struct aws_parameters *p, int64_t now_us,
                  struct aws_answer *ret);

/* Prints a date as HTTP headers have it, into `arena`. */
struct str fake_aws_http_date(const struct fake_aws *a, int64_t now_us, struct arena *arena);
