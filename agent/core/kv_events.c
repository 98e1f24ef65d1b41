/* kv_events.c - reads batches of KV events in both of their forms by one table of members.
 *
 * A member of an event has a name, for the map form, and a place for each type, for the array form. The
 * lists are not copied: their bytes are kept, and whoever needs them reads on from there. */
#include "agent/core/kv_events.h"

#include "base/core/bits.h"
#include "base/core/hash.h"

enum member {
    HASHES,
    PARENT,
    TOKENS,
    BLOCK_SIZE,
    LORA_ID,
    MEDIUM,
    LORA_NAME,
    EXTRAS,
    GROUP,
    NO_MEMBER
};

static const char *const member_names[NO_MEMBER] = {
    [HASHES] = "block_hashes",   [PARENT] = "parent_block_hash", [TOKENS] = "token_ids",
    [BLOCK_SIZE] = "block_size", [LORA_ID] = "lora_id",          [MEDIUM] = "medium",
    [LORA_NAME] = "lora_name",   [EXTRAS] = "extra_keys",        [GROUP] = "group_idx",
};

struct type {
    const char *name;
    enum kv_event_kind kind;
    enum member place[NO_MEMBER]; /* of the array form, in order */
    uint32_t places;
};

static const struct type types[] = {
    { "BlockStored",
      KV_STORED,
      { HASHES, PARENT, TOKENS, BLOCK_SIZE, LORA_ID, MEDIUM, LORA_NAME, EXTRAS, GROUP },
      NO_MEMBER },
    { "BlockRemoved", KV_REMOVED, { HASHES, MEDIUM, GROUP }, 3 },
    { "AllBlocksCleared", KV_CLEARED, { NO_MEMBER }, 0 },
};

static const struct type *find_type(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (str_eq(name, str_from(types[i].name))) return &types[i];
    return NULL;
}

static enum member find_member(struct str name)
{
    for (enum member m = 0; m < NO_MEMBER; m++)
        if (str_eq(name, str_from(member_names[m]))) return m;
    return NO_MEMBER;
}

/* ---- values ---- */

static bool is_nil(const struct msgpack_reader *r)
{
    return r->pos < r->bytes.len && (unsigned char)r->bytes.data[r->pos] == 0xc0;
}

static int take_list(struct msgpack_reader *r, struct kv_list *ret)
{
    struct str all;
    struct msgpack_item head;
    if (is_nil(r)) return msgpack_skip(r);
    struct msgpack_reader inside = *r;
    if (msgpack_next(&inside, &head) < 0 || head.kind != MSGPACK_ARRAY) return -EINVAL;
    size_t from = inside.pos;
    if (msgpack_raw(r, &all) < 0) return -EINVAL;
    *ret = (struct kv_list){ str_of(r->bytes.data + from, r->pos - from), head.count };
    return 0;
}

static int hash_of(const struct msgpack_item *it, uint64_t *ret)
{
    bool bytes = it->kind == MSGPACK_BIN || it->kind == MSGPACK_STR;
    if (it->kind == MSGPACK_UINT)
        *ret = it->number;
    else if (it->kind == MSGPACK_INT)
        *ret = (uint64_t)it->negative;
    else if (bytes)
        *ret = hash64(it->bytes.data, it->bytes.len, 0);
    else
        return -EINVAL;
    return 0;
}

int kv_list_hash(struct msgpack_reader *r, uint64_t *ret)
{
    struct msgpack_item it;
    return msgpack_next(r, &it) < 0 ? -EINVAL : hash_of(&it, ret);
}

int kv_list_token(struct msgpack_reader *r, uint32_t *ret)
{
    struct msgpack_item it;
    if (msgpack_next(r, &it) < 0 || it.kind != MSGPACK_UINT || it.number > UINT32_MAX)
        return -EINVAL;
    *ret = (uint32_t)it.number;
    return 0;
}

int kv_list_extra(struct msgpack_reader *r, struct str *ret_salt)
{
    struct msgpack_item it;
    *ret_salt = (struct str){ 0 };
    if (msgpack_next(r, &it) < 0) return -EINVAL;
    if (it.kind == MSGPACK_NIL) return 0;
    if (it.kind != MSGPACK_ARRAY) return -EINVAL;
    bool known = it.count <= 1;
    for (uint32_t i = it.count; i > 0; i--) {
        struct msgpack_item one;
        struct msgpack_reader look = *r;
        if (msgpack_next(&look, &one) < 0 || msgpack_skip(r) < 0) return -EINVAL;
        known &= one.kind == MSGPACK_STR;
        if (one.kind == MSGPACK_STR) *ret_salt = one.bytes;
    }
    return known ? 0 : -ENOTSUP;
}

/* Media are named differently ("GPU", "device"); absent means the device. */
static int take_medium(struct msgpack_reader *r, bool *ret_elsewhere)
{
    struct msgpack_item it;
    if (msgpack_next(r, &it) < 0) return -EINVAL;
    if (it.kind != MSGPACK_STR) return it.kind == MSGPACK_NIL ? 0 : -EINVAL;
    *ret_elsewhere =
        !str_eq_nocase(it.bytes, STR("gpu")) && !str_eq_nocase(it.bytes, STR("device"));
    return 0;
}

static int take_number(struct msgpack_reader *r, uint32_t *ret)
{
    struct msgpack_item it;
    if (msgpack_next(r, &it) < 0) return -EINVAL;
    if (it.kind == MSGPACK_NIL) return 0;
    if (it.kind != MSGPACK_UINT || it.number > UINT32_MAX) return -EINVAL;
    *ret = (uint32_t)it.number;
    return 0;
}

static int take_parent(struct msgpack_reader *r, struct engine_kv_event *ev)
{
    struct msgpack_item it;
    if (msgpack_next(r, &it) < 0) return -EINVAL;
    if (it.kind == MSGPACK_NIL) return 0;
    ev->has_parent = true;
    return hash_of(&it, &ev->parent);
}

static int take_member(struct msgpack_reader *r, enum member m, struct engine_kv_event *ev)
{
    switch (m) {
    case HASHES:
        return take_list(r, &ev->hashes);
    case PARENT:
        return take_parent(r, ev);
    case TOKENS:
        return take_list(r, &ev->tokens);
    case BLOCK_SIZE:
        return take_number(r, &ev->block_tokens);
    case LORA_ID:
    case LORA_NAME:
        ev->adapted |= !is_nil(r);
        return msgpack_skip(r);
    case MEDIUM:
        return take_medium(r, &ev->elsewhere);
    case EXTRAS:
        return take_list(r, &ev->extras);
    case GROUP:
        return take_number(r, &ev->group);
    case NO_MEMBER:
        break;
    }
    return msgpack_skip(r);
}

/* ---- events ---- */

/* Reads the members of an array behind its type. */
static int take_array(struct msgpack_reader *r, uint32_t count, struct engine_kv_event *ev)
{
    struct msgpack_item name;
    if (count == 0 || msgpack_next(r, &name) < 0 || name.kind != MSGPACK_STR) return -EINVAL;
    const struct type *t = find_type(name.bytes);
    ev->kind = t ? t->kind : KV_OTHER;
    for (uint32_t i = 0; i + 1 < count; i++) {
        enum member m = t && i < t->places ? t->place[i] : NO_MEMBER;
        if (take_member(r, m, ev) < 0) return -EINVAL;
    }
    return 0;
}

static int take_map(struct msgpack_reader *r, uint32_t count, struct engine_kv_event *ev)
{
    bool typed = false;
    for (uint32_t i = 0; i < count; i++) {
        struct msgpack_item key, type;
        if (msgpack_next(r, &key) < 0 || key.kind != MSGPACK_STR) return -EINVAL;
        if (str_eq(key.bytes, STR("type"))) {
            if (msgpack_next(r, &type) < 0 || type.kind != MSGPACK_STR) return -EINVAL;
            const struct type *t = find_type(type.bytes);
            ev->kind = t ? t->kind : KV_OTHER;
            typed = true;
        } else if (take_member(r, find_member(key.bytes), ev) < 0) {
            return -EINVAL;
        }
    }
    return typed ? 0 : -EINVAL;
}

/* Checks the counts of a BlockStored against each other. */
static int check_stored(const struct engine_kv_event *ev)
{
    if (ev->block_tokens == 0 || ev->block_tokens > KV_EVENTS_BLOCK_TOKENS_MAX) return -EINVAL;
    if (ev->tokens.count != (uint64_t)ev->hashes.count * ev->block_tokens) return -EINVAL;
    return ev->extras.count == 0 || ev->extras.count == ev->hashes.count ? 0 : -EINVAL;
}

int engine_kv_batch_next(struct engine_kv_batch *b, struct engine_kv_event *ret, struct err *err)
{
    struct msgpack_item head;
    struct engine_kv_event ev = { .kind = KV_OTHER };
    if (b->left == 0) return 0;
    int rc = msgpack_next(&b->rest, &head);
    if (rc == 0 && head.kind == MSGPACK_MAP)
        rc = take_map(&b->rest, head.count, &ev);
    else if (rc == 0 && head.kind == MSGPACK_ARRAY)
        rc = take_array(&b->rest, head.count, &ev);
    else
        rc = -EINVAL;
    if (rc == 0 && ev.kind == KV_STORED) rc = check_stored(&ev);
    if (rc < 0) return err_set(err, -EINVAL, "a KV event is malformed at byte %zu", b->rest.pos);
    b->left--;
    *ret = ev;
    return 1;
}

/* Finds the list of events: the second value of an array, or the member `events`. */
static int find_events(struct msgpack_reader *r, struct kv_list *ret)
{
    struct msgpack_item head, key;
    bool found = false;
    if (msgpack_next(r, &head) < 0) return -EINVAL;
    bool map = head.kind == MSGPACK_MAP;
    if (!map && head.kind != MSGPACK_ARRAY) return -EINVAL;
    for (uint32_t i = 0; i < head.count; i++) {
        bool here = i == 1;
        if (map) {
            if (msgpack_next(r, &key) < 0 || key.kind != MSGPACK_STR) return -EINVAL;
            here = str_eq(key.bytes, STR("events"));
        }
        if ((here ? take_list(r, ret) : msgpack_skip(r)) < 0) return -EINVAL;
        found |= here;
    }
    return found && msgpack_at_end(r) ? 0 : -EINVAL;
}

int engine_kv_batch_begin(struct engine_kv_batch *b, struct str payload, struct err *err)
{
    struct msgpack_reader r;
    struct kv_list events = { 0 };
    msgpack_reader_init(&r, payload);
    if (find_events(&r, &events) < 0)
        return err_set(err, -EINVAL, "no batch of KV events at byte %zu", r.pos);
    *b = (struct engine_kv_batch){ .left = events.count };
    msgpack_reader_init(&b->rest, events.bytes);
    return 0;
}
