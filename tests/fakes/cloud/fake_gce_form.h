/* fake_gce_form.h - checks the instance that an insert asks for, as Google Compute Engine documents it.
 *
 * Layer: tests/fakes/cloud (base/core)
 */
#pragma once
#include "tests/fakes/cloud/fake_fleet.h"
#include "tests/fakes/cloud/fake_form.h"

struct gce_form {
    const char *project, *zone; /* of the path; the caller sets them */
    struct fleet_order order;
    struct fleet_tag tag[FLEET_TAGS_MAX];
    /* Of a bulk insert: what it may be and where. */
    const char *types[FLEET_TYPES_MAX], *zones[FLEET_ZONES_MAX];
    uint32_t type_count, zone_count;
    struct str template;
    bool of_template;
    bool has_address, has_metadata, has_tags, has_account, own_image;
};

/* Texts live in the arena. -EINVAL, and `why` says what the API would not take. */
int gce_form_read(const struct web_ask *ask, struct arena *arena, struct gce_form *f,
                  char why[FORM_WHY_BYTES]);
int gce_form_read_bulk(const struct web_ask *ask, struct arena *arena, struct gce_form *f,
                       char why[FORM_WHY_BYTES]);
bool gce_form_is_uuid(struct str s); /* and not the one of zeros */
