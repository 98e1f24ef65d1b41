/* chat_template.h - renders a model's chat template: messages in, prompt text out.
 *
 * Layer:    base/text (base/core)
 * Threads:  a compiled template is immutable: any number of threads may render it
 * What:     an interpreter of the Jinja subset that chat templates use, with the results of
 *           jinja2 as transformers configures it (trim_blocks, lstrip_blocks, loop controls,
 *           sandbox). No host object is reachable: values are JSON-like data and our own
 *           functions.
 * Limits:   steps, depth, output bytes and memory are bounded; reaching a bound is -E2BIG with a
 *           sentence that names the bound and the line
 * Taint:    every string of messages, tools and kwargs is content. `content` lists the bytes of the
 *           output that came from it, through every filter and concatenation. Roles of a fixed list
 *           (system, user, assistant, ...) are not content, because templates write
 *           '<|' + role + '|>'. tokenizer_encode_spans turns text and spans into ids in which no
 *           user can forge a control token.
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/text/tokenizer.h"

#define CHAT_TEMPLATE_BYTES_MAX ((size_t)256 << 10) /* the largest known has 17 KB */

struct chat_template;

/* Compiles a copy of `source`. -EILSEQ: not UTF-8; -EINVAL: syntax error; -ENOTSUP: a tag, filter, test
 * or function that we do not have; -E2BIG; -ENOMEM. The sentence has the line number. */
int chat_template_compile(struct str source, struct chat_template **ret, struct err *err);
void chat_template_free(struct chat_template *t);
CLEANUP_FREEP(chat_template, struct chat_template)

struct str chat_template_source(const struct chat_template *t);

struct chat_inputs {
    struct str messages; /* JSON array of objects */
    struct str tools;    /* JSON array; empty: the variable is none */
    struct str kwargs;   /* JSON object of further variables; empty: none */
    bool add_generation_prompt;
    /* a call's arguments that are a JSON object in a string become the object */
    bool open_arguments;
    struct str bos_token, eos_token; /* texts; not content */
    int64_t now_s;                   /* for strftime_now: seconds since 1970, shown as UTC */
    /* of the caller's thread, reset after the call; NULL: one for this call */
    struct arena *scratch;
};

/* Bounds of a rendering; a member that is 0 takes the default given beside it. */
struct chat_limits {
    uint64_t steps_max;      /* 4,000,000 evaluated nodes, loop rounds and copied kilobytes */
    uint32_t depth_max;      /* 1000: nested expressions, blocks and macro calls */
    size_t output_bytes_max; /* 16 MiB */
    size_t memory_bytes_max; /* 128 MiB: inputs, intermediate strings, lists */
};

struct chat_output {
    struct buf text;
    struct text_spans content; /* parts of `text` that came from content */
};

void chat_output_fini(struct chat_output *out);

/* Renders the template into `out`, emptied first. -EPROTO: the template itself refuses the messages
 * (raise_exception, with its own sentence), which is a client's mistake. -EINVAL: the inputs are not
 * the JSON they should be. -EDOM: the template failed on these inputs (undefined variable, wrong
 * type). -E2BIG: a limit. -ENOMEM. */
int chat_template_render(const struct chat_template *t, const struct chat_inputs *in,
                         const struct chat_limits *limits, struct chat_output *out,
                         struct err *err);
