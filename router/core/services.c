/* services.c - finds a service of the router by its name or the hash of that. */
#include "router/core/services.h"

#include "base/core/hash.h"

#include <stdlib.h>
#include <string.h>

int services_new(struct services *s)
{
    s->item = calloc(SYNC_SERVICES_MAX, sizeof *s->item);
    s->count = 0;
    return s->item ? 0 : -ENOMEM;
}

void services_fini(struct services *s)
{
    free(s->item);
    *s = (struct services){ 0 };
}

struct service *services_by_hash(struct services *s, uint64_t hash)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->item[i].hash == hash) return &s->item[i];
    }
    return NULL;
}

struct service *services_get(struct services *s, struct str name)
{
    uint64_t hash = hash64(name.data, name.len, 0);
    struct service *known = services_by_hash(s, hash);
    if (known) return known;
    if (s->count == SYNC_SERVICES_MAX || name.len == 0 || name.len >= SERVICE_NAME_MAX) return NULL;
    struct service *made = &s->item[s->count++];
    *made = (struct service){ .hash = hash };
    memcpy(made->name, name.data, name.len);
    return made;
}

void services_remove(struct services *s, uint32_t at)
{
    must(at < s->count);
    s->item[at] = s->item[--s->count];
}
