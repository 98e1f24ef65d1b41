/* fake_form.h - checks a request against what an API documents: every member known, of its type, none missing.
 *
 * Layer: tests/fakes/cloud (base/core)
 */
#pragma once
#include "base/core/str.h"
#include "controller/cloud/web/provider.h"

enum form_type {
    FORM_TEXT,
    FORM_BOOL,
    FORM_WHOLE, /* an integer */
    FORM_NUMBER,
    FORM_WHOLE_OR_TEXT, /* of things that have a number and a name */
    FORM_MAP,           /* of texts */
    FORM_TEXTS,
    FORM_WHOLES,
    FORM_WHOLES_OR_TEXTS,
    FORM_OBJECT,
    FORM_OBJECTS,
    FORM_ANY,
};

struct form_field {
    const char *name; /* NULL ends the list */
    enum form_type type;
    bool required;
    const struct form_field *inner; /* of objects */
};

#define FORM_WHY_BYTES 256

/* -EINVAL, and `why` names the member. */
int form_check(struct str json, const struct form_field *fields, char why[FORM_WHY_BYTES]);

/* A request's target, cut up. */
struct form_target {
    struct str path;  /* behind `base`: "/servers/7" */
    struct str query; /* without '?' */
};

/* -EINVAL: the URL has no host, or its path does not begin with `base`. */
int form_target(struct str url, struct str base, struct form_target *ret);

/* Finds a parameter and decodes it into `arena`. data NULL: absent. */
struct str form_query(struct arena *arena, struct str query, const char *name);

/* -EINVAL, and `why` names the parameter that is not in `names`, which ends with NULL. */
int form_query_check(struct str query, const char *const *names, char why[FORM_WHY_BYTES]);

struct str form_header(const struct web_ask *ask, const char *name); /* data NULL: absent */
