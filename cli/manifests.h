/* manifests.h - the objects of the Helm chart as text, for `muster manifests` and its test.
 *
 * Layer: cli (base/io)
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

struct manifests {
    struct str ns, image;
    struct str secret; /* the fleet's; empty: its object is left out */
};

/* Appends the objects, in YAML. -EINVAL and a sentence: a name that Kubernetes does not take. */
int manifests_write(const struct manifests *m, struct buf *out, struct err *err);

struct str manifests_text(void); /* helm/manifests.yaml */
