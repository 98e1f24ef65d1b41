/* chat_rewrite.h - what the rewriters of other APIs share: they read the keys of a body, and write a chat of OpenAI's.
 *
 * Layer: base/wire (json_slice, openai); for anthropic.c and responses.c
 * Use:   one pass checks the JSON and finds the values of the body's keys; each value is then read where the chat
 *        needs it, as a slice that is known to be well-formed. Text is copied still escaped
 */
#pragma once
#include "base/core/arena.h"
#include "base/wire/json_slice.h"
#include "base/wire/openai.h"

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
