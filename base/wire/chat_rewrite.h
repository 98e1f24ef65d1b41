/* chat_rewrite.h - what the rewriters of other APIs share: they read the keys of a body, and write a chat of OpenAI's.
 *
 * Layer: base/wire (base/core, openai); for anthropic.c and responses.c
 * Use:   one pass checks the JSON and finds the values of the body's keys; each value is then read where the chat
 *        needs it, as a slice that is known to be well-formed. Text is copied still escaped
 */
#pragma once

#include "base/core/arena.h"
#include "base/core/json.h"
#include "base/wire/openai.h"

/* Reads values out of JSON that is known to be well-formed, as slices of its bytes.
 * For bodies that one pass has checked, and that are then read in another order than they stand. Texts stay
 * escaped. */

bool slice_is_a(struct str raw, char first); /* kind of value, by its first byte */
bool slice_is_text(struct str raw);

/* Returns what stands between the quotes of a string, still escaped. */
struct str slice_inside(struct str raw);

/* Returns true for the string `word`. */
bool slice_says(struct str raw, const char *word);

/* Finds the values of some of an object's members; null is absent (data NULL). `raw` may be anything: what is not
 * an object has no members. Of a name that stands there twice the last counts. */
void slice_members(struct str raw, const char *const *names, struct str *ret, size_t count);

/* slice_items begins to read the items of an array, slice_next reads one; what is not an array has none. */
struct json_reader slice_items(struct str raw);
bool slice_next(struct json_reader *r, struct str *ret);

struct chat_rewrite {
    struct str *value; /* of each key, raw; data NULL: absent or null */
    struct buf out;    /* the chat; its bound is set */
    struct json_writer w;
    struct openai_error *e;
};

#define CHAT_REFUSE(m, param, ...) \
    openai_error_set((m)->e, -EINVAL, OPENAI_INVALID, param, __VA_ARGS__)
#define CHAT_UNSERVED(m, param, ...) \
    openai_error_set((m)->e, -EINVAL, OPENAI_UNSUPPORTED, param, __VA_ARGS__)

/* The start of a text that came from a client, for "%.*s". */
#define CHAT_SHOWN(s) (int)min_size((s).len, 48), (s).data ? (s).data : ""

#define CHAT_KEYS_MAX 64

/* Sets m->value of the keys in `names`; `count` is at most CHAT_KEYS_MAX. A key that stands there twice is refused, and
 * so is one that is not in the list, unless others are passed over. -EINVAL and m->e. */
int chat_find_keys(struct chat_rewrite *m, struct str body, const char *const *names, size_t count,
                   bool pass_others);

/* Copies what was written into the arena, unless rc says that it failed, and frees it. Returns rc, or -E2BIG or -ENOMEM
 * of the writing, with m->e set. */
int chat_rewrite_end(struct chat_rewrite *m, int rc, struct arena *arena, struct str *ret);

void chat_put_member(struct chat_rewrite *m, const char *name, struct str raw); /* if it is there */
void chat_put_escaped(struct chat_rewrite *m, const char *name, struct str escaped);

/* The parts of one message, gathered until it ends: still escaped, but for the calls, which are JSON. { 0 } is empty,
 * with bounds to be set. */
struct chat_parts {
    struct buf text, thinking, calls;
    bool has_text, has_thinking;
};

void chat_parts_fini(struct chat_parts *p);

/* Appends a text; a line break separates it from the one before. */
void chat_join(struct buf *to, bool *has, struct str escaped);

/* Writes the parts as a message of the assistant and empties them. Returns the rc of their buffers. */
int chat_put_assistant(struct chat_rewrite *m, struct chat_parts *p);
