/* parser.h - parts an output, as it comes, into reasoning, content and tool calls.
 *
 * Layer:    base/text (base/core)
 * Threads:  one parser, one thread
 * Lifetime: dialects are constant; the names of tools live as long as the parser; an event's text lives during
 *           the call of its function
 * Rules:    (1) the events of a text are the same however it is cut into pieces, but for the places where
 *               neighbouring texts of one kind are cut
 *           (2) a call is told with its whole name, and only if that is the name of a tool; until then its
 *               text is held. What turns out not to be a call is content, byte for byte
 *           (3) arguments are JSON as it was written: brackets pair, and a raw control character inside a
 *               string is escaped. A call that breaks off ends with `cut`
 *           (4) white space is dropped where it stands before reasoning or calls, between calls, behind
 *               them at an output's end, and at the beginning of reasoning and of the answer behind it
 *           (5) marks count in content only: a mark inside reasoning is reasoning
 * Bounds:   DIALOGUE_HEAD_BYTES_MAX held bytes of a call before it is told, DIALOGUE_CALLS_MAX calls,
 *           DIALOGUE_DEPTH_MAX brackets inside each other: what exceeds one is content, or ends its call
 */
#pragma once
#include "base/text/dialogue/arguments.h"
#include "base/text/dialogue/dialect.h"

#define DIALOGUE_HEAD_BYTES_MAX ((size_t)64 << 10)
#define DIALOGUE_SPACE_BYTES_MAX 256
#define DIALOGUE_CALLS_MAX 128
#define DIALOGUE_NAME_BYTES_MAX 128
#define DIALOGUE_MARK_BYTES_MAX 128

enum dialogue_part {
    DIALOGUE_CONTENT,
    DIALOGUE_REASONING,
    DIALOGUE_CALL,      /* text: the name */
    DIALOGUE_ARGUMENTS, /* of the last call */
    DIALOGUE_CALL_END,
    DIALOGUE_PART_COUNT
};

struct dialogue_event {
    enum dialogue_part part;
    uint32_t index;  /* of the call, from 0 */
    bool cut;        /* DIALOGUE_CALL_END: its arguments are not whole */
    struct str text; /* not empty, but for DIALOGUE_CALL_END */
};

typedef void (*dialogue_fn)(void *arg, const struct dialogue_event *event);

/* Byte `at` of the output, from 0, is reasoning; white space that no event has, too. Told in their order, once no mark
 * can begin there. */
typedef void (*dialogue_byte_fn)(void *arg, uint64_t at);

struct dialogue_setup {
    struct dialogue dialects;
    const struct str *tool; /* names; none: calls are content */
    uint32_t tool_count;
    bool thinking; /* the prompt has begun the reasoning */
    dialogue_fn event;
    dialogue_byte_fn reasoned; /* NULL: no byte is told */
    void *arg;
};

struct dialogue_parser {
    struct dialogue_setup setup;
    uint64_t taken;          /* bytes of the output */
    uint32_t again;          /* of them, those still to be read again behind `held` */
    uint64_t first[4];       /* bytes with which a mark may begin in state `first_of`, by bits */
    uint8_t first_of;        /* 1 + state; 0: not known */
    uint8_t state;           /* enum state (parser.c) */
    uint8_t json;            /* of a call in JSON: enum json_state */
    uint8_t key;             /* of it: the key whose value is read */
    uint8_t lead;            /* of content: what becomes of white space at its beginning */
    bool fresh;              /* no content so far: a bare call may begin */
    bool in_section;         /* between calls_begin and calls_end */
    bool in_list;            /* and behind its [ */
    bool told;               /* the call at hand */
    bool has_name, has_args; /* of it */
    bool no_call;            /* the section has had none yet */
    bool is_bare;            /* the section began without a mark */
    bool other_key;          /* the call at hand has had another key than these */
    uint32_t calls;
    uint32_t name_len;
    char name[DIALOGUE_NAME_BYTES_MAX];
    uint32_t key_len;
    char key_text[16];
    struct buf early;       /* arguments that came before the name */
    struct arguments value; /* the value that is read */
    struct buf held;        /* the beginning of a mark */
    struct buf space;       /* white space that may be dropped */
    struct buf raw;         /* the text of a call that is not told yet */
    struct buf run;         /* text of one kind, told at the end of a piece */
    enum dialogue_part run_part;
    int rc;
};

void dialogue_init(struct dialogue_parser *p, const struct dialogue_setup *setup);
void dialogue_fini(struct dialogue_parser *p); /* { 0 } is allowed */

/* Returns true amid reasoning; what is held may still be the beginning of its end. */
bool dialogue_is_reasoning(const struct dialogue_parser *p);

/* Takes a piece of the output. -ENOMEM, sticky. */
int dialogue_push(struct dialogue_parser *p, struct str piece);

/* The output has ended: what is held is told. -ENOMEM. */
int dialogue_end(struct dialogue_parser *p);
