/* aws_call.h - makes requests to Amazon's services, and reads what they say of errors and of the time.
 *
 * Layer:   controller/cloud/web (base/io/xml, base/core)
 * Threads: pure
 * Use:     a body is begun with aws_form and gets parameters by aws_put; aws_ask signs it with the login's key
 */
#pragma once
#include "base/io/xml.h"
#include "controller/cloud/web/web_step.h"

#define AWS_TREE_BYTES ((size_t)64 << 20) /* of a reply as a tree */

struct aws_service {
    struct str endpoint; /* https://HOST, without a path */
    struct str region, name;
    /* Of a service that speaks JSON: the header x-amz-target; empty: it takes forms. */
    struct str target;
};

/* Begins a form: Action and Version. */
int aws_form(struct buf *out, const char *action, const char *version);

/* Appends a parameter; its name is a format. */
int aws_put(struct buf *out, struct str value, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
int aws_put_text(struct buf *out, const char *value, const char *name, ...)
    __attribute__((format(printf, 3, 4)));

/* Asks for POST / with the body, signed for the date as the service's replies have told it. Without memory the op
 * ends. */
void aws_ask(const struct web_provider *p, struct web_op *op, const struct aws_service *service,
             const struct buf *body, int64_t wall_us, struct web_step *ret);

/* The same without a signature, for a service that takes another proof in the body. */
void aws_ask_unsigned(struct web_op *op, struct str endpoint, const struct buf *body,
                      struct web_step *ret);

/* Takes the service's clock from a reply: p->login.skew_us. */
void aws_learn_clock(struct web_provider *p, const struct web_reply *r, int64_t wall_us);

/* Returns the code of an error, of XML or JSON, in the op's arena; empty: the reply has none. */
struct str aws_error_code(const struct web_op *op, const struct web_reply *r);

/* Ends the op with what the reply means that is no success. */
void aws_refuse(const struct web_provider *p, const struct web_op *op, const struct web_reply *r,
                const struct web_code *codes, struct web_step *ret);
