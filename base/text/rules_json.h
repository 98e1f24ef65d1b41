/* rules_json.h - converts normalizer, pre_tokenizer and decoder of a tokenizer.json to text rules.
 *
 * Layer:  base/text, private to the reader of tokenizer.json
 * Rules:  a type, a member or an expression that we do not have is refused by name (-ENOTSUP)
 */
#pragma once
#include "base/text/json_fields.h"
#include "base/text/text_rules.h"

struct rule_list {
    struct text_rule list[TEXT_RULES_MAX];
    size_t count;
};

struct json_rules {
    struct rule_list normal, cut, decode; /* texts are of the arena */
    bool byte_level; /* pre_tokenizer ends with ByteLevel: words are written in the byte alphabet */
    bool byte_decoder;  /* decoder has ByteLevel */
    bool byte_fallback; /* decoder has ByteFallback */
    bool fused;         /* decoder has Fuse so far */
};

/* Read a component; an empty `raw` is one that the file leaves out. */
int rules_json_normal(const struct json_place *at, struct str raw, struct json_rules *ret,
                      struct err *err);
int rules_json_cut(const struct json_place *at, struct str raw, struct json_rules *ret,
                   struct err *err);
int rules_json_decode(const struct json_place *at, struct str raw, struct json_rules *ret,
                      struct err *err);
