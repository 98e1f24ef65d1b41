/* arguments.h - follows the value of a call's arguments byte by byte, to its end, and writes it as JSON.
 *
 * Layer: base/text (base/core), private to base/text/dialogue
 */
#pragma once
#include "base/core/buf.h"

#define DIALOGUE_DEPTH_MAX 64 /* brackets inside each other */

/* Says where a byte stands to the value. */
enum arguments_step {
    ARGUMENTS_MORE,   /* it belongs to the value */
    ARGUMENTS_DONE,   /* and is its last one */
    ARGUMENTS_BEFORE, /* the value ended before it */
    ARGUMENTS_WRONG,
};

struct arguments {
    uint64_t is_object, is_tuple; /* bit d: level d is one */
    uint32_t depth;
    uint8_t state; /* of Python: enum python_state */
    char quote;    /* of the string that is read; 0: none */
    bool escape, begun;
    /* Of Python: a key of an object is read; a value comes behind another. */
    bool is_key, comma_due;
    bool opened; /* of Python: nothing stands in the innermost brackets yet */
    bool in_hex; /* of \u: its digits are held until there are four */
    uint8_t hex_len;
    char hex[4];
    uint8_t word_len;
    char word[64]; /* of Python: a name, a number, True */
};

/* Reads one byte of a JSON value, which begins at the first byte given, and appends it to `out`. Brackets and
 * strings are followed, the rest is taken as it is. */
enum arguments_step arguments_json(struct arguments *a, char c, struct buf *out);

/* Reads one byte of Python's call behind its opening bracket: `key=value, ..)`, and appends it as a JSON object.
 * True, False and None become JSON's; JSON's own words stay. */
enum arguments_step arguments_python(struct arguments *a, char c, struct buf *out);
