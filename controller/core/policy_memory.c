/* policy_memory.c - two lines of text before bytes that are structs.
 *
 * The bytes are used as they are, so they are taken from nobody but ourselves: the digest says that
 * they are what was written, the line before them that they mean the same today. The digest is no
 * defence against who may write the store. */
#include "controller/core/policy_memory.h"

#include "base/core/hash.h"
#include "base/core/own.h"

#include <stdio.h>
#include <string.h>

#define FIRST_LINE "muster policy memory "
#define BEFORE_FORMAT_1 "0.1.0 " /* how the only line of a record began then */
#define DIGEST_SEED 0x706d656d6f727931
#define DIGEST_BYTES 16

/* Everything that the bytes' meaning hangs on: pools are told apart by number. */
static void put_rows(const struct plan_service *s, struct buf *out)
{
    buf_printf(out, "%s:%u %s:%u %s:%u", s->policy->name, s->policy->state_size,
               s->shaper ? s->shaper->name : "", s->shaper ? s->shaper->state_size : 0,
               s->place ? s->place->name : "", s->place ? s->place->state_size : 0);
    for (uint32_t p = 0; p < s->pool_count; p++)
        buf_printf(out, " %s", s->pool[p].name);
}

static uint64_t digest_of(struct str rows, const void *bytes)
{
    return hash64(bytes, sizeof(struct plan_memory), hash64(rows.data, rows.len, DIGEST_SEED));
}

int policy_memory_encode(const struct plan_service *s, const struct plan_memory *memory,
                         struct buf *out)
{
    CLEANUP(buf_fini) struct buf rows = { 0 };
    put_rows(s, &rows);
    if (rows.rc < 0) return rows.rc;
    buf_printf(out, FIRST_LINE "%d\n" STR_FMT "\n%016llx\n", POLICY_MEMORY_VERSION, STR_ARG(rows),
               (unsigned long long)digest_of(buf_view(&rows), memory));
    return buf_append(out, memory, sizeof *memory);
}

/* Without a first line of ours: a record of before format 1, or something else. */
static enum policy_memory_kind decode_before(struct str rows, struct str record,
                                             struct plan_memory *ret)
{
    struct str bytes = record, line = str_cut(&bytes, '\n');
    size_t begin = sizeof BEFORE_FORMAT_1 - 1;
    if (!str_starts(line, STR(BEFORE_FORMAT_1)) || bytes.len != sizeof *ret)
        return POLICY_MEMORY_OTHER;
    if (!str_eq(str_of(line.data + begin, line.len - begin), rows)) return POLICY_MEMORY_OTHER;
    memcpy(ret, bytes.data, sizeof *ret);
    return POLICY_MEMORY_GOOD;
}

enum policy_memory_kind policy_memory_decode(const struct plan_service *s, struct str record,
                                             struct plan_memory *ret)
{
    CLEANUP(buf_fini) struct buf rows = { 0 };
    uint64_t version = 0;
    char want[DIGEST_BYTES + 1];
    put_rows(s, &rows);
    if (rows.rc < 0) return POLICY_MEMORY_OTHER;
    if (!str_starts(record, STR(FIRST_LINE))) return decode_before(buf_view(&rows), record, ret);
    struct str bytes = record, first = str_cut(&bytes, '\n');
    struct str number =
        str_of(first.data + sizeof FIRST_LINE - 1, first.len - sizeof FIRST_LINE + 1);
    if (str_to_u64(number, &version) < 0) return POLICY_MEMORY_DAMAGED;
    if (version != POLICY_MEMORY_VERSION) return POLICY_MEMORY_OTHER;
    struct str line = str_cut(&bytes, '\n'), digest = str_cut(&bytes, '\n');
    if (bytes.len != sizeof *ret) return POLICY_MEMORY_DAMAGED;
    snprintf(want, sizeof want, "%016llx", (unsigned long long)digest_of(line, bytes.data));
    if (!str_eq(digest, str_from(want))) return POLICY_MEMORY_DAMAGED;
    if (!str_eq(line, buf_view(&rows))) return POLICY_MEMORY_OTHER;
    memcpy(ret, bytes.data, sizeof *ret);
    return POLICY_MEMORY_GOOD;
}
