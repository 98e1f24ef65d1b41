/* web_tags.h - names the tags of what is created, and writes them where a provider allows few characters.
 *
 *     _hh for a byte that the rule does not allow, so that the text is read back as it was;
 *     0_ before a text that would not begin with a letter or digit
 *
 * Layer:   controller/cloud/web (base/core)
 * Threads: pure
 */
#pragma once
#include "controller/cloud/web/provider.h"

/* Every instance has these, from the first moment at which it is listed. Lower case and '-' are what all
 * providers take in a name. */
#define WEB_TAG_FLEET "muster-fleet"
#define WEB_TAG_INTENT "muster-intent"
#define WEB_TAG_SERVICE "muster-service"
#define WEB_TAG_POOL "muster-pool"
#define WEB_TAG_OFFER "muster-offer"

#define WEB_TAG_BYTES 64 /* of a written value, NUL included */

struct web_tag_rule {
    bool upper; /* upper case is allowed */
    bool dot;
};

/* -EINVAL and a sentence if it does not fit. `what` names it there. */
int web_tag_write(const struct web_tag_rule *rule, struct str text, const char *what,
                  char ret[WEB_TAG_BYTES], struct err *err);

/* Reads one back into a field of `bytes`; a text that nobody of ours wrote is taken as it is. -E2BIG. */
int web_tag_read(struct str tag, char *ret, size_t bytes);

/* Calls fn with name and text of each tag of an instance to be created, until it fails. */
int web_tags_each(const struct web_op *op, struct str fleet,
                  int (*fn)(void *ctx, const char *name, struct str text), void *ctx);

/* Takes a tag of a listed instance: *ret gets intent, service, pool or offer. Others are passed over. `written`:
 * by web_tag_write; else it is the text itself. -E2BIG: not one of ours. */
int web_tag_take(struct str name, struct str value, bool written, struct listed *ret);
